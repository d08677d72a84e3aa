"""Answers of repairs in the ledger. Every release reads the English text. Newer releases read the fact beside the text.

If a ledger was not upgraded, it has no column for facts, and a dismissal is recognised by the words that 0.2.0 writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from reconciler.contract.earlier_words import BEGINS_DISMISSED
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import REPAIR_DISMISSED
from reconciler.contract.row_rules import bounded_text
from reconciler.contract.stored_facts import begins_column, column_of
from reconciler.ledger.newer_column import NewerColumn
from reconciler.sql.repair_claims import REPAIR_COLUMNS
from reconciler.sql.tables import repair

_FACT = repair.c.answer_fact


class RepairAnswers:
    """Reads and writes answers. Thread-safe."""

    def __init__(self, english: Callable[[Fact], str]) -> None:
        self._english = english
        self._facts = NewerColumn(_FACT, without="answers of repairs are kept as text alone")

    def columns(self, connection: sa.Connection) -> tuple[sa.ColumnElement[Any], ...]:
        """Returns the columns of a row for repair_of()."""
        return (*REPAIR_COLUMNS, self._facts.read(connection))

    def written(self, connection: sa.Connection, answer: Fact | str) -> dict[str, str | None]:
        """Returns column -> value. An answer that is only a text has no fact."""
        text = bounded_text(answer if isinstance(answer, str) else self._english(answer))
        values: dict[str, str | None] = {"answer": text}
        if self._facts.is_there(connection):
            values[_FACT.name] = None if isinstance(answer, str) else column_of(answer, text)
        return values

    def was_dismissed(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        """Returns a condition on a repair that is DONE: its words or its code show a dismissal. 0.2.0 may have changed
        the words and left the code. An answer may be NULL: COALESCE keeps the negated condition from being NULL."""
        in_words = sa.func.coalesce(repair.c.answer, "").startswith(BEGINS_DISMISSED)
        kept = sa.func.coalesce(self._facts.read(connection), "")
        return in_words | kept.startswith(begins_column(REPAIR_DISMISSED), autoescape=True)
