"""The thin thread against a broker over TCP: half, lost END, evidence, verdict, repair, proof that it arrived.

Everything but Redis, ledger, outbox and inbox is real; families that differ are all asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import zstandard

from reconciler.announcing.port import StepKind
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock, SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.content_digest import content_digest
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.policy.brakes import BreakerRules, CircuitBreaker
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.judging.judge import Judge, JudgingRules
from reconciler.policy.judging.selection import SelectionRules, SuspectSelector
from reconciler.policy.open_halves import HalfState, OpenHalves
from reconciler.policy.plan import EVERY_MESSAGE_MS, SubscriptionPlan, TopicPlan
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.evidence import Horizon
from reconciler.policy.ports.ledger import Candidate, VerdictEntry
from reconciler.policy.repairing.repair import Repairer, RepairRules
from reconciler.policy.round import ReconcileRound
from reconciler.policy.shard_rounds import ShardRounds
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue, TopicNotFound
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.codes import PROBE_TOPIC, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from reconciler.words import said
from tests.polling import eventually
from tests.services.clock_behind import ClockBehind
from tests.services.fixtures import SharedClusters
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import VERSIONS, marks
from tests.simulation.outbox_table import TableRow
from tests.unit.policy.fake_databases import FakeInbox, FakeOutbox
from tests.unit.policy.world import ENVIRONMENT, TOPIC, Events, World
from tests.unit.rocketmq.missing_packages import without_package

GROUP = "billing"
PRODUCERS = "order-service"
#: Every family of the embedded broker, and real brokers.
ALL = ("3.2.6-embedded", "4.2", "4.4", "4.9", "5.x", "3.2.6", "4.2.0", "4.9.7", "5.3.3")


@dataclass(kw_only=True)
class Thread:
    """One topic with one group on one broker, and a reconciler without a daemon."""

    instance: ClientInstance
    address: str
    broker_name: str
    plan: TopicPlan
    ledger: MemoryLedger
    shards: MemoryShards
    outbox: FakeOutbox
    inbox: FakeInbox
    rounds: ReconcileRound
    evidence: RemotingBrokerEvidence

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(topic=TOPIC, broker_name=self.broker_name, queue_id=0)

    def lose_end(self, body: bytes = b"order 1", **outbox: Any) -> str:
        """Half, outbox row, announcement; END never comes."""
        message = Message(topic=TOPIC, body=body, tags="paid", keys=("order-1",), properties={"trace": "abc"})
        sent = self.send_half(message)
        digest = content_digest(topic=TOPIC, tags="paid", keys="order-1", properties={"trace": "abc"}, body=body)
        row = {
            "unique_key": sent.unique_key, "topic": TOPIC, "producer_group": PRODUCERS, "tag": "paid",
            "message_keys": "order-1", "business_id": None, "half_broker": sent.broker_name,
            "half_commit_log_offset": sent.commit_log_offset, "half_queue_offset": sent.queue_offset,
            "properties": None, "body": None, "content_digest": digest, "state": OutboxState.ANNOUNCED,
            "created_at_ms": self.instance.clock.now_ms(), "announced_at_ms": self.instance.clock.now_ms(),
            "settled_at_ms": None,
        } | outbox  # fmt: skip
        self.outbox.rows[sent.unique_key] = TableRow(**row)
        shard = self.plan.shards_of(self.plan.subscriptions[0].subscription)[self.plan.shard_of(sent.unique_key)]
        self.shards._memory(shard).half.add(sent.unique_key)
        return sent.unique_key

    def send_half(self, message: Message) -> SendResult:
        """As the plug-in sends it."""
        return self.instance.sender(PRODUCERS).send(message, queue=self.queue, is_half=True)

    def use_key(self, key: str, *, body: bytes, tags: str) -> None:
        """An ordinary message with the key of another one."""
        message = Message(topic=TOPIC, body=body, tags=tags, unique_key=key)
        self.instance.sender("strangers").send(message, queue=self.queue)

    def consume(self) -> None:
        """The services' messages take effect, others are acknowledged only; the group's offsets are stored.

        A broker accepts a message before it puts it into its queue: what is not there yet is left for later.
        """
        client, address = self.instance.client, self.address
        for queue_id in range(4):
            queue = replace(self.queue, queue_id=queue_id)
            result = pull(client, address, PullRequest(queue=queue, offset=0, group=GROUP))
            for record in result.records:
                if "trace" not in record.properties:
                    continue
                row = World.inbox_row_of(GROUP, record.unique_key, self.instance.clock.now_ms())
                self.inbox.rows.setdefault((GROUP, record.unique_key), row)
            self.instance.offsets.store(address, queue, GROUP, result.next_offset)

    def until(self, unique_key: str, state: RepairState) -> None:
        """Rounds until the repair is in the state."""
        eventually(lambda: self._round(unique_key) is state, within_seconds=60, message=f"{unique_key} {state}")

    def consume_until(self, unique_key: str, state: RepairState) -> None:
        """The same, and the group consumes all the while."""

        def reached() -> bool:
            self.consume()
            return self._round(unique_key) is state

        eventually(reached, within_seconds=60, message=f"{unique_key} {state}")

    def _round(self, unique_key: str) -> RepairState | None:
        """The state of the repair after one more round."""
        self.rounds.run(self.plan.subscriptions[0].subscription)
        return self.state(unique_key)

    def copies(self, unique_key: str, *, count: int = 1) -> tuple[StoredMessage, ...]:
        """The committed copies, as soon as the broker's index holds as many: it accepts a message before."""

        def found() -> tuple[StoredMessage, ...]:
            records = self.evidence.committed_copies(TOPIC, unique_key, horizon=self.horizon, not_before_ms=0)().records
            assert len(records) >= count
            return records

        return eventually(found, within_seconds=60, message=f"{count} committed copies of {unique_key}")

    def half(self, unique_key: str) -> StoredMessage:
        """The oldest half copy, as soon as the broker's index holds one."""

        def found() -> StoredMessage:
            lookup = self.evidence.half_copies(TOPIC, unique_key, horizon=self.horizon, not_before_ms=0, outbox=None)()
            assert lookup.records
            return lookup.records[0]

        return eventually(found, within_seconds=60, message=f"a half copy of {unique_key}")

    @property
    def horizon(self) -> Horizon:
        """What the broker can prove by now."""
        return self.evidence.horizon(TOPIC)

    def state(self, unique_key: str) -> RepairState | None:
        rows = self.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [unique_key]).get(unique_key, ())
        return next((row.state for row in rows if row.scope == EVERY_GROUP), None)

    def verdicts(self, unique_key: str) -> tuple[Verdict | None, Verdict, CandidateState]:
        row = self.ledger.candidates.of_keys(self.plan.subscriptions[0].subscription, [unique_key])[unique_key]
        return row.loss_verdict, row.verdict, row.state


def build(
    instance: ClientInstance, address: str, broker_name: str, order: tuple[Rung, ...], *, clock: Clock | None = None
) -> Thread:
    """`clock`: that of Redis, ledger and rounds; None: this machine's."""
    for topic, queues in ((TOPIC, 4), (PROBE_TOPIC, 1)):
        create_topic(instance, address, topic, queues=queues)
    clock = clock or SystemClock()
    ledger, shards, events = MemoryLedger(clock), MemoryShards(clock), Events()
    outbox, inbox = FakeOutbox(), FakeInbox()
    subscription = World().subscriptions[0]
    plan = TopicPlan(
        environment=ENVIRONMENT,
        topic=TOPIC,
        subscriptions=(
            SubscriptionPlan(subscription=subscription, grace_period_seconds=0.3, since_ms=EVERY_MESSAGE_MS),
        ),
        evidence=CommitEvidence((CommitSource(producer_group=PRODUCERS, topics=frozenset({TOPIC}), url="sqlite://"),)),
        shards=2,
        repair_order=order,
    )
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=0.05)
    rounds = ReconcileRound(
        [plan],
        shards=ShardRounds(
            memory=shards,
            leases=shards,
            rounds=ledger.rounds,
            owner="one",
            lease_seconds=30,
            clock=clock,
            events=events,
        ),
        memory=shards,
        selector=SuspectSelector(
            memory=shards, candidates=ledger.candidates, rules=SelectionRules(skew_margin_seconds=0.05)
        ),
        judge=Judge(
            english=said,
            brokers=evidence,
            outbox=outbox,
            inbox=inbox,
            repairs=ledger.repairs,
            known_brokers=ledger.brokers,
            rules=JudgingRules(skew_margin_seconds=0.05),
        ),
        repairer=Repairer(
            english=said,
            brokers=evidence,
            sends=RemotingBrokerRepairs(instance, english=said),
            outbox=outbox,
            inbox=inbox,
            candidates=ledger.candidates,
            repairs=ledger.repairs,
            hand_overs=ledger.hand_overs,
            holds=ledger.holds,
            rules=RepairRules(verify_after_seconds=0.2, held_wait_seconds=0.1),
            clock=clock,
            owner="one",
            events=events,
        ),
        breaker=CircuitBreaker(holds=ledger.holds, rules=BreakerRules(), owner="one", clock=clock, events=events),
        candidates=ledger.candidates,
        repairs=ledger.repairs,
        outages=ledger.outages,
        outbox=outbox,
        clock=clock,
        owner="one",
        events=events,
    )
    return Thread(
        instance=instance,
        address=address,
        broker_name=broker_name,
        plan=plan,
        ledger=ledger,
        shards=shards,
        outbox=outbox,
        inbox=inbox,
        rounds=rounds,
        evidence=evidence,
    )


def create_topic(instance: ClientInstance, address: str, topic: str, *, queues: int) -> None:
    """It is in the route when this returns."""
    Admin(instance.client).create_topic(address, topic, queues=queues)
    eventually(lambda: routed(instance, topic), within_seconds=60)


def routed(instance: ClientInstance, topic: str) -> bool:
    try:
        return bool(instance.routes.refresh(topic).readable_queues)
    except TopicNotFound:
        return False


@pytest.fixture
def thread(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Iterator[Thread]:
    name, order, check_interval_seconds = request.param
    if name in VERSIONS:
        cluster = shared_clusters.get(name)
        with patient_instance(cluster.name_servers) as instance:
            yield build(instance, cluster.broker().address, cluster.broker().name, order)
        return
    settings = BrokerSettings(
        check_interval_seconds=check_interval_seconds,
        transaction_timeout_seconds=0.2,
        # As real brokers do, within a fraction of the check interval: else the closed half is put back once more.
        finished_batch_interval_seconds=0.05,
    )
    family = name.removesuffix("-embedded")
    with EmbeddedBroker(family=family, settings=settings) as broker, patient_instance(broker.name_servers) as instance:
        yield build(instance, broker.address, broker.settings.broker_name, order)


def over(order: tuple[Rung, ...], *names: str, check_interval_seconds: float = 60.0) -> pytest.MarkDecorator:
    """Embedded families (default: all) and real versions, which check every two seconds."""
    cases = [
        pytest.param((name, order, check_interval_seconds), id=name, marks=marks(name) if name in VERSIONS else ())
        for name in names or ALL
    ]
    return pytest.mark.parametrize("thread", cases, indirect=True)


@over((Rung.END, Rung.REPUBLISH))
def test_lost_end_is_proved_and_ended_on_every_family(thread: Thread) -> None:
    key = thread.lose_end()
    thread.consume_until(key, RepairState.SENT)
    assert thread.verdicts(key) == (Verdict.LOST_CONFIRM, Verdict.LOST_CONFIRM, CandidateState.OPEN)
    (copy,) = thread.copies(key)
    # G3: the repaired message equals its half.
    assert copy.content_digest == thread.half(key).content_digest == thread.outbox.rows[key].content_digest
    thread.consume_until(key, RepairState.DONE)
    eventually(lambda: settled(thread, key), within_seconds=60)
    assert thread.verdicts(key) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED, CandidateState.SETTLED)


@over((Rung.END,), "4.9", "5.x")
def test_three_payments_whose_announcements_took_the_offsets_of_others_are_repaired(thread: Thread) -> None:
    unique_key_topic = "RECONCILER_UNIQUE_KEY"
    admin, address = Admin(thread.instance.client), thread.address
    create_topic(thread.instance, address, unique_key_topic, queues=1)
    place = MessageQueue(topic=unique_key_topic, broker_name=thread.broker_name, queue_id=0)
    queue = AnnouncementQueue(unique_key_topic=unique_key_topic, broker=thread.broker_name, queue_id=0)
    source = RemotingAnnouncementSource(thread.instance.client, thread.instance.routes)
    step = AnnouncementStep(
        thread.plan.subscriptions[0].subscription, unique_key_topic=unique_key_topic, shards=1,
        half_sets=thread.shards, ledger=thread.ledger.announcements, source=source,
        rules=AnnouncementRules(environment=ENVIRONMENT, topic=TOPIC), token="one", clock=SystemClock(),
    )  # fmt: skip

    def announce(*keys: str) -> None:
        for key in keys:
            one = AnnouncedKey(unique_key=key, tag="paid", committed_at_ms=1)
            whole = Announcement(environment=ENVIRONMENT, topic=TOPIC, producer_group=PRODUCERS, keys=(one,))
            message = Message(topic=unique_key_topic, body=encode_announcement(whole), tags=TOPIC)
            thread.instance.sender("announcer").send(message, queue=place)

    def read() -> None:
        eventually(lambda: step.run_once(queue).kind is StepKind.IDLE, within_seconds=60)

    announce(*(f"{number:032X}" for number in range(5)))
    read()
    admin.delete_topic(address, unique_key_topic)
    admin.create_topic(address, unique_key_topic, queues=1)
    lost = [thread.lose_end(body=b"order %d" % number) for number in range(3)]
    for half_set in thread.shards._shards.values():
        half_set.half.difference_update(lost)  # only their announcements tell of them
    announce(*lost, *(f"{number:032X}" for number in range(5, 9)))
    read()
    for key in lost:
        thread.consume_until(key, RepairState.DONE)


@pytest.mark.promise("G3")
@over((Rung.REPUBLISH,))
def test_republished_message_equals_its_half_and_is_no_half_again(thread: Thread) -> None:
    key = thread.lose_end(body=b"x" * 9_000)
    thread.consume_until(key, RepairState.SENT)
    (copy,) = thread.copies(key)
    assert copy.content_digest == thread.outbox.rows[key].content_digest
    assert "TRAN_MSG" not in copy.properties
    thread.consume_until(key, RepairState.DONE)


@over((Rung.END, Rung.REPUBLISH), "3.2.6-embedded", "4.2", "4.4", "5.x", "3.2.6", "4.9.7", "5.3.3")
def test_lost_end_is_ended_once_whoever_used_its_key(thread: Thread) -> None:
    key = thread.lose_end()
    thread.use_key(key, body=b"order 1", tags="refund")
    thread.use_key(key, body=b"theirs", tags="paid")
    thread.consume_until(key, RepairState.SENT)
    assert thread.verdicts(key) == (Verdict.LOST_CONFIRM, Verdict.LOST_CONFIRM, CandidateState.OPEN)
    thread.use_key(key, body=b"theirs", tags="paid")
    thread.consume_until(key, RepairState.DONE)
    eventually(lambda: settled(thread, key), within_seconds=60)
    assert thread.verdicts(key) == (Verdict.LOST_CONFIRM, Verdict.CONSUMED, CandidateState.SETTLED)
    digests = [copy.content_digest for copy in thread.copies(key, count=4)]
    assert (len(digests), digests.count(thread.outbox.rows[key].content_digest or b"")) == (4, 1)


@over((Rung.END,), "4.2", "5.x")
def test_a_half_of_another_group_is_never_ended(thread: Thread) -> None:
    key = thread.lose_end()
    thread.outbox.rows[key] = replace(thread.outbox.rows[key], producer_group="somebody-else")
    thread.consume()
    eventually(lambda: judged(thread, key), within_seconds=60)
    assert thread.verdicts(key) == (None, Verdict.COLLISION, CandidateState.QUARANTINED)
    assert thread.state(key) is None


@over((Rung.END,), "4.2", "4.4", "5.x", "4.2.0", "5.3.3")
def test_guards_refuse_a_committed_copy(thread: Thread) -> None:
    key = thread.lose_end()
    thread.consume_until(key, RepairState.SENT)
    (copy,) = thread.copies(key)
    repairs = RemotingBrokerRepairs(thread.instance, english=said)
    answer = repairs.end_transaction(copy, expected=thread.outbox.rows[key].seen.message, commit=True)()()
    assert answer.outcome == "NOT_SENT"
    thread.use_key(key, body=b"theirs", tags="paid")  # what the index holds before this is all there is
    digests = [found.content_digest for found in thread.copies(key, count=2)]
    assert digests.count(copy.content_digest) == 1


@over((Rung.END,), "4.4", "4.9", "5.x", "4.9.7", "5.3.3", check_interval_seconds=0.2)
def test_half_that_was_rolled_back_is_told_from_an_open_one(thread: Thread) -> None:
    rolled_back, still_open = thread.lose_end(), thread.lose_end()
    repairs = RemotingBrokerRepairs(thread.instance, english=said)
    answer = repairs.end_transaction(
        thread.half(rolled_back), expected=thread.outbox.rows[rolled_back].seen.message, commit=False
    )()()
    assert answer.outcome == "DONE"

    def verdict(key: str) -> Verdict:
        return thread.rounds.keys_by_hand.judge_one(
            thread.plan.subscriptions[0].subscription, key, dry_run=True
        ).entry.verdict

    eventually(lambda: verdict(rolled_back) is Verdict.ROLLED_BACK_WRONGLY, within_seconds=60)

    def is_lost() -> bool:
        found = verdict(still_open)
        if found is Verdict.ROLLED_BACK_WRONGLY:
            pytest.fail("an open half was called rolled back")  # an AssertionError is waited out by eventually()
        return found is Verdict.LOST_CONFIRM

    eventually(is_lost, within_seconds=60)


@over((Rung.END,), "4.4", "4.9", "5.x", "4.9.7", "5.3.3", check_interval_seconds=0.2)
def test_the_half_of_a_dismissed_message_is_told_and_closed_and_no_other(thread: Thread) -> None:
    dismissed, other = thread.lose_end(), thread.lose_end(body=b"order 2")
    subscription = thread.plan.subscriptions[0].subscription
    ledger = KeyInLedger(candidates=[_dismissed(subscription, dismissed)])
    halves = OpenHalves(
        brokers=thread.evidence,
        sends=RemotingBrokerRepairs(thread.instance, english=said),
        outbox=thread.outbox,
        inbox=thread.inbox,
        readers=lambda _: [GROUP],
        clock=SystemClock(),
    )

    def state(key: str, rows: KeyInLedger) -> HalfState:
        return halves.look(thread.plan, key, ledger=rows).state

    eventually(lambda: state(dismissed, ledger) is HalfState.OPEN, within_seconds=60)
    eventually(lambda: state(other, KeyInLedger()) is HalfState.OPEN, within_seconds=60)
    assert halves.look(thread.plan, dismissed, ledger=ledger).until_ms is not None
    refused = halves.close(thread.plan, other, read_ledger=KeyInLedger)
    assert (refused.is_closed, f"group {GROUP} has no effect" in said(refused.told)) == (False, True)

    def closed() -> bool:
        """Checks come every moment here: a copy that one has put back may not be in the index at the second look."""
        return halves.close(thread.plan, dismissed, read_ledger=lambda: ledger).is_closed

    eventually(closed, within_seconds=60)
    eventually(lambda: not closed() and state(dismissed, ledger) is HalfState.ENDED, within_seconds=120)
    lookup = thread.evidence.committed_copies(TOPIC, dismissed, horizon=thread.horizon, not_before_ms=0)()
    assert lookup.records == ()
    assert (
        len(thread.evidence.half_copies(TOPIC, other, horizon=thread.horizon, not_before_ms=0, outbox=None)().records)
        > 1
    )


def _dismissed(subscription: Subscription, key: str) -> Candidate:
    """The row of a key that a person has dismissed."""
    ledger = MemoryLedger(SystemClock())
    verdict = VerdictEntry(
        unique_key=key, verdict=Verdict.QUARANTINED, evidence={"dismissed_by": "operator anna"}, first_seen_ms=1,
        state=CandidateState.SETTLED, wait_seconds=0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=subscription, number=0), [verdict])
    return ledger.candidates.of_keys(subscription, [key])[key]


@over((Rung.END,), "4.2", "5.x")
def test_a_half_in_a_compression_that_nobody_can_read_here_is_unknown_until_somebody_can(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "send_half", partial(send_in_zstd, thread))
    key = thread.lose_end()
    thread.consume()
    with monkeypatch.context() as here:
        without_package(here, "zstandard")
        for _ in range(3):
            thread.rounds.run(thread.plan.subscriptions[0].subscription)
            eventually(lambda: judged(thread, key), within_seconds=60)
        assert thread.verdicts(key) == (None, Verdict.UNKNOWN, CandidateState.OPEN)
        assert thread.state(key) is None
    thread.consume_until(key, RepairState.SENT)
    assert thread.verdicts(key)[0] is Verdict.LOST_CONFIRM


def send_in_zstd(thread: Thread, message: Message) -> SendResult:
    """As a client sends it whose compressType is ZSTD."""
    plain = thread.instance.client.request

    def request(address: str, command: Command, **options: Any) -> Command:
        flag = int(command.fields["f"]) | SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZSTD
        packed = replace(command, fields={**command.fields, "f": str(flag)}, body=zstandard.compress(command.body))
        return plain(address, packed, **options)

    thread.instance.families.facts(thread.address)  # asked before: what is packed is the message alone
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(thread.instance.client, "request", request)
        return Thread.send_half(thread, message)


def test_a_lagging_index_is_unknown_never_a_loss() -> None:
    with EmbeddedBroker(family="5.x") as broker, patient_instance(broker.name_servers) as instance:
        thread = build(instance, broker.address, broker.settings.broker_name, (Rung.END,))
        broker.faults.lag_index(3600)
        key = thread.lose_end()
        horizon = thread.horizon
        row = thread.outbox.rows[key].seen
        lookup = thread.evidence.half_copies(TOPIC, key, horizon=horizon, not_before_ms=0, outbox=row)()
        assert lookup.is_unknown
        assert not horizon.at_ms


def test_a_loss_on_a_broker_that_is_behind_this_host_is_proved_and_repaired_beside_one_that_is_right() -> None:
    """Redis and ledger are as far as the broker: it has caught up with the announcement, and the host is ahead."""
    clock = ClockBehind(660)
    with (
        EmbeddedBroker(settings=BrokerSettings(broker_name="right")) as right,
        EmbeddedBroker(
            settings=BrokerSettings(broker_name="behind"), name_servers=right.name_servers, clock=clock
        ) as behind,
        patient_instance(right.name_servers) as instance,
    ):
        for topic, queues in ((TOPIC, 4), (PROBE_TOPIC, 1)):
            Admin(instance.client).create_topic(right.address, topic, queues=queues)
        thread = build(instance, behind.address, "behind", (Rung.END,), clock=clock)
        eventually(lambda: len(instance.routes.refresh(TOPIC).readable_queues) == 8, within_seconds=60)
        eventually(lambda: set(thread.horizon.at_ms) == {"right", "behind"}, within_seconds=60)
        key = thread.lose_end(created_at_ms=clock.now_ms(), announced_at_ms=clock.now_ms())
        thread.consume_until(key, RepairState.DONE)
        assert thread.verdicts(key)[0] is Verdict.LOST_CONFIRM


def judged(thread: Thread, key: str) -> bool:
    subscription = thread.plan.subscriptions[0].subscription
    thread.rounds.run(subscription)
    return key in thread.ledger.candidates.of_keys(subscription, [key])


def settled(thread: Thread, key: str) -> bool:
    thread.rounds.run(thread.plan.subscriptions[0].subscription)
    return thread.verdicts(key)[2] is CandidateState.SETTLED
