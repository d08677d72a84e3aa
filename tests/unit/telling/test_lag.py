"""A group that stands still is told by what waits for it, and a group at rest by nothing."""

from __future__ import annotations

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import QueuePosition, Watermark, WatermarkState
from reconciler.telling.lag import Lag, lag_of
from reconciler.words import said

BILLING = Subscription(environment="test", topic="ORDERS", group="billing")
NOW_MS = 1_700_000_000_000
ALARM_SECONDS, MARGIN_SECONDS = 300.0, 10.0


def waiting(seconds: float, *, messages: int = 32, state: WatermarkState = WatermarkState.KNOWN) -> Watermark:
    since_ms = NOW_MS - round(seconds * 1000)
    return Watermark(state=state, at_ms=since_ms, detail=CONSUMED(), waiting=messages, waiting_since_ms=since_ms)


def lag(watermark: Watermark, alarm_seconds: float = ALARM_SECONDS) -> Lag | None:
    return lag_of(
        BILLING,
        watermark,
        asked_ms=NOW_MS,
        alarm_seconds=alarm_seconds,
        skew_margin_seconds=MARGIN_SECONDS,
    )


@pytest.mark.parametrize(("waited_seconds", "is_told"), [(0, False), (310, False), (310.001, True), (86_400, True)])
@pytest.mark.parametrize("state", [WatermarkState.KNOWN, WatermarkState.REACHED])
def test_what_has_waited_for_longer_than_the_setting_and_the_margin_is_told(
    waited_seconds: float, is_told: bool, state: WatermarkState
) -> None:
    assert (lag(waiting(waited_seconds, state=state)) is not None) is is_told


@pytest.mark.parametrize(("alarm_seconds", "is_told"), [(0, False), (86_400, False), (86_389.999, True)])
def test_a_night_batch_and_a_group_that_is_never_told_are_left_in_peace(alarm_seconds: float, is_told: bool) -> None:
    assert (lag(waiting(86_400), alarm_seconds) is not None) is is_told


def test_a_group_for_which_nothing_waits_is_at_rest_and_one_that_is_not_known_says_nothing() -> None:
    caught_up = Watermark(state=WatermarkState.KNOWN, at_ms=NOW_MS - 10_000, detail=CONSUMED())
    unknown = Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=CONSUMED())
    assert (lag(caught_up), lag(unknown)) == (None, None)


@pytest.mark.parametrize(("waited_seconds", "is_told"), [(310, False), (310.001, True)])
def test_of_a_group_without_an_offset_the_oldest_pending_key_tells_how_long_messages_wait(
    waited_seconds: float, is_told: bool
) -> None:
    found = lag_of(
        BILLING,
        Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=CONSUMED(), lacks_offset=True),
        pending=32,
        oldest_pending_ms=NOW_MS - round(waited_seconds * 1000),
        asked_ms=NOW_MS,
        alarm_seconds=ALARM_SECONDS,
        skew_margin_seconds=MARGIN_SECONDS,
    )
    assert (found is not None) is is_told
    assert found is None or (found.waiting, found.since_ms) == (32, NOW_MS - 310_001)


@pytest.mark.parametrize(
    ("is_deserted", "says"), [(True, "nobody is connected"), (False, "do its consumers make progress?")]
)
def test_the_line_names_the_group_how_many_wait_and_since_when(is_deserted: bool, says: str) -> None:
    told = said(Lag(subscription=BILLING, waiting=32, since_ms=NOW_MS, is_deserted=is_deserted).fact)
    assert told.startswith("32 messages wait for ORDERS/billing since 2023-11-14T22:13:20Z: ")
    assert says in told


@pytest.mark.parametrize(
    ("consumer_offset", "minimum", "maximum", "expected"),
    [(3, 0, 7, 4), (3, 5, 7, 2), (7, 0, 7, 0), (9, 0, 7, 0), (None, 2, 7, 5), (0, 0, 0, 0)],
)
def test_what_a_broker_has_deleted_waits_for_nobody(
    consumer_offset: int | None, minimum: int, maximum: int, expected: int
) -> None:
    position = QueuePosition(
        topic="ORDERS",
        broker="a",
        queue_id=0,
        consumer_offset=consumer_offset,
        min_offset=minimum,
        max_offset=maximum,
    )
    assert position.waiting == expected
