"""Rows of reconciler_repair and the claims on them: for the daemon's ledger, and for the replay worker of a group.

A claim is one conditional UPDATE in database time; every later write names the claim's token. Who writes nothing is
no longer the owner and stops at once. A sleeping owner's request to a broker cannot be fenced: it costs a second
copy, which the inbox absorbs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.hand_over import decode_hand_over
from reconciler.contract.row_rules import FINISHED_REPAIRS, bounded_text, wait_ms
from reconciler.contract.tables import RepairState, Rung
from reconciler.evidence import StoredMessage, TransactionState
from reconciler.ports import Repair, RepairChange
from reconciler.sql.engines import now_ms, reading, writing
from reconciler.sql.tables import repair as repair_table

#: All but the message: bodies are read for the one row that is handed over.
REPAIR_COLUMNS = tuple(column for column in repair_table.c if column.name != "message")

_FINISHED = [state.value for state in sorted(FINISHED_REPAIRS)]


class RepairRows:
    """What both owners of claims do. Shared by threads; every call is one transaction. Raises DatabaseAway."""

    def __init__(self, engine: sa.Engine, *, now: Callable[[], sa.ColumnElement[int]] | None = None) -> None:
        """The ledger's database, whose engine the caller disposes of; `now` makes its time as an SQL expression."""
        self._engine = engine
        self._now = now or (lambda: now_ms(engine.dialect.name))

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Due rows without a living claim, longest due first: rows that are looked at again and again starve nobody."""
        query = (
            sa.select(*REPAIR_COLUMNS)
            .where(
                repair_table.c.environment == environment,
                repair_table.c.topic == topic,
                repair_table.c.scope == scope,
                self._is_claimable(),
            )
            .order_by(repair_table.c.next_at_ms, repair_table.c.created_at_ms, repair_table.c.unique_key)
            .limit(limit)
        )
        with reading(self._engine) as connection:
            return [repair_of(row) for row in connection.execute(query)]

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """One conditional UPDATE: of several claimants exactly one changes the row."""
        return self.claim_all([(repair, token)], lease_seconds=lease_seconds)[0]

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> list[Repair | None]:
        """One conditional UPDATE a row, all in one transaction."""
        until = self._now() + wait_ms(lease_seconds)
        is_free = self._is_claimable()
        return self._update_all(
            [(repair, is_free, {"token": token, "lease_until_ms": until}) for repair, token in claims]
        )

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease from now."""
        lease_until = self._now() + wait_ms(lease_seconds)
        return self._update(repair, repair_table.c.token == token, {"lease_until_ms": lease_until})

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token; None: the token is no longer the owner."""
        return self.change_all([(repair, change, token)])[0]

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> list[Repair | None]:
        """One UPDATE a row under its token, all in one transaction."""
        return self._update_all(
            [(repair, repair_table.c.token == token, self._values(change)) for repair, change, token in changes]
        )

    def _values(self, change: RepairChange) -> Mapping[str, Any]:
        now = self._now()
        values: dict[str, Any] = {}
        if change.counts_as_attempt:
            # In this order: MySQL reads columns as the assignments before have left them.
            never_sent = repair_table.c.sent_at_ms.is_(None)
            values["first_sent_at_ms"] = sa.case((never_sent, now), else_=repair_table.c.first_sent_at_ms)
            values |= {"sent_at_ms": now, "attempts": repair_table.c.attempts + 1}
        values |= {
            "state": change.state.value,
            "rung": change.rung.value,
            "next_at_ms": now + wait_ms(change.wait_seconds),
        }
        if change.target is not None:
            values["target"] = json.dumps(dict(change.target), separators=(",", ":"))
        if change.answer is not None:
            values["answer"] = bounded_text(change.answer)
        if change.releases or change.state in FINISHED_REPAIRS:
            values |= {"token": None, "lease_until_ms": None}
        if change.state is RepairState.DONE:
            values |= {"done_at_ms": now, "message": None}
        return values

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """The message of a hand-over; None once it was emptied. Raises MalformedInput for a text that is none."""
        with reading(self._engine) as connection:
            text = connection.execute(sa.select(repair_table.c.message).where(_identity(repair))).scalar_one_or_none()
        if text is None:
            return None
        return StoredMessage(**decode_hand_over(text), transaction_state=TransactionState.NONE)

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """A hand-over is DONE and its message emptied, under the token."""
        done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=answer)
        return self.change(repair, done, token=token)

    def _is_claimable(self) -> sa.ColumnElement[bool]:
        now = self._now()
        is_free = repair_table.c.token.is_(None) | (repair_table.c.lease_until_ms < now)
        return repair_table.c.state.not_in(_FINISHED) & (repair_table.c.next_at_ms <= now) & is_free

    def _update(self, repair: Repair, condition: sa.ColumnElement[bool], values: Mapping[str, Any]) -> Repair | None:
        return self._update_all([(repair, condition, values)])[0]

    def _update_all(
        self, updates: Sequence[tuple[Repair, sa.ColumnElement[bool], Mapping[str, Any]]]
    ) -> list[Repair | None]:
        changed: list[Repair | None] = [None] * len(updates)
        # Two owners lock rows in the same order: else they could wait for each other.
        order = sorted(range(len(updates)), key=lambda number: _place(updates[number][0]))
        with writing(self._engine) as connection:
            for number in order:
                repair, condition, values = updates[number]
                identity = _identity(repair)
                done = connection.execute(
                    sa.update(repair_table).where(identity, condition).ordered_values(*values.items())
                )
                if done.rowcount == 1:
                    row = connection.execute(sa.select(*REPAIR_COLUMNS).where(identity)).one()
                    changed[number] = repair_of(row)
        return changed


def repair_of(row: sa.Row[Any]) -> Repair:
    """The value of a row of reconciler_repair."""
    return Repair(
        environment=row.environment,
        topic=row.topic,
        scope=row.scope,
        unique_key=row.unique_key,
        state=RepairState(row.state),
        rung=Rung(row.rung),
        token=row.token,
        lease_until_ms=row.lease_until_ms,
        attempts=row.attempts,
        next_at_ms=row.next_at_ms,
        target=None if row.target is None else json.loads(row.target),
        answer=row.answer,
        created_at_ms=row.created_at_ms,
        sent_at_ms=row.sent_at_ms,
        done_at_ms=row.done_at_ms,
        first_sent_at_ms=row.first_sent_at_ms,
    )


def _place(repair: Repair) -> tuple[str, str, str, str]:
    return repair.environment, repair.topic, repair.scope, repair.unique_key


def _identity(repair: Repair) -> sa.ColumnElement[bool]:
    return (
        (repair_table.c.environment == repair.environment)
        & (repair_table.c.topic == repair.topic)
        & (repair_table.c.scope == repair.scope)
        & (repair_table.c.unique_key == repair.unique_key)
    )
