"""Statements that change rows of reconciler_repair: one a shape, however many rows; the rest are parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_rules import FINISHED_REPAIRS, bounded_text, wait_ms
from reconciler.contract.tables import RepairState
from reconciler.policy.ports import Repair, RepairChange
from reconciler.sql.tables import repair as repair_table

PLACE_COLUMNS = (repair_table.c.environment, repair_table.c.topic, repair_table.c.scope, repair_table.c.unique_key)
#: The row of place_of(), and the token given to it.
THIS_ROW = sa.and_(*(column == sa.bindparam(f"p_{column.name}") for column in PLACE_COLUMNS))
TOKEN: sa.BindParameter[str] = sa.bindparam("p_token", type_=sa.String())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeShape:
    """Which columns a change writes: changes of one shape are one statement."""

    counts_as_attempt: bool
    takes_back_attempt: bool
    has_target: bool
    has_answer: bool
    gives_up: bool
    is_done: bool

    @classmethod
    def of(cls, change: RepairChange) -> ChangeShape:
        """The shape of a change."""
        return cls(
            counts_as_attempt=change.counts_as_attempt,
            takes_back_attempt=change.takes_back_attempt,
            has_target=change.target is not None,
            has_answer=change.answer is not None,
            gives_up=change.releases or change.state in FINISHED_REPAIRS,
            is_done=change.state is RepairState.DONE,
        )

    def update(self, now: sa.ColumnElement[int]) -> sa.Update:
        """The statement; its parameters are those of place_of() and written_by()."""
        columns = repair_table.c
        values: dict[str, Any] = {}
        if self.counts_as_attempt:
            # In this order: MySQL reads columns as the assignments before have left them.
            values["first_sent_at_ms"] = sa.case((columns.sent_at_ms.is_(None), now), else_=columns.first_sent_at_ms)
            values |= {"sent_at_ms": now, "attempts": columns.attempts + 1}
        elif self.takes_back_attempt:
            values["attempts"] = columns.attempts - 1
        values |= {
            "state": sa.bindparam("p_state"),
            "rung": sa.bindparam("p_rung"),
            "next_at_ms": now + sa.bindparam("p_wait_ms", type_=sa.BigInteger()),
        }
        if self.has_target:
            values["target"] = sa.bindparam("p_target")
        if self.has_answer:
            values["answer"] = sa.bindparam("p_answer")
        if self.gives_up:
            values |= {"token": None, "lease_until_ms": None}
        if self.is_done:
            values |= {"done_at_ms": now, "message": None}
        return sa.update(repair_table).where(THIS_ROW, columns.token == TOKEN).ordered_values(*values.items())


def written_by(change: RepairChange) -> dict[str, Any]:
    """Parameters of a change."""
    values: dict[str, Any] = {
        "p_state": change.state.value,
        "p_rung": change.rung.value,
        "p_wait_ms": wait_ms(change.wait_seconds),
    }
    if change.target is not None:
        values["p_target"] = json.dumps(dict(change.target), separators=(",", ":"))
    if change.answer is not None:
        values["p_answer"] = bounded_text(change.answer)
    return values


def place_of(repair: Repair, token: str | None) -> dict[str, Any]:
    """Parameters of THIS_ROW, and of TOKEN unless it is None."""
    place = {
        "p_environment": repair.environment,
        "p_topic": repair.topic,
        "p_scope": repair.scope,
        "p_unique_key": repair.unique_key,
    }
    return place if token is None else place | {"p_token": token}
