"""Commits that nobody announces: outbox rows of a producer group that no section names, a renamed one for example.

Another deployment may sweep these rows, where two share a table, and it has its own alarm: they are told and no alarm.
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

#: A row that is younger may be announced by its own service.
WAITED_SECONDS_MIN = 300.0


def unswept(connections: Connections) -> Iterator[Fact]:
    """One line for each such group and topic, of the topics that have subscriptions here: of them `status` claims that
    commits are accounted for."""
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
    """The groups that the settings have for an outbox, and one that they lack. An outbox that is away is left out."""
    of_outbox: dict[Secret, list[str]] = {}
    for source, url in commit_evidence(connections.settings).outboxes:
        of_outbox.setdefault(url, []).append(source.producer_group)
    for url, groups in of_outbox.items():
        try:
            others = inspect_outbox(connections, url).of_others(groups)
        except ReconcilerError:
            continue
        yield from ((groups, one) for one in others if one.waited_seconds >= WAITED_SECONDS_MIN)
