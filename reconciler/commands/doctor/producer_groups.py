"""What `reconciler doctor` says about producer groups of an outbox that the settings lack, such as renamed groups."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.status.unswept import groups_of_nobody
from reconciler.contract.facts import Code, Field
from reconciler.wiring.connections import Connections

PRODUCER_GROUPS_OF = Code("doctor.producer-groups-of", outbox=Field.NAMES)
UNSWEPT = Code("doctor.unswept", group=Field.NAME, topic=Field.NAME, at_ms=Field.TIME)
ADD_OLD_NAME = Code("doctor.add-old-name")


def check_producer_groups(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one finding for each producer group and topic that the settings lack.

    An outbox that is away has its own check.
    """
    return [
        Diagnosis(
            check=PRODUCER_GROUPS_OF(outbox=tuple(groups)),
            level="note",
            found=UNSWEPT(group=other.producer_group, topic=other.topic, at_ms=other.since_ms),
            remedy=ADD_OLD_NAME(),
        )
        for groups, other in groups_of_nobody(connections)
    ]
