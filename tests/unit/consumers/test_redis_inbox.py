"""The weaker inbox: what it does promise, and that it says what it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import fakeredis
import pytest

from checkback_consumers.effect import SqlInbox
from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_consumers.message import ConsumedMessage, business_id
from checkback_consumers.redis_inbox import RedisInbox
from reconciler.contract.keyspace import inbox_key
from reconciler.errors import Collision, InvalidValue, RedisAway, TransientError
from tests.unit.consumers.former_names import FIRST, SECOND, as_noted_by_an_older_plug_in, delivered
from tests.unit.consumers.messages import KeptRecorder, message
from tests.unit.contract.keys import GO, RUST


@pytest.fixture
def client() -> Iterator[fakeredis.FakeRedis]:
    fake = fakeredis.FakeRedis()
    yield fake
    fake.close()


class Business:
    """An effect outside any database."""

    def __init__(self) -> None:
        self.effects: list[str | None] = []
        self.fails = False
        self.then: Callable[[], None] = lambda: None

    def __call__(self, received: ConsumedMessage, connection: object) -> None:
        assert connection is None
        if self.fails:
            raise ValueError
        self.effects.append(received.unique_key)
        self.then()


def test_it_says_that_it_is_weaker(client: fakeredis.FakeRedis, caplog: pytest.LogCaptureFixture) -> None:
    inbox = RedisInbox(client, environment="test")
    assert inbox.is_weaker
    assert "WEAKER" in caplog.text
    assert transactional_handler(inbox, group="mail")(Business()).is_weaker
    in_sql = SqlInbox(lambda: None)
    assert not in_sql.is_weaker
    assert not transactional_handler(in_sql, group="mail")(Business()).is_weaker


def test_a_redelivery_has_no_second_effect_and_is_recorded_again(client: fakeredis.FakeRedis) -> None:
    business, recorder = Business(), KeptRecorder()
    inbox = RedisInbox(client, environment="test", keep_seconds=60)
    wrapped = transactional_handler(inbox, group="mail", recorder=recorder)(business)
    received = message()
    assert wrapped.apply(received) is InboxAnswer.NEW
    assert wrapped.apply(received) is InboxAnswer.DUPLICATE
    assert business.effects == [received.unique_key]
    assert len(recorder.recorded) == 2
    with pytest.raises(Collision):
        wrapped.apply(message(received.unique_key, body=b"other"))
    (key,) = client.keys("*")
    assert 0 < client.pttl(key) <= 60_000
    assert key == inbox_key("test", "mail", unique_key=received.unique_key).encode()
    assert key == f"reconciler:inbox:v1:{{test:mail:{received.unique_key}}}".encode()


def test_a_failing_handler_is_run_again(client: fakeredis.FakeRedis) -> None:
    business = Business()
    wrapped = transactional_handler(RedisInbox(client, environment="test"), group="mail")(business)
    received = message()
    business.fails = True
    with pytest.raises(ValueError):  # noqa: PT011 - the business's own
        wrapped.apply(received)
    business.fails = False
    assert wrapped.apply(received) is InboxAnswer.NEW


def test_two_keys_with_one_business_id_have_one_effect(client: fakeredis.FakeRedis) -> None:
    business = Business()
    inbox = RedisInbox(client, environment="test")
    wrapped = transactional_handler(inbox, group="mail", dedupe_by=business_id)(business)
    assert wrapped.apply(message(BUSINESS_ID="a")) is InboxAnswer.NEW
    assert wrapped.apply(message(BUSINESS_ID="a")) is InboxAnswer.DUPLICATE_BUSINESS
    assert len(business.effects) == 1


def test_a_business_id_of_two_topics_swallows_no_message(client: fakeredis.FakeRedis) -> None:
    business = Business()
    inbox = RedisInbox(client, environment="test")
    wrapped = transactional_handler(inbox, group="mail", dedupe_by=business_id)(business)
    order, payment = message(BUSINESS_ID="17"), replace(message(BUSINESS_ID="17"), topic="PAYMENTS")
    assert wrapped.apply(order) is InboxAnswer.NEW
    with pytest.raises(InvalidValue, match=f"a message of topic {order.topic} has it"):
        wrapped.apply(payment)
    assert len(business.effects) == 1


def test_one_key_of_two_topics_is_a_collision_where_nothing_else_is_compared(client: fakeredis.FakeRedis) -> None:
    business = Business()
    inbox = RedisInbox(client, environment="test")
    paid = InboxEntry(group="mail", unique_key="A" * 32, topic="ORDERS")
    assert inbox.apply_once(paid, lambda _: business.effects.append("paid")) is InboxAnswer.NEW
    with pytest.raises(Collision, match="applied from topic ORDERS, it arrived from REFUNDS"):
        inbox.apply_once(replace(paid, topic="REFUNDS"), lambda _: business.effects.append("refunded"))
    assert business.effects == ["paid"]


def test_a_second_process_waits_while_the_first_is_inside(client: fakeredis.FakeRedis) -> None:
    business = Business()
    wrapped = transactional_handler(RedisInbox(client, environment="test"), group="mail")(business)
    received = message()
    seen: list[str] = []

    def again() -> None:
        business.then = lambda: None
        with pytest.raises(TransientError, match="another process"):
            wrapped.apply(received)
        seen.append("busy")

    business.then = again
    assert wrapped.apply(received) is InboxAnswer.NEW
    assert seen == ["busy"]
    assert len(business.effects) == 1


def test_groups_and_environments_do_not_meet(client: fakeredis.FakeRedis) -> None:
    business = Business()
    received = message()
    for environment in ("test", "staging"):
        for group in ("mail", "push"):
            inbox = RedisInbox(client, environment=environment)
            assert transactional_handler(inbox, group=group)(business).apply(received) is InboxAnswer.NEW
    assert len(business.effects) == 4


def test_without_redis_nothing_is_run() -> None:
    server = fakeredis.FakeServer()
    server.connected = False
    business = Business()
    with fakeredis.FakeRedis(server=server) as away:
        wrapped = transactional_handler(RedisInbox(away, environment="test"), group="mail")(business)
        with pytest.raises(RedisAway):
            wrapped.apply(message())
    assert business.effects == []


def test_an_effect_has_both_names_where_older_plug_ins_know_another_one(client: fakeredis.FakeRedis) -> None:
    marks, done = RedisInbox(client, environment="test"), list[str]()
    handler = transactional_handler(marks, group="billing")(lambda received, _: done.append(received.unique_key))
    older, mine = delivered(GO, FIRST), delivered(RUST, SECOND)
    assert marks.apply_once(as_noted_by_an_older_plug_in(older), lambda _: done.append("older")) is InboxAnswer.NEW
    assert [handler.apply(older), handler.apply(older)] == [InboxAnswer.DUPLICATE] * 2
    assert handler.apply(mine) is InboxAnswer.NEW
    again = marks.apply_once(as_noted_by_an_older_plug_in(mine), lambda _: done.append("twice"))
    assert (again, done) == (InboxAnswer.DUPLICATE, ["older", RUST])


def test_a_crash_between_the_two_marks_leaves_one_that_either_release_sees(
    client: fakeredis.FakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, done = RedisInbox(client, environment="test"), list[str | None]()
    handler = transactional_handler(marks, group="billing")(lambda received, _: done.append(received.unique_key))
    finish, finished = marks._finish, list[InboxEntry]()

    def once(entry: InboxEntry) -> None:
        if finished:
            raise SystemExit
        finish(entry)
        finished.append(entry)

    with monkeypatch.context() as patch:
        patch.setattr(marks, "_finish", once)
        with pytest.raises(SystemExit):
            handler.apply(delivered())
    for leased in client.scan_iter():
        if client.hget(leased, "state") != b"done":
            client.delete(leased)  # its lease has run out
    older = marks.apply_once(as_noted_by_an_older_plug_in(delivered()), lambda _: done.append("older"))
    assert (older, handler.apply(delivered())) == (InboxAnswer.DUPLICATE,) * 2
    assert len(done) == 1


def test_an_offset_that_a_broker_gives_a_second_time_hides_no_message_of_the_same_content(
    client: fakeredis.FakeRedis,
) -> None:
    done: list[str | None] = []
    handler = transactional_handler(RedisInbox(client, environment="test"), group="billing")(
        lambda received, _: done.append(received.unique_key)
    )
    assert handler.apply(delivered(GO, FIRST)) is InboxAnswer.NEW
    assert handler.apply(delivered(RUST, FIRST)) is InboxAnswer.NEW, "the mark under the offset names the other message"
    assert [handler.apply(delivered(key, FIRST)) for key in (GO, RUST)] == [InboxAnswer.DUPLICATE] * 2
    assert done == [GO, RUST]


def test_a_failing_handler_leaves_no_mark_of_either_name(client: fakeredis.FakeRedis) -> None:
    def fails(_received: object, _connection: object) -> None:
        raise ZeroDivisionError

    marks = RedisInbox(client, environment="test")
    with pytest.raises(ZeroDivisionError):
        transactional_handler(marks, group="billing")(fails).apply(delivered())
    assert client.keys() == []


def test_an_older_plug_in_that_is_at_work_on_the_message_is_waited_for(client: fakeredis.FakeRedis) -> None:
    marks = RedisInbox(client, environment="test")
    handler = transactional_handler(marks, group="billing")(lambda *_: None)

    def meanwhile(_connection: object) -> None:
        with pytest.raises(TransientError, match="another process"):
            handler.apply(delivered())

    assert marks.apply_once(as_noted_by_an_older_plug_in(delivered()), meanwhile) is InboxAnswer.NEW
    assert handler.apply(delivered()) is InboxAnswer.DUPLICATE
