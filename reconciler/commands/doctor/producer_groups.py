"""What `reconciler doctor` says of producer groups that an outbox knows and the settings do not: renamed ones."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.clock import utc_text
from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.secret import SecretText
from reconciler.errors import ReconcilerError
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import inspect_outbox

#: A row that is younger may be announced by its own service.
WAITED_SECONDS_MIN = 300.0


def check_producer_groups(connections: Connections) -> Sequence[Diagnosis]:
    """One finding an outbox with rows that no sweep looks at; one that is away has a check of its own."""
    of_outbox: dict[SecretText, list[str]] = {}
    for producer in connections.settings.producers:
        for url in producer.outbox_urls:
            of_outbox.setdefault(url, []).append(producer.group)
    return [found for url, groups in of_outbox.items() if (found := _check(connections, url, groups)) is not None]


def _check(connections: Connections, url: SecretText, groups: Sequence[str]) -> Diagnosis | None:
    try:
        other = inspect_outbox(connections, url).oldest_of_others(groups)
    except ReconcilerError:
        return None
    if other is None or other.waited_seconds < WAITED_SECONDS_MIN:
        return None
    return Diagnosis(
        check=f"producer groups in the outbox of {', '.join(groups)}",
        level="note",
        found=(
            f"{other.producer_group} has committed messages to {other.topic} since {utc_text(other.since_ms)} "
            "that nobody has announced, and no [[producers]] section names it: no sweep looks at them"
        ),
        remedy="if the group was renamed: a section for its old name, with the same topics and outbox_url",
    )
