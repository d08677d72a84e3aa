"""The check of one audit: the contents of its statements, and whether all files match the signed digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

#: Maximum number of statements of one audit that are kept. Sums cover all statements.
STATEMENTS_MAX = 500
#: Maximum number of differences of one audit that are kept. The same limit holds for remarks.
LINES_MAX = 100
#: Maximum number of characters of one text that are kept, because a name in a hostile statement may be long.
TEXT_CHARACTERS_MAX = 300
#: Verdicts of a statement on its audit. The list begins with the worst verdict.
VERDICTS = ("no answer", "violations", "clean")


class AuditState(StrEnum):
    """The answer of `reconciler statement verify`. WAITING: there is no answer yet."""

    VERIFIED = "verified"
    DIFFERENCES = "differences"
    NO_ANSWER = "no answer"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditStatement:
    """One statement as it was written. A count that the statement lacks is -1."""

    file: str
    environment: str
    topic: str
    group: str
    #: Window of the statement in ISO 8601. `end` is the first instant after the window.
    start: str
    end: str
    start_ms: int
    end_ms: int
    zone: str
    sequence: int
    #: One of VERDICTS. A hostile statement may have any text.
    verdict: str
    keys: int
    violations: int
    classes: Mapping[str, int]
    #: Fingerprint of a key. None: the statement says that it is unsigned.
    signed_by: str | None
    #: True: the statement has a valid signature by the key of the settings.
    signature_holds: bool
    report_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """One audit of the folder. Its texts come from files that may be hostile."""

    state: AuditState
    #: Reason why there is no answer. Empty: there is an answer.
    why: str = ""
    statements: Sequence[AuditStatement] = ()
    more_statements: int = 0
    #: Sum of all statements. None: there are no statements.
    keys: int | None = None
    violations: int | None = None
    #: Differences from the signed digests, each with the members `file`, `row` and `message`.
    differences: Sequence[Mapping[str, str]] = ()
    more_differences: int = 0
    not_checked: Sequence[str] = ()
    files_equal: int = 0
    #: Time of the verification. None: the audit was not verified yet.
    checked_at_ms: int | None = None
    #: True: the process had an answer, or found a reason in the files for having no answer. Unchanged files give the
    #: same answer later.
    is_lasting: bool = True

    @property
    def verdict(self) -> str | None:
        """The worst verdict of the statements. None: no statement has one of VERDICTS."""
        said = {one.verdict for one in self.statements}
        return next((verdict for verdict in VERDICTS if verdict in said), None)

    @property
    def start_ms(self) -> int | None:
        """The first instant of the audit's windows. None: no statement names a start."""
        return min((one.start_ms for one in self.statements if one.start_ms >= 0), default=None)

    @property
    def end_ms(self) -> int | None:
        """The first instant after the audit's last window. None: no statement names an end."""
        return max((one.end_ms for one in self.statements if one.end_ms >= 0), default=None)

    @property
    def signed_by(self) -> str | None:
        """Fingerprint of the settings' key, if a signature by this key is valid."""
        return next((one.signed_by for one in self.statements if one.signature_holds), None)

    @property
    def report_sha256(self) -> str | None:
        """Digest of the report that the statements sign. None: they sign no report, or a file differs from its signed
        digest."""
        named = {one.report_sha256 for one in self.statements if one.signature_holds}
        return named.pop() if self.state is AuditState.VERIFIED and len(named) == 1 else None


WAITING = AuditCheck(state=AuditState.WAITING)
_STATEMENT = tuple(field.name for field in fields(AuditStatement))


def unanswered(why: str, *, at_ms: int, is_lasting: bool = False) -> AuditCheck:
    """Makes the check of an audit that could not be verified."""
    return AuditCheck(state=AuditState.NO_ANSWER, why=_bounded(why), checked_at_ms=at_ms, is_lasting=is_lasting)


def check_of(report: Mapping[str, Any], *, at_ms: int) -> AuditCheck:
    """Makes the check from the JSON object that `statement verify --output json` prints. Raises KeyError, TypeError and
    ValueError for another object."""
    statements = report["statements"]
    differences, not_checked = report["differences"], report["not_checked"]
    return AuditCheck(
        state=AuditState(report["verdict"]),
        why=_bounded("; ".join(report["no_answer"][:LINES_MAX])),
        statements=[_statement(one) for one in statements[:STATEMENTS_MAX]],
        more_statements=len(statements[STATEMENTS_MAX:]),
        keys=_sum(one["keys"] for one in statements) if statements else None,
        violations=_sum(one["violations"] for one in statements) if statements else None,
        differences=[{name: _bounded(one[name]) for name in ("file", "row", "message")} for one in differences][
            :LINES_MAX
        ],
        more_differences=report["more_differences"] + len(differences[LINES_MAX:]),
        not_checked=[_bounded(line) for line in not_checked[:LINES_MAX]],
        files_equal=report["files_equal"],
        checked_at_ms=at_ms,
    )


def _statement(one: Mapping[str, Any]) -> AuditStatement:
    values: dict[str, Any] = {
        name: _bounded(value) if isinstance(value := one[name], str) else value for name in _STATEMENT
    }
    return AuditStatement(**values)


def _sum(counts: Any) -> int:
    return sum(count for count in counts if count > 0)


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."
