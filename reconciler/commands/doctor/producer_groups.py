"""What `reconciler doctor` says of producer groups that an outbox knows and the settings do not: renamed ones."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.clock import utc_text
from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.status.unswept import groups_of_nobody
from reconciler.wiring.connections import Connections


def check_producer_groups(connections: Connections) -> Sequence[Diagnosis]:
    """One finding for each such group and topic; an outbox that is away has a check of its own."""
    return [
        Diagnosis(
            check=f"producer groups in the outbox of {', '.join(groups)}",
            level="note",
            found=(
                f"{other.producer_group} has committed messages to {other.topic} since {utc_text(other.since_ms)} "
                "that nobody has announced, and no [[producers]] section names it: no sweep looks at them"
            ),
            remedy="if the group was renamed: a section for its old name, with the same topics and outbox_url",
        )
        for groups, other in groups_of_nobody(connections)
    ]
