"""Cursors: what was made is read, whatever the row held; what was not made is refused, whatever it is."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import InvalidValue
from reconciler.web.cursors import cursor_of, position_of

VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text(max_size=50), st.binary(max_size=50), st.floats(allow_nan=False)
)


@given(st.lists(VALUES, max_size=6).map(tuple))
def test_a_position_is_another_one_after_its_way_through_a_request(position: tuple[int | str | bytes, ...]) -> None:
    cursor = cursor_of("rounds", position)
    assert cursor is not None
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert position_of("rounds", cursor) == position


@given(st.text(max_size=200))
def test_any_text_is_taken_for_a_cursor(text: str) -> None:
    with pytest.raises(InvalidValue, match="cursor"):
        position_of("rounds", text)


def test_there_is_a_cursor_behind_the_last_page() -> None:
    assert cursor_of("rounds", None) is None


@pytest.mark.parametrize(
    "document",
    [
        [2, "rounds", [1]],
        [1, "jobs", [1]],
        [1, "rounds"],
        [1, "rounds", 5],
        [1, "rounds", [None]],
        [1, "rounds", [True]],
        [1, "rounds", [[1]]],
        [1, "rounds", [{"hex": "z"}]],
        [1, "rounds", [{}]],
        {"1": "rounds"},
        "rounds",
        [1, "rounds", ["x" * 4_096]],
    ],
)
def test_a_cursor_of_another_make_is_taken(document: object) -> None:
    cursor = urlsafe_b64encode(json.dumps(document).encode()).decode()
    with pytest.raises(InvalidValue, match="cursor"):
        position_of("rounds", cursor)
