"""Code and fields beside texts that decisions need: answers of repairs, and acts by hand.

0.2.0 neither writes nor reads the columns. What it decides by words gets its fact here; rows that it writes later have
none, and are recognised by the same words (reconciler/contract/earlier_words.py).
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
    """Adds both columns, then fills that of repairs which a person has dismissed."""
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
        return  # the rows are recognised by their words
    if op.get_context().dialect.name == "postgresql":
        with op.get_context().autocommit_block():  # releases the table's lock before rows are looked for
            _fill(op.get_bind())
    else:
        _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Fills the column. Persons make dismissals, so they are few. A row that changes meanwhile stays as it is."""
    names = ("environment", "topic", "scope", "unique_key", "answer")
    table = sa.table(_REPAIR, *(sa.column(name) for name in (*names, "answer_fact")))
    rows = connection.execute(
        sa.select(*(table.c[name] for name in names)).where(
            table.c.answer.startswith(_DISMISSED_BY), table.c.answer_fact.is_(None)
        )
    ).all()
    # Databases that ignore case find other rows, too.
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
