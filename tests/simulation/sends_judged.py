"""Judges what is sent by a row of the business: by services' transactions, by brokers' queues, and by what the sending
process had asked when it sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from reconciler.contract.reasons import NO_SIBLING_DELIVERED, SIBLING_DELIVERED, SIBLING_MAY_BE_GONE, SIBLINGS
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import EVERY_GROUP, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.ledger import Candidate, Repair, VerdictEntry
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.broker import RECORD_BYTES, Broker
from tests.simulation.business_table import PAID
from tests.simulation.kernel import Process

if TYPE_CHECKING:
    from tests.simulation.halves_world import HalvesWorld
    from tests.simulation.reconciling import LedgerSeen

#: A process that was stopped so lately may have lost its claim: no client can fence a broker.
STOPPED_LATELY_SECONDS = 1.0
NEVER_SECONDS = float("inf")


class SendsJudged:
    """Sees every claim, every attempt that the ledger has, and every END and republish as a broker takes it."""

    def __init__(self, world: HalvesWorld, told: list[str]) -> None:
        """`told`: broken promises."""
        self._world = world
        self._told = told
        #: Process and message -> since when it has had its claim, at the latest.
        self._claimed_at: dict[tuple[Process, str], float] = {}
        #: Process and message -> when the ledger had its attempt.
        self._begun_at: dict[tuple[Process, str], float] = {}
        #: Order -> its messages, with the number of copies that our sends made.
        self._made: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: What a broker is carrying out, and when.
        self._under_way: tuple[str, float, int] | None = None

    # ---- while it runs

    def watch(self, process: Process, ledger: LedgerSeen) -> None:
        """Claims and attempts of the process."""
        kernel, claim_all, change_all = self._world.kernel, ledger.repairs.claim_all, ledger.repairs.change_all

        def claims(*arguments: Any, **named: Any) -> Any:
            at, found = kernel.now, claim_all(*arguments, **named)
            self._claimed_at.update({(process, one.unique_key): at for one in found if one is not None})
            for one in found:
                if one is not None and one.is_unsent:
                    self._world.about_to_ask(one.unique_key)
            return found

        def changes(*arguments: Any, **named: Any) -> Any:
            found = change_all(*arguments, **named)
            begun = [one for one in found if one is not None and one.state is RepairState.SENDING]
            self._begun_at.update({(process, one.unique_key): kernel.now for one in begun})
            for _ in begun:
                self._world.about_to_send()
            return found

        ledger.repairs.__dict__.update(claim_all=claims, change_all=changes)

    def sent(self, process: Process, key: str, kind: str) -> None:
        """A send has reached a broker, which may still refuse it."""
        world, kernel = self._world, self._world.kernel
        kernel.saw(f"{kind} by a row", key[-4:])
        if world.why_not_accepted("") is not None:
            self._tell(key, kind, "by a query that nobody stands by")
        if kernel.now - process.stopped_until > STOPPED_LATELY_SECONDS:
            self._under_way = (key, kernel.now, kernel.events)
            self._by_its_row(process, key, kind)
            self._alone(process, key, kind)
            self._looked_for_copies(process, key, kind)
            self._unanswered(process, key, kind)

    def ended(self, process: Process, broker: Broker, half: MessageRecord | None) -> None:
        """END is aimed at the newest copy that the broker had when it was looked for, behind the claim."""
        if half is None:
            return
        key = half.unique_key
        at, log_end = process.looked_for_newest.get((broker.name, key), (-NEVER_SECONDS, 0))
        if at < self._begun_at.get((process, key), NEVER_SECONDS):
            self._tell(key, "END", f"without a last look for what {broker.name} has put back")
        for copy in broker.index.get((half.topic, key), ()):
            is_newer = half.physical_offset < copy.physical_offset <= log_end
            if is_newer and broker.at_offset(copy.physical_offset) is copy:
                self._tell(key, "END", f"on an old copy of its half: {broker.name} had put it back")
                return

    def copied(self, record: MessageRecord) -> None:
        """A broker has stored a copy."""
        kernel, key = self._world.kernel, record.unique_key
        if self._under_way != (key, kernel.now, kernel.events):
            return
        order = self._world.orders[key].keys[0]
        made = self._made[order]
        made[key] += 1
        if made.total() > 1:
            self._told.append(f"{order} was sent {made.total()} times by us: {dict(made)}")

    def closed(self, key: str) -> None:
        """END ROLLBACK has reached a broker."""
        self._told.append(f"{key} was rolled back by us: its row may be that of another half")

    def _tell(self, key: str, kind: str, why: str) -> None:
        self._told.append(f"{key} was sent by {kind} {why}")

    def _by_its_row(self, process: Process, key: str, kind: str) -> None:
        """The primary said PAID when it was asked behind the claim."""
        state, at = self._world.checkers.said(process, self._world.orders[key].keys[0])
        if state != PAID:
            self._tell(key, kind, f"although the primary said {state} when it was asked")
        if at < self._claimed_at.get((process, key), NEVER_SECONDS):
            self._tell(key, kind, "by what its row said before the claim")

    def _looked_for_copies(self, process: Process, key: str, kind: str) -> None:
        """Right before the byte: an END that was long under way comes while others of a batch are asked about."""
        begun_at = self._begun_at.get((process, key), NEVER_SECONDS)
        for name in self._world.cluster.brokers:
            if process.looked_for_copies.get((name, key), (-NEVER_SECONDS, 0))[0] < begun_at:
                self._tell(key, kind, f"without a last look for its copy at {name}")

    def _alone(self, process: Process, key: str, kind: str) -> None:
        """No broker had another half of its order when the row was asked for."""
        order = self._world.orders[key].keys[0]
        _, asked_at = self._world.checkers.said(process, order)
        for broker in self._world.cluster.brokers.values():
            for half in broker.index.get((HALF_TOPIC, order), ()):
                if half.unique_key != key and _stored_at(broker, half) < asked_at:
                    self._tell(key, kind, f"although {half.unique_key} is a half of its order, too")
                    return

    def _unanswered(self, process: Process, key: str, kind: str) -> None:
        """Two looks an interval apart, the last one right before the byte, met no producer that could answer a question
        about a half, and each half was put back since the first one: an END of its producer, a rollback too, would have
        kept it where it was."""
        begun_at = self._begun_at.get((process, key), NEVER_SECONDS)
        for broker in self._world.cluster.brokers.values():
            half = newest(broker, key)
            if half is None or is_parked(broker, key):
                continue
            since, last = process.saw_no_producer.get(broker.name, (NEVER_SECONDS, -NEVER_SECONDS))
            if last < begun_at:
                self._tell(key, kind, f"without a last look for producers at {broker.name}")
            elif last - since < broker.settings.check_interval - 0.1:
                self._tell(key, kind, f"{last - since:.1f} s after a producer was connected to {broker.name}")
            elif _stored_at(broker, half) < since:
                self._tell(key, kind, f"although {broker.name} put its half back before it was seen without a producer")


def _stored_at(broker: Broker, record: MessageRecord) -> float:
    return broker.stored_at[record.physical_offset // RECORD_BYTES - 1]


def newest(broker: Broker, key: str, topic: str = HALF_TOPIC) -> MessageRecord | None:
    """The newest record of a message in a topic of the broker's own; None: it has none."""
    found = [one for one in broker.index.get((topic, key), ()) if broker.at_offset(one.physical_offset) is one]
    return found[-1] if found else None


def is_parked(broker: Broker, key: str) -> bool:
    """The broker has given its half up, and kept it."""
    half, parked = newest(broker, key), newest(broker, key, DISCARD_TOPIC)
    return parked is not None and (half is None or half.physical_offset < parked.physical_offset)


def unsent(world: HalvesWorld, key: str) -> str:
    """Why a lost message is still to be delivered, by its broker or by us; empty: nobody may."""
    order, plan = world.orders[key].keys[0], world.plan
    repair = world.ledger.rows.repairs.get((plan.environment, plan.topic, EVERY_GROUP, key))
    if world.why_not_accepted("") is not None or world.tries_of(order) > 1 or world.table.state(order) != PAID:
        return ""
    where = [at for broker in world.cluster.brokers.values() if (at := _where(broker, key))]
    if not where or "ended" in where:
        return ""
    return f"{key} is {' and '.join(where)}, and was not sent: {_said(repair)}"


def is_of_siblings(row: Candidate | VerdictEntry) -> bool:
    """Its row may belong to another try."""
    codes = (SIBLINGS, SIBLING_DELIVERED, NO_SIBLING_DELIVERED, SIBLING_MAY_BE_GONE)
    return row.verdict is Verdict.UNKNOWN and reason_in(row.evidence).code in codes


def unfinished(world: HalvesWorld) -> str:
    """A repair of a delivered message that is not at its end; empty: there is none. A group without an inbox may never
    know that a message of a cancelled order was delivered, and hears late of one beside a delivered try."""
    for (_, _, scope, key), repair in world.ledger.rows.repairs.items() if world.plan.sends_by_query else ():
        rows = [row for group in world.inboxes.unknown if (row := world.candidate(group, key)) is not None]
        is_over = repair.state in FINISHED_REPAIRS or world.is_cancelled(key) or any(map(is_of_siblings, rows))
        if scope == EVERY_GROUP and world.copies[key] and not is_over:
            return f"the repair of {key}, which was delivered, is {repair.state}: {repair.answer}"
    return ""


def _said(repair: Repair | None) -> str:
    return "nothing is known of it" if repair is None else f"{repair.state} {repair.answer}"


def _where(broker: Broker, key: str) -> str:
    """parked, open, ended; empty: there is no half. One that was given up without a trace counts as ended."""
    half = newest(broker, key)
    if is_parked(broker, key):
        return "parked"
    if half is None:
        return ""
    is_open = half.queue_offset not in broker.finished and half.queue_offset >= broker.check_position
    return "open" if is_open else "ended"
