"""What a verification says, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from reconciler.contract.visible_text import visible

#: Named differences and remarks of one kind; more are counted.
NAMED_MAX = 1_000
#: Characters of one text: a name in a suspect file may be a million long.
TEXT_MAX = 4_000


def shown_text(text: str) -> str:
    """A text from a suspect file as people may see it."""
    shown = visible(text[: TEXT_MAX + 1])
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}..."


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One thing that is not as it was signed."""

    #: Relative to the verified folder; inputs have "evidence:".
    file: str
    #: The row, value or line, as people find it; "" for the file as a whole.
    row: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.row + ': ' if self.row else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class VerifiedStatement:
    """One statement that was looked at, as it reads."""

    file: str
    environment: str
    topic: str
    group: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    #: Whose clocks the window was asked for by.
    zone: str
    sequence: int
    verdict: str
    keys: int
    violations: int
    #: Keys by class; classes that are none are left out.
    classes: dict[str, int]
    #: Fingerprint it names, or None: it says that it is unsigned.
    signed_by: str | None
    #: Whether the given key has signed these bytes.
    signature_holds: bool
    #: SHA-256 of report.html that it names; None without one.
    report_sha256: str | None


@dataclass(slots=True)
class VerifyReport:
    """Everything that a verification found; nothing is left out at the first difference.

    Texts come from suspect files: what a terminal would obey is shown as its number.
    """

    statements: list[VerifiedStatement] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    #: Beyond NAMED_MAX.
    more_differences: int = 0
    #: What was not looked at, or cannot be known; no reason to doubt the rest.
    not_checked: list[str] = field(default_factory=list)
    #: Why there is no answer.
    unanswered: list[str] = field(default_factory=list)
    #: Files whose SHA-256 was computed and found equal.
    files_equal: int = 0

    def differ(self, file: str, message: str, row: str = "") -> None:
        """Keeps a difference once, up to a bound; beyond it counts."""
        found = Difference(shown_text(file), shown_text(row), shown_text(message))
        if found in self.differences:
            return
        if len(self.differences) < NAMED_MAX:
            self.differences.append(found)
        else:
            self.more_differences += 1

    def skip(self, lines: Iterable[str]) -> None:
        """Keeps remarks once, up to a bound."""
        for line in lines:
            shown = shown_text(line)
            if shown not in self.not_checked and len(self.not_checked) < NAMED_MAX:
                self.not_checked.append(shown)

    def unanswer(self, line: str) -> None:
        """Keeps a reason why there is no answer."""
        self.unanswered.append(shown_text(line))

    @property
    def verdict(self) -> Literal["verified", "differences", "no answer"]:
        """A difference is an answer, even if other files could not be looked at."""
        if self.differences:
            return "differences"
        return "no answer" if self.unanswered or not self.statements else "verified"

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        return {"verified": 0, "differences": 1, "no answer": 2}[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """For --output json."""
        return {
            "verdict": self.verdict,
            "statements": [asdict(one) for one in self.statements],
            "differences": [asdict(one) for one in self.differences],
            "more_differences": self.more_differences,
            "not_checked": self.not_checked,
            "no_answer": self.unanswered,
            "files_equal": self.files_equal,
        }
