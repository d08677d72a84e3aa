"""reconciler_operator_action: what people did by hand (ports.OperatorActions)."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import OPERATOR_ACTION
from reconciler.ledger.database import LedgerDatabase
from reconciler.policy.ports import Intent, OperatorAction
from reconciler.sql.tables import operator_action

_ROWS = RowReader(OPERATOR_ACTION)


class SqlOperatorActions:
    """The book in SQL. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def begin(self, environment: str, intent: Intent) -> str:
        """The row, without an end."""
        action_id = secrets.token_hex(16)
        with self._database.writing() as connection:
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
                )
            )
        return action_id

    def end(self, action_id: str, result: str) -> None:
        """Its end."""
        with self._database.writing() as connection:
            connection.execute(
                sa.update(operator_action)
                .where(operator_action.c.action_id == action_id)
                .values(ended_at_ms=self._database.now(), result=bounded_text(result))
            )


def action_of(row: sa.Row[Any]) -> OperatorAction:
    """One row as a value, without the columns that are damaged."""
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
    )
