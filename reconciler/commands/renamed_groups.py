"""Groups that got another name by `reconciler group rename`, as the book of acts has them.

Brokers keep the offsets of the old name, and a deployment of yesterday may start it again: its members find inbox rows
up to the rename only, and what they consume has its effect a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from reconciler.errors import ReconcilerError
from reconciler.wiring.brokers import masters
from reconciler.wiring.connections import Connections

COMMAND = "group rename"
#: Acts of any kind that are looked at, the newest ones.
ACTIONS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """Names that were given up."""

    #: No [[subscriptions]] section has them any more.
    retired: frozenset[str]
    #: Still configured, and the newest rename of it has no end: its process died, or is at work.
    unfinished: frozenset[str]


def renames(connections: Connections) -> Renames:
    """From the ledger. Raises DatabaseAway."""
    settings = connections.settings
    acts = connections.ledger.reports.actions(settings.environment, limit=ACTIONS_MAX).rows
    newest = {
        act.intent.group: act
        for act in sorted(acts, key=lambda act: act.started_at_ms)
        if act.intent.command == COMMAND and act.intent.group is not None
    }
    configured = {one.group for one in settings.subscriptions}
    return Renames(
        retired=frozenset(newest.keys() - configured),
        unfinished=frozenset(group for group in newest.keys() & configured if newest[group].ended_at_ms is None),
    )


def told_of_renames(connections: Connections) -> Iterator[str]:
    """One line for each name under which effects may happen twice. Brokers are asked only where a name was retired."""
    found = renames(connections)
    for group in sorted(found.unfinished):
        yield f"the rename of {group} has no end: run `reconciler group rename` again before any member starts"
    for group in sorted(found.retired):
        members: set[str] = set()
        with suppress(ReconcilerError):  # brokers that are away are told elsewhere
            for address in masters(connections).values():
                members.update(one.client_id for one in connections.admin.consumer_connections(address, group))
        if members:
            yield (
                f"{group} was renamed, and {len(members)} members are connected under that name: stop them, what they "
                "consume has its effect a second time"
            )
