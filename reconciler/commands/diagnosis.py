"""One line of `reconciler doctor`: what was checked, what was found, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import ConfigurationError, InvalidValue, ReconcilerError, known_remedy
from reconciler.words import said

CORRECT_SETTING = Code("doctor.correct-setting", setting=Field.NAME)
DO_AS_SAID = Code("doctor.do-as-said")
AS_TOLD = Code("doctor.as-told", text=Field.TEXT)
ALSO = Code("doctor.also", one=Field.FACT, other=Field.FACT)

Level = Literal["ok", "note", "fail"]


class DiagnosisRow(NamedTuple):
    """One result in English."""

    check: str
    level: Level
    found: str
    #: Empty for ok.
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One result of a check."""

    check: Fact
    level: Level
    found: Fact
    #: None for ok.
    remedy: Fact | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON: in English, and as codes with fields."""
        facts = {"check": self.check, "found": self.found, "remedy": self.remedy}
        coded = {name: None if fact is None else fact.as_dict() for name, fact in facts.items()}
        return {**self.as_row()._asdict(), "facts": coded}

    def as_row(self) -> DiagnosisRow:
        """A row of the table, in English."""
        remedy = "" if self.remedy is None else said(self.remedy)
        return DiagnosisRow(check=said(self.check), level=self.level, found=said(self.found), remedy=remedy)


#: A check, what it is called where it cannot be asked, and what to do then where the error does not know.
Check = Callable[[], Iterable[Diagnosis]]
NamedCheck = tuple[Fact, Fact | None, Check]


def failed(check: Fact, error: ReconcilerError, otherwise: Fact | None = None) -> Diagnosis:
    """A check that ended with an error. What to do is said once: by the error itself, or else `otherwise`."""
    remedy = known_remedy(error)
    why = str(error)
    match error:
        case InvalidValue():
            to_do: Fact | None = CORRECT_SETTING(setting=error.field)
        case ConfigurationError():
            to_do = DO_AS_SAID()
        case _:
            to_do, why = as_told(remedy) if remedy else otherwise, without_remedy(why, remedy)
    return Diagnosis(check=check, level="fail", found=as_told(why), remedy=to_do)


def as_told(text: str) -> Fact:
    """What an error says, or whoever else has no code for it."""
    return AS_TOLD(text=text)


def listed(facts: Iterable[Fact]) -> Fact:
    """At least one fact in the middle of a sentence."""
    return reduce(lambda one, other: ALSO(one=one, other=other), facts)


def without_remedy(text: str, remedy: str) -> str:
    """What an error says, less the remedy, which has a column of its own."""
    return text.replace(f"; {remedy}", "", 1) if remedy else text


def run_checks(checks: Sequence[NamedCheck]) -> list[Diagnosis]:
    """Runs them in order.

    A dependency that is away is one failed check, behind what the check had found before.
    """
    diagnoses: list[Diagnosis] = []
    for name, remedy, check in checks:
        try:
            diagnoses.extend(check())
        except ReconcilerError as error:
            diagnoses.append(failed(name, error, remedy))
    return diagnoses
