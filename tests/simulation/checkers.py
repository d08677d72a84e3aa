"""Independent judges of a history. They look at orders, effects, brokers' logs and Redis' memory: at what is true, not
at what the reconciler believes, and share no code with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkback_consumers.message import HandedOverMessage
from reconciler.contract.defaults import CLAIM_LEASE_SECONDS
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, OutboxState, RepairState
from reconciler.contract.unique_key import key_of
from reconciler.contract.verdicts import LOSSES, Verdict
from tests.simulation.acts_judged import ActsJudged
from tests.simulation.announcements_judged import AnnouncementsJudged, keys_of_announcement
from tests.simulation.broker import THEIRS
from tests.simulation.clock_steps import waits_for_a_clock
from tests.simulation.kernel import BASE_MS
from tests.simulation.leases_judged import LeasesJudged
from tests.simulation.redis_data import Scores
from tests.simulation.reviews_judged import ReviewsJudged

if TYPE_CHECKING:
    from tests.simulation.kernel import Process
    from tests.simulation.world import World

UNIQUE_KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
#: Troubles after which a message may be nowhere.
DELETING = ("retention", "broker tail", "route")
#: Properties that brokers and clients add; all others are the service's own.
NOT_USERS = frozenset(
    {"UNIQ_KEY", "KEYS", "TAGS", "WAIT", "TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "TRANSACTION_CHECK_TIMES",
     "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "__transactionId__"}
)  # fmt: skip


@dataclass(slots=True)
class Judgement:
    """What was found in one history."""

    seed: int
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    body_differs: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    unnecessary: list[str] = field(default_factory=list)
    #: Repairs that turned out to be superfluous by what happened while they were decided; nobody could know.
    raced: list[str] = field(default_factory=list)
    #: Other broken promises: an exception where none may be, a budget exceeded, a halt.
    other: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    repairs: int = 0
    look_ups: int = 0
    settled_seconds: float = 0.0

    def count(self, world: World) -> None:
        """What the history was."""
        self.messages, self.seen = len(world.orders), world.kernel.seen

    @property
    def accidents(self) -> list[str]:
        """Every accident, in words; repairs in vain are counted apart."""
        named = (
            ("lost", self.lost), ("double", self.double), ("phantom", self.phantom),
            ("body differs", self.body_differs), ("unaccounted", self.unaccounted), ("other", self.other),
        )  # fmt: skip
        return [f"{name}: {what}" for name, found in named for what in found]

    @property
    def has_failed(self) -> bool:
        """At least one accident."""
        return bool(self.accidents)


class Checkers:
    """Fed by the world while a history runs, asked at its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.judgement = Judgement(seed=world.swarm.seed)
        self.acts = ActsJudged(world, self.judgement)
        self.announcements = AnnouncementsJudged(world, self.judgement)
        self.leases = LeasesJudged(world, self.judgement.other)
        self.reviews = ReviewsJudged(world, self.judgement.other)
        self.copies: Counter[str] = Counter()
        self._look_ups: Counter[str] = Counter()
        self._rolled_back: set[str] = set()
        #: Group and key of what left pending by a setting with wrong tags: the sweeper announces it again.
        self._left_by_setting: set[tuple[str, str]] = set()
        #: Offsets below which the floors have been looked at.
        self._floors: dict[tuple[str, str, int], int] = {}
        #: Look-ups for a group of keys whose copy waits for it, by process: time of the first, and number.
        self._gated: dict[tuple[Process, str], tuple[float, int]] = {}

    # ---- while it runs

    def looked_up(self, process: Process, topic: str, key: str) -> None:
        """A QUERY_MESSAGE of the reconciler: for a slow group only the trickle asks about keys whose copy waits for it.

        Another group may have passed the same message: what is asked for that one is its own affair.
        """
        self._look_ups[key] += 1
        self.judgement.look_ups += 1
        world, group = self._world, process.asked_offsets_of
        is_repaired = (world.plan.environment, topic, "*", key) in world.ledger.rows.repairs
        if topic != world.plan.topic or is_repaired or world.redis_was_set:
            return  # a clock of Redis that is wrong makes keys look old, or groups quick: that costs look-ups, no more
        self._within_grace(key)
        if self._is_waiting_long(key, group):
            now = world.kernel.now
            since, number = self._gated.get((process, group), (now, 0))
            self._gated[process, group] = since, number + 1
            if number + 1 > 30 + now - since:
                self.judgement.other.append(f"{process.name} asked {number + 1} times for {group}, which is slow")
                self._gated[process, group] = now, -1_000

    def _within_grace(self, key: str) -> None:
        """No look-up of a message before its group had its time, unless it was announced before its commit."""
        world = self._world
        age = world.kernel.now - self.committed_at(key)
        if age < world.swarm.grace_period - world.swarm.skew_margin - 0.1 and key not in world.troubles.forged:
            self.judgement.other.append(f"{key} was looked up {age:.1f} s after its commit: no grace period")

    def _is_waiting_long(self, key: str, group: str) -> bool:
        since = self._world.kernel.now - self._world.swarm.grace_period
        # A broker outside the route holds up no group: none can consume from it.
        for broker in self._world.cluster.routed:
            for record in broker.index.get((self._world.plan.topic, key), ()):
                is_copy = record.body != THEIRS and broker.at_offset(record.physical_offset) is record
                stored_at = broker.stored_at[record.physical_offset // 100 - 1]
                if is_copy and record.system_flag != 4 and stored_at < since and broker.is_queued(record):
                    return self._waits(broker, record.topic, record.queue_id, record.queue_offset, groups=[group])
        return False

    def told_to_roll_back(self, key: str) -> None:
        """A producing process has said END ROLLBACK."""
        self._rolled_back.add(key)

    def was_rolled_back(self, key: str) -> bool:
        """A producing process has said so."""
        return key in self._rolled_back

    def stopped(self, reason: str) -> None:
        """The product says that a shard's memory is damaged, which no trouble does."""
        self.judgement.other.append(f"a shard stopped: {reason}")

    def recorded(self, root: str, members: tuple[bytes, ...]) -> None:
        """A key enters a commit set only after its effect, or another message's (the sweeper compares the contents)."""
        group = root.split(":")[4]
        inboxes = self._world.inboxes[group]
        for member in members:
            if not inboxes.has_row(key_of(member)) and not inboxes.is_taken(key_of(member)):
                self.judgement.other.append(f"{key_of(member)} was recorded for {group} before its effect")

    def copied(self, record: Any) -> None:
        """A committed copy was stored."""
        self.copies[record.unique_key] += 1
        self._world.since_judged.given(record.unique_key)
        self._world.kernel.tell(f"{record.broker_name} stores a copy of {record.unique_key[-4:]}")

    def repaired(self, process: Process, unique_key: str, kind: str) -> None:
        """The reconciler's END COMMIT or republish has reached a broker."""
        world = self._world
        self.judgement.repairs += 1
        world.kernel.tell(f"repair by {kind} of {unique_key[-4:]}")
        if world.swarm.of("long troubles") and not world.is_healed:
            world.kernel.saw("repair amid troubles", unique_key[-4:])
        if world.swarm.of("no outbox known"):
            world.kernel.saw("repair without a known outbox", unique_key[-4:])
        age = world.kernel.now - self.committed_at(unique_key)
        # Announced before its commit, its row tells how old it is, by its database's clock.
        differs = world.swarm.skew_margin if unique_key in world.troubles.forged else 0.1
        if age < world.swarm.grace_period - differs and not world.redis_was_set:
            self.judgement.other.append(f"{unique_key} was repaired {age:.1f} s after its commit: no grace period")
        if not self._committed(unique_key):
            self.judgement.phantom.append(f"{unique_key} was repaired by {kind}, but its business never committed")
            return
        self._claimed(process, unique_key, kind)
        since = world.kernel.now - world.contradicted.get(unique_key, world.kernel.now)
        # What a row contradicts that nobody can read is known to nobody.
        are_read = not any(unique_key in database.damaged for database in world.outboxes)
        if are_read and since > CLAIM_LEASE_SECONDS and world.kernel.now - process.stopped_until > 1.0:
            self.judgement.other.append(f"{unique_key} is sent by {kind}: two outboxes say that it is another message")
        self.acts.repaired(process, unique_key, kind)
        world.set_ups.repaired(process, unique_key, kind)
        self._proved(process, unique_key, kind)
        lacking = self._lacking(unique_key)
        halves = [world.inboxes[group].half_since(unique_key) for group in lacking]
        came = [e.whole_at for inbox in world.inboxes.values() for e in inbox.effects if e.unique_key == unique_key]
        has_raced = any(at >= process.asked_inbox_at for at in came)
        if halves and not has_raced and all(at is not None and at < process.asked_inbox_at for at in halves):
            self.judgement.other.append(f"{unique_key} is sent by {kind}: every effect that it lacks is there by half")
        if not lacking:
            effects = [e.at for inbox in world.inboxes.values() for e in inbox.effects if e.unique_key == unique_key]
            if effects and max(effects) < process.asked_inbox_at:
                self.judgement.unnecessary.append(f"{unique_key} by {kind}: every group had its effect, and was asked")
            else:
                self.judgement.raced.append(f"{unique_key} by {kind}: the last effect came while it was decided")
        else:
            self._in_vain(process, unique_key, kind)

    def handed_over(self, unique_key: str, group: str) -> None:
        """The original hands a message to the business: in vain if the group has it, or a copy waits for it."""
        world = self._world
        self.judgement.repairs += 1
        if any(effect.unique_key == unique_key for effect in world.inboxes[group].effects):
            self.judgement.unnecessary.append(f"{unique_key} was handed over to {group}, which had it")
        elif self.copies[unique_key]:
            self.judgement.unnecessary.append(f"{unique_key} was handed over to {group}, a copy is under way")

    def _claimed(self, process: Process, unique_key: str, kind: str) -> None:
        """A sender has written SENDING under its own token. A process that was stopped between writing and
        sending may have lost its claim meanwhile: no client can fence a broker, and the inbox makes it harmless."""
        world = self._world
        row = world.ledger.rows.repairs.get((world.plan.environment, world.plan.topic, "*", unique_key))
        if world.kernel.now - process.stopped_until < 1.0:
            return
        if row is None or row.state is not RepairState.SENDING or not (row.token or "").startswith(f"{process.name}/"):
            said = "nothing" if row is None else f"{row.state} of {row.token}"
            self.judgement.other.append(f"{unique_key}: {process.name} sends {kind}, the ledger says {said}")

    def _proved(self, process: Process, unique_key: str, kind: str) -> None:
        """No repair before the index of every broker, that was heard of then, was proved to have passed the commit."""
        committed_at = self.committed_at(unique_key)
        for name in self._world.cluster.brokers:
            if self._is_unheard_of(name) or process.knew_nothing_of.get(name, -1.0) > committed_at:
                continue
            if process.proved.get(name, (0, 0.0))[1] < committed_at:
                self.judgement.other.append(f"{unique_key} was repaired by {kind}, the index of {name} was not proved")

    def _is_unheard_of(self, name: str) -> bool:
        """No round of any process has seen the broker in the route, and it is not there now."""
        plan = self._world.plan
        noted = self._world.ledger.rows.brokers.get((plan.environment, plan.topic), {})
        return name in self._world.cluster.unrouted and name not in noted

    def _lacking(self, unique_key: str) -> list[str]:
        """Groups that take the message and have no effect of it."""
        world = self._world
        order = world.orders.get(unique_key)
        wanting = [group for group in world.inboxes if order is None or world.takes(group, order.tag)]
        wanting = [group for group in wanting if not world.since_judged.is_before(group, unique_key)]
        return [group for group in wanting if not world.inboxes[group].has_row(unique_key)]

    def _in_vain(self, process: Process, unique_key: str, kind: str) -> None:
        """A copy waits at its broker for a group that is slow. It could have been known if it lies before the probe
        that proved the index to this process."""
        if kind != "end" and self._world.set_ups.has_filtered(unique_key):
            return
        for broker in self._world.cluster.brokers.values():
            for (topic, queue_id), queue in broker.queues.items():
                if topic != self._world.plan.topic:
                    continue
                for record in queue:
                    if record.unique_key != unique_key or record.body == THEIRS:
                        continue
                    if not self._waits(broker, topic, queue_id, record.queue_offset, groups=self._world.inboxes):
                        continue
                    if self._is_unheard_of(broker.name):
                        self.judgement.raced.append(f"{unique_key} by {kind}: a copy waits at {broker.name}, unrouted")
                    elif record.physical_offset > process.proved.get(broker.name, (0, 0.0))[0]:
                        self.judgement.raced.append(f"{unique_key} by {kind}: a copy came after the index was proved")
                    elif (
                        not broker.facts.indexes_committed
                        and broker.at_offset(record.prepared_transaction_offset) is None
                    ):
                        self.judgement.raced.append(f"{unique_key} by {kind}: 3.2.6, its prepared record has expired")
                    else:
                        self.judgement.unnecessary.append(f"{unique_key} by {kind}: a copy waits at {broker.name}")
                    return

    def _waits(self, broker: Any, topic: str, queue_id: int, queue_offset: int, *, groups: Iterable[str]) -> bool:
        return any(broker.offsets.get((group, topic, queue_id), 0) <= queue_offset for group in groups)

    def before_round(self, root: str) -> tuple[set[bytes], set[bytes]]:
        """Keys that must still be pending after the round, and keys that must not."""
        values = self._world.redis.data.values
        consumed: set[bytes] = set()
        for name, value in values.items():
            if name.startswith(f"{root}:commit") and isinstance(value, set):
                consumed |= value
        half = values.get(f"{root}:half") or set()
        pending = values.get(f"{root}:pending") or {}
        return (set(half) | set(pending)) - consumed, consumed

    def after_round(self, root: str, before: tuple[set[bytes], set[bytes]]) -> None:
        """No key vanishes in a round without a match, and matched ones do not stay."""
        pending = self._world.redis.data.values.get(f"{root}:pending")
        kept = set(pending) if isinstance(pending, Scores) else set()
        for member in sorted(kept & before[1])[:3]:
            self.judgement.unaccounted.append(f"{key_of(member)} stays pending in {root} though it was consumed")
        for member in sorted(before[0] - kept)[:3]:
            self.judgement.unaccounted.append(f"{key_of(member)} vanished in a round of {root} without a match")
        earliest_ms, latest_ms = self._world.redis_times_ms
        for member in sorted(kept):
            score = pending[member] if pending else 0
            if not earliest_ms - 3_600_000 < score <= latest_ms + 60_000:
                self.judgement.unaccounted.append(f"{key_of(member)} is pending since {score}, which is no time")
                break

    def floor_raised(self, subscription: Subscription) -> None:
        """Everything announced below a floor has its effect or a ledger row: it would not be read again.

        An open row is followed from the ledger, whatever Redis remembers.
        """
        world = self._world
        for (owner, _), floor in world.ledger.rows.floors.items():
            if owner != subscription:
                continue
            broker = world.cluster.brokers[floor.broker]
            if broker.era:
                continue  # offsets mean other announcements since it lost its tail: the outbox announces again
            place = (subscription.group, floor.broker, floor.queue_id)
            start = self._floors.get(place, 0)
            count = floor.queue_offset - start
            for record in broker.read(UNIQUE_KEY_TOPIC, floor.queue_id, start, count) if count > 0 else ():
                if record.queue_offset < floor.queue_offset:
                    self._below_floor(subscription.group, record.body)
            self._floors[place] = max(start, floor.queue_offset)

    def _below_floor(self, group: str, body: bytes) -> None:
        for key in keys_of_announcement(body):
            is_known = self._world.inboxes[group].has_row(key) or self._world.candidate(group, key) is not None
            is_known = is_known or (group, key) in self._left_by_setting or self._world.inboxes[group].is_taken(key)
            if not is_known and not self._is_not_taken(group, key):
                self.judgement.other.append(f"{key} of {group} lies below the floor, and nothing is known of it")

    def forgotten(self, sender: Process, root: str, members: tuple[bytes, ...]) -> None:
        """Keys leave pending by ZREM only after their ledger rows are committed, or if their tag is not taken.

        By the setting of the sender, which may be dead: a Redis that stood still executes what it sent before.
        """
        group = root.split(":")[4]
        for member in members:
            key = key_of(member)
            row = self._world.candidate(group, key)
            is_open = row is None or row.state is CandidateState.OPEN or row.damage is not None
            is_set_wrong = self._world.may_be_left_out(group) and sender in self._world.wrongly_set
            if (group, key) in self.acts.dismissed:
                continue  # closed for good, also where its row cannot be read
            if is_open and is_set_wrong and self._committed(key):
                self._left_by_setting.add((group, key))
            elif is_open and not self._is_not_taken(group, key):
                self.judgement.unaccounted.append(f"{key} left pending of {group} before its ledger row said why")

    def _is_not_taken(self, group: str, key: str) -> bool:
        order = self._world.orders.get(key)
        return order is not None and self._committed(key) and not self._world.takes(group, order.tag)

    # ---- at the end

    def judge(self, *, is_quiet: bool, why_not: str) -> Judgement:
        """The verdict on the whole history."""
        world, judgement = self._world, self.judgement
        judgement.count(world)
        for group, inbox in world.inboxes.items():
            effects = Counter(effect.unique_key for effect in inbox.effects)
            # Instances that are bound to different databases double effects: that must be told, no more.
            excused = inbox.doubled() if world.swarm.of("inboxes by instance") else {}
            judgement.double += [
                f"{key} had {n} effects in {group}" for key, n in effects.items()
                if n > (len(inbox.databases) if key in excused else 1)
            ]  # fmt: skip
            judgement.double += [
                f"{key} had two effects in {group}, and nobody is told" for key in excused
                if not world.excuses.is_double_told(group, key)
            ]  # fmt: skip
            for effect in inbox.effects:
                if not self._committed(effect.unique_key):
                    judgement.phantom.append(f"{effect.unique_key} had an effect in {group}, but was never committed")
                self._compare(effect, group)
                if effect.source == HandedOverMessage.__name__:
                    self.acts.handed_over(group, effect.unique_key, effect.at)
            for key in world.orders:
                if self._committed(key) and not effects[key] and world.owes(group, key):
                    self._without_effect(group, key)
        world.since_judged.judge()
        world.set_ups.judge()
        judgement.other += self.acts.untold()
        world.business_queues.judge(judgement.other)
        self.announcements.judge()
        self._outboxes()
        self._budgets()
        self._verdicts()
        judgement.other += [
            f"{key} has committed, and a broker was told to roll it back" for key in sorted(self._rolled_back)
            if self._committed(key)
        ]  # fmt: skip
        if not is_quiet and not judgement.lost:
            judgement.unaccounted.append(f"not quiet at the end: {why_not}")
        return judgement

    def committed_at(self, key: str) -> float:
        """When the business committed; long ago for a key without a commit."""
        return max(database.orders.get(key, -1e9) for database in self._world.outboxes)

    def _committed(self, key: str) -> bool:
        return self._world.is_committed(key)

    def _compare(self, effect: Any, group: str) -> None:
        order = self._world.orders.get(effect.unique_key)
        if order is None:
            return
        users = {name: value for name, value in effect.properties.items() if name not in NOT_USERS}
        marks = [one.name for one in self._world.outboxes if effect.unique_key in one.orders]
        wanted = {**order.properties, "BUSINESS_ID": f"business-{order.number}"}
        if not any(effect.unique_key in one.nameless for one in self._world.outboxes):
            wanted |= {"RECONCILER_OUTBOX": marks[0] if marks else users.get("RECONCILER_OUTBOX", "")}
        words = [word for word in (effect.keys or "").split() if word != effect.unique_key]
        if (effect.body, effect.tag, users, tuple(words)) != (order.body, order.tag, wanted, order.keys):
            self.judgement.body_differs.append(f"{effect.unique_key} in {group} differs from what was sent")

    def _without_effect(self, group: str, key: str) -> None:
        world, judgement = self._world, self.judgement
        row = world.candidate(group, key)
        if (row is None or row.state is CandidateState.OPEN) and waits_for_a_clock(world, key):
            return
        is_unreadable = key in world.troubles.unreadable or world.inboxes[group].has_unreadable_half(key)
        if world.business_queues.is_told(group, key):
            return
        if not world.excuses.is_excused(group, key) and not is_unreadable:
            said = "nothing" if row is None else f"{row.state} {row.verdict}: {row.evidence.get('reason')}"
            judgement.lost.append(f"{key} has no effect in {group}; the ledger says {said}")
            return
        if not world.excuses.is_told(group, key):
            judgement.unaccounted.append(f"{key} cannot take effect in {group}, and nobody is told")

    def _outboxes(self) -> None:
        """Business and outbox row are one transaction, a tombstone is never beside an order, and what is settled took
        effect in every group that takes it, whatever the setting said once, or the ledger says why it cannot."""
        world = self._world
        for database in world.outboxes:
            self.judgement.other += [
                f"the row of {key} was deleted for its age, {age:.0f} s after it was written"
                for key, age in database.deleted.items()
            ]
            for key in database.orders:
                row = database.rows.get(key)
                if row is None or not row.is_committed:
                    self.judgement.other.append(f"{key} was committed, its outbox row says {row and row.state}")
                elif row.state is OutboxState.SETTLED and not all(
                    world.excuses.is_told(group, key) for group in self._lacking(key) if world.owes(group, key)
                ):
                    self.judgement.other.append(f"{key} is settled, and not every group that takes it has its effect")

    def _verdicts(self) -> None:
        """No verdict says that a group acknowledged without an effect when the effect had been there for long."""
        for (subscription, key), row in self._world.ledger.rows.candidates.items():
            is_dismissed = (subscription.group, key) in self.acts.dismissed
            if row.verdict in LOSSES and row.state is not CandidateState.OPEN and not is_dismissed:
                self.judgement.other.append(
                    f"{key} is closed in {subscription.group} as {row.verdict}: a loss stays open"
                )
            if row.loss_verdict is Verdict.EXPIRED and not any(map(self._world.swarm.of, DELETING)):
                self.judgement.other.append(f"{key} is called EXPIRED, but nothing has ever been deleted")
            before = row.evidence.get("taken_back")
            said = {str(row.verdict), str(before.get("verdict")) if isinstance(before, dict) else ""}
            if self._world.pops(subscription.group) and Verdict.DELIVERED_NOT_APPLIED in said:
                self.judgement.other.append(f"{key} was called acknowledged in {subscription.group}, which pops")
            if row.verdict is not Verdict.DELIVERED_NOT_APPLIED:
                continue
            at = [e.at for e in self._world.inboxes[subscription.group].effects if e.unique_key == key]
            said_at = (row.updated_at_ms - BASE_MS) / 1000
            if at and at[0] < said_at - self._world.swarm.skew_margin - 1:
                self.judgement.other.append(f"{key} is called {row.verdict} in {subscription.group}, but was applied")

    def ended(self, process: Process, broker: Any, half: Any) -> None:
        """END COMMIT by the reconciler: it must be aimed at the newest copy that the index was proved to have."""
        limit = process.proved.get(broker.name, (0, 0.0))[0]
        for record in broker.index.get((half.topic, half.unique_key), ()) if half is not None else ():
            is_newer = half.physical_offset < record.physical_offset < limit
            if is_newer and broker.facts.has_half_topic and broker.at_offset(record.physical_offset) is record:
                self.judgement.other.append(f"{half.unique_key} was ended on an old half copy")
                return

    def _budgets(self) -> None:
        worst = self._look_ups.most_common(1)
        if worst and worst[0][1] > self._world.look_ups_max:
            self.judgement.other.append(f"{worst[0][0]} was looked up {worst[0][1]} times")
