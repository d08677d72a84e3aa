"""Inbox rows of other messages under the keys of orders: a service wrote them that chooses unique keys by itself.

The order's copies are refused by the group's handler from then on. No repair mends that: a person must be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
