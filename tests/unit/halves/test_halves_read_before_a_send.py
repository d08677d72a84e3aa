"""Half queues read to their ends before something is sent by a row of the business, from the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from reconciler.contract.kept_facts import QUERY_NOT_ACCEPTED
from reconciler.evidence.lookup import Lookups
from reconciler.halves.reading import LOOKED_BACK, RemotingHalfReading
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.noted_halves import SqlNotedHalves
from reconciler.policy.commit_query import digest_of
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.evidence import Horizon
from reconciler.policy.ports.ledger import NotedHalf
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.sql.tables import ledger_metadata
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.unit.embedded.check_back_stage import Stage, stage, two_stages
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.test_halves_that_announce import BROKER, QUERY, key


@pytest.fixture(params=["4.9", "5.x"])
def play(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(request.param, check_interval_seconds=10_000.0) as made:
        made.round()  # up to 4.9 it makes the half topic
        yield made


@pytest.fixture
def instance(play: Stage) -> Iterator[ClientInstance]:
    with patient_instance(play.broker.address) as made:
        Admin(made.client).create_topic(play.broker.address, TOPIC, queues=4)
        yield made


@pytest.fixture
def ledger() -> Iterator[sa.Engine]:
    """One that bounds the length of names, and calls a longer one damaged."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    ledger_metadata.create_all(engine)
    yield engine
    engine.dispose()


class Reading:
    """One process that reads, and its ledger."""

    def __init__(
        self,
        instance: ClientInstance,
        ledger: sa.Engine,
        *,
        at_once: int = 100,
        seconds: float = 60.0,
        looked_back: Sequence[int] = LOOKED_BACK,
    ) -> None:
        #: Brokers whose index follows.
        self.proved = {BROKER, "a", "b"}
        self._ledger = ledger
        self.noted = SqlNotedHalves(LedgerDatabase(ledger))
        self.is_accepted = True
        self._reading = RemotingHalfReading(
            instance, client=instance.client, environment="test", queries={TOPIC: QUERY}, noted=self.noted,
            why_not=lambda topic: None if self.is_accepted else QUERY_NOT_ACCEPTED(topic=topic),
            horizon=lambda _topic: Horizon(at_ms=dict.fromkeys(self.proved, 1)), noted_at_once=at_once,
            read_seconds=seconds, looked_back=looked_back,
        )  # fmt: skip
        self._lookups = Lookups(instance.client, instance.routes, instance.families)

    def copies(self, unique_key: str) -> Sequence[StoredMessage]:
        """Oldest first."""
        return self._lookups.view_message(TOPIC, unique_key)().records

    def newest(self, unique_key: str) -> list[bool | None]:
        """What is said of each copy."""
        return [self._reading.is_newest(copy) for copy in self.copies(unique_key)]

    def read(self) -> str | None:
        why = self._reading.read_to_end(TOPIC)
        return None if why is None else f"{why.code.name} {dict(why.fields)}"

    def lose_the_ledger(self, *unique_keys: str) -> None:
        """Of these alone, if any is given."""
        half = ledger_metadata.tables["reconciler_half"]
        rows = half.c.unique_key.in_(unique_keys) if unique_keys else sa.true()
        with self._ledger.begin() as connection:
            connection.execute(sa.delete(half).where(rows))

    def of_key(self, text: str) -> list[str]:
        found = self.noted.of_keys("test", TOPIC, [digest_of(text)])
        assert found is not None
        return sorted(one.unique_key for one in found[digest_of(text)])


def test_each_half_that_a_broker_has_is_noted_and_then_what_is_new(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    reading = Reading(instance, ledger)
    assert reading.read() is None, "an empty queue has nothing more"
    for number in range(4):
        play.half(key(number), KEYS=str(number // 2))
    assert reading.read() is None
    assert [reading.of_key("0"), reading.of_key("1")] == [[key(0), key(1)], [key(2), key(3)]]
    play.half(key(4), KEYS="1")
    assert reading.read() is None
    assert reading.of_key("1") == [key(2), key(3), key(4)]
    assert set(Admin(instance.client).groups(play.broker.address)) == {"TOOLS_CONSUMER"}


def test_what_is_left_is_told_and_read_by_later_calls(play: Stage, instance: ClientInstance, ledger: sa.Engine) -> None:
    reading = Reading(instance, ledger, at_once=2, seconds=0.0)
    for number in range(5):
        play.half(key(number), KEYS="7")
    left = "answer.halves-left {'broker': 'embedded', 'number': %d}"
    assert [reading.read() for _ in range(3)] == [left % 3, left % 1, None]
    assert len(reading.of_key("7")) == 5


def test_one_call_reads_on_for_as_long_as_it_has_time(play: Stage, instance: ClientInstance, ledger: sa.Engine) -> None:
    for number in range(5):
        play.half(key(number), KEYS="7")
    reading = Reading(instance, ledger, at_once=2)
    assert reading.read() is None
    assert len(reading.of_key("7")) == 5


def test_a_key_from_another_place_is_noted_anew(play: Stage, instance: ClientInstance, ledger: sa.Engine) -> None:
    """That of a query as it was, which an earlier process has noted, and notes again after this one."""
    reading = Reading(instance, ledger)
    play.half(key(1), KEYS="7")
    former = NotedHalf(unique_key=key(1), broker=BROKER, key_digest=digest_of("other"), tag_digest=None, stored_at_ms=1)
    reading.noted.note("test", TOPIC, [former])
    assert reading.read() is None
    reading.noted.note("test", TOPIC, [former])
    assert [reading.of_key("7"), reading.of_key("other")] == [[key(1)], []]


def test_a_ledger_that_has_lost_what_was_noted_is_told_again(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    reading = Reading(instance, ledger)
    for number in range(3):
        play.half(key(number), KEYS="7")
    assert reading.read() is None
    reading.lose_the_ledger()
    assert reading.read() is None
    assert len(reading.of_key("7")) == 3


def test_a_half_that_a_judge_notes_anew_hides_no_other_that_a_ledger_has_lost(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    reading = Reading(instance, ledger)
    for number in (1, 2):
        play.half(key(number), KEYS="7")
    assert reading.read() is None
    noted = reading.noted.of_keys("test", TOPIC, [digest_of("7")]) or {}
    newest = next(one for one in noted[digest_of("7")] if one.unique_key == key(2))
    reading.lose_the_ledger()
    reading.noted.note("test", TOPIC, [newest])
    assert reading.read() is None
    assert reading.of_key("7") == [key(1), key(2)]


def test_another_half_at_the_place_of_the_last_one_begins_it_all_again(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    """A broker that lost its tail gives offsets again."""
    reading = Reading(instance, ledger)
    for number in range(3):
        play.half(key(number), KEYS="7")
    assert reading.read() is None
    places = reading._reading._places
    for of, place in places.items():
        places[of] = replace(place, last=replace(place.last, commit_log_offset=1))
    reading.lose_the_ledger(key(0))
    assert reading.read() is None
    assert len(reading.of_key("7")) == 3


def test_nothing_is_noted_under_a_query_that_nobody_stands_by(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    reading = Reading(instance, ledger)
    reading.is_accepted = False
    play.half(key(1), KEYS="7")
    assert reading.read() == f"repair.query-not-accepted {{'topic': '{TOPIC}'}}"
    assert reading.of_key("7") == []


def test_a_broker_whose_index_does_not_follow_may_have_a_half_that_its_queue_lacks(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    reading = Reading(instance, ledger)
    reading.proved.clear()
    play.half(key(1), KEYS="7")
    assert reading.read() == f"answer.halves-unproved {{'broker': '{BROKER}'}}"
    assert reading.of_key("7") == [key(1)]


def test_a_broker_that_got_the_topic_after_its_route_was_read_is_read_too(ledger: sa.Engine) -> None:
    with two_stages() as (first, second, names), patient_instance(names) as instance:
        admin, reading = Admin(instance.client), Reading(instance, ledger)
        admin.create_topic(first.broker.address, TOPIC, queues=4)
        eventually(lambda: reading.read() is None, within_seconds=60)
        admin.create_topic(second.broker.address, TOPIC, queues=4)
        second.half(key(2), KEYS="7")
        eventually(lambda: reading.read() is None and reading.of_key("7") == [key(2)], within_seconds=60)


def test_a_broker_whose_halves_lie_in_no_queue_or_that_is_gone_proves_nothing(ledger: sa.Engine) -> None:
    with stage("4.2") as play, patient_instance(play.broker.address) as instance:
        reading = Reading(instance, ledger)
        assert str(reading.read()).startswith("answer.foreign"), "no route"
        Admin(instance.client).create_topic(play.broker.address, TOPIC, queues=4)
        assert reading.read() == "answer.halves-unread {}"
    with stage("5.x") as play, patient_instance(play.broker.address) as instance:
        Admin(instance.client).create_topic(play.broker.address, TOPIC, queues=4)
        instance.routes.expect(TOPIC, ["gone"])
        assert str(Reading(instance, ledger).read()).startswith("answer.halves-silent {'broker': 'gone'")


@pytest.mark.parametrize("looked_back", [LOOKED_BACK, (1,), (3,)])
def test_a_copy_that_was_put_back_is_seen_however_far_from_the_end_of_its_queue(
    play: Stage, instance: ClientInstance, ledger: sa.Engine, looked_back: tuple[int, ...]
) -> None:
    """`looked_back`: what lies further back is told by the index."""
    reading = Reading(instance, ledger, looked_back=looked_back)
    play.half(key(1), KEYS="7")
    assert reading.newest(key(1)) == [True]
    play.round(60.0)
    play.half(key(2), KEYS="8")
    play.half(key(3), KEYS="9")
    assert len(reading.copies(key(1))) == 2
    assert reading.newest(key(1)) == [False, True]
    assert reading.newest(key(2)) == [True]


def test_an_index_that_has_not_come_to_what_is_read_of_a_queue_tells_nothing_of_what_lies_before(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    """More of the queue is read, down to the half itself where that is not too far."""
    near, far = Reading(instance, ledger, looked_back=(1,)), Reading(instance, ledger, looked_back=(1, 4))
    play.half(key(1), KEYS="7")
    (half,) = near.copies(key(1))
    play.broker.faults.lag_index(3_600.0)
    for number in (2, 3, 4):
        play.half(key(number), KEYS="8")
    assert near._reading.is_newest(half) is None
    assert far._reading.is_newest(half) is True


def test_a_queue_that_ends_before_the_half_or_a_broker_that_is_gone_tells_nothing(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    """GET_MAX_OFFSET is 0 until a broker has built its queues."""
    reading = Reading(instance, ledger)
    play.half(key(1), KEYS="7")
    (half,) = reading.copies(key(1))
    assert reading._reading.is_newest(replace(half, queue_offset=half.queue_offset + 1)) is None
    assert reading._reading.is_newest(replace(half, broker="gone")) is None
    assert reading._reading.is_newest(replace(half, real_topic="NOBODYS")) is None


def test_a_copy_that_was_put_back_is_seen_where_copies_of_its_half_do_not_fit_into_a_frame(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    """Newer ones are told of without the older ones, however often that is asked."""
    reading = Reading(instance, ledger, looked_back=(1,))
    for _ in range(5):  # stands for one half that was put back
        play.half(key(1), body=b"x" * 3_900_000, KEYS="7")
    for number in (2, 3, 4):
        play.half(key(number), KEYS="8")
    *_, older, newest = reading.copies(key(1))
    assert [reading._reading.is_newest(one) for one in (older, newest, newest)] == [False, True, True]


@pytest.mark.parametrize("looked_back", [LOOKED_BACK, (1,)])
def test_a_half_of_another_topic_is_no_copy_that_was_put_back(
    play: Stage, instance: ClientInstance, ledger: sa.Engine, looked_back: tuple[int, ...]
) -> None:
    Admin(instance.client).create_topic(play.broker.address, "OTHER", queues=4)
    reading = Reading(instance, ledger, looked_back=looked_back)
    play.half(key(1), KEYS="7")
    play.half(key(1), topic="OTHER", KEYS="7")
    play.half(key(2), KEYS="8")
    assert reading.newest(key(1)) == [True]


def test_an_index_that_does_not_show_the_half_itself_tells_nothing_of_younger_copies(
    play: Stage, instance: ClientInstance, ledger: sa.Engine
) -> None:
    """Its answer was cut off behind others of the same hash."""
    reading = Reading(instance, ledger, looked_back=(1,))
    play.half(key(1), KEYS="7")
    (half,) = reading.copies(key(1))
    for number in (2, 3):
        play.half(key(number), KEYS="8")
    assert reading._reading.is_newest(half) is True
    assert reading._reading.is_newest(replace(half, unique_key=key(9))) is None
