"""What a process reads of half queues before it sends by a row of the business: the product's reader over simulated
wires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reconciler.errors import BrokerUnavailable
from reconciler.halves import reading
from reconciler.halves.reading import RemotingHalfReading
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import RECORD_BYTES
from tests.simulation.business_table import QUERY
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import ENVIRONMENT
from tests.simulation.witnesses import ClientSeen, FamiliesSeen, OffsetsSeen, RoutesSeen, ask

if TYPE_CHECKING:
    from tests.simulation.halves_world import HalvesWorld

#: Records of one pull.
_PULLED_MAX = 32


class _EndsSeen(OffsetsSeen):
    """reconciler.rocketmq.client.offsets.Offsets of single queues."""

    def minimum(self, address: str, queue: MessageQueue) -> int:
        return self._bounds(address, queue)[0]

    def maximum(self, address: str, queue: MessageQueue) -> int:
        return self._bounds(address, queue)[1]


class _QueuesSeen:
    """reconciler.halves.half_topic.MasterQueues."""

    def __init__(self, client: ClientSeen, _broker: str, address: str, *, pace: object) -> None:
        del pace  # no history has so many halves
        self._process = client.process
        self._broker = client.cluster.at(address)

    def records(self, topic: str, begin: int, end: int) -> Iterator[MessageRecord]:
        broker, offset = self._broker, begin
        while offset < end:
            read = ask(self._process, broker, partial(broker.read, topic, 0, offset, _PULLED_MAX), "PULL halves")
            if not read:
                raise BrokerUnavailable(f"nothing at offset {offset} of {topic}")
            yield from (record for record in read if record.queue_offset < end)
            offset = read[-1].queue_offset + 1


def _query_newest(client: ClientSeen, address: str, topic: str, key: str) -> list[MessageRecord]:
    """reconciler.evidence.lookup.query_newest."""
    broker = client.cluster.at(address)
    found: list[MessageRecord] = ask(client.process, broker, partial(broker.query, topic, key), "QUERY_MESSAGE")
    return found


setattr(reading, "MasterQueues", _QueuesSeen)  # noqa: B010 - mypy would not have it
setattr(reading, "query_newest", _query_newest)  # noqa: B010 - the module does not export it


class HalfQueuesRead(RemotingHalfReading):
    """The product's reader of one process."""

    def __init__(self, world: HalvesWorld, process: Process, horizon: Callable[[str], Horizon]) -> None:
        cluster = world.cluster
        instance: Any = SimpleNamespace(
            clock=process.clock, routes=RoutesSeen(cluster), families=FamiliesSeen(cluster)
        )  # fmt: skip
        super().__init__(
            instance, client=ClientSeen(process, cluster), environment=ENVIRONMENT,  # type: ignore[arg-type]
            queries={TOPIC: QUERY}, noted=world.ledger_of(process).halves, why_not=world.why_not_accepted,
            horizon=horizon,
        )  # fmt: skip
        self._process, self._cluster = process, cluster
        self._offsets = _EndsSeen(process, cluster)  # type: ignore[assignment]
        self._name = f"read-{process.name}-{world.kernel.dice.getrandbits(64):016x}"

    def is_newest(self, half: StoredMessage) -> bool | None:
        """Notes until where the broker's log is looked at."""
        log_end = len(self._cluster.brokers[half.broker].log) * RECORD_BYTES
        self._process.looked_for_newest[half.broker, half.unique_key] = (self._process.kernel.now, log_end)
        return super().is_newest(half)
