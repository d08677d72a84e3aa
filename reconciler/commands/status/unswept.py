"""Finds commits that no sweeper announces: outbox rows of a producer group that no section of the settings names.

A renamed producer group is an example. If two deployments share a table, the other deployment may sweep these rows and
has an alarm of its own. Therefore this report raises no alarm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.secret import Secret
from reconciler.errors import ReconcilerError
from reconciler.evidence.outbox_inspection import OtherGroup
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence
from reconciler.wiring.evidence import inspect_outbox

UNSWEPT = Code(
    "status.unswept", number=Field.COUNT, group=Field.NAME, topic=Field.NAME, at_ms=Field.TIME, outbox=Field.NAMES
)

#: A younger row may still be announced by its own service.
WAITED_SECONDS_MIN = 300.0


def unswept(connections: Connections) -> Iterator[Fact]:
    """Yields one fact for each producer group and topic whose commits no sweeper announces.

    Only topics with subscriptions in the settings count, because only their commits are accounted for by `status`.
    """
    topics = {one.topic for one in connections.settings.subscriptions}
    for groups, other in groups_of_nobody(connections):
        if other.topic in topics:
            yield UNSWEPT(
                number=other.count,
                group=other.producer_group,
                topic=other.topic,
                at_ms=other.since_ms,
                outbox=tuple(groups),
            )


def groups_of_nobody(connections: Connections) -> Iterator[tuple[Sequence[str], OtherGroup]]:
    """Yields each producer group that the settings lack, with the groups that the settings name for this outbox.

    An outbox that is away is left out.
    """
    of_outbox: dict[Secret, list[str]] = {}
    for source, url in commit_evidence(connections.settings).outboxes:
        of_outbox.setdefault(url, []).append(source.producer_group)
    for url, groups in of_outbox.items():
        try:
            others = inspect_outbox(connections, url).of_others(groups)
        except ReconcilerError:
            continue
        yield from ((groups, one) for one in others if one.waited_seconds >= WAITED_SECONDS_MIN)
