"""Moves one slot of a cluster between primaries, key by key, and waits in between for its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.services.redis_cluster import RedisClusterServers, connected
from tests.services.redis_server import RedisServer

MIGRATE_TIMEOUT_MS = 5_000


def move_slot(
    cluster: RedisClusterServers, slot: int, target: RedisServer, *, when_half_moved: Callable[[], None]
) -> int:
    """SETSLOT IMPORTING and MIGRATING, MIGRATE of each key, SETSLOT NODE. Returns how many keys were moved.

    `when_half_moved` is called before the first key is moved, after every one, and once more when none is left but the
    slot still belongs to the old primary: then commands are answered with ASK or TRYAGAIN.
    """
    source = cluster.server_of_slot(slot)
    assert source is not None
    assert source is not target
    source_id, target_id = cluster.node_id(source), cluster.node_id(target)
    moved = 0
    with connected(source, timeout_seconds=10) as at_source, connected(target, timeout_seconds=10) as at_target:
        old: Any = at_source
        new: Any = at_target
        new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
        old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
        when_half_moved()
        while keys := old.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
            old.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, MIGRATE_TIMEOUT_MS)
            moved += 1
            when_half_moved()
        for client in (new, old):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
    return moved
