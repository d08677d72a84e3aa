"""What is too slow is asked for in pieces, pages of a walk and look-ups; no row is left out or read twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.errors import StatementTooSlow
from reconciler.sql import tables
from reconciler.sql.timely_pages import TimelyPages
from reconciler.sql.witness_database import DatabaseRole, WitnessDatabase


class Rows:
    """Numbers from 0 on; a statement over more than `rows_in_time` of them takes too long."""

    def __init__(self, count: int, rows_in_time: int) -> None:
        self.count = count
        self.rows_in_time = rows_in_time
        self.asked: list[int] = []

    def read(self, after: int | None, rows: int) -> Sequence[int]:
        self.asked.append(rows)
        if rows > self.rows_in_time:
            raise StatementTooSlow("it was ended")
        first = 0 if after is None else after + 1
        return range(first, min(first + rows, self.count))


def page(pages: TimelyPages, rows: Rows, limit: int, after: int | None = None) -> list[int]:
    return pages.read(limit, after, rows.read, place_of=lambda row: row)


def test_a_page_that_is_too_slow_is_read_in_halves_and_is_as_full_as_ever() -> None:
    pages, rows = TimelyPages(), Rows(count=1_000, rows_in_time=130)
    assert page(pages, rows, 500) == list(range(500))
    assert rows.asked == [500, 250, 125, 125, 125, 125]
    assert page(pages, rows, 500, after=499) == list(range(500, 1_000)), "and the next one begins as small"
    assert rows.asked[6] == 125


def test_a_short_piece_ends_the_walk_as_a_short_page_does() -> None:
    pages, rows = TimelyPages(), Rows(count=300, rows_in_time=130)
    assert page(pages, rows, 500) == list(range(300))


def test_pages_grow_again_once_the_database_is_as_fast_as_before() -> None:
    pages, rows = TimelyPages(), Rows(count=10_000, rows_in_time=130)
    page(pages, rows, 500)
    rows.rows_in_time, rows.asked = 500, []
    for _ in range(4):
        assert page(pages, rows, 500) == list(range(500))
    assert rows.asked == [125] * 4 + [250] * 2 + [500] * 2


def test_a_database_that_is_too_slow_for_a_few_rows_is_given_up_after_some_halves() -> None:
    pages, rows = TimelyPages(), Rows(count=1_000, rows_in_time=0)
    with pytest.raises(StatementTooSlow):
        page(pages, rows, 500)
    assert rows.asked == [500, 250, 125, 62, 31]
    rows.asked = []
    with pytest.raises(StatementTooSlow):
        page(TimelyPages(), rows, 1)
    assert rows.asked == [1]


class Witness(WitnessDatabase):
    """A statement over more than `keys_in_time` keys takes too long."""

    def __init__(self, keys_in_time: int) -> None:
        super().__init__(sa.create_engine("sqlite://"), tables.outbox)
        self.keys_in_time = keys_in_time
        self.asked: list[int] = []

    def _probe_page(
        self, query: sa.Select[Any], column: sa.Column[str], keys: Sequence[str]
    ) -> tuple[DatabaseRole, list[sa.Row[Any]]]:
        self.asked.append(len(keys))
        if len(keys) > self.keys_in_time:
            raise StatementTooSlow("it was ended")
        return DatabaseRole(is_primary=True, identity=None), []


def test_the_next_look_up_begins_as_small_as_was_in_time_and_then_they_grow() -> None:
    witness = Witness(keys_in_time=5)
    asked = []
    for keys_in_time in (5, 5, 16, 16, 16):
        witness.keys_in_time, witness.asked = keys_in_time, []
        witness.probe(sa.select(tables.outbox), tables.outbox.c.unique_key, [f"{number:032X}" for number in range(16)])
        asked.append(witness.asked)
    assert asked == [[16, 8, *[4] * 4], [4] * 4, [8] * 2, [16], [16]]
