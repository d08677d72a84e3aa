"""Messages that share one transaction: nothing is lost, doubled or held up by its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakeredis
import pytest
import sqlalchemy as sa

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from checkback_consumers.redis_inbox import RedisInbox
from reconciler.errors import InvalidValue
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from tests.unit.consumers.messages import KeptRecorder, effect_count, message, pay


class BatchRecorder(KeptRecorder):
    """Remembers which keys came together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[str, list[str]]] = []

    def record_many(self, topic: str, unique_keys: Sequence[str], *, wait: bool = False) -> bool:
        """False while away."""
        assert wait, "the acknowledgement follows the recording"
        if not self.is_away:
            self.batches.append((topic, list(unique_keys)))
        return not self.is_away


@pytest.fixture
def commits(engine: sa.Engine) -> list[str]:
    made: list[str] = []
    sa.event.listen(engine, "commit", lambda _: made.append("commit"))
    sa.event.listen(engine, "rollback", lambda _: made.append("rollback"))
    return made


def wrap(engine: sa.Engine, handler: Any = pay, **options: Any) -> TransactionalHandler:
    return transactional_handler(engine, group="billing", **{"is_batched": True, **options})(handler)


def keys_of(messages: Sequence[ConsumedMessage]) -> list[str | None]:
    return [each.unique_key for each in messages]


def test_a_batch_pays_for_one_commit_and_one_recording(engine: sa.Engine, commits: list[str]) -> None:
    recorder = BatchRecorder()
    wrapped = wrap(engine, recorder=recorder)
    batch = [message() for _ in range(5)]
    assert wrapped.listener(batch) is ConsumeStatus.CONSUME_SUCCESS
    assert commits == ["commit"]
    assert recorder.batches == [("ORDERS", keys_of(batch))]
    assert recorder.recorded == []
    assert wrapped.counts.applied == effect_count(engine) == 5


def test_a_batch_of_two_topics_is_recorded_for_each_of_them(engine: sa.Engine) -> None:
    recorder = BatchRecorder()
    batch = [message(), message(topic="REFUNDS"), message()]
    assert wrap(engine, recorder=recorder).listener(batch) is ConsumeStatus.CONSUME_SUCCESS
    assert recorder.batches == [("ORDERS", keys_of(batch[::2])), ("REFUNDS", keys_of(batch[1:2]))]


def test_a_batch_of_one_and_a_handler_without_batches_go_message_by_message(
    engine: sa.Engine, commits: list[str]
) -> None:
    recorder = BatchRecorder()
    wrap(engine, recorder=recorder).listener([message()])
    wrap(engine, recorder=recorder, is_batched=False).listener([message(), message()])
    assert commits == ["commit"] * 3
    assert (len(recorder.recorded), recorder.batches) == (3, [])


def test_a_batch_that_comes_again_has_no_second_effect_but_is_recorded_again(engine: sa.Engine) -> None:
    recorder = BatchRecorder()
    wrapped = wrap(engine, recorder=recorder)
    batch = [message() for _ in range(3)]
    wrapped.listener(batch)
    more = [*batch, message()]
    assert wrapped.listener(more) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 4
    assert recorder.batches[1] == ("ORDERS", keys_of(more))
    assert (wrapped.counts.applied, wrapped.counts.duplicates) == (4, 3)


def test_two_copies_in_one_batch_have_one_effect(engine: sa.Engine) -> None:
    wrapped = wrap(engine)
    received = message()
    assert wrapped.listener([received, message(), received]) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, received.unique_key) == 1
    assert (wrapped.counts.applied, wrapped.counts.duplicates) == (2, 1)


@pytest.mark.parametrize("poisoned", [0, 1, 4])
def test_a_poisoned_message_takes_no_neighbour_with_it(engine: sa.Engine, poisoned: int) -> None:
    batch = [message() for _ in range(5)]

    def fails(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        if received.unique_key == batch[poisoned].unique_key:
            raise ValueError("the business says no")

    recorder = BatchRecorder()
    wrapped = wrap(engine, fails, recorder=recorder)
    assert wrapped.listener(batch) == FailedAt(poisoned)
    assert effect_count(engine) == poisoned, "those before it had their effect, each by itself"
    assert [key for _, key in recorder.recorded] == keys_of(batch[:poisoned])
    # Each of them comes again by itself.
    answers = [wrapped.listener([each]) for each in batch]
    assert answers.count(ConsumeStatus.RECONSUME_LATER) == 1
    assert answers[poisoned] is ConsumeStatus.RECONSUME_LATER
    assert effect_count(engine) == 4
    assert effect_count(engine, batch[poisoned].unique_key) == 0


def test_a_collision_in_a_batch_is_told_and_leaves_the_others(engine: sa.Engine) -> None:
    wrapped = wrap(engine)
    received = message()
    wrapped.listener([received])
    other = message(received.unique_key, body=b"another")
    assert wrapped.listener([message(), other]) == FailedAt(1)
    assert wrapped.counts.collisions == 1
    assert effect_count(engine) == 2


def test_a_handler_that_commits_in_a_batch_is_refused(engine: sa.Engine) -> None:
    def commits_itself(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        connection.commit()

    wrapped = wrap(engine, commits_itself)
    batch = [message(), message()]
    assert wrapped.listener(batch) == FailedAt(0), "the first one was committed in the batch, before it was complete"
    assert wrapped.listener(batch[1:]) is ConsumeStatus.RECONSUME_LATER
    assert [wrapped.listener([each]) for each in batch] == [ConsumeStatus.RECONSUME_LATER] * 2
    assert wrapped.counts.applied == wrapped.counts.duplicates == 0
    assert effect_count(engine) == 2, "and none has a second effect"


class Killed(BaseException):
    """A process that dies: nothing catches it."""


def test_a_process_that_dies_within_a_batch_leaves_nothing_of_it(engine: sa.Engine) -> None:
    batch = [message() for _ in range(3)]

    def dies(received: ConsumedMessage, connection: sa.Connection) -> None:
        pay(received, connection)
        if received.unique_key == batch[2].unique_key:
            raise Killed

    with pytest.raises(Killed):
        wrap(engine, dies).listener(batch)
    assert effect_count(engine) == 0
    assert wrap(engine).listener(batch) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine) == 3


def test_without_redis_a_batch_is_acknowledged_and_counted(engine: sa.Engine) -> None:
    recorder = BatchRecorder()
    recorder.is_away = True
    wrapped = wrap(engine, recorder=recorder)
    assert wrapped.listener([message(), message()]) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped.counts.unrecorded == 2


def test_a_batch_without_a_recorder_is_acknowledged(engine: sa.Engine) -> None:
    wrapped = wrap(engine)
    assert wrapped.listener([message(), message()]) is ConsumeStatus.CONSUME_SUCCESS
    assert wrapped.counts.unrecorded == 0


def test_an_inbox_or_a_recorder_that_takes_one_message_at_a_time_is_refused(engine: sa.Engine) -> None:
    weaker = RedisInbox(fakeredis.FakeRedis(), environment="test")
    with pytest.raises(InvalidValue, match=r"is_batched.*RedisInbox"):
        transactional_handler(weaker, group="billing", is_batched=True)(pay)
    with pytest.raises(InvalidValue, match=r"is_batched.*KeptRecorder"):
        wrap(engine, recorder=KeptRecorder())
