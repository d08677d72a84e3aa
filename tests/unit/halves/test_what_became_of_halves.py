"""Open, ended, put back, given up: decided from the copies that a broker has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.errors import ProtocolViolation
from reconciler.halves.classify import (
    NotEnded,
    asked_on,
    given_up,
    newest_of_each,
    open_halves,
    stands_seconds,
    uncounted_halves,
    unnamed_halves,
)
from reconciler.halves.ended import OffsetBits, Places, ended_offsets
from reconciler.halves.scan import check_rules
from reconciler.halves.values import CheckRules, HalfCopy, HalfFate
from reconciler.rocketmq.wire.broker_facts import facts_of

NOW_MS = 1_700_000_000_000
RULES = CheckRules(
    timeout_seconds=6, interval_seconds=30, questions_max=15, retention_seconds=72 * 3600, ended_seen_after_seconds=4
)
FIRST = HalfCopy(
    broker="a",
    topic="ORDERS",
    producer_group="shop",
    unique_key="K1",
    queue_offset=7,
    commit_log_offset=700,
    born_ms=NOW_MS - 200_000,
    store_ms=NOW_MS - 200_000,
    asked=0,
    is_put_back=False,
    left_alone_seconds=6,
    offset_message_id="00",
)
SECOND = replace(FIRST, queue_offset=9, commit_log_offset=900, store_ms=NOW_MS - 20_000, asked=1, is_put_back=True)
OTHER = replace(FIRST, unique_key="K2", queue_offset=8, commit_log_offset=800)
NAMELESS = replace(FIRST, unique_key="", queue_offset=8, commit_log_offset=800)


@pytest.mark.parametrize(
    ("copies", "ended", "left"),
    [
        pytest.param([FIRST, OTHER], [8], [FIRST], id="the one that was ended is gone"),
        pytest.param([FIRST, SECOND], [9], [], id="the newest copy was ended: the older one, which nothing names, too"),
        pytest.param([FIRST, SECOND], [], [SECOND], id="the newest copy stands for all"),
        pytest.param([FIRST, SECOND], [7], [SECOND], id="the broker goes on asking about the newest copy"),
        pytest.param([NAMELESS, FIRST], [], [FIRST, NAMELESS], id="without a key each is one of its own"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["read before", "read behind the halves"])
def test_a_half_is_not_ended_while_nothing_names_its_newest_copy(
    copies: list[HalfCopy], ended: list[int], left: list[HalfCopy], is_late: bool
) -> None:
    bits = OffsetBits(0, 100)
    not_ended = NotEnded(bits)
    if not is_late:
        for offset in ended:
            bits.add(offset)
    for copy in copies:
        not_ended.add(copy)
    for offset in ended:
        bits.add(offset)
    assert not_ended.copies() == left


@pytest.mark.parametrize(
    ("copy", "delivered", "was_ended", "state"),
    [
        (FIRST, False, False, HalfFate.OPEN),
        (FIRST, None, False, HalfFate.OPEN),
        (SECOND, True, True, HalfFate.DELIVERED),
        (SECOND, False, True, HalfFate.ENDED),
        (SECOND, None, True, HalfFate.OPEN),
        (replace(FIRST, store_ms=NOW_MS - 3_999), False, False, HalfFate.FRESH),
        (replace(FIRST, store_ms=NOW_MS - 4_000), False, False, HalfFate.OPEN),
        (replace(FIRST, store_ms=NOW_MS - 4_000), True, False, HalfFate.DELIVERED),
        (replace(FIRST, store_ms=NOW_MS - 3_999), True, False, None),
        (replace(SECOND, store_ms=NOW_MS - 3_999), True, False, HalfFate.DELIVERED),
    ],
)
def test_what_is_not_ended_is_open_unless_its_message_is_there_or_an_older_copy_was_ended(
    copy: HalfCopy, delivered: bool | None, was_ended: bool, state: HalfFate | None
) -> None:
    before = {copy.identity} if was_ended else set()
    found = open_halves([copy], rules=RULES, now_ms=NOW_MS, delivered={copy.identity: delivered}, ended_before=before)
    expected = [] if state is None else [(state, delivered is not None)]
    assert [(half.state, half.is_looked_up) for half in found] == expected


@pytest.mark.parametrize(
    ("age_seconds", "delivered", "states"),
    [(66, False, [HalfFate.FRESH]), (67, False, [HalfFate.OPEN]), (67, None, [HalfFate.OPEN]), (67, True, [])],
)
def test_without_op_records_a_half_is_open_when_two_rounds_had_the_time_to_pass_it(
    age_seconds: int, delivered: bool | None, states: list[HalfFate]
) -> None:
    copy = replace(FIRST, born_ms=NOW_MS - 1000 * age_seconds)
    halves = unnamed_halves([copy], rules=RULES, now_ms=NOW_MS, delivered={copy.identity: delivered})
    assert [half.state for half in halves] == states


@pytest.mark.parametrize(
    ("age_seconds", "delivered", "state"),
    [
        (3, False, HalfFate.FRESH),
        (3, True, None),
        (4, True, HalfFate.DELIVERED),
        (6 + 6 + 17 * 30, False, HalfFate.OPEN),
        (6 + 6 + 17 * 30 + 1, False, HalfFate.GIVEN_UP),
        (6 + 6 + 17 * 30 + 1, True, HalfFate.GIVEN_UP_DELIVERED),
        (6 + 6 + 17 * 30 + 1, None, HalfFate.GIVEN_UP),
    ],
)
def test_a_half_in_rocksdb_is_given_up_when_it_is_older_than_all_questions_take(
    age_seconds: int, delivered: bool | None, state: HalfFate | None
) -> None:
    at_ms = NOW_MS - 1000 * age_seconds
    copy = replace(FIRST, born_ms=at_ms, store_ms=at_ms)
    found = list(uncounted_halves([copy], rules=RULES, now_ms=NOW_MS, delivered={copy.identity: delivered}))
    assert [half.state for half in found] == [one for one in (state,) if one is not None]
    assert [half.asked_until_ms is None for half in found] == [age_seconds > 6 + 6 + 17 * 30 for _ in found]


def test_a_half_that_was_given_up_counts_once_and_is_lost_only_while_its_message_is_nowhere() -> None:
    newest = newest_of_each([SECOND, FIRST, OTHER])
    assert newest == {SECOND.identity: SECOND, OTHER.identity: OTHER}
    found = given_up(newest.values(), rules=RULES, delivered={SECOND.identity: True, OTHER.identity: False})
    assert [half.state for half in found] == [HalfFate.GIVEN_UP_DELIVERED, HalfFate.GIVEN_UP]


@pytest.mark.parametrize(
    ("copy", "left", "until_seconds"),
    [
        pytest.param(FIRST, 15, -200 + 6 + 15 * 30, id="not asked yet"),
        pytest.param(SECOND, 14, -20 + 14 * 30, id="asked once"),
        pytest.param(replace(SECOND, asked=17), 0, -20, id="asked to the end"),
        pytest.param(replace(FIRST, left_alone_seconds=90), 15, -200 + 90 + 15 * 30, id="with an immunity"),
        pytest.param(replace(SECOND, born_ms=NOW_MS - 72 * 3_600_000 + 5_000), 14, 5, id="retention ends before"),
    ],
)
def test_the_last_question_comes_after_those_that_are_left_or_with_the_end_of_retention(
    copy: HalfCopy, left: int, until_seconds: float
) -> None:
    half = asked_on(copy, RULES, HalfFate.OPEN)
    assert (half.questions_left, half.asked_until_ms) == (left, NOW_MS + round(until_seconds * 1000))


@pytest.mark.parametrize(
    ("waited_seconds", "started_seconds_ago", "found"),
    [(126, 10_000, None), (127, 10_000, 127), (5_000, 100, None), (5_000, 200, 200)],
)
def test_a_check_service_stands_when_no_round_came_to_its_first_half_in_time(
    waited_seconds: int, started_seconds_ago: int, found: float | None
) -> None:
    copy = replace(FIRST, store_ms=NOW_MS - 1000 * waited_seconds)
    started_ms = NOW_MS - 1000 * started_seconds_ago
    assert stands_seconds(copy, RULES, now_ms=NOW_MS, started_ms=started_ms) == found


@pytest.mark.parametrize(
    ("body", "tags", "offsets"),
    [(b"17", "d", [17]), (b"0,1,2,", "d", [0, 1, 2]), (b"", "d", []), (b"17", "x", []), (b"17", None, [])],
)
def test_an_op_record_names_offsets_of_halves(body: bytes, tags: str | None, offsets: list[int]) -> None:
    assert ended_offsets(body, tags) == offsets


def test_an_op_record_with_something_else_is_no_end() -> None:
    with pytest.raises(ProtocolViolation):
        ended_offsets(b"1,-2", "d")


def test_places_in_a_log_are_found_whatever_their_order() -> None:
    places = Places([30, 10, 20])
    assert [place in places for place in (9, 10, 11, 20, 30, 31)] == [False, True, False, True, True, False]
    assert list(places) == [10, 20, 30]


def test_ends_cost_memory_only_where_halves_are() -> None:
    bits = OffsetBits(1_000_000, 1_100_000)
    for offset in (5, 999_999, 1_000_000, 1_099_999, 1_100_000, 10**15):
        bits.add(offset)
    assert [n for n in (5, 999_999, 1_000_000, 1_000_001, 1_099_999, 1_100_000) if n in bits] == [1_000_000, 1_099_999]
    assert bits.strangers == 4
    bits.grow(1_100_001)
    bits.add(1_100_000)
    assert 1_100_000 in bits


@pytest.mark.parametrize(
    ("version", "interval_ms", "seconds"), [(479, "3000", 4), (479, "86400000", 10), (479, "", 4), (407, "3000", 1)]
)
def test_ends_are_waited_for_as_long_as_their_broker_batches_them_and_no_longer_than_ten_seconds(
    version: int, interval_ms: str, seconds: float
) -> None:
    rules = check_rules({"transactionOpBatchInterval": interval_ms}, facts_of(version))
    assert rules.ended_seen_after_seconds == seconds
