"""User code that forgets to answer, or raises, never decides anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from reconciler.rocketmq.consumer.listener import ConsumeStatus, MessageListener, call_listener
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, asked


def raises(*_: object) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("listener", "result"),
    [
        (lambda _m: ConsumeStatus.CONSUME_SUCCESS, "CR_SUCCESS"),
        (lambda _m: ConsumeStatus.RECONSUME_LATER, "CR_LATER"),
        (lambda _m: None, "CR_RETURN_NULL"),
        (lambda _m: True, "CR_RETURN_NULL"),
        (lambda _m: "CONSUME_SUCCESS", "CR_RETURN_NULL"),
        (raises, "CR_THROW_EXCEPTION"),
    ],
)
def test_only_an_explicit_success_consumes(listener: Callable[..., object], result: str) -> None:
    answer = call_listener(cast(MessageListener, listener), [])
    assert answer.direct_result == result
    assert answer.is_success is (result == "CR_SUCCESS")


@pytest.mark.parametrize("state", list(LocalTransactionState))
def test_a_clear_state_is_taken_as_it_is(state: LocalTransactionState) -> None:
    assert asked(lambda: state, "the checker") == (state, None)
    assert state.decision is EndDecision[state.value]


@pytest.mark.parametrize("answer", [None, True, 8, "COMMIT"])
def test_anything_but_a_state_is_unknown_with_its_reason(answer: object) -> None:
    question = cast(Callable[[], LocalTransactionState | None], lambda: answer)
    state, remark = asked(question, "the checker")
    assert state is LocalTransactionState.UNKNOWN
    assert remark == f"the checker answered {answer!r}"


def test_an_exception_is_unknown_with_its_reason() -> None:
    question = cast(Callable[[], LocalTransactionState | None], raises)
    assert asked(question, "the checker") == (
        LocalTransactionState.UNKNOWN,
        "the checker raised ValueError: broken",
    )
