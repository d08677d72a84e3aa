"""Columns for code and fields beside two texts on which decisions rest: answers of repairs, and acts by hand.

0.2.0 ignores the columns, and decides by the words of the texts. This migration writes the facts of such texts. Rows
that 0.2.0 writes later have no facts, and are recognised by their words (reconciler/contract/earlier_words.py).
"""

from __future__ import annotations

import json
import zlib

import sqlalchemy as sa
from alembic import context, op

from reconciler.sql.migrations.column_types import TEXT
from reconciler.sql.migrations.steps import add_columns, nullable

revision = "0015_facts"
down_revision = "0014_undecided"
branch_labels = None
depends_on = None

_REPAIR, _ACTION = "reconciler_repair", "reconciler_operator_action"
_DISMISSED_BY = "dismissed by "
_ROWS_A_STATEMENT = 500


def upgrade() -> None:
    """Adds both columns, then fills the column of repairs that a person has dismissed."""
    add_columns(
        _REPAIR,
        nullable(
            "answer_fact",
            TEXT,
            "Code and fields of the answer, with a digest of its text; NULL: a handler's, or an older release's.",
        ),
    )
    add_columns(
        _ACTION,
        nullable("fact", TEXT, "Code and fields of what later commands decide by."),
    )
    if context.is_offline_mode():
        return  # without facts, rows are recognised by their words
    if op.get_context().dialect.name == "postgresql":
        with op.get_context().autocommit_block():  # releases the table's lock before the rows are read
            _fill(op.get_bind())
    else:
        _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Fills the column. Dismissals are few, because persons make them. A row that changes meanwhile is left out."""
    names = ("environment", "topic", "scope", "unique_key", "answer")
    table = sa.table(_REPAIR, *(sa.column(name) for name in (*names, "answer_fact")))
    rows = connection.execute(
        sa.select(*(table.c[name] for name in names)).where(
            table.c.answer.startswith(_DISMISSED_BY), table.c.answer_fact.is_(None)
        )
    ).all()
    # A database that ignores case also finds rows with other words.
    found = [
        {f"p_{name}": value for name, value in zip(names, row, strict=True)} | {"p_fact": _fact(row.answer)}
        for row in rows
        if row.answer.startswith(_DISMISSED_BY)
    ]
    fill = (
        sa.update(table)
        .where(*(table.c[name] == sa.bindparam(f"p_{name}") for name in names))
        .values(answer_fact=sa.bindparam("p_fact"))
    )
    for start in range(0, len(found), _ROWS_A_STATEMENT):
        connection.execute(fill, found[start : start + _ROWS_A_STATEMENT])


def _fact(answer: str) -> str:
    by, _, reason = answer.removeprefix(_DISMISSED_BY).partition(": ")
    crc32 = zlib.crc32(answer.encode("utf-8", "surrogatepass"))
    fact = {"code": "repair.dismissed", "fields": {"by": by, "reason": reason[:400]}, "crc32": crc32}
    return json.dumps(fact, separators=(",", ":"))
