"""reconciler_candidate: verdicts with their evidence (ports.Candidates)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from reconciler.contract.reasons import RENAMED
from reconciler.contract.row_rules import (
    ASK_AGAIN_MS_MAX,
    FIRST_QUESTION_MS_MAX,
    STATE_RANK,
    USUAL_WAIT_MS,
    wait_ms,
)
from reconciler.contract.row_values import RowReader
from reconciler.contract.stored_facts import REASON, with_texts
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CANDIDATE, CandidateState
from reconciler.contract.verdicts import LOSSES, QUARANTINING, Undecided, Verdict
from reconciler.ledger.database import ROWS_A_STATEMENT, LedgerDatabase, chunks
from reconciler.ledger.newer_column import NewerColumn
from reconciler.ledger.subscription_rows import named, of_subscription
from reconciler.ledger.undecided import is_undecided, number_and_oldest, undecided_rows
from reconciler.policy.ports.ledger import Candidate, UndecidedRows, VerdictEntry
from reconciler.sql.key_probes import has_key, probe
from reconciler.sql.tables import candidate, is_whole_number

_NEWER = (candidate.c.undecided_by, candidate.c.undecided_since_ms)
#: The columns that ledgers of older releases have, too.
CANDIDATE_COLUMNS = tuple(column for column in candidate.c if column not in set(_NEWER))
_NAMES = tuple(column.name for column in CANDIDATE_COLUMNS)
_ROWS = RowReader(CANDIDATE, _NAMES, otherwise={"state": CandidateState.OPEN, "verdict": Verdict.UNKNOWN})

_OPEN = CandidateState.OPEN.value
_WAITING_STATES = (_OPEN, CandidateState.QUARANTINED.value)
_REOPENED = {"state": _OPEN, "ask_again_at_ms": None}
#: The values of a new row before the UPDATE that writes its verdict.
_NO_VERDICT_YET = _REOPENED | {"loss_verdict": None, "loss_at_ms": None, "evidence": "{}", "attempts": 0}
#: The state decides and not ask_again_at_ms, because an older release leaves ask_again_at_ms unchanged when it settles
#: or opens the row.
_IS_REJECTED = (candidate.c.state == CandidateState.SETTLED.value) & (candidate.c.verdict == Verdict.REJECTED.value)
_IS_LACKING = (candidate.c.state == CandidateState.QUARANTINED.value) | _IS_REJECTED
# Not IN, because SQLAlchemy expands IN at execution, and executemany does not allow this.
_IS_DISMISSED = (candidate.c.state == CandidateState.SETTLED.value) & sa.or_(
    *(candidate.c.verdict == verdict.value for verdict in sorted(QUARANTINING))
)
_IS_ASKED_AGAIN = _IS_LACKING | _IS_DISMISSED
_HAS_A_TIME = sa.func.coalesce(candidate.c.ask_again_at_ms, -1) >= 0
#: The key, and the columns that a dismissal writes.
_DISMISSAL = (
    candidate.c.unique_key,
    candidate.c.state,
    candidate.c.verdict,
    candidate.c.evidence,
    candidate.c.ask_again_at_ms,
)
_IS_BEFORE_SINCE = (candidate.c.state == CandidateState.SETTLED.value) & (
    candidate.c.verdict == Verdict.BEFORE_SINCE.value
)

_of = partial(of_subscription, rows=candidate)


class SqlCandidates:
    """The candidates in SQL. Thread-safe. Every call is one transaction, except `rename`. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._causes = NewerColumn(
            candidate.c.undecided_by, without="status reads the oldest keys that are UNKNOWN one by one"
        )

    def of_keys(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Candidate]:
        """Returns the existing rows by key."""
        found: dict[str, Candidate] = {}
        if not unique_keys:
            return found
        with self._database.reading() as connection:
            for chunk in chunks(sorted(set(unique_keys)), ROWS_A_STATEMENT):
                query = sa.select(*CANDIDATE_COLUMNS).where(_of(subscription))
                for row in probe(connection, query, candidate.c.unique_key, chunk):
                    found[row.unique_key] = candidate_of(row)
        return found

    def rename(self, old: Subscription, new: Subscription) -> int:
        """Moves the rows of a group to the group's new name. If a key already has a row under the new name, its old row
        stays, and only a person's dismissal is copied, to a row that is not settled. Returns the number of rows that
        were moved, or got a dismissal.

        Other waiting rows under the old name are closed as BEFORE_SINCE, because no more rounds are expected under this
        name. A round under the old name would open these rows again (EarlierSince).

        Each page of rows is one transaction. After a crash, no page is half done.
        """
        moved, after = 0, ""
        new_name = {"topic": new.topic, "consumer_group": new.group}
        while True:
            with self._database.writing() as connection:
                page = sa.select(*_DISMISSAL).where(_of(old), candidate.c.unique_key > after)
                page = page.order_by(candidate.c.unique_key).limit(ROWS_A_STATEMENT)
                rows = connection.execute(page).mappings().all()
                keys = [row["unique_key"] for row in rows]
                is_there = sa.select(candidate.c.unique_key).where(_of(new), candidate.c.unique_key.in_(keys))
                there = set(connection.execute(is_there).scalars()) if keys else set()
                free = [key for key in keys if key not in there]
                if free:
                    ours = sa.update(candidate).where(_of(old), candidate.c.unique_key.in_(free))
                    connection.execute(ours.values(**new_name))
                moved += len(free)
                for row in rows:
                    if row["unique_key"] in there and _is_dismissed(row):
                        moved += connection.execute(_dismissal_of(new, row)).rowcount
                    elif row["unique_key"] in there:
                        connection.execute(self._renamed(old, new, row))
            if len(keys) < ROWS_A_STATEMENT:
                return moved
            after = keys[-1]

    def _renamed(self, old: Subscription, new: Subscription, row: sa.RowMapping) -> sa.Update:
        """Closes a waiting row whose key has a row under the new name. Leaves a row unchanged if its state has changed
        since it was read."""
        reason = RENAMED(group=new.group, verdict=str(row["verdict"]))
        c = candidate.c
        as_read = (c.unique_key == row["unique_key"]) & (c.state == row["state"]) & (c.state.in_(_WAITING_STATES))
        return (
            sa.update(candidate)
            .where(_of(old), as_read)
            .values(
                state=CandidateState.SETTLED.value,
                verdict=Verdict.BEFORE_SINCE.value,
                evidence=json.dumps(with_texts({REASON: reason}, self._database.english), separators=(",", ":")),
                ask_again_at_ms=None,
            )
        )

    def record(self, shard: Shard, entries: Sequence[VerdictEntry]) -> None:
        """Inserts missing rows, then writes each verdict unless the row has a higher state. Reads no row in between."""
        if not entries:
            return
        with self._database.writing() as connection:
            self.record_within(connection, shard, entries)

    def record_within(self, connection: sa.Connection, shard: Shard, entries: Sequence[VerdictEntry]) -> None:
        """Does the same as record() in the caller's transaction."""
        # Sorted, so that two processes never wait for each other's rows.
        ordered = sorted(entries, key=lambda seen: seen.unique_key)
        left = self._make(connection, shard, ordered)
        for state in CandidateState:
            writes = [seen for seen in left if seen.state is state]
            if writes:
                tells = self._causes.is_there(connection)
                connection.execute(self._update(shard, state, tells=tells), [_parameters(seen) for seen in writes])

    def _make(self, connection: sa.Connection, shard: Shard, ordered: Sequence[VerdictEntry]) -> Sequence[VerdictEntry]:
        """Inserts missing rows. Returns the entries whose verdicts are still to be written."""
        now_ms = self._database.read_now_ms(connection)
        rows = [_row(shard, seen, now_ms) for seen in ordered]
        if self._causes.is_there(connection):
            rows = [row | _cause(seen) for row, seen in zip(rows, ordered, strict=True)]
        if not self._database.tells_inserted:
            self._database.insert_missing(connection, candidate, [row | _NO_VERDICT_YET for row in rows])
            return ordered
        new = self._database.insert_returning(connection, candidate, rows, returned=candidate.c.unique_key)
        return [seen for seen in ordered if seen.unique_key not in new]

    def _update(self, shard: Shard, state: CandidateState, *, tells: bool) -> sa.Update:
        """`tells`: True if the table has the columns of the cause."""
        now, seen_ms = self._database.now(), sa.bindparam("p_first_seen_ms", type_=sa.BigInteger())
        # Not IN, because SQLAlchemy expands IN at execution, and executemany does not allow this. An unknown state is
        # replaced.
        replaceable = sa.and_(
            sa.true(),
            *(candidate.c.state != old.value for old in CandidateState if STATE_RANK[old] > STATE_RANK[state]),
        )
        dialect = self._database.engine.dialect.name
        is_loss = sa.or_(*(candidate.c.loss_verdict == loss.value for loss in sorted(LOSSES)))
        is_later = (candidate.c.first_seen_ms > seen_ms) | ~is_whole_number(candidate.c.first_seen_ms, dialect)
        # ask_again_at_ms and loss_at_ms are NULL if their parameter is NULL, because a sum with NULL is NULL.
        ask_again_at_ms = now + sa.bindparam("p_ask_again_ms", type_=sa.BigInteger())
        loss_at_ms = now + sa.bindparam("p_loss_ms", type_=sa.BigInteger())
        is_sound = candidate.c.loss_at_ms.is_(None) | is_whole_number(candidate.c.loss_at_ms, dialect)
        values: dict[str, Any] = {
            # Assigned first, because in MySQL, an assignment reads the columns that earlier assignments have changed.
            "loss_at_ms": sa.case((is_loss & is_sound, candidate.c.loss_at_ms), else_=loss_at_ms),
            "shard": shard.number,
            "state": state.value,
            "verdict": sa.bindparam("p_verdict"),
            "loss_verdict": sa.case((is_loss, candidate.c.loss_verdict), else_=sa.bindparam("p_loss_verdict")),
            "evidence": sa.bindparam("p_evidence"),
            "attempts": sa.case((is_whole_number(candidate.c.attempts, dialect), candidate.c.attempts), else_=0) + 1,
            "first_seen_ms": sa.case((is_later, seen_ms), else_=candidate.c.first_seen_ms),
            "next_at_ms": now + sa.bindparam("p_wait_ms", type_=sa.BigInteger()),
            "updated_at_ms": now,
            "ask_again_at_ms": ask_again_at_ms,
        }
        if tells:
            values |= {column.name: sa.bindparam(f"p_{column.name}", type_=column.type) for column in _NEWER}
        of_key = candidate.c.unique_key == sa.bindparam("p_unique_key")
        return (
            sa.update(candidate)
            .where(_of(shard.subscription), of_key, replaceable)
            .ordered_values(*((candidate.c[name], value) for name, value in values.items()))
        )

    def open_losses(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns the due OPEN losses, the oldest first."""

        def losses(rows: sa.FromClause) -> sa.Select[Any]:
            found = _columns(rows).where(rows.c.loss_verdict.is_not(None))
            return found.order_by(rows.c.first_seen_ms, rows.c.unique_key)

        return self._open(subscription, losses, limit=limit)

    def open_due(self, subscription: Subscription, *, shards: Collection[int], limit: int) -> Sequence[Candidate]:
        """Returns the due OPEN rows of the shards, ordered by the time at which they became due."""

        def of_shards(rows: sa.FromClause) -> sa.Select[Any]:
            found = _columns(rows).where(rows.c.shard.in_(sorted(shards)))
            return found.order_by(rows.c.next_at_ms, rows.c.unique_key)

        return self._open(subscription, of_shards, limit=limit)

    def due_subscriptions(self, environment: str) -> Collection[Subscription]:
        """Reads one range of the index of open_due()."""
        c = candidate.c
        is_due = (c.environment == environment) & (c.state == _OPEN) & (c.next_at_ms <= self._database.before(0))
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(c.topic, c.consumer_group).where(is_due).distinct())
            return frozenset(
                Subscription(environment=environment, topic=row.topic, group=row.consumer_group)
                for row in rows
                if isinstance(row.topic, str) and isinstance(row.consumer_group, str)
            )

    def undecided(
        self, subscription: Subscription, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Reads one page. Uses the index for counts (`count_index`)."""
        c = candidate.c
        query = (
            sa.select(*CANDIDATE_COLUMNS)
            .where(_of(subscription), is_undecided())
            .order_by(c.first_seen_ms, c.unique_key)
            .limit(limit)
        )
        if after is not None:
            is_same = (c.first_seen_ms == after.first_seen_ms) & (c.unique_key > after.unique_key)
            query = query.where((c.first_seen_ms > after.first_seen_ms) | is_same)
        return self._with_keys(query)

    def undecided_rows(
        self,
        subscription: Subscription,
        by: Undecided | None,
        *,
        since_before_ms: int | None = None,
        since_after_ms: int | None = None,
        most: int,
    ) -> UndecidedRows | None:
        """Reads the number and the oldest row in one transaction."""
        with self._database.reading() as connection:
            if not self._causes.is_there(connection):
                return None
            count, key = undecided_rows(
                connection,
                _of(subscription),
                by,
                since_before_ms=since_before_ms,
                since_after_ms=since_after_ms,
                most=most,
            )
            return UndecidedRows(count=count, oldest=_oldest(connection, subscription, key))

    def unreviewed_rows(self, subscription: Subscription, *, most: int) -> UndecidedRows:
        """Reads one range of the index that ends with ask_again_at_ms: what is due within FIRST_QUESTION_MS_MAX."""
        c = candidate.c
        stood_ms = c.ask_again_at_ms - c.updated_at_ms
        is_unreviewed = (stood_ms >= 0) & (stood_ms < FIRST_QUESTION_MS_MAX)
        is_soon = c.ask_again_at_ms <= self._database.before(-FIRST_QUESTION_MS_MAX)
        page = (
            sa.select(c.unique_key, c.first_seen_ms)
            .where(
                _of(subscription),
                _IS_REJECTED,
                is_soon,
                is_unreviewed,
                has_key(c.unique_key, self._database.engine.dialect.name),
            )
            .order_by(c.ask_again_at_ms)
            .limit(most)
            .subquery()
        )
        with self._database.reading() as connection:
            count, key = number_and_oldest(connection, page, sa.true())
            return UndecidedRows(count=count, oldest=_oldest(connection, subscription, key))

    def _open(
        self, subscription: Subscription, wanted: Callable[[sa.FromClause], sa.Select[Any]], *, limit: int
    ) -> Sequence[Candidate]:
        """Returns rows that are due, then rows whose time was written before the clock was set back.

        Reads one page of the second kind: the rows that lie furthest ahead. Many rows may rightly wait for a long time.
        """
        now, c = self._database.before(0), candidate.c
        due = wanted(candidate).where(_of(subscription), c.state == _OPEN, c.next_at_ms <= now)
        found = list(self._with_keys(due.limit(limit), candidate))
        if len(found) == limit:
            return found
        is_far = c.next_at_ms > self._database.before(-USUAL_WAIT_MS)
        furthest = sa.select(*CANDIDATE_COLUMNS).where(
            c.environment == subscription.environment, c.state == _OPEN, is_far
        )
        far = furthest.order_by(c.next_at_ms.desc()).limit(ROWS_A_STATEMENT).subquery("far")
        stranded = wanted(far).where(of_subscription(subscription, far), far.c.updated_at_ms > now)
        return [*found, *self._with_keys(stranded.limit(limit - len(found)), far)]

    def _with_keys(self, query: sa.Select[Any], rows: sa.FromClause = candidate) -> Sequence[Candidate]:
        """Returns the rows of the query that have a valid unique key. No witness could be asked about other rows."""
        with self._database.reading() as connection:
            sound = query.where(has_key(rows.c.unique_key, connection.dialect.name))
            return [candidate_of(row) for row in connection.execute(sound)]

    def reopen(self, row: Candidate) -> bool:
        """Makes the row OPEN and due again."""
        now = self._database.now()
        c = candidate.c
        as_read = (c.state == row.state.value) & (c.verdict == row.verdict.value)
        with self._database.writing() as connection:
            done = connection.execute(
                sa.update(candidate)
                .where(
                    _of(row.subscription),
                    c.unique_key == row.unique_key,
                    c.state != CandidateState.OPEN.value,
                    # A damaged row is opened whatever it contains, because no person has closed it.
                    sa.true() if row.damage is not None else as_read,
                )
                .values(_REOPENED | {"next_at_ms": now, "updated_at_ms": now})
            )
            return done.rowcount == 1

    def to_ask_again(self, subscription: Subscription, *, limit: int) -> Sequence[Candidate]:
        """Returns the rows that row_rules.is_asked_again selects. Reads two ranges of the index that ends with
        ask_again_at_ms."""
        at_ms = candidate.c.ask_again_at_ms
        rows = sa.select(*CANDIDATE_COLUMNS).where(_of(subscription), _IS_ASKED_AGAIN).order_by(at_ms)
        found = list(self._with_keys(rows.where(at_ms <= self._database.before(0)).limit(limit)))
        if len(found) == limit:
            return found
        is_too_far = at_ms > self._database.before(-ASK_AGAIN_MS_MAX)
        return [*found, *self._with_keys(rows.where(is_too_far).limit(limit - len(found)))]

    def ask_later(
        self,
        subscription: Subscription,
        unique_keys: Sequence[str],
        *,
        seconds: float | None,
        stays_unreviewed: bool = False,
    ) -> None:
        """Writes ask_again_at_ms. `seconds`: None writes NULL. `stays_unreviewed`: True writes updated_at_ms, too."""
        at_ms = None if seconds is None else self._database.now() + wait_ms(seconds)
        changes = {"ask_again_at_ms": at_ms} | ({"updated_at_ms": self._database.now()} if stays_unreviewed else {})
        self._change(subscription, unique_keys, changes, only=_IS_ASKED_AGAIN & _HAS_A_TIME)

    def take_back(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes the rows OPEN and due."""
        now = self._database.now()
        changes = _REOPENED | {"shard": shard.number, "next_at_ms": now, "updated_at_ms": now}
        self._change(shard.subscription, unique_keys, changes, only=_IS_LACKING & _HAS_A_TIME)

    def wake_dismissed(self, subscription: Subscription, entries: Sequence[VerdictEntry]) -> Collection[str]:
        """Does the same as wake_dismissed_within() in a transaction of its own."""
        with self._database.writing() as connection:
            return self.wake_dismissed_within(connection, subscription, entries)

    def wake_dismissed_within(
        self, connection: sa.Connection, subscription: Subscription, entries: Sequence[VerdictEntry]
    ) -> Collection[str]:
        """Writes the entries to dismissed rows in the caller's transaction, and returns their keys. Runs one statement
        per key, because these are few."""
        woken: list[str] = []
        for seen in sorted(entries, key=lambda seen: seen.unique_key):
            again = seen.ask_again_seconds
            values = {
                "state": seen.state.value,
                "verdict": seen.verdict.value,
                "evidence": _text_of(seen),
                "updated_at_ms": self._database.now(),
                "ask_again_at_ms": None if again is None else self._database.now() + wait_ms(again),
            }
            row = sa.update(candidate).where(_of(subscription), candidate.c.unique_key == seen.unique_key)
            if connection.execute(row.where(_IS_DISMISSED).values(values)).rowcount:
                woken.append(seen.unique_key)
        return woken

    def before_since(
        self, subscription: Subscription, loss_verdict: Verdict | None, *, limit: int, after: Candidate | None = None
    ) -> Sequence[Candidate]:
        """Reads one page. Uses the index for counts (`count_index`)."""
        c = candidate.c
        was = c.loss_verdict.is_(None) if loss_verdict is None else c.loss_verdict == loss_verdict.value
        query = (
            sa.select(*CANDIDATE_COLUMNS)
            .where(_of(subscription), _IS_BEFORE_SINCE, was)
            .order_by(c.first_seen_ms.desc(), c.unique_key.desc())
            .limit(limit)
        )
        if after is not None:
            is_same = (c.first_seen_ms == after.first_seen_ms) & (c.unique_key < after.unique_key)
            query = query.where((c.first_seen_ms < after.first_seen_ms) | is_same)
        return self._with_keys(query)

    def answer_for(self, shard: Shard, unique_keys: Sequence[str]) -> None:
        """Makes the rows OPEN and due."""
        now = self._database.now()
        changes = _REOPENED | {"shard": shard.number, "next_at_ms": now, "updated_at_ms": now}
        self._change(shard.subscription, unique_keys, changes, only=_IS_BEFORE_SINCE)

    def _change(
        self,
        subscription: Subscription,
        unique_keys: Sequence[str],
        changes: Mapping[str, Any],
        *,
        only: sa.ColumnElement[bool],
    ) -> None:
        """Changes rows. On PostgreSQL, runs one statement per key: with few statistics, its planner reads the whole
        table for a list of keys."""
        if not unique_keys:
            return
        update = sa.update(candidate).where(_of(subscription), only).values(**changes)
        keys = sorted(unique_keys)
        with self._database.writing() as connection:
            if self._database.engine.dialect.name == "postgresql":
                one = update.where(candidate.c.unique_key == sa.bindparam("p_unique_key"))
                connection.execute(one, [{"p_unique_key": key} for key in keys])
            else:
                connection.execute(update.where(candidate.c.unique_key.in_(keys)))


def _is_dismissed(row: sa.RowMapping) -> bool:
    """Returns Candidate.is_dismissed of the row."""
    return row["state"] == CandidateState.SETTLED.value and row["verdict"] in QUARANTINING


def _dismissal_of(new: Subscription, row: sa.RowMapping) -> sa.Update:
    """Writes the dismissal to the row of the same key under the new name. Leaves a settled row unchanged, except a
    BEFORE_SINCE row."""
    is_open = (candidate.c.state != CandidateState.SETTLED.value) | _IS_BEFORE_SINCE
    same = sa.update(candidate).where(_of(new), candidate.c.unique_key == row["unique_key"], is_open)
    return same.values({column.name: row[column.name] for column in _DISMISSAL if column is not candidate.c.unique_key})


def _columns(rows: sa.FromClause) -> sa.Select[Any]:
    return sa.select(*(rows.c[name] for name in _NAMES))


def _oldest(connection: sa.Connection, subscription: Subscription, key: str | None) -> Candidate | None:
    row = sa.select(*CANDIDATE_COLUMNS).where(_of(subscription), candidate.c.unique_key == key)
    found = None if key is None else connection.execute(row).first()
    return None if found is None else candidate_of(found)


def _row(shard: Shard, seen: VerdictEntry, now_ms: int) -> dict[str, Any]:
    """Returns the row of a key that is judged for the first time."""
    return named(shard.subscription) | {
        "unique_key": seen.unique_key,
        "shard": shard.number,
        "state": seen.state.value,
        "verdict": seen.verdict.value,
        "loss_verdict": _loss_of(seen),
        "evidence": _text_of(seen),
        "attempts": 1,
        "first_seen_ms": seen.first_seen_ms,
        "next_at_ms": now_ms + wait_ms(seen.wait_seconds),
        "updated_at_ms": now_ms,
        "ask_again_at_ms": None if seen.ask_again_seconds is None else now_ms + wait_ms(seen.ask_again_seconds),
        "loss_at_ms": None if _loss_of(seen) is None else now_ms,
    }


def _cause(seen: VerdictEntry) -> dict[str, Any]:
    return {
        "undecided_by": None if seen.undecided_by is None else seen.undecided_by.value,
        "undecided_since_ms": seen.undecided_since_ms,
    }


def _loss_of(seen: VerdictEntry) -> str | None:
    return seen.verdict.value if seen.verdict in LOSSES else None


def _text_of(seen: VerdictEntry) -> str:
    return json.dumps(dict(seen.evidence), separators=(",", ":"))


def _parameters(seen: VerdictEntry) -> dict[str, Any]:
    return {
        "p_unique_key": seen.unique_key,
        "p_verdict": seen.verdict.value,
        "p_loss_verdict": _loss_of(seen),
        "p_evidence": _text_of(seen),
        "p_first_seen_ms": seen.first_seen_ms,
        "p_wait_ms": wait_ms(seen.wait_seconds),
        "p_loss_ms": None if _loss_of(seen) is None else 0,
        "p_ask_again_ms": None if seen.ask_again_seconds is None else wait_ms(seen.ask_again_seconds),
        **{f"p_{name}": value for name, value in _cause(seen).items()},
    }


def candidate_of(row: sa.Row[Any]) -> Candidate:
    """Returns the candidate of a row with CANDIDATE_COLUMNS. A damaged state or verdict reads as OPEN or UNKNOWN."""
    read = _ROWS.parse(row)
    values = dict(read.values)
    loss = values["loss_verdict"]
    del values["loss_at_ms"]  # only notices need it
    subscription = Subscription(
        environment=values.pop("environment"), topic=values.pop("topic"), group=values.pop("consumer_group")
    )
    return Candidate(
        subscription=subscription,
        **values
        | {
            "state": CandidateState(values["state"]),
            "verdict": Verdict(values["verdict"]),
            "loss_verdict": None if loss is None else Verdict(loss),
        },
        damage=read.damage,
    )
