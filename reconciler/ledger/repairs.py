"""reconciler_repair: the repairs, and the messages of hand-overs (ports.Repairs, ports.HandOvers).

Claims and changes of repairs are in reconciler/sql/repair_claims.py, which the replay worker uses, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from reconciler.contract.announcement import SignatureSecret
from reconciler.contract.defaults import CLAIM_LEASE_SECONDS, SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.hand_over import encode_hand_over
from reconciler.contract.row_rules import wait_ms
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.ledger.database import ROWS_A_STATEMENT, LedgerDatabase, chunks
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.ledger import Repair
from reconciler.sql.key_probes import probe
from reconciler.sql.repair_claims import RepairClaims, repair_of
from reconciler.sql.tables import repair as repair_table


class SqlRepairs(RepairClaims):
    """The repairs and their claims in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(
        self,
        database: LedgerDatabase,
        *,
        signature_secret: SignatureSecret | None = None,
        lease_seconds: float = CLAIM_LEASE_SECONDS,
    ) -> None:
        super().__init__(
            database.engine,
            now=database.now,
            signature_secret=signature_secret,
            lease_seconds=lease_seconds,
            clock=database.clock,
        )
        self._database = database

    def _with_a_claim(self) -> Mapping[str, Any]:
        """Returns column -> value for the row's times. A time ahead of database time and of the host's clock was
        written while the database's clock was ahead. Such a time is lowered to the later of the two clocks. Otherwise
        the repair would wait until a broker's index reaches the time."""
        now, host_ms = self._database.now(), self._database.clock.now_ms()
        present = sa.case((now > host_ms, now), else_=host_ms)
        times = (repair_table.c.created_at_ms, repair_table.c.sent_at_ms)
        return {at.name: sa.case((at > present + wait_ms(SKEW_MARGIN_SECONDS), present), else_=at) for at in times}

    def open(self, environment: str, topic: str, unique_key: str, *, rung: Rung) -> None:
        """Inserts an OPEN row unless the row exists."""
        self.open_all(environment, topic, {unique_key: rung})

    def open_all(self, environment: str, topic: str, rungs: Mapping[str, Rung]) -> None:
        """Inserts the missing rows as OPEN."""
        if not rungs:
            return
        rows = [
            new_row(self._database, (environment, topic, EVERY_GROUP, key), rung) for key, rung in sorted(rungs.items())
        ]
        with self._database.writing() as connection:
            self._database.insert_missing(connection, repair_table, rows)

    def of_keys(self, environment: str, topic: str, unique_keys: Sequence[str]) -> Mapping[str, Sequence[Repair]]:
        """Returns the rows of each key, by scope."""
        found: dict[str, list[Repair]] = {}
        if not unique_keys:
            return found
        of_topic = (repair_table.c.environment == environment) & (repair_table.c.topic == topic)
        with self._database.reading() as connection:
            query = sa.select(*self._columns(connection)).where(of_topic)
            for chunk in chunks(sorted(set(unique_keys)), ROWS_A_STATEMENT):
                for row in probe(connection, query, repair_table.c.unique_key, chunk):
                    found.setdefault(row.unique_key, []).append(repair_of(row))
        return {key: sorted(rows, key=lambda row: row.scope) for key, rows in found.items()}

    def reopen(self, repair: Repair, *, rung: Rung) -> bool:
        """Makes the row OPEN if it is FAILED, dismissed, or closed_unsent."""
        c = repair_table.c
        now = self._database.now()
        values: dict[str, Any] = {"state": RepairState.OPEN.value, "rung": rung.value, "next_at_ms": now}
        if repair.state is RepairState.DONE:
            is_dismissed = repair.is_dismissed and repair.scope == EVERY_GROUP
            if not (repair.closed_unsent or is_dismissed):
                return False
            # The loss is proved now, so earlier answers of witnesses do not count.
            values |= {"created_at_ms": now, "done_at_ms": None, "attempts": int(is_dismissed)}
            as_read = sa.and_(c.state == RepairState.DONE.value, c.done_at_ms == repair.done_at_ms)
        else:
            values |= {"attempts": 1}
            sent_as_read = c.sent_at_ms.is_(None) if repair.sent_at_ms is None else c.sent_at_ms == repair.sent_at_ms
            as_read = (c.state == RepairState.FAILED.value) & (c.attempts == repair.attempts) & sent_as_read
        return self._update(repair, as_read, values) is not None

    def dismiss(self, repair: Repair, *, answer: Fact | str) -> bool:
        """Makes a FAILED row DONE."""
        values = {"state": RepairState.DONE.value, "message": None, "done_at_ms": self._database.now()}
        is_failed = repair_table.c.state == RepairState.FAILED.value
        return self._update(repair, is_failed, values, answer=answer) is not None

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        return self._database.writing()

    def _columns(self, connection: sa.Connection) -> Sequence[sa.ColumnElement[Any]]:
        return self._database.answers.columns(connection)

    def _answered(self, connection: sa.Connection, answer: Fact | str) -> Mapping[str, str | None]:
        return self._database.answers.written(connection, answer)


class SqlHandOvers:
    """The hand-over rows in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, repairs: SqlRepairs) -> None:
        self._database = database
        self._repairs = repairs

    def insert(
        self,
        environment: str,
        message: StoredMessage,
        *,
        groups: Sequence[str],
        content_digest: bytes | None = None,
    ) -> None:
        """Inserts one OPEN row per group. A FAILED row becomes OPEN again."""
        with self._database.writing() as connection:
            self.insert_within(connection, environment, message, groups=groups, content_digest=content_digest)

    def insert_within(
        self,
        connection: sa.Connection,
        environment: str,
        message: StoredMessage,
        *,
        groups: Sequence[str],
        content_digest: bytes | None,
    ) -> None:
        """Does the same as insert() in the caller's transaction."""
        c = repair_table.c
        texts = {
            group: encode_hand_over(
                message, content_digest=content_digest, signer=self._repairs.signer_of(environment, group)
            )
            for group in sorted(set(groups))
        }
        failed = (
            (c.environment == environment)
            & (c.topic == message.real_topic)
            & (c.unique_key == message.unique_key)
            & (c.state == RepairState.FAILED.value)
        )
        again = {"state": RepairState.OPEN.value, "attempts": 0, "next_at_ms": self._database.now()}
        rows = [
            new_row(self._database, (environment, message.real_topic, group, message.unique_key), Rung.HAND_OVER)
            | {"message": text}
            for group, text in texts.items()
        ]
        for group, text in texts.items():
            begin_again = sa.update(repair_table).where(failed, c.scope == group)
            connection.execute(begin_again.values(again | {"message": text}))
        if rows:
            self._database.insert_missing(connection, repair_table, rows)

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """Returns the message. None if the row's message was emptied. Raises MalformedInput for a text that contains no
        message."""
        return self._repairs.message_of(repair)

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """Makes the row DONE and empties its message."""
        return self._repairs.finish(repair, token=token, answer=answer)


def new_row(database: LedgerDatabase, identity: tuple[str, str, str, str], rung: Rung) -> dict[str, Any]:
    """Returns the columns of an OPEN row. `identity`: (environment, topic, scope, unique key)."""
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
