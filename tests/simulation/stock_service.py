"""A producing service that holds none of our code: its halves are all that announces, its table all that proves.

Its listener answers for its own transactions, from whatever instance is asked: that of a try that was given up is never
decided. Some halves carry an outbox's mark: the group is in the middle of a move, and its table has their orders, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from checkback_producers.ports import Outcome, SentHalf
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.errors import DatabaseAway, ReconcilerError
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import Broker
from tests.simulation.business_table import LONGEST_TRANSACTION_SECONDS
from tests.simulation.kernel import Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import Order, orders_in_time
from tests.simulation.strangers import JavaHalves

if TYPE_CHECKING:
    from tests.simulation.halves_world import HalvesWorld


class StockHalves(JavaHalves):
    """Its transport, and its listener."""

    _world: HalvesWorld

    def checked(self, broker: Broker, record: MessageRecord) -> None:
        """Now and then so late that the broker has put the half back once more: an END on an older copy delivers, and
        the broker goes on asking."""
        world, dice = self._world, self._world.kernel.dice
        is_late = world.swarm.of("older copies ended") and dice.random() < 0.4
        if is_late:
            self._process.sleep(broker.settings.check_interval * (1 + dice.random()))
        outcome = world.outcomes.get(record.unique_key, Outcome.UNKNOWN)
        if outcome is Outcome.UNKNOWN:
            return
        newest = [half for half in broker.index.get((record.topic, record.unique_key), ()) if half is not record]
        if is_late and any(half.physical_offset > record.physical_offset for half in newest):
            world.kernel.saw("half ended on an older copy", record.unique_key[-4:])
        self.tell(broker, record, outcome)


class StockService:
    """One instance."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        self._world = world
        self._process = process
        self._of = world.swarm.of
        self._random = world.kernel.dice.random
        self.halves = StockHalves(world, process)
        process.spawn(self._run)

    def _run(self) -> None:
        for order in orders_in_time(self._world, self._process):
            self._process.spawn(lambda order=order: self._sell(order))  # type: ignore[misc]

    def _sell(self, order: Order) -> None:
        """One try, or two, of which the first is given up; some orders are cancelled later."""
        dice = self._random
        if self._of("two tries") and dice() < 0.15:
            self._begin(order)
            self._process.sleep(0.5 + 40 * dice() ** 2)
            self._world.kernel.saw("second try of an order", order.number)
            order = replace(order, rolls_back=False)
        is_committed = self._transact(order)
        if is_committed and self._of("query replica") and dice() < 0.3:
            self._process.sleep(60 * dice())
            self._world.cancel(self._number(order))

    @staticmethod
    def _number(order: Order) -> str:
        return f"order-{order.number}"

    def _begin(self, order: Order) -> SentHalf | None:
        """The half of one try."""
        world, key = self._world, self.halves.next_unique_key()
        properties = dict(order.properties)
        if self._of("moving group") and order.number % 2:
            world.kernel.saw("half with an outbox's mark", key[-4:])
            properties[OUTBOX_MARK] = "outbox of orders"
        world.sent(replace(order, unique_key=key, keys=(self._number(order),), properties=properties))
        message = Message(
            topic=TOPIC, body=order.body, tags=order.tag, keys=(self._number(order),), properties=properties,
            unique_key=key,
        )  # fmt: skip
        try:
            return self.halves.send_half(message)
        except ReconcilerError:
            world.outcomes[key] = Outcome.ROLLBACK  # a broker may have it all the same
            return None

    def _transact(self, order: Order) -> bool:
        """One transaction with its half, or with two of two tags, of which a row tells alike. False: the service knows
        of no commit."""
        world, number = self._world, self._number(order)
        halves = [self._begin(order)]
        if self._of("several tags") and self._random() < 0.2:
            world.kernel.saw("order with messages of two tags", order.number)
            halves.append(self._begin(replace(order, tag="shipped")))
        found = [half for half in halves if half is not None]
        outcome = Outcome.ROLLBACK
        if len(found) == len(halves):
            world.table.open.add(number)
            try:
                self._process.sleep(self._seconds(order))
                if not order.rolls_back:
                    outcome = self._committed([half.unique_key for half in found], number)
            finally:
                world.table.open.discard(number)
        for half in found if outcome is not Outcome.UNKNOWN else ():
            world.outcomes.setdefault(half.unique_key, outcome)
            assert isinstance(half.handle, tuple)
            broker, record = half.handle
            self.halves.tell(broker, record, outcome)
        return outcome is Outcome.COMMIT

    def _committed(self, keys: Sequence[str], number: str) -> Outcome:
        """What the service believes of its COMMIT; nobody answers some that are carried out."""
        world, table = self._world, self._world.table
        try:
            table.link.call(self._process, lambda: world.commit(keys, number), DatabaseAway, what="COMMIT")
        except DatabaseAway:
            return Outcome.UNKNOWN
        if table.commit_reply_lost and self._random() < table.commit_reply_lost:
            world.kernel.saw("outbox COMMIT answered to nobody", number)
            return Outcome.ROLLBACK
        return Outcome.COMMIT

    def _seconds(self, order: Order) -> float:
        """How long the transaction takes; that of a late row longer than any should."""
        if order.business_seconds:
            return order.business_seconds
        if not (self._of("late rows") and self._random() < 0.15):
            return 3 * self._random() ** 3
        self._world.kernel.saw("commit long after its row was written", order.number)
        return LONGEST_TRANSACTION_SECONDS * (0.5 + 2.5 * self._random())
