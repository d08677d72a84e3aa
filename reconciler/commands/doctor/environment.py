"""What `reconciler doctor` says about the environment: another cluster uses it, or no process ever ran with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from reconciler.commands.asking.environment import ask_environment, traces_of
from reconciler.commands.diagnosis import Diagnosis, failed
from reconciler.commands.doctor.areas import area
from reconciler.commands.doctor.rights import grants
from reconciler.contract.facts import Code, Field
from reconciler.contract.tables import ENVIRONMENT
from reconciler.errors import DatabaseAway, InvalidValue, ReconcilerError
from reconciler.sql.rights import lacks_right
from reconciler.wiring.connections import Connections

ENVIRONMENT_IN = Code("doctor.environment-in", place=Field.NAME)
ENVIRONMENT_NEVER_RUN = Code("doctor.environment-never-run", environment=Field.NAME, known=Field.NAMES)
CORRECT_ENVIRONMENT = Code("doctor.correct-environment")
ENVIRONMENT_UNREADABLE = Code("doctor.environment-unreadable", table=Field.NAME)


def check_environment(connections: Connections) -> Iterator[Diagnosis]:
    """Yields one failure for each place that another cluster uses, and a note if the environment is unknown."""
    for place, ask in ask_environment(connections).items():
        check = ENVIRONMENT_IN(place=place)
        try:
            ask()
        except InvalidValue as error:
            yield failed(check, error)
        except ReconcilerError as error:
            if lacks_right(error):  # other checks report what is away, and missing tables
                found = ENVIRONMENT_UNREADABLE(table=ENVIRONMENT.name)
                yield Diagnosis(check=check, level="note", found=found, remedy=grants({ENVIRONMENT.name: "SELECT"}))
    with suppress(DatabaseAway):
        yield from _unknown(connections)


def _unknown(connections: Connections) -> Iterator[Diagnosis]:
    """Yields a note about an unknown environment. The name may be mistyped if other names are known."""
    traces = traces_of(connections, before_ms=connections.ledger_now_ms())
    if traces.others and not (traces.is_known or traces.has_earlier_round):
        found = ENVIRONMENT_NEVER_RUN(environment=connections.settings.environment, known=tuple(traces.others))
        yield Diagnosis(check=area("environment"), level="note", found=found, remedy=CORRECT_ENVIRONMENT())
