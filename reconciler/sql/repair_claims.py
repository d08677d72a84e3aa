"""Rows of reconciler_repair and the claims on them: for the daemon's ledger, and for the replay worker of a group.

A *claim* is the right to repair one key: one conditional UPDATE in database time. Every later write names the claim's
token; if it matches no row, the claim is lost and its owner stops. A request that a paused owner has sent to a broker
cannot be stopped: it costs a second copy, which the inbox ignores.

A claim that ends later than the length of a lease was dated before the database's clock was set back. It is free once a
process has seen it unchanged for the length of a lease, by its own monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
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
from reconciler.policy.evidence import StoredMessage, TransactionState
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.sql.engines import asked_once, now_ms, reading, writing
from reconciler.sql.stranded_leases import StrandedLeases
from reconciler.sql.tables import repair as repair_table

#: All columns except those that a ledger of an older release lacks, and the message, because a body is read only for
#: the row that is handed over.
REPAIR_COLUMNS = tuple(column for column in repair_table.c if column.name not in ("message", "answer_fact"))

_NAMES = tuple(column.name for column in REPAIR_COLUMNS)
_ROWS = RowReader(REPAIR, _NAMES, otherwise={"state": RepairState.FAILED, "rung": Rung.END})

_PLACE_COLUMNS = (repair_table.c.environment, repair_table.c.topic, repair_table.c.scope, repair_table.c.unique_key)
#: The row of _parameters_of_place(), with the given token.
_THIS_ROW = sa.and_(*(column == sa.bindparam(f"p_{column.name}") for column in _PLACE_COLUMNS))
_TOKEN: sa.BindParameter[str] = sa.bindparam("p_token", type_=sa.String())
#: A claim that counts as ended although its end lies ahead; NULL: the row has no such claim.
_SEEN = ("p_seen_token", "p_seen_until_ms")
_SEEN_TOKEN: sa.BindParameter[str | None] = sa.bindparam(_SEEN[0], type_=sa.String())
_SEEN_UNTIL_MS: sa.BindParameter[int | None] = sa.bindparam(_SEEN[1], type_=sa.BigInteger())

_Place: TypeAlias = tuple[str, str, str, str]

#: Most keys of one statement, because SQLite allows 32 766 parameters.
KEYS_A_STATEMENT = 500

#: Most pages of due rows that one call reads, as long as none of them can be claimed.
_PAGES_MAX = 20

#: Listed one by one, because with "not DONE" a database would read all repairs of the past for the few that are due.
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
        """`engine`: the ledger's, which the caller disposes; `now` makes its database time as an SQL expression.

        `signature_secret`: messages of hand-overs are signed with it, and refused without their signature.
        `lease_seconds`: the length of a claim; `clock` is the host's.
        """
        self._engine = engine
        self._signature_secret = signature_secret
        self._lease_seconds = lease_seconds
        self._stranded = StrandedLeases(repair_table, clock)
        self._now = now or (lambda: now_ms(engine.dialect.name))

    def claimable(self, environment: str, topic: str, *, scope: str, limit: int) -> Sequence[Repair]:
        """Returns due rows without a living claim. The longest due come first, so that rows that stay due delay no
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
        # Two ranges of the index, because for one combined condition a database would read all waiting rows in between.
        has_come, is_too_far = self._due(now)
        with reading(self._engine) as connection:
            rows = rows.add_columns(*self._columns(connection))
            due, put_off = rows.where(has_come), rows.where(is_too_far)
            found = self._page(connection, due, limit=limit)
            return found + self._page(connection, put_off, limit=limit - len(found)) if len(found) < limit else found

    def due_topics(self, environment: str) -> Collection[str]:
        """Reads one range for each state in the index that ends with the time."""
        c = repair_table.c
        now = asked_once(self._now(), self._engine.dialect.name)
        is_due = (c.environment == environment) & c.state.in_(_UNFINISHED) & (c.next_at_ms <= now)
        with reading(self._engine) as connection:
            topics = connection.execute(sa.select(c.topic).where(is_due, c.scope == EVERY_GROUP).distinct()).scalars()
            return frozenset(topic for topic in topics if isinstance(topic, str))

    def _page(self, connection: sa.Connection, query: sa.Select[Any], *, limit: int) -> list[Repair]:
        """Returns a page without damaged rows, which stay due, and without rows of a living claim: neither must delay
        the others."""
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
        """Claims by one conditional UPDATE: if several processes try, only one of them changes the row."""
        return self.claim_all([(repair, token)], lease_seconds=lease_seconds)[0]

    def claim_all(self, claims: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> list[Repair | None]:
        """Claims each row by one conditional UPDATE, all in one transaction."""
        until = self._now() + wait_ms(lease_seconds)
        # Not IN, because SQLAlchemy expands IN at execution, which executemany does not allow.
        is_unfinished = sa.or_(*(repair_table.c.state == state for state in _UNFINISHED))
        is_due = is_unfinished & sa.or_(*self._due(self._now())) & self._may_be_claimed()
        is_free, is_stranded = self._has_no_claim(self._now()), self._is_stranded(self._now())
        looked_at = (repair_table.c.token, repair_table.c.lease_until_ms, is_stranded.label("is_stranded"))
        # Only if it is unchanged: a living owner has renewed it since, and its token stays the owner's.
        as_seen = (repair_table.c.token == _SEEN_TOKEN) & (repair_table.c.lease_until_ms == _SEEN_UNTIL_MS)
        claim = (
            sa.update(repair_table)
            .where(_THIS_ROW, is_due & (is_free | as_seen))
            .values(token=_TOKEN, lease_until_ms=until, **self._with_a_claim())
        )
        with writing(self._engine) as connection:
            free = {
                _place_of_row(row): (row.token, row.lease_until_ms) if row.is_stranded else (None, None)
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
        """Extends the lease from now."""
        lease_until = self._now() + wait_ms(lease_seconds)
        return self._update(repair, repair_table.c.token == token, {"lease_until_ms": lease_until})

    def change(self, repair: Repair, change: RepairChange, *, token: str) -> Repair | None:
        """Writes under the token; None: the token does not own the row any more."""
        return self.change_all([(repair, change, token)])[0]

    def change_all(self, changes: Sequence[tuple[Repair, RepairChange, str]]) -> list[Repair | None]:
        """Writes each row by one UPDATE under its token, all in one transaction."""
        now = self._now()
        with writing(self._engine) as connection:
            locked = self._rows_of(connection, [r for r, _, _ in changes], repair_table.c.token, locks=True)
            owners = {_place_of_row(row): row.token for row in locked}
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

        Raises MalformedInput for a text that is no message, that was changed, or that lacks a signature although there
        is a secret.
        """
        with reading(self._engine) as connection:
            message = sa.select(repair_table.c.message).where(_THIS_ROW)
            text = connection.execute(message, _parameters_of_place(repair, None)).scalar_one_or_none()
        if text is None:
            return None
        fields = decode_hand_over(text, signer=self.signer_of(repair.environment, repair.scope))
        return StoredMessage(**fields, transaction_state=TransactionState.NONE)

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
        """Returns row_rules.is_repair_due as two conditions: its time has come, or lies too far ahead."""
        return repair_table.c.next_at_ms <= now, repair_table.c.next_at_ms > now + REPAIR_WAIT_MS_MAX

    def _has_no_claim(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Returns a condition: no living claim."""
        return repair_table.c.token.is_(None) | (repair_table.c.lease_until_ms < now)

    def _is_stranded(self, now: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Returns a condition: its claim ends later than any present claim could, because the clock was set back."""
        return repair_table.c.token.is_not(None) & self._stranded.among(now, lease_seconds=self._lease_seconds)

    def _is_over(self, row: sa.Row[Any]) -> bool:
        """Returns True for such a claim that has not changed for the length of a claim."""
        return self._stranded.is_over(_place_of_row(row), row, lease_seconds=self._lease_seconds)

    def _with_a_claim(self) -> Mapping[str, Any]:
        """Returns further changes of a claim."""
        return {}

    def _may_be_claimed(self) -> sa.ColumnElement[bool]:
        """Returns a condition for rows that these owners work on."""
        return sa.true()

    def _columns(self, connection: sa.Connection) -> Sequence[sa.ColumnElement[Any]]:
        """Returns the columns of a row. A worker decides nothing by an answer."""
        del connection
        return REPAIR_COLUMNS

    def _answered(self, connection: sa.Connection, answer: Fact | str) -> Mapping[str, str | None]:
        """Returns column -> value of an answer, which is a worker's own text: its login may know only an older
        release's ledger, and a fact of another text does not count. Raises InvariantViolation for a fact."""
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
        with writing(self._engine) as connection:
            answered = {} if answer is None else self._answered(connection, answer)
            update = sa.update(repair_table).where(_THIS_ROW, condition).values({**values, **answered})
            if connection.execute(update, _parameters_of_place(repair, None)).rowcount != 1:
                return None
            return self._read_again(connection, [repair])[_place(repair)]

    def _read_again(self, connection: sa.Connection, repairs: Sequence[Repair]) -> dict[_Place, Repair]:
        """Returns the rows as read in the transaction that has just written them."""
        besides = [column for column in self._columns(connection) if column not in set(_PLACE_COLUMNS)]
        rows = self._rows_of(connection, repairs, *besides)
        return {_place_of_row(row): repair_of(row) for row in rows}

    def _rows_of(
        self,
        connection: sa.Connection,
        repairs: Sequence[Repair],
        *columns: sa.ColumnElement[Any],
        where: sa.ColumnElement[bool] | None = None,
        locks: bool = False,
    ) -> list[sa.Row[Any]]:
        """Returns each row's place and the given columns; `where`: only of these rows.

        `locks` locks the rows against other writers (on SQLite, every writing transaction does), always in the same
        order, so that two owners never wait for each other.
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
    """Returns the repair of a row of reconciler_repair, with REPAIR_COLUMNS in any order, and answer_fact if it was
    read.

    A row with a damaged value is FAILED, and its answer names the damage: earlier sends are unknown, so nothing is
    sent, and a person must look.
    """
    read = _ROWS.parse([getattr(row, name) for name in _NAMES])
    values = read.values | {"state": RepairState(read.values["state"]), "rung": Rung(read.values["rung"])}
    if read.damage is not None:
        values |= {"state": RepairState.FAILED, "answer": f"damaged, mend the row: {read.damage}"}
    answer = values["answer"] or ""
    fact = fact_of_column(getattr(row, "answer_fact", None), answer)
    return Repair(**values, answer_fact=fact or answer_in(answer))


def _place(repair: Repair) -> _Place:
    return repair.environment, repair.topic, repair.scope, repair.unique_key


def _place_of_row(row: sa.Row[Any]) -> _Place:
    return row.environment, row.topic, row.scope, row.unique_key


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangeShape:
    """The columns that a change writes: changes with the same columns are one statement."""

    counts_as_attempt: bool
    takes_back_attempt: bool
    has_target: bool
    #: Columns of the answer.
    answers: tuple[str, ...]
    gives_up: bool
    is_done: bool

    @classmethod
    def of(cls, change: RepairChange, answer: Mapping[str, str | None]) -> _ChangeShape:
        """Returns the shape of a change that has these columns of an answer."""
        return cls(
            counts_as_attempt=change.counts_as_attempt,
            takes_back_attempt=change.takes_back_attempt,
            has_target=change.target is not None,
            answers=tuple(answer),
            gives_up=change.releases or change.state in FINISHED_REPAIRS,
            is_done=change.state is RepairState.DONE,
        )

    def update(self, now: sa.ColumnElement[int]) -> sa.Update:
        """Returns the statement; its parameters are those of _parameters_of_place() and _parameters_of_change()."""
        columns = repair_table.c
        values: dict[str, Any] = {}
        if self.counts_as_attempt:
            # The order matters, because MySQL reads columns as earlier assignments have left them.
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
    """Returns the parameters of a change whose answer has these columns."""
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
