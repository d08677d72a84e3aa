"""Makes Arrow tables from batches, and Parquet files from tables. The contract gives the schemas.

Keys are random bytes, which no dictionary and no codec makes shorter. Each key is stored once, and the lengths of keys
are stored as deltas. Rows are sorted so that every other column consists of runs. So an id and its round take 16 to 20
bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reconciler.contract.history_row import HISTORY_VERSION, PREFIXES, prefix_of
from reconciler.contract.schema import Table
from reconciler.history.batch import STREAMS, RowBatch

DAY_MS = 86_400_000
_TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "name": pa.string(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}
#: Columns by which rows are sorted, so that runs take the fewest bytes. Columns that a stream lacks are left out.
_ORDER = ("topic", "consumer_group", "scope", "shard", "at_ms", "generation", "key")
_SCHEMAS = {
    name: pa.schema(
        [pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in stream.columns],
        metadata={"reconciler.history": f"{name}/{HISTORY_VERSION}"},
    )
    for name, stream in STREAMS.items()
}


def schema_of(stream: str) -> pa.Schema:
    """Makes the schema of a stream: columns, types, and which columns may be NULL."""
    return _SCHEMAS[stream]


def table_of(stream: str, batches: Sequence[RowBatch]) -> pa.Table:
    """Makes one table from batches of one stream. The rows have the order of the batches."""
    counts = [len(batch) for batch in batches]
    # Number of the batch of every row. One `take` then repeats shared values, without an object per row.
    of_row = pa.array(array("i", chain.from_iterable([n] * count for n, count in enumerate(counts))), pa.int32())
    arrays = []
    for field in schema_of(stream):
        if field.name == "key":
            arrays.append(_keys(batches))
        elif all(field.name in batch.shared for batch in batches):
            arrays.append(pa.array([batch.shared[field.name] for batch in batches], field.type).take(of_row))
        else:
            values = (
                batch.columns[field.name] if field.name in batch.columns else [batch.shared[field.name]] * len(batch)
                for batch in batches
            )
            arrays.append(pa.array(list(chain.from_iterable(values)), field.type))
    return pa.Table.from_arrays(arrays, schema=schema_of(stream))


def _keys(batches: Sequence[RowBatch]) -> pa.Array:
    lengths = b"".join(batch.keys.lengths for batch in batches)
    offsets = array("i", accumulate(lengths, initial=0))
    data = b"".join(batch.keys.data for batch in batches)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@dataclass(frozen=True, slots=True)
class Partition:
    """Place of rows in the history: day and prefix."""

    stream: str
    #: UTC day as YYYY-MM-DD.
    date: str
    #: Prefix of the keys. None: the stream has no key.
    prefix: int | None

    def folder(self, environment: str) -> str:
        """Makes the folder's path below the history."""
        prefix = "" if self.prefix is None else f"/prefix={self.prefix:02d}"
        return f"{self.stream}/environment={environment}/date={self.date}{prefix}"


def partitions(stream: Table, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
    """Yields the table's sorted rows of each day and prefix."""
    day = pc.divide(table["at_ms"], DAY_MS)
    if stream.has_key:
        # Every prefix is below 64, so different pairs of day and prefix have different sums.
        prefixes = array("q", map(prefix_of, _each_key(table["key"])))
        part = pc.add(pc.multiply(day, PREFIXES), pa.array(prefixes, pa.int64()))
    else:
        part = pc.multiply(day, PREFIXES)
    table = table.append_column("part", part)
    by = [("part", "ascending"), *((name, "ascending") for name in _ORDER if name in table.column_names)]
    table = table.sort_by(by)
    parts = table["part"]
    table = table.drop_columns(["part"])
    start = 0
    for run in pc.value_counts(parts).to_pylist():
        number, count = run["values"], run["counts"]
        prefix = number % PREFIXES if stream.has_key else None
        yield Partition(stream.name, date_of(number // PREFIXES * DAY_MS), prefix), table.slice(start, count)
        start += count


def _each_key(column: pa.ChunkedArray) -> Iterator[bytes]:
    for piece in column.chunks:
        yield from piece.to_pylist()


def date_of(at_ms: int) -> str:
    """Returns the UTC day as YYYY-MM-DD."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).date().isoformat()


def sorted_once(table: pa.Table) -> pa.Table:
    """Sorts rows and drops repeated rows. A crash may have written the same batch twice."""
    first = [name for name in _ORDER if name in table.column_names]
    return first_of_each(table, [*first, *(name for name in table.column_names if name not in first)])


def first_of_each(table: pa.Table, by: Sequence[str], *, then: Sequence[tuple[str, str]] = ()) -> pa.Table:
    """Sorts rows by these columns, then by `then`. Of rows that are equal in these columns, keeps the first row.

    Table.group_by would load two more libraries of Arrow, which take 40 MiB.
    """
    table = table.sort_by([*((name, "ascending") for name in by), *then])
    if len(table) < 2:
        return table
    is_new = pa.chunked_array([], pa.bool_())
    for number, column in enumerate(table[name] for name in by):
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        differs = pc.coalesce(pc.not_equal(before, after), pc.xor(pc.is_null(before), pc.is_null(after)))
        is_new = pc.or_(is_new, differs) if number else differs
    return table.filter(pa.chunked_array([pa.array([True]), *is_new.chunks]))


def parquet_of(table: pa.Table) -> bytes:
    """Writes a Parquet file for readers of Parquet 2.4. No Arrow schema is stored, so types are Parquet's own."""
    encodings, dictionaries, statistics = {}, [], []
    for field in table.schema:
        if field.type == pa.binary():
            encodings[field.name] = "DELTA_LENGTH_BYTE_ARRAY"
            continue
        statistics.append(field.name)
        if field.type == pa.string():
            dictionaries.append(field.name)
        elif pa.types.is_integer(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=dictionaries,
        column_encoding=encodings,
        write_statistics=statistics,
        store_schema=False,
        version="2.6",
        data_page_version="1.0",
    )
    return bytes(sink.getvalue())


def read_parquet(data: bytes, stream: str) -> pa.Table:
    """Reads a file's bytes as a table with the stream's schema. Raises pa.ArrowException for a file of another form."""
    return pq.read_table(pa.BufferReader(data)).select(schema_of(stream).names).cast(schema_of(stream))
