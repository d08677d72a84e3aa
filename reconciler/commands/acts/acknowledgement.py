"""An acknowledgement: a person says that he or she works on the incident, and `status` shows this to everybody.

An acknowledgement is recorded as an act, and silences no notice. An acknowledgement ends with the next proved loss, or
after two hours.
"""

from __future__ import annotations

from functools import partial

from reconciler.commands.acts.operator_actions import recorded
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.tables import WEB_USER_PREFIX, NoticeKind
from reconciler.errors import ChangedMeanwhile
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.wiring.connections import Connections

ACKNOWLEDGED = Code("status.acknowledged", by=Field.NAME, at_ms=Field.TIME, until_ms=Field.TIME)

#: The command of the act in the record.
COMMAND = "acknowledge"
LASTS_MS = 2 * 3_600_000


def acknowledge(connections: Connections, *, by: str, seen_ms: int | None = None) -> None:
    """Records that `by` works on the open losses.

    `seen_ms`: the ledger's time of the page that the person saw. None: now. Raises ChangedMeanwhile if a loss was
    proved after `seen_ms`.
    """
    if seen_ms is not None and _is_more_lost(connections, seen_ms):
        raise ChangedMeanwhile("what is lost", now={}, told="more is lost")
    with recorded(connections, COMMAND, by=by) as outcome:
        outcome.result = "acknowledged"


def acknowledged(connections: Connections, *, now_ms: int) -> tuple[Fact, ...]:
    """Returns who works on the losses now, by the newest row. Empty: nobody does. Raises DatabaseAway."""
    reports, environment = connections.ledger.reports, connections.settings.environment
    only = LedgerFilter(command=COMMAND, since_ms=now_ms - LASTS_MS)
    for act in all_rows(partial(reports.actions, environment, only=only), limit=1):
        if not _is_more_lost(connections, act.started_at_ms):
            until_ms = act.started_at_ms + LASTS_MS
            by = act.intent.by.removeprefix(WEB_USER_PREFIX)
            return (ACKNOWLEDGED(by=by, at_ms=act.started_at_ms, until_ms=until_ms),)
    return ()


def _is_more_lost(connections: Connections, since_ms: int) -> bool:
    settings = connections.settings
    marks = [((NoticeKind.LOSS_PROVED, one.topic, one.group), since_ms) for one in settings.subscriptions]
    return any(found.count for found in connections.ledger.notices.past(settings.environment, marks).values())
