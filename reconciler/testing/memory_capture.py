"""ports.RoundCapture over shards in memory, for policy tests and the simulator."""

from __future__ import annotations

from reconciler.contract.subscription import Shard
from reconciler.policy.ports import Capture, PendingSnapshot, RoundMark
from reconciler.testing.memory_shards import MemoryShards


class MemoryRoundCapture:
    """What RedisRoundCapture is to RedisShardMemory."""

    def __init__(self, shards: MemoryShards) -> None:
        self._shards = shards

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        """The rounds that are kept."""
        return self._shards.capture(shard, after=after)

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        """All pending keys."""
        return self._shards.snapshot_pending(shard)
