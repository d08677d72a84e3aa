"""Rows of reconciler_repair and the claims on them, for the ledger of `run` and for the replay worker of a group.

A *claim* is the right to repair one key. A process gets it by one conditional UPDATE, in database time. Every later
write names the claim's token. If such a write matches no row, the claim is lost, and its owner stops. A request to a
broker that a paused owner has sent already cannot be stopped: it makes a second copy, which the inbox ignores.

A claim that ends later than the length of a lease from now was made before the database's clock was set back. The claim
is free once a process has seen it unchanged for the length of a lease, measured by its own monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlalchemy as sa

from reconciler.clock import Clock
from reconciler.contract.announcement import SignatureSecret
from reconciler.contract.defaults import CLAIM_LEASE_SECONDS
from reconciler.contract.earlier_words import answer_in
from reconciler.contract.facts import Fact
from reconciler.contract.hand_over import HandOverSigner, decode_hand_over
from reconciler.contract.row_rules import FINISHED_REPAIRS, REPAIR_WAIT_MS_MAX, bounded_text, wait_ms
from reconciler.contract.row_values import RowReader
from reconciler.contract.stored_facts import fact_of_column
from reconciler.contract.tables import EVERY_GROUP, REPAIR, RepairState, Rung
from reconciler.errors import InvariantViolation
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql.database_time import asked_once, now_ms
from reconciler.sql.engines import reading, writing
from reconciler.sql.stranded_leases import StrandedLeases
from reconciler.sql.tables import repair as repair_table

#: All columns but two: a ledger of an older release lacks answer_fact, and the message is read only for a hand-over.
REPAIR_COLUMNS = tuple(column for column in repair_table.c if column.name not in ("message", "answer_fact"))

_NAMES = tuple(column.name for column in REPAIR_COLUMNS)
_ROWS = RowReader(REPAIR, _NAMES, otherwise={"state": RepairState.FAILED, "rung": Rung.END})

_PLACE_COLUMNS = (repair_table.c.environment, repair_table.c.topic, repair_table.c.scope, repair_table.c.unique_key)
#: Condition: the row of _parameters_of_place().
_THIS_ROW = sa.and_(*(column == sa.bindparam(f"p_{column.name}") for column in _PLACE_COLUMNS))
_TOKEN: sa.BindParameter[str] = sa.bindparam("p_token", type_=sa.String())
#: Token and end of a claim that counts as ended although its end lies ahead; NULL: the row has no such claim.
_SEEN = ("p_seen_token", "p_seen_until_ms")
_SEEN_TOKEN: sa.BindParameter[str | None] = sa.bindparam(_SEEN[0], type_=sa.String())
_SEEN_UNTIL_MS: sa.BindParameter[int | None] = sa.bindparam(_SEEN[1], type_=sa.BigInteger())

_Place: TypeAlias = tuple[str, str, str, str]

#: Maximum number of keys of one statement, because SQLite allows 32 766 parameters.
KEYS_A_STATEMENT = 500

#: Maximum number of pages of due rows that one call reads while it has not found enough rows to claim.
_PAGES_MAX = 20

#: Each unfinished state is named, because for "not DONE" a database would read all repairs of the past.
_UNFINISHED = sorted(state.value for state in RepairState if state not in FINISHED_REPAIRS)


class RepairClaims:
    """Claims and changes of repairs. Shared by threads; every call is one transaction. Raises DatabaseAway."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        now: Callable[[], sa.ColumnElement[int]] | None = None,
        signature_secret: SignatureSecret | None = None,
        lease_seconds: float = CLAIM_LEASE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """`engine`: the ledger's engine, which the caller disposes; `now`: makes the SQL expression of database time.

        `signature_secret`: signs messages of hand-overs; with a secret, messages without a signature are refused.
        `lease_seconds`: the length of a claim; `clock`: the host's clock.
        """
        self._engine = engine
        self._signature_secret = signature_secret
        self._lease_seconds = lease_seconds
        self._stranded = StrandedLeases(repair_table, clock)
        self._now = now or (lambda: now_ms(engine.dialect.name))

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Returns due rows without a living claim, the longest due rows first. So rows that stay due do not delay
        others."""
        now = asked_once(self._now(), self._engine.dialect.name)
        is_stranded = self._is_stranded(now)
        rows = (
            sa.select(is_stranded.label("is_stranded"))
            .where(
                repair_table.c.environment == environment,
                repair_table.c.topic == topic,
                repair_table.c.scope == scope,
                repair_table.c.state.in_(_UNFINISHED),
                self._may_be_claimed() & (self._has_no_claim(now) | is_stranded),
            )
            .order_by(repair_table.c.next_at_ms, repair_table.c.created_at_ms, repair_table.c.unique_key)
        )
        # Two queries read two ranges of the index. One combined condition would read all waiting rows in between.
        has_come, is_too_far = self._due(now)
        with reading(self._engine) as connection:
            rows = rows.add_columns(*self._columns(connection))
            due, put_off = rows.where(has_come), rows.where(is_too_far)
            found = self._page(connection, due, limit=limit)
            return found + self._page(connection, put_off, limit=limit - len(found)) if len(found) < limit else found

    def due_topics(self, environment: str) -> Collection[str]:
        """Returns the topics with due repairs. Reads one range of the index for each unfinished state."""
        c = repair_table.c
        now = asked_once(self._now(), self._engine.dialect.name)
        is_due = (c.environment == environment) & c.state.in_(_UNFINISHED) & (c.next_at_ms <= now)
        with reading(self._engine) as connection:
            topics = connection.execute(sa.select(c.topic).where(is_due, c.scope == EVERY_GROUP).distinct()).scalars()
            return frozenset(topic for topic in topics if isinstance(topic, str))

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        """Opens one read-write transaction."""
        return writing(self._engine)

    def _page(self, connection: sa.Connection, query: sa.Select[Any], *, limit: int) -> list[Repair]:
        """Returns a page of rows that can be claimed. Damaged rows, which stay due, and rows with a living claim do not
        take the place of other rows."""
        found: list[Repair] = []
        looked_at, size = 0, limit
        for _ in range(_PAGES_MAX):
            rows = connection.execute(query.limit(size).offset(looked_at)).all()
            free = [repair_of(row) for row in rows if not row.is_stranded or self._is_over(row)]
            found += [row for row in free if row.state not in FINISHED_REPAIRS]
            if len(rows) < size or len(found) >= limit:
                break
            looked_at, size = looked_at + size, KEYS_A_STATEMENT
        return found[:limit]

    def claim(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Claims by one conditional UPDATE. If several processes try, only one of them changes the row."""
        return self.claim_all([(repair, token)], lease_seconds=lease_seconds)[0]

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> list[Repair | None]:
        """Claims each row by one conditional UPDATE, all in one transaction."""
        until = self._now() + wait_ms(lease_seconds)
        # OR instead of IN, because SQLAlchemy expands IN at execution, and executemany does not allow that.
        is_unfinished = sa.or_(*(repair_table.c.state == state for state in _UNFINISHED))
        is_due = is_unfinished & sa.or_(*self._due(self._now())) & self._may_be_claimed()
        is_free, is_stranded = self._has_no_claim(self._now()), self._is_stranded(self._now())
        looked_at = (repair_table.c.token, repair_table.c.lease_until_ms, is_stranded.label("is_stranded"))
        # A stranded claim is taken only if it is unchanged, because a living owner may have renewed it since.
        as_seen = (repair_table.c.token == _SEEN_TOKEN) & (repair_table.c.lease_until_ms == _SEEN_UNTIL_MS)
        claim = (
            sa.update(repair_table)
            .where(_THIS_ROW, is_due & (is_free | as_seen))
            .values(token=_TOKEN, lease_until_ms=until, **self._with_a_claim())
        )
        with self._writing() as connection:
            free = {
                _place(row): (row.token, row.lease_until_ms) if row.is_stranded else (None, None)
                for row in self._rows_of(
                    connection, [r for r, _ in claims], *looked_at, where=is_due & (is_free | is_stranded), locks=True
                )
                if not row.is_stranded or self._is_over(row)
            }
            taken = [(repair, token) for repair, token in claims if _place(repair) in free]
            if taken:
                seen = [dict(zip(_SEEN, free[_place(repair)], strict=True)) for repair, _ in taken]
                places = [_parameters_of_place(repair, token) for repair, token in taken]
                connection.execute(claim, [place | as_was for place, as_was in zip(places, seen, strict=True)])
            found = self._read_again(connection, [repair for repair, _ in taken])
        return [_if_owned(found.get(_place(repair)), token) for repair, token in claims]

    def renew(self, repair: Repair, *, token: str, lease_seconds: float) -> Repair | None:
        """Makes the claim last `lease_seconds` from now."""
        lease_until = self._now() + wait_ms(lease_seconds)
        return self._update(repair, repair_table.c.token == token, {"lease_until_ms": lease_until})

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes the change under the token. None: the token does not own the row any more."""
        return self.change_all([(repair, change, token)])[0]

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> list[Repair | None]:
        """Writes each change by one UPDATE under its token, all in one transaction."""
        now = self._now()
        with self._writing() as connection:
            locked = self._rows_of(connection, [r for r, _, _ in changes], repair_table.c.token, locks=True)
            owners = {_place(row): row.token for row in locked}
            is_mine = [owners.get(_place(repair)) == token for repair, _, token in changes]
            by_shape: dict[_ChangeShape, list[dict[str, Any]]] = {}
            for (repair, change, token), mine in zip(changes, is_mine, strict=True):
                if mine:
                    answer = {} if change.answer is None else self._answered(connection, change.answer)
                    values = _parameters_of_place(repair, token) | _parameters_of_change(change, answer)
                    by_shape.setdefault(_ChangeShape.of(change, answer), []).append(values)
            for shape, rows in by_shape.items():
                connection.execute(shape.update(now), rows)
            mine_only = [repair for (repair, _, _), mine in zip(changes, is_mine, strict=True) if mine]
            found = self._read_again(connection, mine_only)
        return [
            found.get(_place(repair)) if mine else None for (repair, _, _), mine in zip(changes, is_mine, strict=True)
        ]

    def message_of(self, repair: Repair) -> StoredMessage | None:
        """Returns the message of a hand-over; None after it was emptied.

        Raises MalformedInput if the text is no message or was changed, or if it lacks the signature that a secret
        demands.
        """
        with reading(self._engine) as connection:
            message = sa.select(repair_table.c.message).where(_THIS_ROW)
            text = connection.execute(message, _parameters_of_place(repair, None)).scalar_one_or_none()
        if text is None:
            return None
        parts = decode_hand_over(text, signer=self.signer_of(repair.environment, repair.scope))
        return StoredMessage.handed_over(parts)

    def signer_of(self, environment: str, group: str) -> HandOverSigner | None:
        """Returns the signer of a group's hand-over rows; None without a signature secret."""
        if self._signature_secret is None:
            return None
        return HandOverSigner(secret=self._signature_secret, environment=environment, group=group)

    def finish(self, repair: Repair, *, token: str, answer: str) -> Repair | None:
        """Makes a hand-over DONE and empties its message, under the token."""
        done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=answer)
        return self.change(repair, done, token=token)

    def _due(self, now: sa.ColumnElement[int]) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
        """Returns row_rules.is_repair_due as two conditions: the row's time has come, or lies too far ahead."""
        return repair_table.c.next_at_ms <= now, repair_table.c.next_at_ms > now + REPAIR_WAIT_MS_MAX

    def _has_no_claim(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Returns a condition for rows without a living claim."""
        return repair_table.c.token.is_(None) | (repair_table.c.lease_until_ms < now)

    def _is_stranded(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Returns a condition for rows whose claim ends later than any present claim could (stranded_leases.py)."""
        return repair_table.c.token.is_not(None) & self._stranded.among(now, lease_seconds=self._lease_seconds)

    def _is_over(self, row: sa.Row[Any]) -> bool:
        """Returns True if the row's claim is stranded and has not changed for the length of a claim."""
        return self._stranded.is_over(_place(row), row, lease_seconds=self._lease_seconds)

    def _with_a_claim(self) -> Mapping[str, Any]:
        """Returns further values that a claim writes."""
        return {}

    def _may_be_claimed(self) -> sa.ColumnElement[bool]:
        """Returns a condition for the rows that owners of this class may claim."""
        return sa.true()

    def _columns(self, connection: sa.Connection) -> Sequence[sa.ColumnElement[Any]]:
        """Returns the columns to read. A replay worker does not need answer_fact."""
        del connection
        return REPAIR_COLUMNS

    def _answered(self, connection: sa.Connection, answer: Fact | str) -> Mapping[str, str | None]:
        """Returns column -> value of an answer, which is a replay worker's own text. Raises InvariantViolation for a
        fact.

        The fact of an earlier answer may stay beside the text, because a fact does not count beside another text.
        """
        del connection
        if isinstance(answer, Fact):
            raise InvariantViolation(f"{answer.code.name}: the claims of a replay worker keep no facts")
        return {"answer": bounded_text(answer)}

    def _update(
        self,
        repair: Repair,
        condition: sa.ColumnElement[bool],
        values: Mapping[str, Any],
        *,
        answer: Fact | str | None = None,
    ) -> Repair | None:
        with self._writing() as connection:
            answered = {} if answer is None else self._answered(connection, answer)
            update = sa.update(repair_table).where(_THIS_ROW, condition).values({**values, **answered})
            if connection.execute(update, _parameters_of_place(repair, None)).rowcount != 1:
                return None
            return self._read_again(connection, [repair])[_place(repair)]

    def _read_again(self, connection: sa.Connection, repairs: Sequence[Repair]) -> dict[_Place, Repair]:
        """Reads the rows in the transaction that has just written them."""
        besides = [column for column in self._columns(connection) if column not in set(_PLACE_COLUMNS)]
        rows = self._rows_of(connection, repairs, *besides)
        return {_place(row): repair_of(row) for row in rows}

    def _rows_of(
        self,
        connection: sa.Connection,
        repairs: Sequence[Repair],
        *columns: sa.ColumnElement[Any],
        where: sa.ColumnElement[bool] | None = None,
        locks: bool = False,
    ) -> list[sa.Row[Any]]:
        """Returns the place and the given columns of each row. `where`: only rows with this condition.

        `locks` locks the rows against other writers, always in the same order, so that two owners never wait for each
        other. On SQLite, every writing transaction locks all rows.
        """
        keys: dict[tuple[str, str, str], set[str]] = {}
        for repair in repairs:
            keys.setdefault((repair.environment, repair.topic, repair.scope), set()).add(repair.unique_key)
        found: list[sa.Row[Any]] = []
        for (environment, topic, scope), unique_keys in sorted(keys.items()):
            ordered = sorted(unique_keys)
            for start in range(0, len(ordered), KEYS_A_STATEMENT):
                query = (
                    sa.select(*_PLACE_COLUMNS, *columns)
                    .where(
                        repair_table.c.environment == environment,
                        repair_table.c.topic == topic,
                        repair_table.c.scope == scope,
                        repair_table.c.unique_key.in_(ordered[start : start + KEYS_A_STATEMENT]),
                        sa.true() if where is None else where,
                    )
                    .order_by(repair_table.c.unique_key)
                )
                found += connection.execute(query.with_for_update() if locks else query)
        return found


def _if_owned(row: Repair | None, token: str) -> Repair | None:
    return row if row is not None and row.token == token else None


def repair_of(row: sa.Row[Any]) -> Repair:
    """Returns the repair in a row of reconciler_repair. The row has REPAIR_COLUMNS in any order, and perhaps
    answer_fact.

    A row with a damaged value becomes FAILED, with the damage as its answer. Earlier sends are unknown then, so nothing
    is sent, and a person must look.
    """
    read = _ROWS.parse([getattr(row, name) for name in _NAMES])
    values = read.values | {"state": RepairState(read.values["state"]), "rung": Rung(read.values["rung"])}
    if read.damage is not None:
        values |= {"state": RepairState.FAILED, "answer": f"damaged, mend the row: {read.damage}"}
    answer = values["answer"] or ""
    fact = fact_of_column(getattr(row, "answer_fact", None), answer)
    return Repair(**values, answer_fact=fact or answer_in(answer))


def _place(row: Repair | sa.Row[Any]) -> _Place:
    return row.environment, row.topic, row.scope, row.unique_key


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeShape:
    """The columns that a change writes. One statement writes all changes with the same columns."""

    counts_as_attempt: bool
    takes_back_attempt: bool
    has_target: bool
    #: Columns of the answer.
    answers: tuple[str, ...]
    gives_up: bool
    is_done: bool

    @classmethod
    def of(cls, change: RepairChange, answer: Mapping[str, str | None]) -> _ChangeShape:
        """Returns the shape of a change. `answer`: column -> value of its answer."""
        return cls(
            counts_as_attempt=change.counts_as_attempt,
            takes_back_attempt=change.takes_back_attempt,
            has_target=change.target is not None,
            answers=tuple(answer),
            gives_up=change.releases or change.state in FINISHED_REPAIRS,
            is_done=change.state is RepairState.DONE,
        )

    def update(self, now: sa.ColumnElement[int]) -> sa.Update:
        """Returns the statement for the parameters of _parameters_of_place() and _parameters_of_change()."""
        columns = repair_table.c
        values: dict[str, Any] = {}
        if self.counts_as_attempt:
            # The order matters, because an assignment of MySQL reads the values of earlier assignments.
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
        values |= {name: sa.bindparam(f"p_{name}", type_=columns[name].type) for name in self.answers}
        if self.gives_up:
            values |= {"token": None, "lease_until_ms": None}
        if self.is_done:
            values |= {"done_at_ms": now, "message": None}
        return sa.update(repair_table).where(_THIS_ROW, columns.token == _TOKEN).ordered_values(*values.items())


def _parameters_of_change(change: RepairChange, answer: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the parameters of a change. `answer`: column -> value of its answer."""
    values: dict[str, Any] = {
        "p_state": change.state.value,
        "p_rung": change.rung.value,
        "p_wait_ms": wait_ms(change.wait_seconds),
    }
    if change.target is not None:
        values["p_target"] = json.dumps(dict(change.target), separators=(",", ":"))
    return values | {f"p_{name}": value for name, value in answer.items()}


def _parameters_of_place(repair: Repair, token: str | None) -> dict[str, Any]:
    """Returns the parameters of _THIS_ROW, and of _TOKEN unless it is None."""
    place = {
        "p_environment": repair.environment,
        "p_topic": repair.topic,
        "p_scope": repair.scope,
        "p_unique_key": repair.unique_key,
    }
    return place if token is None else place | {"p_token": token}
