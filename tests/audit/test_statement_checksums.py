"""Checksums of rows: the same row has the same one however it is stored, and one altered cell alters one row's."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from reconciler.audit.statement.checksums import BATCH_ROWS, rows_of
from tests.examples import examples

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("name", pa.string()),
        ("digest", pa.binary()),
        ("at_ms", pa.int64()),
        ("count", pa.int32()),
        ("flag", pa.bool_()),
        ("share", pa.float64()),
    ]
)
#: Around the words of 8 bytes, and around the length from which values are hashed one by one.
lengths = st.sampled_from([0, 1, 7, 8, 9, 16, 17, 28, 32, 63, 64, 65, 4095, 4096, 4097, 5000])
values = st.one_of(st.binary(max_size=40), lengths.map(bytes), lengths.map(lambda n: b"\xff" * n))
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": values,
            "name": st.none() | st.text(max_size=30),
            "digest": st.none() | values,
            "at_ms": st.none() | st.integers(-(2**63), 2**63 - 1),
            "count": st.none() | st.integers(-(2**31), 2**31 - 1),
            "flag": st.none() | st.booleans(),
            "share": st.none() | st.floats(allow_nan=False),
        }
    ),
    min_size=1,
    max_size=30,
)


def checksums(found: list[dict[str, Any]], **stored: Any) -> list[int]:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found, schema=SCHEMA), sink, **stored)
    return [int(one) for one in rows_of("a.parquet", sink.getvalue()).checksums]


@given(rows, st.integers(1, 40), st.sampled_from(["none", "snappy", "zstd"]), st.booleans())
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_how_rows_are_stored_changes_no_checksum(
    found: list[dict[str, Any]], group_rows: int, compression: str, with_dictionary: bool
) -> None:
    stored = {"row_group_size": group_rows, "compression": compression, "use_dictionary": with_dictionary}
    assert checksums(found, **stored) == checksums(found)
    assert checksums(found[::-1]) == checksums(found)[::-1]


@given(rows, st.data())
@hypothesis_settings(max_examples=examples(120), deadline=None)
def test_one_altered_cell_alters_the_checksum_of_its_row_alone(
    found: list[dict[str, Any]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(found) - 1))
    column = data.draw(st.sampled_from(SCHEMA.names))
    other = data.draw(rows)[0][column]
    changed = [dict(row) for row in found]
    changed[index][column] = other
    # 0.0 and -0.0 are equal for Python and two values for a file.
    is_same = repr(other) == repr(found[index][column])
    differing = [
        n for n, pair in enumerate(zip(checksums(found), checksums(changed), strict=True)) if pair[0] != pair[1]
    ]
    assert differing == ([] if is_same else [index])


def test_absent_empty_and_zero_are_three_things() -> None:
    empty: dict[str, Any] = {
        "key": b"k",
        "name": "",
        "digest": b"",
        "at_ms": 0,
        "count": 0,
        "flag": False,
        "share": 0.0,
    }
    seen = {checksums([empty])[0]}
    for column in SCHEMA.names[1:]:
        seen.add(checksums([{**empty, column: None}])[0])
    for zeros in range(1, 20):
        seen.add(checksums([{**empty, "digest": bytes(zeros)}])[0])
    seen.add(checksums([{**empty, "digest": None, "name": None}])[0])
    assert len(seen) == 1 + 6 + 19 + 1


def test_values_that_change_places_between_columns_are_noticed() -> None:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    assert checksums([{**row, "key": b"a", "digest": b"b"}]) != checksums([{**row, "key": b"b", "digest": b"a"}])


def test_a_table_of_several_batches_has_a_checksum_a_row() -> None:
    count = BATCH_ROWS + 7
    table = pa.table({"key": pa.array([b"%d" % n for n in range(count)]), "name": pa.array(["same"] * count)})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=count)
    found = rows_of("a.parquet", sink.getvalue())
    assert len(set(found.checksums.tolist())) == count
    assert (b"%d" % (count - 1)).hex().upper() in found.name(count - 1)


def test_rows_of_documents_are_elements_values_and_lines() -> None:
    listed = rows_of("findings.json", b'[{"key":"AB","class":"LOST"},{"key":"CD"}]')
    assert [listed.name(0), listed.name(1)] == ["element 1 (class LOST, key AB)", "element 2 (key CD)"]
    document = rows_of("result.json", b'{"b":[1,{}],"a":{"c":null}}')
    assert [document.name(n) for n in range(3)] == ["/a/c", "/b/0", "/b/1"]
    text = rows_of("report.html", b"<p>\nx\n")
    assert (len(text.checksums), text.name(1)) == (3, "line 2")
