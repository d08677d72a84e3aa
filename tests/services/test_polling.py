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


def test_what_is_looked_at_before_it_is_there_is_waited_for() -> None:
    verdicts: dict[str, str] = {}
    looks = iter([{}, {"paid-0": "LAGGING"}, {"paid-0": "DELIVERED"}])

    def is_delivered() -> bool:
        verdicts.update(next(looks))
        return verdicts["paid-0"] == "DELIVERED"

    assert eventually(is_delivered, within_seconds=60)
    with pytest.raises(AssertionError, match="not within") as failure:
        eventually(lambda: verdicts["lost-0"], within_seconds=0.01)
    assert isinstance(failure.value.__cause__, KeyError)


def test_other_exceptions_are_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, within_seconds=60)
