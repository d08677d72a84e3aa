from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.contract.unique_key import is_unique_key
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator


def _ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _since_month_ms(key: str) -> int:
    return int(key[20:28], 16)


def test_keys_have_the_classic_layout() -> None:
    clock = ManualClock(_ms(2026, 3, 10, 12))
    key = UniqueKeyGenerator(clock).next_key()
    assert is_unique_key(key)
    assert len(key) == 32
    assert int(key[8:12], 16) == os.getpid() & 0xFFFF
    assert _since_month_ms(key) == _ms(2026, 3, 10, 12) - _ms(2026, 3, 1)


def test_a_clock_that_stands_still_runs_out_of_no_counters() -> None:
    generator = UniqueKeyGenerator(ManualClock())
    assert len({generator.next_key() for _ in range(70_000)}) == 70_000


def test_a_millisecond_is_left_before_its_counters_are_used_up_and_keys_run_ahead_of_the_clock() -> None:
    generator = UniqueKeyGenerator(ManualClock(_ms(2026, 3, 10)))
    now = _ms(2026, 3, 10) - _ms(2026, 3, 1)
    keys = [generator.next_key() for _ in range(0x1_0000 + 1)]
    assert {_since_month_ms(key) for key in keys[:-1]} == {now}
    assert _since_month_ms(keys[-1]) == now + 1


def test_many_threads_get_different_keys() -> None:
    generator = UniqueKeyGenerator(SystemClock())
    got: list[list[str]] = [[] for _ in range(8)]
    begin = threading.Barrier(8)

    def make(mine: list[str]) -> None:
        begin.wait()
        mine += [generator.next_key() for _ in range(5_000)]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({key for mine in got for key in mine}) == 40_000


@pytest.mark.parametrize("step_seconds", [-0.2, -1.5, -3_600, -40 * 86_400])
def test_a_clock_that_steps_back_again_and_again_repeats_no_key(step_seconds: float) -> None:
    clock = ManualClock(_ms(2026, 3, 10))
    generator = UniqueKeyGenerator(clock)
    keys = []
    for _ in range(5):
        for _ in range(300):
            keys.append(generator.next_key())
            clock.advance(0.001)
        clock.step_wall(step_seconds)
    # Where it went a full circle: the same milliseconds, all counters used once more.
    for _ in range(70_000):
        keys.append(generator.next_key())
    assert len(set(keys)) == len(keys)


def test_the_same_millisecond_of_two_months_gives_different_keys() -> None:
    keys: set[str] = set()
    clock = ManualClock(_ms(2026, 1, 15))
    generator = UniqueKeyGenerator(clock)
    for month in range(1, 4):
        clock.step_wall((_ms(2026, month, 15) - clock.now_ms()) / 1000)
        for _ in range(0x1_0000):
            keys.add(generator.next_key())
    assert len(keys) == 3 * 0x1_0000


def test_the_first_key_after_a_months_end_counts_from_the_new_month() -> None:
    clock = ManualClock(_ms(2026, 2, 28, 23, 59, 59))
    generator = UniqueKeyGenerator(clock)
    last = generator.next_key()
    clock.advance(2)
    first = generator.next_key()
    assert _since_month_ms(last) == 28 * 86_400_000 - 1_000
    assert _since_month_ms(first) == 1_000
    assert last[12:20] != first[12:20]


def test_a_step_back_over_a_months_beginning_is_no_negative_time() -> None:
    clock = ManualClock(_ms(2026, 3, 1) + 200)
    generator = UniqueKeyGenerator(clock)
    keys = [generator.next_key()]
    clock.step_wall(-0.5)
    keys += [generator.next_key() for _ in range(100)]
    assert len(set(keys)) == 101
    assert all(_since_month_ms(key) == 200 for key in keys)


def test_a_child_does_not_repeat_its_parents_keys_nor_inherit_a_held_lock() -> None:
    generator = UniqueKeyGenerator(ManualClock())
    generator.next_key()
    read, write = os.pipe()
    with generator._lock:  # as if another thread were in the middle of making a key
        child = os.fork()
        if child == 0:
            os.write(write, "".join(generator.next_key() for _ in range(50)).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0
    theirs = {data[at : at + 32] for at in range(0, len(data), 32)}
    ours = {generator.next_key() for _ in range(0x1_0000)}
    assert len(theirs) == 50
    assert not theirs & ours
    assert {key[12:20] for key in theirs} != {key[12:20] for key in ours}
