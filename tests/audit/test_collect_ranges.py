"""Ranges of time have about as many rows each, however rows crowd in time, and no row is in two or in none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
import sqlalchemy as sa

from reconciler.audit.collect import ranges
from reconciler.audit.collect.ranges import cuts_ms
from reconciler.audit.collect.selection import Selection, read_rows
from reconciler.audit.collect.sources import Source
from reconciler.contract.evidence_layout import INBOX_EVIDENCE
from reconciler.sql import tables

AT_ONCE = 8
#: Most of a day's rows in one minute, some of them in one millisecond.
TIMES_MS = (*range(1_000, 61_000, 500), *(30_250,) * AT_ONCE, *range(3_600_000, 86_400_000, 8_280_000))
SINCE = ("applied_at_ms", 1_000, 86_400_000)


@pytest.fixture
def inbox(new_database_url: Callable[[], str]) -> tuple[Source, Selection]:
    """Its rows, and those of another group and another topic."""
    url = new_database_url()
    engine = sa.create_engine(url)
    tables.inbox.create(engine)
    places = [(at_ms, "ORDERS", "billing") for at_ms in TIMES_MS]
    places += [(2_000, "OTHERS", "billing"), (2_000, "ORDERS", "other")]
    rows = [
        {"unique_key": f"{number:032X}", "topic": topic, "consumer_group": group, "applied_at_ms": at_ms}
        for number, (at_ms, topic, group) in enumerate(places)
    ]
    with engine.begin() as connection:
        connection.execute(sa.insert(tables.inbox).values(source="consumer"), rows)
    engine.dispose()
    equal = (("consumer_group", "billing"), ("topic", "ORDERS"))
    selection = Selection(layout=INBOX_EVIDENCE, table=tables.inbox.name, equal=equal, since=SINCE)
    return Source(kind="database", address=url, option="--inbox ORDERS/billing"), selection


def sizes(source: Source, selection: Selection, cuts: Sequence[int]) -> list[int]:
    """Rows of each range; all of them together are those of the selection."""
    assert all(low_ms < high_ms for low_ms, high_ms in pairwise((SINCE[1], *cuts, SINCE[2])))
    parts = [pa.concat_tables(read_rows(source, one)) for one in ranges.ranges(selection, cuts)]
    whole = pa.concat_tables(read_rows(source, selection))
    assert pa.concat_tables(parts).sort_by("key") == whole.sort_by("key")
    return [part.num_rows for part in parts]


@pytest.mark.parametrize("rows", [1, 10])
def test_ranges_have_as_many_rows_however_these_crowd(
    inbox: tuple[Source, Selection], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(ranges, "RANGE_ROWS", rows)
    found = sizes(*inbox, cuts_ms(*inbox))
    assert len(found) > len(TIMES_MS) / (2 * rows + AT_ONCE)
    assert max(found) <= rows + AT_ONCE + 1


def test_a_table_of_few_rows_is_read_in_one_piece(inbox: tuple[Source, Selection]) -> None:
    source, selection = inbox
    assert list(ranges.ranges(selection, cuts_ms(source, selection))) == [selection]
