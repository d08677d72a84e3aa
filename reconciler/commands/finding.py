"""Findings of `reconciler doctor`: what was checked, what was found, what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from reconciler.errors import ReconcilerError

Level = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check."""

    check: str
    level: Level
    found: str
    #: Empty for ok.
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        return asdict(self)

    def as_row(self) -> tuple[str, str, str, str]:
        """A row of the table."""
        return self.check, self.level, self.found, self.remedy


Check = Callable[[], Sequence[Finding]]


def examine(checks: Sequence[tuple[str, str, Check]]) -> list[Finding]:
    """Runs (name, remedy if it cannot be asked, check) in order; a dependency that is away is a failed check."""
    findings: list[Finding] = []
    for name, remedy, check in checks:
        try:
            findings += check()
        except ReconcilerError as error:
            findings.append(Finding(check=name, level="fail", found=str(error), remedy=remedy))
    return findings
