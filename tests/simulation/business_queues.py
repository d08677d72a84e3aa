"""Queues of the business topic that give offsets twice: they begin anew, or lose their tail; groups' offsets stay.

No member of a group runs meanwhile. One that goes on behind its old offset passes what lies below it now; one that asks
behind the end is set back, to the end or to the beginning, as releases differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import DatabaseAway
from reconciler.policy.ports.announcing import SeenQueue
from tests.simulation.broker import Broker
from tests.simulation.kernel import Link, Process
from tests.simulation.outbox_database import TOPIC

if TYPE_CHECKING:
    from reconciler.rocketmq.wire.record import MessageRecord
    from tests.simulation.world import World

#: Members stand still so long at most, and no longer once every process has looked at the queues again.
STAND_SECONDS = 60.0
#: Between two looks at what processes and queues have come to.
LOOK_SECONDS = 0.5

#: Of what nobody can say whether a group was given it.
UNDECIDED = (Verdict.UNKNOWN, Verdict.LAGGING)

Place = tuple[str, str, int]


class BusinessQueues:
    """The accident of one history, and what it excuses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_on = bool(world.swarm.of("business queues"))
        self._kept: dict[Place, SeenQueue] = {}
        self._broker: Broker | None = None
        #: Group and number of the queue -> offset of before.
        self._before: dict[tuple[str, int], int] = {}
        self._happened_at = 0.0
        self._went_on_at = float("inf")
        #: Process -> when it last looked at each broker's queues.
        self._looks: dict[Process, dict[tuple[str, int], float]] = {}
        #: A queue had grown past what was seen of it before it was looked at again, or nobody who runs had ever looked
        #: at it when the members went on: so that nobody can know.
        self.is_unseen = False
        #: Group and key of what a member was given.
        self.given: set[tuple[str, str]] = set()

    # ---- the accident

    def happen(self) -> None:
        """To one broker, once."""
        world = self._world
        if self._broker is not None or any(map(world.pops, world.inboxes)):
            return
        brokers = list(world.cluster.brokers.values())
        broker = brokers[world.kernel.any_of(len(brokers))]
        offsets = {place: offset for place, offset in broker.offsets.items() if place[1] == TOPIC}
        has_lost_tail = bool(world.swarm.of("broker tail"))
        lost = broker.lose_tail(20.0) if has_lost_tail else broker.begin_anew(TOPIC)
        broker.offsets.update(offsets)
        self._before = {(group, number): offset for (group, _, number), offset in offsets.items()}
        self._broker, self._happened_at = broker, world.kernel.now
        broker.sets_back_to_end = world.kernel.dice.random() < 0.5
        said = "lost their tail" if has_lost_tail else "began anew"
        world.kernel.saw(f"business queues {said}", f"{broker.name}: {lost} records")
        self._wait()

    @property
    def stands(self) -> bool:
        """No member runs."""
        return self._broker is not None and self._world.kernel.now < self._went_on_at

    def _wait(self) -> None:
        now, is_seen = self._world.kernel.now, self._is_seen()
        if self.stands and (is_seen or self._world.is_healed or now > self._happened_at + STAND_SECONDS):
            self._went_on_at = now
            self.is_unseen |= not self._is_known()
        if not is_seen:
            self._look_at_growth()
            self._world.kernel.after(LOOK_SECONDS, self._wait)

    def _seen_at(self) -> list[float]:
        """When each process that runs has looked last at each of the queues."""
        assert self._broker is not None
        running = [looks for process, looks in self._looks.items() if not process.is_dead]
        return [at for looks in running for (broker, _), at in looks.items() if broker == self._broker.name]

    def _is_seen(self) -> bool:
        """Each process that knows the queues has looked at them since."""
        seen = self._seen_at()
        return bool(seen) and all(at > self._happened_at for at in seen)

    def _is_known(self) -> bool:
        """Somebody remembers one of the queues."""
        assert self._broker is not None
        return bool(self._seen_at()) or any(broker == self._broker.name for _, broker, _ in self._kept)

    def _look_at_growth(self) -> None:
        assert self._broker is not None
        for (_, number), offset in self._before.items():
            self.is_unseen |= 0 < offset <= self._broker.bounds(TOPIC, number)[1]

    def looked(self, process: Process, broker: Broker, topic: str, number: int) -> None:
        """A process has asked for a queue's end."""
        if self.is_on and topic == TOPIC and broker is (self._broker or broker):
            self._looks.setdefault(process, {})[broker.name, number] = self._world.kernel.now

    # ---- what it excuses

    def is_passed(self, group: str, key: str) -> bool:
        """A copy lies where the group's offset says that it was given, and nothing proves that it was."""
        broker, is_given = self._broker, (group, key) in self.given
        return broker is not None and any(
            record.unique_key == key
            and (not is_given or broker.stored_at[number] <= self._went_on_at)
            and self._lies_behind(broker, group, record)
            for number, record in enumerate(broker.log)
            if record is not None and record.topic == TOPIC
        )

    @staticmethod
    def _lies_behind(broker: Broker, group: str, record: MessageRecord) -> bool:
        offset = broker.offsets.get((group, TOPIC, record.queue_id), 0)
        return not broker.is_queued(record) or record.queue_offset < offset

    def is_told(self, group: str, key: str) -> bool:
        """The ledger says that it is not known, or waits for the copy of a repair."""
        row = self._world.candidate(group, key)
        if row is None or not self.is_passed(group, key):
            return False
        is_misled = self.is_unseen and row.verdict is Verdict.DELIVERED_NOT_APPLIED
        return is_misled or row.verdict in UNDECIDED or row.verdict in LOSSES

    def judge(self, other: list[str]) -> None:
        """No offset of a name that was given twice proves that a message was given to the group."""
        if self._broker is None or self.is_unseen:
            return
        for (owner, key), row in self._world.ledger.rows.candidates.items():
            before = row.evidence.get("taken_back")
            said = {str(row.verdict), str(before.get("verdict")) if isinstance(before, dict) else ""}
            is_given = (owner.group, key) in self.given or key in self._world.troubles.reset_over.get(owner.group, ())
            if Verdict.DELIVERED_NOT_APPLIED in said and not is_given:
                other.append(f"{key} was called acknowledged in {owner.group}, which was never given it")

    # ---- what processes keep

    def kept_by(self, process: Process, link: Link) -> QueuesKept | None:
        """Where a process keeps what it saw of queues."""
        return QueuesKept(process, link, self._kept) if self.is_on else None


class QueuesKept:
    """reconciler.policy.ports.announcing.SeenQueues of one process."""

    def __init__(self, process: Process, link: Link, kept: dict[Place, SeenQueue]) -> None:
        self._process = process
        self._link = link
        self._kept = kept

    def of_topic(self, environment: str, topic: str) -> Mapping[tuple[str, int], SeenQueue]:
        def read() -> Mapping[tuple[str, int], SeenQueue]:
            return {place[1:]: seen for place, seen in self._kept.items() if place[0] == topic}

        found: Mapping[tuple[str, int], SeenQueue] = self._link.call(
            self._process, read, DatabaseAway, None, "SELECT seen queues"
        )
        return found

    def keep(self, environment: str, topic: str, seen: Mapping[tuple[str, int], SeenQueue]) -> None:
        self._link.call(self._process, partial(self._write, topic, seen), DatabaseAway, None, "UPDATE seen queues")

    def _write(self, topic: str, seen: Mapping[tuple[str, int], SeenQueue]) -> None:
        for (broker, number), one in seen.items():
            known = self._kept.get((topic, broker, number))
            if known is None or one.doubtful_below >= known.doubtful_below:
                self._kept[topic, broker, number] = one
