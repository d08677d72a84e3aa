"""The batching recorder against a sink in memory: batches, bounds, and a Redis that is away."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from checkback_consumers.recorder import AGAIN_KEYS_MAX, WAIT_SECONDS, CommitRecorder
from reconciler.clock import SystemClock
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue, InvariantViolation, RedisAway
from tests.polling import eventually
from tests.unit.consumers.messages import new_key


class Sink:
    """Commit sets that can be away, blocked, or of another number of shards."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        #: The topic of each call.
        self.topics: list[str] = []
        self.is_away = False
        self.shards: int | None = 16
        #: Topics of another number of shards.
        self.shards_of: dict[str, int] = {}
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()
        self.refused = threading.Event()

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        self.entered.set()
        self.open.wait(60)
        if self.is_away:
            self.refused.set()
            raise RedisAway("away")
        self.calls.append(list(unique_keys))
        self.topics.append(subscription.topic)

    def stored_shards(self, subscription: Subscription) -> int | None:
        if self.is_away:
            self.refused.set()
            raise RedisAway("away")
        return self.shards_of.get(subscription.topic, self.shards)

    def recorded(self) -> dict[str, list[str]]:
        """Keys by topic."""
        found: dict[str, list[str]] = {}
        for topic, keys in zip(self.topics, self.calls, strict=True):
            found.setdefault(topic, []).extend(keys)
        return found


def recorder_of(sink: Sink, **options: Any) -> CommitRecorder:
    # 50 ms may be too short for a thread to be woken on a busy machine, unless that is what is tested.
    return CommitRecorder(sink, environment="test", group="billing", **({"wait_seconds": 5.0} | options))


def test_an_acknowledgement_finds_its_key_recorded() -> None:
    sink = Sink()
    with recorder_of(sink) as recorder:
        key = new_key()
        assert recorder.record("ORDERS", key) is True
        assert sink.calls == [[key]]


def test_what_arrives_during_a_flush_travels_together() -> None:
    sink = Sink()
    sink.open.clear()
    with recorder_of(sink, wait_seconds=60.0) as recorder:
        keys = [new_key() for _ in range(50)]
        answers: list[bool] = []
        threads = [threading.Thread(target=lambda k=key: answers.append(recorder.record("ORDERS", k))) for key in keys]
        threads[0].start()
        assert sink.entered.wait(60)
        for thread in threads[1:]:
            thread.start()
        eventually(lambda: recorder.state().waiting == 50, within_seconds=60)
        sink.open.set()
        for thread in threads:
            thread.join(60)
        assert answers == [True] * 50
        assert len(sink.calls) == 2
        assert sorted(key for call in sink.calls for key in call) == sorted(keys)


def test_keys_that_nobody_waits_for_are_flushed_after_the_batch_time() -> None:
    sink = Sink()
    with recorder_of(sink, batch_seconds=0.02) as recorder:
        assert recorder.record_many("ORDERS", [new_key()]) is True
        eventually(lambda: sink.calls, within_seconds=60)


def test_a_full_batch_does_not_wait_for_its_time() -> None:
    sink = Sink()
    with recorder_of(sink, batch_seconds=3600.0, batch_keys=200) as recorder:
        recorder.record_many("ORDERS", [new_key() for _ in range(199)])
        recorder.record_many("ORDERS", [new_key()])
        eventually(lambda: sink.calls, within_seconds=60)
        assert len(sink.calls[0]) == 200


def test_a_batch_waits_for_its_time_although_it_is_full_or_flushes_every_key_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread does not run here: only the time that it would wait is looked at."""
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: None)
    recorder = recorder_of(Sink(), batch_seconds=3600.0, batch_keys=200, wait_seconds=0.0)
    waits: list[float | None] = [recorder._seconds_until_due()]
    for count in (199, 1):
        recorder.record_many("ORDERS", [new_key() for _ in range(count)])
        waits.append(recorder._seconds_until_due())
    assert waits == [None, pytest.approx(3600.0, abs=60), 0.0]
    other = recorder_of(Sink(), batch_seconds=3600.0, wait_seconds=0.0)
    assert other.record("ORDERS", new_key()) is False
    assert other._seconds_until_due() == 0.0
    other.record_many("ORDERS", [new_key()])
    assert other._seconds_until_due() == 0.0, "the first one waits still"


def test_a_stuck_redis_holds_an_acknowledgement_up_for_50_ms_only() -> None:
    sink = Sink()
    sink.open.clear()
    recorder = recorder_of(sink, wait_seconds=WAIT_SECONDS)
    started = time.monotonic()
    assert recorder.record("ORDERS", new_key()) is False
    assert 0.04 <= time.monotonic() - started < 30  # the sink takes 60 s
    sink.open.set()
    recorder.close()


def test_without_redis_nothing_waits_every_key_is_counted_and_it_recovers() -> None:
    sink = Sink()
    missed: list[str] = []
    sink.is_away = True
    with recorder_of(sink, keep_seconds=0.0, on_missed=lambda topic, keys: missed.extend(keys)) as recorder:
        lost = [new_key() for _ in range(300)]
        # Only the first ones pay for finding out; a test in which each waits takes half an hour.
        assert [recorder.record("ORDERS", key) for key in lost] == [False] * 300
        assert recorder.state().is_away
        eventually(lambda: recorder.state().waiting == 0, within_seconds=60)
        assert recorder.state().missed == 300
        assert missed == lost
        sink.is_away = False

        def is_back() -> bool:
            return recorder.record("ORDERS", new_key())

        eventually(is_back, within_seconds=60)
        assert not recorder.state().is_away
        assert recorder.state().missed == 300 + len([key for key in missed if key not in lost])


def test_a_redis_that_is_silent_for_a_moment_costs_no_key() -> None:
    sink = Sink()
    sink.is_away = True
    with recorder_of(sink, keep_seconds=3600.0) as recorder:
        keys = [new_key() for _ in range(300)]
        assert [recorder.record("ORDERS", key) for key in keys[:150]] == [False] * 150
        assert recorder.record_many("REFUNDS", keys[150:]) is True
        assert recorder.state().waiting == 300
        sink.is_away = False
        assert recorder.flush(timeout_seconds=60)
        state = recorder.state()
        assert (state.recorded, state.missed, state.waiting, state.is_away) == (300, 0, 0, False)
    assert sink.recorded() == {"ORDERS": keys[:150], "REFUNDS": keys[150:]}


def test_what_was_kept_of_two_topics_goes_to_their_own_commit_sets() -> None:
    sink = Sink()
    sink.is_away = True
    with recorder_of(sink, keep_seconds=3600.0) as recorder:
        kept = [(topic, new_key()) for topic in ("ORDERS", "REFUNDS", "ORDERS")]
        for topic, key in kept:
            sink.refused.clear()
            recorder.record_many(topic, [key])
            assert sink.refused.wait(60)  # so that each is a batch of its own
        sink.is_away = False
        assert recorder.flush(timeout_seconds=60)
    assert sink.recorded() == {"ORDERS": [kept[0][1], kept[2][1]], "REFUNDS": [kept[1][1]]}


def test_what_was_kept_is_recorded_without_another_message() -> None:
    sink = Sink()
    sink.is_away = True
    with recorder_of(sink, keep_seconds=3600.0) as recorder:
        key = new_key()
        assert recorder.record("ORDERS", key) is False
        sink.is_away = False
        eventually(lambda: sink.calls == [[key]], within_seconds=60)


def test_what_was_kept_comes_back_in_pieces_that_one_answer_has_time_for() -> None:
    sink = Sink()
    sink.is_away = True
    with recorder_of(sink, keep_seconds=3600.0) as recorder:
        keys = [new_key() for _ in range(10 * AGAIN_KEYS_MAX // 4)]
        recorder.record("ORDERS", keys[0])
        eventually(lambda: recorder.state().is_away, within_seconds=60)
        for first in range(1, len(keys), 500):
            sink.refused.clear()
            recorder.record_many("ORDERS", keys[first : first + 500])
            assert sink.refused.wait(60)  # so that each lot is a batch of its own
        sink.is_away = False
        assert recorder.flush(timeout_seconds=60)
    assert [key for call in sink.calls for key in call] == keys
    assert max(len(call) for call in sink.calls) <= AGAIN_KEYS_MAX


def test_kept_keys_count_for_the_bound_of_memory() -> None:
    sink = Sink()
    sink.is_away = True
    missed: list[str] = []
    with recorder_of(
        sink, keep_seconds=3600.0, waiting_keys_max=1_000, on_missed=lambda topic, keys: missed.extend(keys)
    ) as recorder:
        keys = [new_key() for _ in range(1_300)]
        for first in range(0, 1_300, 100):
            sink.refused.clear()
            assert recorder.record_many("ORDERS", keys[first : first + 100]) is (first < 1_000)
            if first < 1_000:
                assert sink.refused.wait(60)
        assert missed == keys[1_000:]
        assert (recorder.state().waiting, recorder.state().missed) == (1_000, 300)
        sink.is_away = False
        assert recorder.flush(timeout_seconds=60)
        assert recorder.state().recorded == 1_000


def test_a_recorder_that_is_closed_without_redis_counts_what_it_kept() -> None:
    sink = Sink()
    sink.is_away = True
    missed: list[str] = []
    recorder = recorder_of(sink, keep_seconds=3600.0, on_missed=lambda topic, keys: missed.extend(keys))
    keys = [new_key() for _ in range(3)]
    assert [recorder.record("ORDERS", key) for key in keys] == [False] * 3
    recorder.close()
    assert (missed, recorder.state().missed, recorder.state().waiting) == (keys, 3, 0)


def test_memory_is_bounded_while_redis_is_stuck() -> None:
    sink = Sink()
    sink.open.clear()
    recorder = recorder_of(sink, waiting_keys_max=1_000)
    recorder.record_many("ORDERS", [new_key()])
    assert sink.entered.wait(60)
    answers = [recorder.record_many("ORDERS", [new_key() for _ in range(100)]) for _ in range(30)]
    assert answers == [True] * 10 + [False] * 20
    state = recorder.state()
    assert (state.waiting, state.missed) == (1_001, 2_000)
    sink.open.set()
    recorder.close()
    assert recorder.state().recorded == 1_001


def test_another_number_of_shards_is_refused() -> None:
    sink = Sink()
    sink.shards = 8
    with recorder_of(sink) as recorder:
        with pytest.raises(InvalidValue, match="shards=8"):
            recorder.check_shards("ORDERS")
        # Without the check at start the first flush finds out; the business goes on.
        assert recorder.record("ORDERS", new_key()) is False
        assert recorder.record("ORDERS", new_key()) is False
        assert sink.calls == []
        assert recorder.state().missed == 2


def test_a_topic_of_another_number_of_shards_costs_no_other_topic_its_keys() -> None:
    """Both topics are in one batch, and the other one was checked before."""
    sink = Sink()
    sink.shards_of["REFUNDS"] = 8
    with recorder_of(sink, batch_seconds=3600.0) as recorder:
        keys = [new_key() for _ in range(4)]
        assert recorder.record("ORDERS", keys[0])
        recorder.record_many("REFUNDS", [new_key()])
        assert recorder.record("ORDERS", keys[1]), "the refused topic came first"
        recorder.record_many("ORDERS", [keys[2]])
        assert not recorder.record_many("REFUNDS", [new_key()], wait=True)
        assert recorder.record("ORDERS", keys[3])
        assert (recorder.state().recorded, recorder.state().missed) == (4, 2)
    assert sink.recorded() == {"ORDERS": keys}


def test_a_topic_whose_acknowledgement_waits_for_redis_in_vain_is_told_so_beside_one_that_was_recorded() -> None:
    class HalfAway(Sink):
        def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
            if subscription.topic == "REFUNDS":
                raise RedisAway("away")
            super().record(subscription, unique_keys, shards=shards)

    sink = HalfAway()
    with recorder_of(sink, batch_seconds=3600.0, keep_seconds=0.0) as recorder:
        recorder.record_many("ORDERS", [new_key()])
        assert not recorder.record("REFUNDS", new_key())
    assert sink.topics == ["ORDERS"]


def test_every_batch_that_was_kept_is_missed_once_its_topic_has_another_number_of_shards() -> None:
    sink = Sink()
    sink.is_away = True
    missed: list[str] = []
    with recorder_of(sink, keep_seconds=3600.0, on_missed=lambda topic, keys: missed.extend(keys)) as recorder:
        keys = [new_key() for _ in range(3)]
        for key in keys:
            sink.refused.clear()
            recorder.record_many("ORDERS", [key])
            assert sink.refused.wait(60)  # so that each is a batch of its own
        sink.shards = 8
        sink.is_away = False
        assert recorder.flush(timeout_seconds=60)
        assert (missed, recorder.state().missed, recorder.state().waiting) == (keys, 3, 0)


def test_a_flush_waits_for_the_batch_that_is_on_its_way() -> None:
    sink = Sink()
    sink.open.clear()
    with recorder_of(sink) as recorder:
        recorder.record_many("ORDERS", [new_key()])
        assert sink.entered.wait(60)
        assert not recorder.flush(timeout_seconds=0.01)
        sink.open.set()
        assert recorder.flush(timeout_seconds=60)
        assert recorder.state().recorded == 1


def test_what_redis_will_never_take_is_missed_at_once() -> None:
    class Strict(Sink):
        def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
            raise InvariantViolation("the key holds a text")

    with recorder_of(Strict(), keep_seconds=3600.0) as recorder:
        assert not recorder.record("ORDERS", new_key())
        assert (recorder.state().missed, recorder.state().waiting) == (1, 0)


@pytest.mark.parametrize("shards", [0, 1_025])
def test_impossible_numbers_of_shards_are_refused(shards: int) -> None:
    with pytest.raises(InvalidValue, match="shards"):
        recorder_of(Sink(), shards=shards)


def test_an_unknown_number_of_shards_records_as_configured() -> None:
    sink = Sink()
    sink.shards = None
    with recorder_of(sink) as recorder:
        assert recorder.record("ORDERS", new_key()) is True


def test_a_child_after_fork_records_for_itself() -> None:
    sink = Sink()
    with recorder_of(sink, clock=SystemClock()) as recorder:
        assert recorder.record("ORDERS", new_key())
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            # The parent's thread and locks did not come along.
            is_recorded = recorder.record("ORDERS", new_key())
            os.write(writing, b"1" if is_recorded and len(sink.calls) == 2 else b"0")
            os._exit(0)
        os.close(writing)
        try:
            assert os.waitpid(child, 0)[1] == 0
            assert os.read(reading, 1) == b"1"
        finally:
            os.close(reading)
        assert len(sink.calls) == 1


def test_a_closed_recorder_counts_what_still_comes() -> None:
    sink = Sink()
    recorder = recorder_of(sink)
    recorder.record_many("ORDERS", [new_key()])
    recorder.close()
    assert recorder.state().recorded == 1
    assert recorder.record("ORDERS", new_key()) is False
    assert recorder.state().missed == 1


def test_a_failing_hook_costs_nothing() -> None:
    sink = Sink()
    sink.is_away = True

    def fails(topic: str, keys: Sequence[str]) -> None:
        raise ValueError

    with recorder_of(sink, on_missed=fails) as recorder:
        assert recorder.record("ORDERS", new_key()) is False
        sink.is_away = False
        eventually(lambda: recorder.record("ORDERS", new_key()), within_seconds=60)


def test_a_bug_in_the_sink_does_not_end_the_recorder() -> None:
    class Buggy(Sink):
        def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
            if self.is_away:
                raise ZeroDivisionError
            super().record(subscription, unique_keys, shards=shards)

    sink = Buggy()
    with recorder_of(sink) as recorder:
        assert recorder.record("ORDERS", new_key())
        sink.is_away = True
        assert not recorder.record("ORDERS", new_key())
        sink.is_away = False
        assert recorder.record("ORDERS", new_key())
        assert recorder.state().missed == 1


def test_a_process_that_may_have_no_more_threads_misses_keys_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    recorder = recorder_of(sink, wait_seconds=0.05)
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "commit-recorder":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert not recorder.record("ORDERS", new_key())
    assert recorder.state().missed == 1
    monkeypatch.setattr(threading.Thread, "start", start)
    assert recorder.record("ORDERS", new_key())
    recorder.close()
