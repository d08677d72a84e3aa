"""The ledger and the shards in memory: for tests of the policy, of adapters beside it, and for the simulator.

They implement reconciler.policy.ports with the semantics of reconciler/ledger and reconciler/shards; the suites in
tests/contract hold them to it. A SQL ledger on SQLite in memory takes five times as much processor time in their place.

A key is announced, a round finds it pending, its consumption is recorded, and the next round has matched it:

>>> from reconciler.clock import ManualClock
>>> from reconciler.contract.subscription import Shard, Subscription
>>> from reconciler.policy.ports.announcing import AnnouncementQueue
>>> from reconciler.testing.memory_shards import MemoryShards
>>> shards = MemoryShards(ManualClock())
>>> billing = Subscription(environment="test", topic="ORDERS", group="billing")
>>> shard = Shard(subscription=billing, number=0)
>>> queue = AnnouncementQueue(unique_key_topic="UNIQUE_KEYS", broker="broker-a", queue_id=0)
>>> key = "7F0000010000000000000000000000A1"
>>> shards.admit(shard, queue, expected=None, following=1, unique_keys=[key]).admitted
True
>>> epoch = shards.begin_epoch(shard)
>>> shards.take_round(shard, epoch=epoch).counts.pending_after
1
>>> shards.record(billing, [key], shards=1)
>>> shards.take_round(shard, epoch=epoch).counts.pending_after
0

A Redis that loses its last writes: `saved = shards.save()`, more calls, `shards.restore(saved)`.
"""
