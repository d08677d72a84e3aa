"""reconciler_repair: repairs, the claims on them, and the messages of hand-overs (ports.Repairs, ports.HandOvers).

A claim is one conditional UPDATE in database time; every later write names the claim's token. Who writes nothing is
no longer the owner and stops at once. A sleeping owner's request to a broker cannot be fenced: it costs a second
copy, which the inbox absorbs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.hand_over import decode_hand_over, encode_hand_over
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.evidence import StoredMessage, TransactionState
from reconciler.ledger.database import ROWS_A_STATEMENT, LedgerDatabase, chunks
from reconciler.ledger.row_rules import FINISHED_REPAIRS, bounded_text, wait_ms
from reconciler.ports import Repair, RepairChange
from reconciler.sql.tables import repair as repair_table

#: All but the message: bodies are read for the one row that is handed over.
REPAIR_COLUMNS = tuple(column for column in repair_table.c if column.name != "message")

_FINISHED = [state.value for state in sorted(FINISHED_REPAIRS)]


class SqlRepairs:
    """Repairs and claims in SQL. Shared by threads; every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts unless there is a row."""
        row = new_row(self._database, (environment, topic, EVERY_GROUP, unique_key), rung)
        with self._database.writing() as connection:
            self._database.insert_missing(connection, repair_table, [row])

    def read(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """Rows of each key, by scope."""
        found: dict[str, list[Repair]] = {}
        if not unique_keys:
            return found
        query = sa.select(*REPAIR_COLUMNS).where(
            repair_table.c.environment == environment, repair_table.c.topic == topic
        )
        with self._database.reading() as connection:
            for chunk in chunks(sorted(set(unique_keys)), ROWS_A_STATEMENT):
                rows = connection.execute(
                    query.where(repair_table.c.unique_key.in_(chunk)).order_by(repair_table.c.scope)
                )
                for row in rows:
                    found.setdefault(row.unique_key, []).append(repair_of(row))
        return found

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
        with self._database.reading() as connection:
            return [repair_of(row) for row in connection.execute(query)]

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """One conditional UPDATE: of several claimants exactly one changes the row."""
        lease_until = self._database.now() + wait_ms(lease_seconds)
        return self._update(repair, self._is_claimable(), {"token": token, "lease_until_ms": lease_until})

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token."""
        now = self._database.now()
        values: dict[str, Any] = {
            "state": change.state.value,
            "rung": change.rung.value,
            "next_at_ms": now + wait_ms(change.wait_seconds),
        }
        if change.counts_as_attempt:
            values |= {"attempts": repair_table.c.attempts + 1, "sent_at_ms": now}
        if change.target is not None:
            values["target"] = json.dumps(dict(change.target), separators=(",", ":"))
        if change.answer is not None:
            values["answer"] = bounded_text(change.answer)
        if change.releases or change.state in FINISHED_REPAIRS:
            values |= {"token": None, "lease_until_ms": None}
        if change.state is RepairState.DONE:
            values |= {"done_at_ms": now, "message": None}
        return self._update(repair, repair_table.c.token == token, values)

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Extends the lease."""
        lease_until = self._database.now() + wait_ms(lease_seconds)
        return self._update(repair, repair_table.c.token == token, {"lease_until_ms": lease_until})

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """FAILED becomes OPEN."""
        values = {
            "state": RepairState.OPEN.value,
            "rung": rung.value,
            "attempts": 0,
            "next_at_ms": self._database.now(),
        }
        return self._update(repair, repair_table.c.state == RepairState.FAILED.value, values) is not None

    def _is_claimable(self) -> sa.ColumnElement[bool]:
        now = self._database.now()
        is_free = repair_table.c.token.is_(None) | (repair_table.c.lease_until_ms < now)
        return repair_table.c.state.not_in(_FINISHED) & (repair_table.c.next_at_ms <= now) & is_free

    def _update(self, row: Repair, condition: sa.ColumnElement[bool], values: Mapping[str, Any]) -> Repair | None:
        identity = (
            (repair_table.c.environment == row.environment)
            & (repair_table.c.topic == row.topic)
            & (repair_table.c.scope == row.scope)
            & (repair_table.c.unique_key == row.unique_key)
        )
        with self._database.writing() as connection:
            done = connection.execute(sa.update(repair_table).where(identity, condition).values(**values))
            if done.rowcount != 1:
                return None
            return repair_of(connection.execute(sa.select(*REPAIR_COLUMNS).where(identity)).one())


class SqlHandOvers:
    """Hand-over rows in SQL. Shared by threads; every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, repairs: SqlRepairs) -> None:
        self._database = database
        self._repairs = repairs

    def insert(self, environment: str, message: StoredMessage, *, groups: Sequence[str]) -> None:
        """One OPEN row a group."""
        if not groups:
            return
        text = encode_hand_over(message)
        rows = [
            new_row(self._database, (environment, message.real_topic, group, message.unique_key), Rung.HAND_OVER)
            | {"message": text}
            for group in sorted(set(groups))
        ]
        with self._database.writing() as connection:
            self._database.insert_missing(connection, repair_table, rows)

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """The message, unless it was emptied. Raises MalformedInput for a text that is none."""
        query = sa.select(repair_table.c.message).where(
            repair_table.c.environment == repair.environment,
            repair_table.c.topic == repair.topic,
            repair_table.c.scope == repair.scope,
            repair_table.c.unique_key == repair.unique_key,
        )
        with self._database.reading() as connection:
            text = connection.execute(query).scalar_one_or_none()
        if text is None:
            return None
        return StoredMessage(**decode_hand_over(text), transaction_state=TransactionState.NONE)

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """DONE, message emptied."""
        done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=answer)
        return self._repairs.change(repair, done, token=token)


def new_row(database: LedgerDatabase, identity: tuple[str, str, str, str], rung: Rung) -> dict[str, Any]:
    """Columns of an OPEN row; identity is (environment, topic, scope, unique key)."""
    environment, topic, scope, unique_key = identity
    now = database.now()
    return {
        "environment": environment,
        "topic": topic,
        "scope": scope,
        "unique_key": unique_key,
        "state": RepairState.OPEN.value,
        "rung": rung.value,
        "attempts": 0,
        "next_at_ms": now,
        "created_at_ms": now,
    }


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
    )
