"""Reads selected rows of a source.

A selection names a table's columns and chooses rows by equality, time range or keys.

The same selection reads a database (SELECT) or an export of the table as Parquet or Delta. An export is read without
the time range, because keys cannot be looked up in an export afterwards.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import sqlalchemy as sa
from pyarrow import fs as arrow_fs

from reconciler.audit.collect.columns import table_of, table_of_csv
from reconciler.audit.collect.database import column_types, pages, reading
from reconciler.audit.collect.files import reading_files
from reconciler.audit.collect.row_security import hides_rows
from reconciler.audit.collect.sources import EffectsSource, Source
from reconciler.audit.errors import AuditError
from reconciler.audit.places import open_folder
from reconciler.contract.evidence_layout import EFFECTS_EVIDENCE, LATER_COLUMNS
from reconciler.contract.schema import Table
from reconciler.contract.unique_key import key_of

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selection of rows of one table."""

    layout: Table
    #: Name of the table in a database, and of the table's folder in an export.
    table: str
    equal: tuple[tuple[str, str | int], ...] = ()
    among: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: Column of time, first millisecond, and end. The end is not included. End None: the time has no end.
    since: tuple[str, int, int | None] | None = None

    @property
    def values(self) -> list[dict[str, str | int]]:
        """Combinations of the values that the columns of `equal` and `among` may have."""
        among = [[(name, one) for one in values] for name, values in self.among]
        return [dict((*self.equal, *chosen)) for chosen in product(*among)]

    def name_of(self, column: str) -> str:
        """Returns the name that the table has for a column of the layout."""
        return "unique_key" if column == "key" else column


def read_rows(
    source: Source, selection: Selection, *, file: str | None = None, lacking: set[str] | None = None
) -> Iterator[pa.Table]:
    """Yields pages with the layout's columns. Raises AuditError.

    `file` names the only file of an export that is read.
    `lacking` gets the names of LATER_COLUMNS that the source lacks, even if the source has no row.
    """
    if source.kind == "database":
        with reading(source) as connection:
            question = _Question(connection, source, selection)
            if lacking is not None:
                lacking |= question.lacking
            for rows in question.rows():
                yield _exactly(selection, rows, source)
        return
    yield from _read_export(source, selection, file, set() if lacking is None else lacking)


def key_reader(
    connection: sa.Connection, source: Source, selection: Selection
) -> Callable[[Sequence[bytes]], pa.Table | None]:
    """Makes a function that reads the rows of keys. The rows may be of any time.

    The function returns None if the keys have no row.
    """
    question = _Question(connection, source, selection)

    def read(keys: Sequence[bytes]) -> pa.Table | None:
        rows = list(question.rows(sa.column("unique_key").in_(list(map(key_of, keys)))))
        return _exactly(selection, pa.concat_tables(rows), source, keys) if rows else None

    return read


def is_dated(effects: EffectsSource) -> bool:
    """True if the query reads only effects between two times. False: the query reads effects of all days."""
    return effects.source.kind == "database" and sa.text(effects.query).compile().params.keys() >= {
        "start_ms",
        "end_ms",
    }


def read_effects(effects: EffectsSource, topic: str, group: str, between_ms: tuple[int, int]) -> Iterator[pa.Table]:
    """Yields effects of a group in the source's order. A key may come again. The query may use :start_ms and :end_ms.

    Raises AuditError.
    """
    source = effects.source
    if source.kind != "database":
        selection = Selection(layout=EFFECTS_EVIDENCE, table="effects")
        for batch in _batches(source, selection, _dataset(source, selection, None)):
            names = [name for name in ("key", "unique_key") if name in batch.schema.names]
            if not names:
                raise AuditError("inputs", f"{source}: the export has no column key; it has {batch.schema.names}")
            keys = batch.column(names[0]).to_pylist()
            counts = batch.column("effects").to_pylist() if "effects" in batch.schema.names else [1] * len(keys)
            if not keys:
                continue
            yield _counted(keys, counts, topic, group, source)
        return
    statement = sa.text(effects.query)
    bound = {"start_ms": between_ms[0], "end_ms": between_ms[1]}
    used = frozenset(statement.compile().params)
    if used - bound.keys():
        raise AuditError(
            "usage", f"{source}: the query may use :start_ms and :end_ms, not {sorted(used - bound.keys())}"
        )
    with reading(source) as connection:
        for page in pages(connection, statement, {name: bound[name] for name in used}):
            if len(page[0]) not in (1, 2):
                raise AuditError(
                    "usage", f"{source}: the query gives {len(page[0])} columns; key and count are expected"
                )
            counts = [row[1] for row in page] if len(page[0]) == 2 else [1] * len(page)
            yield _counted([row[0] for row in page], counts, topic, group, source)


def oldest_ms(source: Source, selection: Selection, columns: Sequence[str]) -> int | None:
    """Finds the smallest time of the selection's rows. A row's time is in the first of these columns that has a value.

    None: the selection has no row. Raises AuditError.
    """
    if source.kind == "database":
        with reading(source) as connection:
            have = column_types(connection, selection.table)
            times: list[sa.ColumnClause[int]] = [sa.column(name) for name in columns if name in have]
            value = sa.func.coalesce(*times) if len(times) > 1 else times[0]
            statement = limited(selection, sa.select(sa.func.min(value)).select_from(sa.table(selection.table)))
            found = connection.execute(statement).scalar()
            return None if found is None else int(found)
    dataset = _dataset(source, selection, None)
    have_in_export = set(dataset.schema.names)
    names = [name for name in columns if name in have_in_export]
    if not names:
        raise _lacks(source, columns[-1], have_in_export)
    batches = _batches(source, selection, dataset, names)
    # A column that is NULL in every row may have no type.
    columns_of = ([batch.column(name).cast(pa.int64()) for name in names] for batch in batches)
    smallest = (pc.min(pc.coalesce(*of)).as_py() for of in columns_of)
    return min((int(at_ms) for at_ms in smallest if at_ms is not None), default=None)


def export_files(source: Source, selection: Selection) -> list[str | None]:
    """Lists the files of an export that can be read separately.

    The result is [None] if the export is read in one piece.
    """
    if source.kind == "delta":
        return [None]
    return list(_dataset(source, selection, None).files)


def export_batches(
    source: Source, selection: Selection, file: str | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields these columns of an export's rows. The rows may be of any time. Raises AuditError."""
    dataset = _dataset(source, selection, file)
    have = set(dataset.schema.names)
    for name in columns:
        if name not in have:
            raise _lacks(source, name, have)
    yield from _batches(source, selection, dataset, columns)


class _Question:
    """Query of a selection in one database. PostgreSQL's COPY reads columns where COPY is possible.

    Otherwise rows are read.
    """

    def __init__(self, connection: sa.Connection, source: Source, selection: Selection) -> None:
        """Raises AuditError for a missing table or column.

        Also raises AuditError for row security that may hide rows.
        """
        self._connection, self._source, self._selection = connection, source, selection
        have = column_types(connection, selection.table)
        if not have:
            raise AuditError("inputs", f"{source}: there is no table {selection.table} in this database")
        if hides_rows(connection, selection.table, selection.values):
            raise AuditError(
                "inputs",
                f"{source}: row security may hide rows of {selection.table} from this login, so what is missing there "
                "proves nothing. Give it BYPASSRLS, or a policy FOR SELECT USING (true) and no restrictive one",
            )
        #: LATER_COLUMNS that the table lacks.
        self.lacking = _lacking(selection, set(have))
        self._columns: list[sa.ColumnElement[Any]] = []
        for column in selection.layout.columns:
            name = selection.name_of(column.name)
            if name in have:
                self._columns.append(sa.column(name))
            elif column.name in self.lacking:
                self._columns.append(sa.null().label(name))
            else:
                raise AuditError(
                    "inputs",
                    f"{source}: {selection.table} has no column {name}; run `reconciler db upgrade` of its version",
                )
        self._copied = None
        if connection.dialect.name == "postgresql":
            from reconciler.audit.collect.postgres_copy import copied, is_copied  # needs the driver

            of = [(column, selection.name_of(column.name)) for column in selection.layout.columns]
            if all(is_copied(column.kind, have[name]) for column, name in of if name in have):
                self._copied = copied
                self._columns = [
                    sa.func.encode(one, "hex").label(name) if column.kind == "digest" and name in have else one
                    for one, (column, name) in zip(self._columns, of, strict=True)
                ]

    def rows(self, *wanted: sa.ColumnElement[bool]) -> Iterator[pa.Table]:
        """Yields the selection's rows in the layout's columns. Raises AuditError."""
        layout, where = self._selection.layout, str(self._source)
        statement = _statement(self._selection, self._columns).where(*wanted)
        if self._copied is None:
            yield from (table_of(layout, page, where) for page in pages(self._connection, statement))
        else:
            yield from (table_of_csv(layout, rows, where) for rows in self._copied(self._connection, statement))


def limited(selection: Selection, statement: sa.Select[Any]) -> sa.Select[Any]:
    """Limits the statement to the selection's rows."""
    for name, value in selection.equal:
        statement = statement.where(sa.column(name) == value)
    for name, values in selection.among:
        statement = statement.where(sa.column(name).in_(values))
    if selection.since is not None:
        name, first, end = selection.since
        statement = statement.where(sa.column(name) >= first)
        if end is not None:
            statement = statement.where(sa.column(name) < end)
    return statement


def _statement(selection: Selection, columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    statement = limited(selection, sa.select(*columns).select_from(sa.table(selection.table)))
    # Rows are sorted, because a database may change the order of rows. The evidence's bytes must not depend on that
    # order.
    keyed = [column for column in columns if column.name == "unique_key"]
    return statement.order_by(*keyed, *(column for column in columns if column.name != "unique_key"))


def _exactly(selection: Selection, rows: pa.Table, source: Source, keys: Sequence[bytes] | None = None) -> pa.Table:
    """Returns the rows. Raises AuditError if a row has a name or key that was not asked for.

    Some collations ignore case or spaces at the end. With such a collation a database returns one group's rows for
    another group.
    """
    asked: list[tuple[str, Sequence[str | int]]] = [(name, (value,)) for name, value in selection.equal]
    for name, values in (*asked, *selection.among, *((("key", keys),) if keys is not None else ())):
        if name not in rows.column_names or pa.types.is_integer(rows.schema.field(name).type):
            continue
        wanted = pa.array(values, rows.schema.field(name).type)
        other = rows.filter(pc.invert(pc.is_in(rows[name], value_set=wanted)))
        if other.num_rows:
            text = other[name][0].as_py()
            met = key_of(text) if isinstance(text, bytes) else text
            raise AuditError(
                "inputs",
                f"{source}: {selection.table} takes names for one another: it gave rows of "
                f"{selection.name_of(name)} {met!r}, which was not asked for. `reconciler doctor` names the columns "
                "whose collation does not compare bytes",
            )
    return rows


def _dataset(source: Source, selection: Selection, file: str | None) -> ds.Dataset:
    try:
        with reading_files(str(source), source.address, "the export cannot be read"):
            if source.kind == "delta":
                return _delta(source.address, selection.table)
            filesystem, base = open_folder(source.address)
            of_table = f"{base}/{selection.table}"
            if file is None and filesystem.get_file_info(of_table).type == arrow_fs.FileType.Directory:
                base = of_table
            parquet = ds.dataset(file or base, filesystem=filesystem, format="parquet")
    except ModuleNotFoundError as error:
        message = f"{source}: delta: needs the package {error.name}: pip install deltalake"
        raise AuditError("configuration", message) from error
    except AuditError:
        raise
    except Exception as error:  # deltalake's errors share no base but Exception
        raise AuditError("inputs", f"{source}: the Delta table cannot be read: {error}") from error
    if not parquet.files:
        raise AuditError("inputs", f"{source}: there is no Parquet file in it")
    return parquet


def _delta(address: str, table: str) -> ds.Dataset:
    """Opens the newest version of a Delta table.

    The Delta table is at `address`, or in a folder below with the table's name.

    Only files in the Delta table's log count. Tables that need a newer reader (deletion vectors) are refused.
    """
    deltalake = importlib.import_module("deltalake")  # loaded only for a Delta table
    of_table = f"{address.rstrip('/')}/{table}"
    place = of_table if deltalake.DeltaTable.is_deltatable(of_table) else address
    found: ds.Dataset = deltalake.DeltaTable(place).to_pyarrow_dataset()
    return found


def _batches(
    source: Source, selection: Selection, dataset: ds.Dataset, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the selection's rows. With `columns` None, the rows have all columns."""
    fields = _fields(selection, dataset.schema)
    wanted = {name: fields[name] for name in (fields if columns is None else columns)}
    with reading_files(str(source), source.address, "the export cannot be read to its end"):
        yield from dataset.to_batches(filter=_condition(selection, fields), columns=wanted, batch_size=_BATCH_ROWS)


def _fields(selection: Selection, schema: pa.Schema) -> dict[str, ds.Expression]:
    """Maps names to columns of the layout's types.

    Impala and Hive write text as Parquet's BINARY without the mark UTF8.
    """
    texts = {column.name for column in selection.layout.columns if column.kind == "name"}
    return {
        one.name: ds.field(one.name).cast(pa.string())
        if one.name in texts and _is_bytes(one.type)
        else ds.field(one.name)
        for one in schema
    }


def _is_bytes(kind: pa.DataType) -> bool:
    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_binary_view(of))


def _read_export(source: Source, selection: Selection, file: str | None, lacking: set[str]) -> Iterator[pa.Table]:
    dataset = _dataset(source, selection, file)
    have = set(dataset.schema.names)
    lacking |= _lacking(selection, have)
    for batch in _batches(source, selection, dataset):
        columns: list[Sequence[Any]] = []
        for column in selection.layout.columns:
            name = column.name if column.name in have else selection.name_of(column.name)
            if name in have:
                columns.append(batch.column(name).to_pylist())
            elif column.name in lacking:
                columns.append([None] * batch.num_rows)
            else:
                raise _lacks(source, ", ".join(_missing(selection, have)), have)
        if batch.num_rows:
            yield table_of(selection.layout, list(zip(*columns, strict=True)), str(source))


def _condition(selection: Selection, fields: Mapping[str, ds.Expression]) -> ds.Expression | None:
    condition: ds.Expression | None = None
    for name, values in (*((n, (v,)) for n, v in selection.equal), *selection.among):
        if name in fields:  # a column that the export lacks filters no row
            is_number = any(isinstance(value, int) for value in values)
            one = fields[name].isin(pa.array(values, pa.int64() if is_number else pa.string()))
            condition = one if condition is None else condition & one
    return condition


def _lacking(selection: Selection, have: set[str]) -> set[str]:
    return {column.name for column in selection.layout.columns if column.name in LATER_COLUMNS - have}


def _missing(selection: Selection, have: set[str]) -> list[str]:
    """Lists all columns that an export lacks, so that one fix is enough."""
    named = {column.name: selection.name_of(column.name) for column in selection.layout.columns}
    return [name for of, name in named.items() if not have & {of, name} and of not in LATER_COLUMNS]


def _lacks(source: Source, column: str, have: set[str]) -> AuditError:
    return AuditError("inputs", f"{source}: the export has no column {column}; it has {sorted(have)}")


def _counted(keys: Sequence[Any], counts: Sequence[Any], topic: str, group: str, source: Source) -> pa.Table:
    rows = [(key, topic, group, count) for key, count in zip(keys, counts, strict=True)]
    return table_of(EFFECTS_EVIDENCE, rows, str(source))
