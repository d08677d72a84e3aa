"""Rounds, losses and repairs of the last hours, for charts."""

from __future__ import annotations

from reconciler.errors import InvalidValue
from reconciler.telling.ports.activity import Activity
from reconciler.wiring.connections import Connections

#: Possible numbers of hours -> width of a bucket in minutes.
WIDTHS_MINUTES = {1: 1, 4: 5, 24: 30, 72: 60}


def read_activity(connections: Connections, hours: int) -> Activity:
    """Returns counts of rounds, losses and repairs.

    Raises InvalidValue for a number of hours that WIDTHS_MINUTES lacks, and DatabaseAway.
    """
    if hours not in WIDTHS_MINUTES:
        raise InvalidValue("hours", str(hours), f"one of {', '.join(map(str, WIDTHS_MINUTES))}")
    environment = connections.settings.environment
    return connections.ledger.activities.of_hours(environment, hours=hours, width_ms=WIDTHS_MINUTES[hours] * 60_000)
