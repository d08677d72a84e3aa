"""What `reconciler doctor` says of another cluster that is run with the environment of the settings."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.commands.diagnosis import Diagnosis, failed
from reconciler.commands.doctor.rights import grants
from reconciler.contract.facts import Code, Field
from reconciler.contract.tables import ENVIRONMENT
from reconciler.errors import InvalidValue, ReconcilerError
from reconciler.wiring.connections import Connections
from reconciler.wiring.environment import ask_environment
from reconciler.wiring.rights import lacks_right

ENVIRONMENT_IN = Code("doctor.environment-in", place=Field.NAME)
ENVIRONMENT_UNREADABLE = Code("doctor.environment-unreadable", table=Field.NAME)


def check_environment(connections: Connections) -> Iterator[Diagnosis]:
    """One failure for each place where another cluster is; nothing where there is none."""
    for place, ask in ask_environment(connections).items():
        check = ENVIRONMENT_IN(place=place)
        try:
            ask()
        except InvalidValue as error:
            yield failed(check, error)
        except ReconcilerError as error:
            if lacks_right(error):  # what is away, or lacks its tables, has a check of its own
                found = ENVIRONMENT_UNREADABLE(table=ENVIRONMENT.name)
                yield Diagnosis(check=check, level="note", found=found, remedy=grants({ENVIRONMENT.name: "SELECT"}))
