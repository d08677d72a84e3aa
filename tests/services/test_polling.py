from __future__ import annotations

import pytest

from tests.polling import eventually


def test_returns_the_first_true_value() -> None:
    values = iter([0, None, "", 7])
    assert eventually(lambda: next(values), within_seconds=60) == 7


def test_says_what_did_not_happen_and_why() -> None:
    def never() -> bool:
        raise AssertionError("only 3 of 4")

    with pytest.raises(AssertionError, match="the fourth one") as failure:
        eventually(never, within_seconds=0.01, message="the fourth one")
    assert "only 3 of 4" in str(failure.value.__cause__)


def test_other_exceptions_are_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, within_seconds=60)
