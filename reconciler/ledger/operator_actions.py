"""reconciler_operator_action: the acts of people (ports.OperatorActions)."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from reconciler.contract.facts import Fact
from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text
from reconciler.contract.row_values import RowReader
from reconciler.contract.stored_facts import column_of, fact_of_column
from reconciler.contract.tables import OPERATOR_ACTION
from reconciler.errors import ConfigurationError
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.newer_column import UPGRADE_LEDGER, NewerColumn
from reconciler.sql.tables import operator_action
from reconciler.telling.ports.actions import Intent, OperatorAction

_ROWS = RowReader(OPERATOR_ACTION)
_FACT = operator_action.c.fact
_LEAST = tuple(column for column in operator_action.c if column is not _FACT)


class SqlOperatorActions:
    """The record of acts in SQL. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._facts = NewerColumn(_FACT, without="a group cannot be renamed, and no commit query accepted or withdrawn")

    def columns(self, connection: sa.Connection) -> tuple[sa.ColumnElement[Any], ...]:
        """Returns the columns of a row for action_of()."""
        return (*_LEAST, self._facts.read(connection))

    def begin(self, environment: str, intent: Intent, *, fact: Fact | None = None) -> str:
        """Writes the row of an act before the act is done. Returns its id."""
        action_id = secrets.token_hex(16)
        with self._database.writing() as connection:
            kept = _kept(fact)
            if kept and not self._facts.is_there(connection):
                raise ConfigurationError(f"{intent.command}: the ledger is an older release's: {UPGRADE_LEDGER}")
            connection.execute(
                sa.insert(operator_action).values(
                    action_id=action_id,
                    environment=environment,
                    by=bounded_text(intent.by, NAME_CHARACTERS),
                    command=intent.command,
                    topic=intent.topic,
                    consumer_group=intent.group,
                    unique_key=intent.unique_key,
                    detail=bounded_text(intent.detail),
                    started_at_ms=self._database.now(),
                    **kept,
                )
            )
        return action_id

    def end(self, action_id: str, result: str, *, fact: Fact | None = None) -> None:
        """Writes the end of the act."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(operator_action)
                .where(operator_action.c.action_id == action_id)
                .values(ended_at_ms=self._database.now(), result=bounded_text(result), **_kept(fact))
            )


def _kept(fact: Fact | None) -> dict[str, str]:
    """Returns column -> value for the fact. The fact needs no digest of a text, because no other release changes these
    texts."""
    return {} if fact is None else {_FACT.name: column_of(fact, "")}


def action_of(row: sa.Row[Any]) -> OperatorAction:
    """Returns the act of a row. Damaged columns read as empty."""
    values = _ROWS.parse(row).values
    intent = Intent(
        by=values["by"],
        command=values["command"],
        topic=values["topic"],
        group=values["consumer_group"],
        unique_key=values["unique_key"],
        detail=values["detail"],
    )
    return OperatorAction(
        action_id=values["action_id"],
        intent=intent,
        started_at_ms=values["started_at_ms"],
        ended_at_ms=values["ended_at_ms"],
        result=values["result"],
        fact=fact_of_column(values["fact"], ""),
    )
