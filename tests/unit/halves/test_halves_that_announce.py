"""Half messages as announcements, read from the embedded broker: which keys reach which shard, and what is left behind
at the broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.announcing.consumer import AnnouncementConsumer
from reconciler.announcing.looking import AnnouncementLook
from reconciler.announcing.outage_watch import OutageWatch
from reconciler.announcing.port import StepKind
from reconciler.announcing.rules import HalfRules, half_tag
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import SystemClock
from reconciler.commands.doctor.half_topics import check_half_topics
from reconciler.commands.status.accounting import Accounting
from reconciler.contract.keyspace import half_queue
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import shard_of
from reconciler.halves.announced import HalfQueues, HalfTopicSource, StoredHalves
from reconciler.policy.commit_query import CommitQuery, KeyType, digest_of
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.ledger import NotedHalf
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.settings.file import load_settings
from reconciler.telling.ports.reports import StoredRound
from reconciler.testing.memory import MemoryLedger
from reconciler.testing.memory_shards import MemoryShards
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import inbox_evidence
from reconciler.wiring.rounds import topic_plans
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.unit.embedded.check_back_stage import Stage, stage
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.shop_of_halves import settings_of
from tests.unit.telling.test_account import stored

SHARDS = 4
BROKER = "embedded"
ROLLBACK = 12
BILLING = Subscription(environment="test", topic=TOPIC, group="billing")
QUERY = CommitQuery(
    topic=TOPIC, sql="SELECT number, status FROM orders WHERE number IN :keys", key="KEYS", key_type=KeyType.INTEGER,
    committed=["PAID"], rolled_back=[], longest_transaction_seconds=1.0,
)  # fmt: skip
PLACE = AnnouncementQueue(unique_key_topic="RMQ_SYS_TRANS_HALF_TOPIC", broker=half_queue(BROKER), queue_id=2)


@pytest.fixture(params=["4.9", "5.x"])
def play(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(request.param, check_interval_seconds=10_000.0) as made:
        made.round()  # up to 4.9 it makes the half topic
        yield made


def key(number: int) -> str:
    return f"7F00000100002A9F12AB34CD56EF{number:04X}"


class Readings:
    """Two subscriptions of the topic, one of which takes a tag alone, and a client that reads halves for them."""

    def __init__(self, instance: ClientInstance, *, memory: MemoryShards | None = None) -> None:
        clock = SystemClock()
        self.memory, self.ledger = memory or MemoryShards(clock), MemoryLedger(clock)
        self.noted: dict[tuple[str, str], NotedHalf] = {}
        self.can_note = True
        self.source = HalfTopicSource(
            instance.client, instance.routes, queries={TOPIC: QUERY}, shards=SHARDS, note=self._note
        )
        self.all, self.paid = (Subscription(environment="test", topic=TOPIC, group=group) for group in ("all", "paid"))
        self.steps = [
            AnnouncementStep(
                one, unique_key_topic="RMQ_SYS_TRANS_HALF_TOPIC", shards=SHARDS, half_sets=self.memory,
                ledger=self.ledger.announcements, source=self.source, rules=HalfRules(topic=TOPIC, tags=tags),
                token="test", clock=clock,
            )
            for one, tags in ((self.all, None), (self.paid, frozenset({"paid"})))
        ]  # fmt: skip
        outages = OutageWatch(self.ledger.announcements, "test", clock=clock)
        look = AnnouncementLook(self.steps, self.memory, outages, clock=clock)
        self.consumer = AnnouncementConsumer(self.steps, self.source, look, clock=clock, threads=2)

    def _note(self, topic: str, halves: Sequence[NotedHalf]) -> bool:
        if self.can_note:
            self.noted |= {(topic, half.unique_key): half for half in halves}
        return self.can_note

    def announced(self, subscription: Subscription) -> dict[str, int]:
        """Key -> its shard."""
        found = {
            number: self.memory._memory(Shard(subscription=subscription, number=number)).half
            for number in range(SHARDS)
        }
        return {one: number for number, keys in found.items() for one in keys}


@contextmanager
def reading(play: Stage) -> Iterator[Readings]:
    with patient_instance(play.broker.address) as instance:
        made = Readings(instance)
        made.consumer.start()
        try:
            yield made
        finally:
            assert made.consumer.stop()


def test_each_half_announces_its_key_once_in_the_shard_of_the_key(play: Stage) -> None:
    """Also one that was rolled back, or put back by a check; halves of other topics and tags announce nothing."""
    before = [play.half(key(number), TAGS="paid" if number % 2 else "shipped") for number in range(8)]
    play.round()  # puts them back
    play.end(before[0], ROLLBACK)
    play.half(key(100), REAL_TOPIC="OTHER")
    play.half("no key of any client\x7f")
    with reading(play) as read:
        expected = {key(number): shard_of(key(number), SHARDS) for number in range(8)}
        eventually(lambda: read.announced(read.all).keys() >= expected.keys(), within_seconds=60)
        late = key(9)
        play.half(late, TAGS="paid")
        expected[late] = shard_of(late, SHARDS)
        eventually(lambda: all(late in read.announced(one) for one in (read.all, read.paid)), within_seconds=60)
        eventually(lambda: all(state.behind == 0 for state in read.consumer.states()), within_seconds=60)
        found = read.announced(read.all)
        assert {one: found[one] for one in expected} == expected
        assert read.announced(read.paid) == {one: at for one, at in expected.items() if int(one[-4:], 16) % 2}
        assert key(100) in found  # REAL_TOPIC is the broker's to write: a sender's own is overwritten
        refused = read.ledger.reports.quarantined("test", limit=10).rows
        assert {(row.refused.reason, row.refused.queue.broker) for row in refused} == {("SHAPE", half_queue(BROKER))}


def test_each_half_is_noted_before_its_key_is_admitted(play: Stage) -> None:
    """Also one whose key no group takes, or nobody can follow; those of topics that no query proves are not."""
    sent = [play.half(key(number), KEYS=str(number // 2), TAGS="shipped") for number in range(4)]
    play.half(key(4), KEYS="no number")
    keyless = play.half("no key of any client\x7f", KEYS="1")
    with patient_instance(play.broker.address) as instance:
        read = Readings(instance)
        read.can_note = False
        queues = [queue for queue in read.source.queues("RMQ_SYS_TRANS_HALF_TOPIC") if queue.queue_id < SHARDS]
        outcomes = [read.steps[0].run_once(queue) for queue in queues for _ in range(3)]
        refused = {outcome.detail for outcome in outcomes if outcome.kind is StepKind.SUSPENDED}
        assert [told.split(":")[0] for told in refused] == ["ConfigurationError"]
        assert read.announced(read.all) == {}
        read.can_note = True
        read.consumer.start()
        eventually(lambda: len(read.announced(read.all)) == 5, within_seconds=60)
        late = play.half(key(5), KEYS="2")
        eventually(lambda: key(5) in read.announced(read.all), within_seconds=60)
        assert read.consumer.stop()
    names = {*map(key, range(6)), f"half-at-{keyless['log']:020d}"}
    assert read.noted.keys() == {(TOPIC, name) for name in names}
    noted = {name: half for (_, name), half in read.noted.items()}
    assert [noted[key(number)].key_digest for number in range(6)] == [
        digest_of("0"), digest_of("0"), digest_of("1"), digest_of("1"), None, digest_of("2")
    ]  # fmt: skip
    assert noted[f"half-at-{keyless['log']:020d}"].key_digest == digest_of("1")
    assert {noted[key(0)].tag_digest, noted[key(5)].tag_digest} == {digest_of("shipped"), None}
    assert {half.broker for half in noted.values()} == {BROKER}
    assert sent[0]["log"] < late["log"]


def test_what_brokers_have_is_noted_to_its_end_without_a_move_of_any_offset(play: Stage) -> None:
    with patient_instance(play.broker.address) as instance:
        read = Readings(instance)
        shards = [Shard(subscription=one, number=number) for one in (read.all, read.paid) for number in range(SHARDS)]
        rest = StoredHalves(read.source, instance.routes, read.memory, {TOPIC: shards})

        def why() -> str | None:
            told = rest.read_to_end(TOPIC)
            return None if told is None else told.code.name

        play.half(key(0), KEYS="1")
        assert why() == "answer.halves-left"  # no announcement consumer has begun
        read.consumer.start()
        eventually(lambda: key(0) in read.announced(read.all), within_seconds=60)
        assert read.consumer.stop()
        for number in range(1, 41):  # more than one pull
            play.half(key(number), KEYS=str(number))
        places = [(shard, replace(PLACE, queue_id=shard.number)) for shard in shards]
        before = read.memory.positions(places)
        assert why() is None
        assert read.noted.keys() == {(TOPIC, key(number)) for number in range(41)}
        assert read.memory.positions(places) == before
        read.can_note = False
        assert why() == "answer.halves-silent"
        assert rest.read_to_end("OTHER") is not None  # its announcements are no halves


def test_below_the_offset_of_any_shard_the_halves_of_all_are_noted(play: Stage) -> None:
    """A shard reads by itself until it has come to the end: the sibling of a key is in any other shard."""
    for number in range(8):
        play.half(key(number), KEYS="7")
    with patient_instance(play.broker.address) as instance:
        read = Readings(instance)
        number = shard_of(key(0), SHARDS)
        alone = next(one for one in read.source.queues("RMQ_SYS_TRANS_HALF_TOPIC") if one.queue_id == number)
        eventually(lambda: read.steps[0].run_once(alone).kind is StepKind.IDLE, within_seconds=60)
        assert set(read.announced(read.all).values()) == {number}
        shards = [Shard(subscription=read.all, number=number) for number in range(SHARDS)]
        assert StoredHalves(read.source, instance.routes, read.memory, {TOPIC: shards}).read_to_end(TOPIC) is None
        assert read.noted.keys() == {(TOPIC, key(number)) for number in range(8)}


def test_reading_leaves_no_group_and_no_offset_at_the_broker(play: Stage) -> None:
    play.half(key(1))
    with patient_instance(play.broker.address) as instance:
        admin = Admin(instance.client)
        before = set(admin.topics(play.broker.address))
        with reading(play) as read:
            eventually(lambda: key(1) in read.announced(read.all), within_seconds=60)
        assert set(admin.topics(play.broker.address)) == before
        assert set(admin.groups(play.broker.address)) == {"TOOLS_CONSUMER"}  # a real one has it from its start
        queue = MessageQueue(topic="RMQ_SYS_TRANS_HALF_TOPIC", broker_name=BROKER, queue_id=0)
        assert not Offsets(instance.client).of_group(play.broker.address, queue, "TOOLS_CONSUMER")


def shard_two(read: Readings) -> Shard:
    return Shard(subscription=read.all, number=2)


def test_a_consumer_that_begins_anew_goes_on_behind_what_each_shard_has_stored(play: Stage) -> None:
    for number in range(8):
        play.half(key(number))
    with patient_instance(play.broker.address) as instance:
        first = Readings(instance)
        first.consumer.start()
        eventually(lambda: len(first.announced(first.all)) == 8, within_seconds=60)
        assert first.consumer.stop()
        held = first.memory.position(shard_two(first), PLACE)
        assert held is not None
        proof = first.memory.known_records(shard_two(first), PLACE).proof
        assert proof is not None
        assert proof.following == held
        again = Readings(instance, memory=first.memory)
        again.consumer.start()
        play.half(key(9))
        eventually(lambda: len(again.announced(again.all)) == 9, within_seconds=60)
        assert again.consumer.stop()
        # What was read before is not read again.
        assert sum(state.admitted_keys for state in again.consumer.states()) < 2 * len(again.steps)


def test_what_waits_is_told_by_shard_and_topic(play: Stage) -> None:
    sent = [play.half(key(number)) for number in range(6)]
    with patient_instance(play.broker.address) as instance:
        queues = HalfQueues(instance.client, instance.routes, shards=SHARDS)
        found, silent = queues.of_topic(TOPIC, {BROKER: sent[0]["queue"]})
        assert not silent
        waiting = found[BROKER]
        number = shard_of(key(5), SHARDS)
        assert waiting.end == sent[5]["queue"] + 1
        assert waiting.waiting_since_ms(half_tag(TOPIC, number), sent[5]["queue"]) == play.clock.now_ms()
        assert waiting.waiting_since_ms(half_tag(TOPIC, number), sent[5]["queue"] + 1) is None
        assert waiting.waiting_since_ms(half_tag("OTHER", number), 0) is None


@contextmanager
def connected(play: Stage, folder: Path) -> Iterator[Connections]:
    with Connections.for_people(load_settings(settings_of(play, folder), {})) as connections:
        yield connections


@pytest.mark.parametrize(
    ("family", "config", "found"),
    [
        ("3.2.6", {}, ("fail", "doctor.no-half-topic")),
        ("4.9", {}, ("note", "doctor.no-half-topic-yet")),
        ("5.x", {}, ("ok", "doctor.halves-read")),
        ("5.x", {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"},
         ("fail", "doctor.halves-not-in-topic")),
    ],
)  # fmt: skip
def test_doctor_tells_of_each_broker_whether_its_halves_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, config: dict[str, str], found: tuple[str, str]
) -> None:
    with stage(family, check_interval_seconds=10_000.0) as play, connected(play, tmp_path) as connections:
        connections.admin.create_topic(play.broker.address, TOPIC, queues=1)
        known = connections.admin.broker_config(play.broker.address)
        monkeypatch.setattr(Admin, "broker_config", lambda *_: known | config)
        (told,) = check_half_topics(connections)
        assert (told.level, told.found.code.name) == found


def test_halves_that_no_round_has_taken_are_not_accounted_for(play: Stage, tmp_path: Path) -> None:
    """By shard: one waits for its first half that its round has not taken, others for nothing."""
    sent = [play.half(key(number)) for number in range(6)]
    last = Shard(subscription=BILLING, number=shard_of(key(5), 16))
    play.clock.advance(60)
    asked_ms = play.clock.now_ms()
    with connected(play, tmp_path) as connections:
        (topic,) = topic_plans(connections.settings)
        memory = MemoryShards(SystemClock())
        inbox = inbox_evidence(connections)

        def until(taken: dict[str, int]) -> set[int | None]:
            done = replace(stored(last.number, 2).done, shard=last, offsets=taken)
            rounds = [StoredRound(done=done, is_void=False, stored_at_ms=asked_ms)]
            accounting = Accounting(connections, memory, inbox, asked_ms=asked_ms, within_seconds=None)
            return {link.until_ms for link in accounting._half_links(topic, rounds)}

        place = f"{half_queue(BROKER)}/{last.number}"
        end = sent[5]["queue"] + 1
        assert until({place: end}) == {asked_ms}
        assert until({place: end - 1, f"{BROKER}/{last.number}": 99}) == {asked_ms - 60_000}
        assert until({place: end + 1}) == {None}  # the broker lost its tail
        assert until({}) == {asked_ms - 60_000}  # a broker that was not read yet
