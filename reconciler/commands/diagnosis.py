"""One line of `reconciler doctor`: what was checked, what was found, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from reconciler.errors import ConfigurationError, InvalidValue, ReconcilerError, known_remedy

Level = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
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


Check = Callable[[], Iterable[Diagnosis]]


def failed(check: str, error: ReconcilerError, otherwise: str) -> Diagnosis:
    """A check that ended with an error. What to do is said once: by the error itself, or else `otherwise`."""
    match error:
        case InvalidValue():
            return Diagnosis(check=check, level="fail", found=str(error), remedy=f"correct {error.field}")
        case ConfigurationError():
            return Diagnosis(check=check, level="fail", found=str(error), remedy="do what the text says")
    remedy = known_remedy(error)
    return Diagnosis(check=check, level="fail", found=without_remedy(str(error), remedy), remedy=remedy or otherwise)


def without_remedy(text: str, remedy: str) -> str:
    """What an error says, less the remedy, which has a column of its own."""
    return text.replace(f"; {remedy}", "", 1) if remedy else text


def run_checks(checks: Sequence[tuple[str, str, Check]]) -> list[Diagnosis]:
    """Runs (name, remedy where the check cannot ask, check) in order.

    A dependency that is away is one failed check, behind what the check had found before.
    """
    diagnoses: list[Diagnosis] = []
    for name, remedy, check in checks:
        try:
            diagnoses.extend(check())
        except ReconcilerError as error:
            diagnoses.append(failed(name, error, remedy))
    return diagnoses
