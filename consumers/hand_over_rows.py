"""Hand-over rows of one group, on the ledger's table: what a replay worker claims, runs and finishes.

Only rows whose scope is the group and only claims are touched here; the daemon inserts the rows and owns scope '*'.
All times are database time; every change after the claim is made under its token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.hand_over import decode_hand_over
from reconciler.contract.tables import RepairState, Rung
from reconciler.evidence import StoredMessage, TransactionState
from reconciler.ports import Repair, RepairChange
from reconciler.sql.engines import now_ms, reading, writing
from reconciler.sql.tables import repair as table

#: Characters of an answer that are kept.
ANSWER_CHARACTERS = 2_000

_FINISHED = (RepairState.DONE.value, RepairState.FAILED.value)
_COLUMNS = [column for column in table.c if column.name != "message"]
_NAMES = [column.name for column in _COLUMNS]


class HandOverRows:
    """The worker's part of ports.Repairs and ports.HandOvers. Shared by threads. Raises DatabaseAway."""

    def __init__(self, engine: sa.Engine) -> None:
        """The ledger's database; the caller disposes of the engine."""
        self._engine = engine

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Due hand-over rows of the group (scope) without a living claim, longest due first."""
        query = (
            sa.select(*_COLUMNS)
            .where(
                table.c.environment == environment,
                table.c.topic == topic,
                table.c.scope == scope,
                table.c.rung == Rung.HAND_OVER.value,
                self._is_claimable(),
            )
            .order_by(table.c.next_at_ms, table.c.created_at_ms, table.c.unique_key)
            .limit(limit)
        )
        with reading(self._engine) as connection:
            return [_repair(row) for row in connection.execute(query)]

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """One conditional UPDATE: of several claimants exactly one changes the row."""
        lease_until = self._now() + round(lease_seconds * 1000)
        return self._update(repair, self._is_claimable(), {"token": token, "lease_until_ms": lease_until})

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease from now."""
        lease_until = self._now() + round(lease_seconds * 1000)
        return self._update(repair, table.c.token == token, {"lease_until_ms": lease_until})

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token; None: the token is no longer the owner."""
        values: dict[str, Any] = {
            "state": change.state.value,
            "rung": change.rung.value,
            "next_at_ms": self._now() + round(change.wait_seconds * 1000),
        }
        if change.counts_as_attempt:
            values |= {"attempts": table.c.attempts + 1, "sent_at_ms": self._now()}
        if change.target is not None:
            values["target"] = json.dumps(dict(change.target), separators=(",", ":"))
        if change.answer is not None:
            values["answer"] = _bounded(change.answer)
        if change.releases or change.state.value in _FINISHED:
            values |= {"token": None, "lease_until_ms": None}
        if change.state is RepairState.DONE:
            values |= {"done_at_ms": self._now(), "message": None}
        return self._update(repair, table.c.token == token, values)

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """The message of a row; None once it was emptied. Raises MalformedInput for a row that cannot be read."""
        with reading(self._engine) as connection:
            text = connection.execute(sa.select(table.c.message).where(_identity(repair))).scalar_one_or_none()
        if text is None:
            return None
        return StoredMessage(**decode_hand_over(text), transaction_state=TransactionState.NONE)

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """DONE and the message emptied, under the token."""
        change = RepairChange(state=RepairState.DONE, rung=repair.rung, answer=answer)
        return self.change(repair, change, token=token)

    def _now(self) -> sa.ColumnElement[int]:
        return now_ms(self._engine.dialect.name)

    def _is_claimable(self) -> sa.ColumnElement[bool]:
        now = self._now()
        return sa.and_(
            table.c.state.not_in(_FINISHED),
            table.c.next_at_ms <= now,
            sa.or_(table.c.token.is_(None), table.c.lease_until_ms < now),
        )

    def _update(self, repair: Repair, condition: sa.ColumnElement[bool], values: Mapping[str, Any]) -> Repair | None:
        with writing(self._engine) as connection:
            done = connection.execute(sa.update(table).where(_identity(repair), condition).values(**values))
            if done.rowcount != 1:
                return None
            return _repair(connection.execute(sa.select(*_COLUMNS).where(_identity(repair))).one())


def _identity(repair: Repair) -> sa.ColumnElement[bool]:
    return sa.and_(
        table.c.environment == repair.environment,
        table.c.topic == repair.topic,
        table.c.scope == repair.scope,
        table.c.unique_key == repair.unique_key,
    )


def _repair(row: sa.Row[Any]) -> Repair:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    target = values.pop("target")
    return Repair(
        **{**values, "state": RepairState(values["state"]), "rung": Rung(values["rung"])},
        target=None if target is None else json.loads(target),
    )


def _bounded(text: str) -> str:
    # PostgreSQL refuses NUL in text.
    return text[:ANSWER_CHARACTERS].replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
