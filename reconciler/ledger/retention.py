"""Deletes finished rows of the ledger after some time, in small transactions. Unfinished work always stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.sql.selectable import NamedFromClause

from reconciler.contract.row_rules import GROUP_RENAME, QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.contract.tables import LATER_TABLES, CandidateState, RepairState
from reconciler.contract.verdicts import QUARANTINING
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.ledger.database import LedgerDatabase
from reconciler.sql.rights import is_lacking
from reconciler.sql.tables import (
    candidate,
    half,
    idempotency_key,
    job,
    notice,
    operator_action,
    outage,
    quarantine,
    repair,
    round_row,
)
from reconciler.telling.ports.jobs import ENDED_JOBS

ROWS_A_TRANSACTION = 500
TRANSACTIONS_A_CALL = 200
#: The commands of acts that are never deleted.
_KEPT_ACTS = (GROUP_RENAME, QUERY_ACCEPTANCE, QUERY_WITHDRAWAL)
#: A repeated request is answered from its idempotency key for this time.
IDEMPOTENCY_KEEP_MS = 86_400_000


#: Table -> the time with which its index ends. Without this order, a planner with few statistics reads the whole table
#: to find the few rows of LIMIT.
_INDEXED = {
    candidate.name: candidate.c.next_at_ms,
    repair.name: repair.c.next_at_ms,
    round_row.name: round_row.c.stored_at_ms,
    operator_action.name: operator_action.c.started_at_ms,
    job.name: job.c.created_at_ms,
    idempotency_key.name: idempotency_key.c.created_at_ms,
    half.name: half.c.stored_at_ms,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """The number of rows that one call deleted, per table."""

    candidates: int
    repairs: int
    rounds: int
    quarantined: int
    outages: int
    actions: int
    jobs: int
    idempotency_keys: int
    notices: int
    halves: int
    #: True if the call reached its limit: call again.
    has_more: bool


class SqlRetention:
    """Deletes SETTLED candidates, DONE repairs, rounds, refused announcements, closed outages, acts by hand, ended jobs
    and noted halves that are old. Also deletes idempotency keys after a day, and old rows of notifiers that are no
    longer configured.

    Some rows stay for ever:
    - QUARANTINED candidates and FAILED repairs, which wait for a person.
    - Dismissed keys, because their outbox rows are announced again and again. Without the dismissal, the key would be
      sent.
    - Renames of groups, because an old deployment may start the old name again.
    - Acceptances and withdrawals of commit queries.
    - The newest round of each shard.

    A row must be old by the ledger's clock and by the host's clock. Thread-safe. Raises DatabaseAway.
    """

    def __init__(
        self,
        database: LedgerDatabase,
        *,
        keep_days: float,
        notifiers: Collection[str] = (),
        rows_a_transaction: int = ROWS_A_TRANSACTION,
        transactions_a_call: int = TRANSACTIONS_A_CALL,
    ) -> None:
        """`notifiers`: names of the configured notifiers, whose rows stay."""
        self._database = database
        self._notifiers = sorted(notifiers)
        self._keep_ms = round(keep_days * 86_400_000)
        self._rows = rows_a_transaction
        self._transactions = transactions_a_call

    def delete_old(self, environment: str) -> DeletedRows:
        """Makes one limited pass over all tables. After a crash, the next pass deletes the remaining rows."""
        with self._database.reading() as connection:
            age_ms = self._database.read_age_ms(connection)
            was_dismissed = self._database.answers.was_dismissed(connection)
        before = age_ms - self._keep_ms
        c, r = candidate.c, repair.c
        # A candidate becomes SETTLED with a quarantining verdict only by a dismissal.
        is_dismissed = c.verdict.in_(sorted(QUARANTINING))
        newer = round_row.alias("newer")
        # No process reads rounds of an earlier epoch once a later epoch has rounds.
        is_followed = _exists(
            newer, newer.c.epoch == round_row.c.epoch, newer.c.generation > round_row.c.generation
        ) | _exists(newer, newer.c.epoch != round_row.c.epoch, newer.c.stored_at_ms > round_row.c.stored_at_ms)
        finished = {
            # The condition on next_at_ms makes the index usable. Rows whose next_at_ms lies ahead are deleted later.
            candidate: (c.state == CandidateState.SETTLED.value)
            & ~is_dismissed
            & (c.next_at_ms < before)
            & (c.updated_at_ms < before),
            repair: (r.state == RepairState.DONE.value)
            & ~was_dismissed
            & (r.next_at_ms < before)
            & (r.done_at_ms < before),
            round_row: (round_row.c.stored_at_ms < before) & is_followed,
            quarantine: quarantine.c.seen_at_ms < before,
            outage: outage.c.closed_at_ms < before,
            operator_action: operator_action.c.command.not_in(_KEPT_ACTS) & (operator_action.c.started_at_ms < before),
            job: job.c.state.in_(sorted(ENDED_JOBS)) & (job.c.created_at_ms < before) & (job.c.ended_at_ms < before),
            idempotency_key: idempotency_key.c.created_at_ms < age_ms - IDEMPOTENCY_KEEP_MS,
            half: half.c.stored_at_ms < before,
            notice: notice.c.notifier.not_in(self._notifiers)
            & (sa.func.coalesce(notice.c.told_at_ms, notice.c.created_at_ms) < before),
        }
        counts: dict[str, int] = {}
        has_more = False
        for table, is_old in finished.items():
            deleted, is_bounded = self._delete_if_kept(table, (table.c.environment == environment) & is_old)
            counts[table.name] = deleted
            has_more = has_more or is_bounded
        return DeletedRows(
            candidates=counts[candidate.name],
            repairs=counts[repair.name],
            rounds=counts[round_row.name],
            quarantined=counts[quarantine.name],
            outages=counts[outage.name],
            actions=counts[operator_action.name],
            jobs=counts[job.name],
            idempotency_keys=counts[idempotency_key.name],
            notices=counts[notice.name],
            halves=counts[half.name],
            has_more=has_more,
        )

    def _delete_if_kept(self, table: sa.Table, is_old: sa.ColumnElement[bool]) -> tuple[int, bool]:
        """Does the same as `_delete`. A table of LATER_TABLES counts as empty if the ledger lacks it, or the login may
        not use it."""
        try:
            return self._delete(table, is_old)
        except (DatabaseAway, ConfigurationError) as error:
            if table.name not in LATER_TABLES or not is_lacking(error):
                raise
            return 0, False

    def _delete(self, table: sa.Table, is_old: sa.ColumnElement[bool]) -> tuple[int, bool]:
        identity: Sequence[sa.Column[object]] = list(table.primary_key.columns)
        find = sa.select(*identity).where(is_old).order_by(_INDEXED.get(table.name)).limit(self._rows)
        remove = sa.delete(table).where(*(column == sa.bindparam(f"p_{column.name}") for column in identity))
        total = 0
        for _ in range(self._transactions):
            # A finished row never becomes unfinished, so the rows may be deleted by their keys.
            with self._database.reading() as connection:
                found = connection.execute(find).all()
            if not found:
                return total, False
            with self._database.writing() as connection:
                connection.execute(
                    remove,
                    [{f"p_{c.name}": value for c, value in zip(identity, row, strict=True)} for row in found],
                )
            total += len(found)
            if len(found) < self._rows:
                return total, False
        return total, True


def _exists(newer: NamedFromClause, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Returns a condition: the shard of the round has another valid round, which meets the given conditions."""
    return (
        sa.select(sa.literal(1))
        .where(
            newer.c.environment == round_row.c.environment,
            newer.c.topic == round_row.c.topic,
            newer.c.consumer_group == round_row.c.consumer_group,
            newer.c.shard == round_row.c.shard,
            newer.c.void == 0,
            *conditions,
        )
        .correlate(round_row)
        .exists()
    )
