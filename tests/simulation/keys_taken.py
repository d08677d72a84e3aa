"""Rows of other messages under the keys of orders: a service wrote them that chooses unique keys by itself.

In an inbox: the order's copies are refused by the group's handler from then on. In the second outbox: two committed
rows contradict each other, and nobody can know which message was meant. No repair mends either: a person must be told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.contract.tables import OutboxState
from tests.simulation.inbox_database import InboxDatabase

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Of the newest orders, those that a group has no effect of yet.
NEWEST = 8
OTHER_DIGEST = b"another content".ljust(32)


def take_keys(world: World, database: InboxDatabase) -> None:
    """Some of the newest committed orders lose their keys in one inbox."""
    for key in list(world.orders)[-NEWEST:]:
        is_free = key not in database.rows and key not in database.open_rows
        if is_free and world.is_committed(key) and world.kernel.dice.random() < 0.5:
            database.theirs.add(key)
            database.rows[key] = {
                "consumer_group": database.group, "unique_key": key, "topic": world.plan.topic, "dedupe_key": key,
                "duplicate_of": None, "content_digest": OTHER_DIGEST, "source": "another service",
                "applied_at_ms": database.clock.now_ms(), "incomplete": None,
            }  # fmt: skip
            database.reading.committed([key])
            world.kernel.saw("inbox row of another message", f"{key[-4:]} {database.group}")


def contradict(world: World) -> None:
    """Some of the newest committed orders have a row of another content in the other outbox, too."""
    for key in list(world.orders)[-NEWEST:]:
        found = [database for database in world.outboxes if key in database.orders]
        others = [one for one in world.outboxes if key not in one.rows and key not in one.open_rows]
        if found and others and world.kernel.dice.random() < 0.5:
            row = replace(found[0].rows[key], content_digest=OTHER_DIGEST, body=None, state=OutboxState.NEW)
            others[0].rows[key] = row
            others[0].written[key] = world.kernel.now
            others[0].reading.committed([key])
            world.contradicted[key] = world.kernel.now
            world.kernel.saw("outboxes contradict each other", key[-4:])
