"""What `reconciler doctor` says about producer groups and topics of an outbox that the settings lack.

Examples are a renamed group, a topic that a service sends to before it has a section, and the URL of another outbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.status.unswept import groups_of_nobody
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.secret import Secret
from reconciler.errors import ReconcilerError
from reconciler.evidence.outbox_inspection import NewestRows
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence
from reconciler.wiring.evidence import inspect_outbox

PRODUCER_GROUPS_OF = Code("doctor.producer-groups-of", outbox=Field.NAMES)
UNSWEPT = Code("doctor.unswept", group=Field.NAME, topic=Field.NAME, at_ms=Field.TIME)
ADD_OLD_NAME = Code("doctor.add-old-name")
ROWS_OF_OTHERS = Code("doctor.rows-of-others", groups=Field.NAMES, others=Field.NAMES)
CORRECT_OUTBOX = Code("doctor.correct-outbox")
TOPIC_OF_NOBODY = Code("doctor.topic-of-nobody", group=Field.NAME, topic=Field.NAME, at_ms=Field.TIME)
ADD_SUBSCRIPTION = Code("doctor.add-subscription")

#: Number of other groups that are named.
OTHERS_NAMED_MAX = 3


def check_producer_groups(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one finding for each producer group and topic that the settings lack.

    An outbox that is away has its own check.
    """
    return [*_unswept(connections), *_newest(connections)]


def _newest(connections: Connections) -> Iterator[Diagnosis]:
    """Yields a note for an outbox whose newest rows are all of other groups, as after two URLs were swapped. Yields a
    note for each topic of a group that no section names."""
    evidence = commit_evidence(connections.settings)
    known = {one.topic for one in connections.settings.subscriptions}
    known |= {topic for source in evidence.sources for topic in source.topics}
    groups_of: dict[Secret, list[str]] = {}
    for source, url in evidence.outboxes:
        groups_of.setdefault(url, []).append(source.producer_group)
    for url, groups in groups_of.items():
        try:
            rows = inspect_outbox(connections, url).newest_groups()
        except ReconcilerError:
            continue
        yield from _told(groups, rows, known)


def _told(groups: Sequence[str], rows: Sequence[NewestRows], known: set[str]) -> Iterator[Diagnosis]:
    check = _check(groups)
    others = tuple(dict.fromkeys(one.producer_group for one in rows))
    if others and not {*others} & {*groups}:
        found = ROWS_OF_OTHERS(groups=tuple(groups), others=others[:OTHERS_NAMED_MAX])
        yield Diagnosis(check=check, level="note", found=found, remedy=CORRECT_OUTBOX())
    for one in rows:
        if one.producer_group in groups and one.topic not in known:
            found = TOPIC_OF_NOBODY(group=one.producer_group, topic=one.topic, at_ms=one.newest_ms)
            yield Diagnosis(check=check, level="note", found=found, remedy=ADD_SUBSCRIPTION())


def _unswept(connections: Connections) -> Sequence[Diagnosis]:
    return [
        Diagnosis(
            check=_check(groups),
            level="note",
            found=UNSWEPT(group=other.producer_group, topic=other.topic, at_ms=other.since_ms),
            remedy=ADD_OLD_NAME(),
        )
        for groups, other in groups_of_nobody(connections)
    ]


def _check(groups: Sequence[str]) -> Fact:
    return PRODUCER_GROUPS_OF(outbox=tuple(groups))
