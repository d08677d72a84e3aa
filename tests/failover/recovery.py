"""How long rounds, announcements and the recorder take until they go on at the new primary."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from reconciler.contract.keyspace import ShardKeys, offsets_field
from reconciler.contract.unique_key import member_of
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from tests.acceptance.deployment import Deployment
from tests.failover.load import Load
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.redis_cluster import ReplicatedRedis, ask

#: Fail-overs after which something does not go on within this count as stalled.
PATIENCE_SECONDS = 60.0
#: Commit sets that a round keeps: the youngest and the two older ones (rounds.commit_generations).
COMMIT_SETS = 3


class Recovery:
    """Begins when a new primary serves; then every shard must show progress there, whatever was acknowledged before."""

    def __init__(self, load: Load, servers: ReplicatedRedis, instance: ClientInstance) -> None:
        self._load, self._servers, self._instance = load, servers, instance
        self._began = time.monotonic()
        self._generations = {keys.generation: self._generation(keys) for keys in load.shards}
        self._ends = self._announced()
        #: What goes on -> monotonic seconds at which that was seen.
        self.seen: dict[str, float] = {}

    def look(self) -> bool:
        """Looks once; True if everything goes on."""
        for name, goes_on in (
            ("rounds", self._rounds_go_on),
            ("announcements", self._announcements_go_on),
            ("recorder", self._recorder_goes_on),
        ):
            if name not in self.seen and all(map(goes_on, self._load.shards)):
                self.seen[name] = time.monotonic()
        return len(self.seen) == 3

    def _rounds_go_on(self, keys: ShardKeys) -> bool:
        now = self._generation(keys)
        before = self._generations[keys.generation]
        if before is None:  # it was not to be asked: progress is counted from here
            self._generations[keys.generation] = now
            return False
        return now is not None and now > before

    def _announcements_go_on(self, keys: ShardKeys) -> bool:
        stored = self._ask(keys.offsets, "HGETALL", keys.offsets) or {}
        number = keys.shard.number
        return all(
            int(stored.get(offsets_field(broker, number).encode(), -1)) >= end
            for (broker, queue_id), end in self._ends.items()
            if queue_id == number
        )

    def _recorder_goes_on(self, keys: ShardKeys) -> bool:
        server = self._servers.server_of(keys.commit)
        # Read after the server was found: rounds drop a key from the commit sets after a second or two.
        newest = self._load.log.newest_recorded.get(keys.shard.number)
        if server is None or newest is None or newest.at < self._began:
            return False
        member: Any = member_of(newest.unique_key)
        # The oldest last: keys move from set to set towards it.
        sets = [keys.commit, *(keys.commit_generation(number) for number in range(1, COMMIT_SETS))]
        return any(ask(server, "SISMEMBER", name, member) for name in sets)

    def _generation(self, keys: ShardKeys) -> int | None:
        answer = self._ask(keys.generation, "GET", keys.generation)
        return None if answer is None else int(answer)

    def _ask(self, key: str, *command: Any) -> Any:
        server = self._servers.server_of(key)
        return None if server is None else ask(server, *command)

    def _announced(self) -> Mapping[tuple[str, int], int]:
        """Ends of the unique-key topic's queues, asked from the broker."""
        instance, topic = self._instance, self._load.deployed.unique_key_topic
        offsets, masters = Offsets(instance.client), instance.routes.masters(topic)
        queues: list[MessageQueue] = list(instance.routes.read_queues(topic))
        return {(q.broker_name, q.queue_id): offsets.maximum(masters[q.broker_name], q) for q in queues}


@contextmanager
def running_load(
    deployed: Deployment, servers: ReplicatedRedis, *, per_second: float
) -> Iterator[tuple[Load, ClientInstance]]:
    """A load under which rounds, announcements and the recorder of every shard go on."""
    with Load(deployed, per_second=per_second) as load, patient_instance(deployed.name_servers) as instance:
        eventually(lambda: len(load.log.newest_recorded) == len(load.shards), within_seconds=60)
        eventually(Recovery(load, servers, instance).look, within_seconds=60, message="everything runs")
        yield load, instance
