"""A stranger in the producer group: a Java service beside the Python ones, with a database of its own.

Its halves carry no mark and its keys are not announced. Its listener answers for its own messages only, and often
UNKNOWN; brokers ask any member of the group about any half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkback_producers.ports import Outcome, SentHalf
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import Broker
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import Halves

if TYPE_CHECKING:
    from tests.simulation.world import World

#: One message of a stranger to so many of the others.
ONE_TO = 8


class JavaHalves(Halves):
    """The transport of a service that holds none of our code."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process, outbox="")
        self.start(lambda _half: Outcome.UNKNOWN)

    def tell(self, broker: Broker, record: MessageRecord, outcome: Outcome) -> None:
        """One-way, as Java clients end transactions."""
        is_commit = outcome is Outcome.COMMIT
        self._world.send_end(self._process, broker, record, self._group, is_commit=is_commit, is_oneway=True)


class StrangersHalves(JavaHalves):
    """Its transport, and its listener."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        #: Key -> what its own database says.
        self.outcomes: dict[str, Outcome] = {}

    def checked(self, broker: Broker, record: MessageRecord) -> None:
        outcome = self.outcomes.get(record.unique_key, Outcome.UNKNOWN)
        if outcome is not Outcome.UNKNOWN and self._world.kernel.dice.random() < 0.5:
            self.tell(broker, record, outcome)


class Stranger:
    """One process of such a service."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.halves = StrangersHalves(world, process)
        process.spawn(self._run)

    def _run(self) -> None:
        world, dice = self._world, self._world.kernel.dice
        while world.kernel.now < world.swarm.load_seconds:
            self._process.sleep(2 * ONE_TO * dice.random() / world.swarm.messages_per_second)
            key = self.halves.next_unique_key()
            try:
                half = self.halves.send_half(Message(topic=TOPIC, body=b"of a stranger", tags="paid", unique_key=key))
            except ReconcilerError:
                continue
            self._process.spawn(lambda half=half: self._transact(half))  # type: ignore[misc]
        world.done_producing(self._process)

    def _transact(self, half: SentHalf) -> None:
        world, dice = self._world, self._world.kernel.dice
        self._process.sleep(5 * dice.random() ** 3)
        outcome = Outcome.COMMIT if dice.random() < 0.8 else Outcome.ROLLBACK
        self.halves.outcomes[half.unique_key] = outcome
        if outcome is Outcome.COMMIT:
            world.strangers_commits[half.unique_key] = world.kernel.now
        if dice.random() < 0.5:
            assert isinstance(half.handle, tuple)
            broker, record = half.handle
            self.halves.tell(broker, record, outcome)
