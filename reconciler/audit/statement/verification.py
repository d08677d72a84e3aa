"""Result of a verification, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reconciler.contract.visible_text import visible

#: Largest number of differences, and of remarks, that are listed. Further ones are only counted.
NAMED_MAX = 1_000
#: Largest number of characters of one text. A name in a suspect file may be a million characters long.
TEXT_MAX = 4_000


def shown_text(text: str) -> str:
    """Makes a text from a suspect file visible and bounded, for people."""
    shown = visible(text[: TEXT_MAX + 1])
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}..."


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One value that differs from the signed value."""

    #: Path below the verified folder. Paths of inputs contain "evidence:".
    file: str
    #: Row, value or line of the file, for people. "": the file as a whole.
    row: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.row + ': ' if self.row else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class VerifiedStatement:
    """Statement that was verified, with values from the statement."""

    file: str
    environment: str
    topic: str
    group: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    #: Time zone of the window for people.
    zone: str
    sequence: int
    verdict: str
    keys: int
    violations: int
    #: Number of keys by class. Unknown classes are left out.
    classes: dict[str, int]
    #: Fingerprint that the statement names. None: the statement says that no key has signed.
    signed_by: str | None
    #: True: the given key has signed these bytes.
    signature_holds: bool
    #: SHA-256 of report.html that the statement names. None: the statement does not list report.html.
    report_sha256: str | None


@dataclass(slots=True)
class VerifyReport:
    """Everything that a verification found. A verification continues after the first difference.

    Texts come from suspect files, so a control character is shown as its number.
    """

    statements: list[VerifiedStatement] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    #: Number of differences beyond NAMED_MAX.
    more_differences: int = 0
    #: Parts that were not verified or cannot be verified. Such parts give no reason to doubt the rest.
    not_checked: list[str] = field(default_factory=list)
    #: Reasons for no answer.
    unanswered: list[str] = field(default_factory=list)
    #: Number of files whose SHA-256 was computed and found equal.
    files_equal: int = 0

    def differ(self, file: str, message: str, row: str = "") -> None:
        """Adds a difference unless it is listed already. Beyond NAMED_MAX, differences are only counted."""
        found = Difference(shown_text(file), shown_text(row), shown_text(message))
        if found in self.differences:
            return
        if len(self.differences) < NAMED_MAX:
            self.differences.append(found)
        else:
            self.more_differences += 1

    def skip(self, lines: Iterable[str]) -> None:
        """Adds remarks that are not listed yet, up to NAMED_MAX."""
        for line in lines:
            shown = shown_text(line)
            if shown not in self.not_checked and len(self.not_checked) < NAMED_MAX:
                self.not_checked.append(shown)

    def unanswer(self, line: str) -> None:
        """Adds a reason for no answer."""
        self.unanswered.append(shown_text(line))

    @property
    def verdict(self) -> Literal["verified", "differences", "no answer"]:
        """The verdict. A difference is an answer, even if other files could not be looked at."""
        if self.differences:
            return "differences"
        return "no answer" if self.unanswered or not self.statements else "verified"

    @property
    def exit_code(self) -> int:
        """Exit code: 0 verified, 1 differences, 2 no answer."""
        return {"verified": 0, "differences": 1, "no answer": 2}[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Makes the JSON object for --output json."""
        return {
            "verdict": self.verdict,
            "statements": [asdict(one) for one in self.statements],
            "differences": [asdict(one) for one in self.differences],
            "more_differences": self.more_differences,
            "not_checked": self.not_checked,
            "no_answer": self.unanswered,
            "files_equal": self.files_equal,
        }
