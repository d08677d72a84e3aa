"""One line of `reconciler doctor`: what was checked, what was found, what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from reconciler.commands.together import side_by_side
from reconciler.contract.facts import Code, Fact, Field, in_pairs
from reconciler.errors import ConfigurationError, InvalidValue, ReconcilerError, known_remedy, without_remedy
from reconciler.sql.rights import lacks_right
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
    #: What to do. Empty if the level is ok.
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One result of a check."""

    check: Fact
    level: Level
    found: Fact
    #: What to do. None if the level is ok.
    remedy: Fact | None = None
    #: Findings of other checks that follow from this finding.
    following: tuple[Diagnosis, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON. Each fact is there twice: in English, and as a code with fields."""
        facts = {"check": self.check, "found": self.found, "remedy": self.remedy}
        coded = {name: None if fact is None else fact.as_dict() for name, fact in facts.items()}
        return {**self.as_row()._asdict(), "facts": coded, "following": [one.as_dict() for one in self.following]}

    def as_row(self) -> DiagnosisRow:
        """Returns a row of the table, in English."""
        remedy = "" if self.remedy is None else said(self.remedy)
        return DiagnosisRow(check=said(self.check), level=self.level, found=said(self.found), remedy=remedy)


Check = Callable[[], Iterable[Diagnosis]]


class NamedCheck(NamedTuple):
    """A check, and the dependencies that it asks."""

    #: The name that is shown if the check ends with an error.
    name: Fact
    #: The remedy for an error that names no remedy.
    otherwise: Fact | None
    run: Check
    #: Dependencies of the check. If a dependency is away, its absence explains what the check finds.
    needs: tuple[Hashable, ...] = ()
    #: The dependency whose failure this check reports.
    tells: Hashable = None


def failed(check: Fact, error: ReconcilerError, otherwise: Fact | None = None) -> Diagnosis:
    """Returns the finding for a check that ended with an error. `otherwise`: the remedy if the error names none."""
    remedy, why = known_remedy(error), str(error)
    match error:
        case InvalidValue():
            to_do: Fact | None = CORRECT_SETTING(setting=error.field)
        case ConfigurationError():
            to_do = DO_AS_SAID()
        case _:
            to_do, why = as_told(remedy) if remedy else otherwise, without_remedy(error)
    return Diagnosis(check=check, level="fail", found=as_told(why), remedy=to_do)


def as_told(text: str) -> Fact:
    """Returns a fact for a text without a code, such as the text of an error."""
    return AS_TOLD(text=text)


def listed(facts: Iterable[Fact]) -> Fact:
    """Returns one fact that lists all facts as a part of a sentence. There must be at least one fact."""
    return in_pairs(lambda one, other: ALSO(one=one, other=other), facts)


def run_checks(checks: Sequence[NamedCheck], *, silent: Collection[Hashable] = ()) -> list[Diagnosis]:
    """Runs checks in parallel, and returns their findings in the order of the checks.

    A finding that follows from a silent dependency is listed under the failure that reports this dependency. A check
    that meets a dependency that is away fails. The findings before that stay.
    """
    diagnoses: list[Diagnosis] = []
    #: Silent dependency -> index of the failure that reports it.
    causes: dict[Hashable, int] = {}
    for one, found in zip(checks, side_by_side(_found_by, checks), strict=True):
        for diagnosis, needs in found:
            cause = next((causes[name] for name in needs if name in causes), None)
            if cause is not None and diagnosis.level != "ok":
                diagnoses[cause] = replace(diagnoses[cause], following=(*diagnoses[cause].following, diagnosis))
                continue
            if diagnosis.level == "fail" and one.tells in silent:
                causes.setdefault(one.tells, len(diagnoses))
            diagnoses.append(diagnosis)
    return [*(diagnoses[n] for n in causes.values()), *(d for n, d in enumerate(diagnoses) if n not in causes.values())]


def _found_by(check: NamedCheck) -> list[tuple[Diagnosis, tuple[Hashable, ...]]]:
    """Returns each finding with the dependencies whose failure would be the cause of the finding."""
    found: list[tuple[Diagnosis, tuple[Hashable, ...]]] = []
    try:
        found.extend((diagnosis, check.needs) for diagnosis in check.run())
    except ReconcilerError as error:
        # A dependency that refuses a right has answered.
        needs = () if lacks_right(error) else (*check.needs, check.tells)
        found.append((failed(check.name, error, check.otherwise), needs))
    return found
