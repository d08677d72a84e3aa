"""reconciler_idempotency_key: requests that change something, by their idempotency keys."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from reconciler.contract.row_rules import NAME_CHARACTERS, is_storable, wait_ms
from reconciler.contract.row_values import ReadRow, RowReader
from reconciler.contract.tables import IDEMPOTENCY_KEY, PostState
from reconciler.errors import InvalidValue
from reconciler.ledger.database import LedgerDatabase
from reconciler.sql.stranded_leases import StrandedLeases
from reconciler.sql.tables import idempotency_key
from reconciler.telling.ports.idempotency import KeyAnswer, KeyedRequest, KeyUse

_NAMES = ("digest", "state", "status", "answer")
_ROWS = RowReader(IDEMPOTENCY_KEY, _NAMES)
_UNDER_WAY, _ANSWERED = PostState.UNDER_WAY.value, PostState.ANSWERED.value


class SqlIdempotencyKeys:
    """Requests by key, kept for about a day. All times are database time.

    Thread-safe. Every write is one transaction. Raises DatabaseAway.
    """

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._stranded = StrandedLeases(idempotency_key, database.clock)

    def begin(self, environment: str, request: KeyedRequest, *, lease_seconds: float) -> KeyAnswer:
        """Stores the request unless its key exists. Raises InvalidValue for a key that cannot be stored unchanged.

        A request that takes longer than its lease counts as dead, and the same request is FIRST again. So the work
        under a key must be harmless if it is done twice. Repairs are harmless by their claims, and jobs by their ids.
        """
        for name, text in (("Idempotency-Key", request.key), ("by", request.by)):
            if not text or not is_storable(text):
                raise InvalidValue(name, text[:NAME_CHARACTERS], f"1 to {NAME_CHARACTERS} characters, without NUL")
        token = secrets.token_hex(16)
        while True:
            if self._insert(environment, request, token=token, lease_seconds=lease_seconds):
                return KeyAnswer(use=KeyUse.FIRST, token=token)
            found = self._read(environment, request)
            if found is None:
                continue  # between the two statements, the key was freed, or deleted by its age
            if found.use is KeyUse.UNDER_WAY and self._take_over(environment, request, token, lease_seconds):
                return KeyAnswer(use=KeyUse.FIRST, token=token, is_again=True)
            return found

    def renew(self, environment: str, request: KeyedRequest, *, token: str, lease_seconds: float) -> bool:
        """Starts the lease again. False if this request counted as dead and another request took its place."""
        c = idempotency_key.c
        update = sa.update(idempotency_key).where(_is_of(environment, request), c.token == token, c.state == _UNDER_WAY)
        with self._database.writing() as connection:
            done = connection.execute(update.values(lease_until_ms=self._database.now() + wait_ms(lease_seconds)))
            return done.rowcount == 1

    def find(self, environment: str, *, by: str, key: str) -> KeyAnswer | None:
        """Returns the use of a key: UNDER_WAY or ANSWERED. None if the key is unused, or its row is damaged."""
        found = self._row(_is(environment, by=by, key=key))
        if found is None or found.damage is not None:
            return None
        return _answer(found.values)

    def answer(self, environment: str, request: KeyedRequest, *, token: str, status: int, answer: str) -> bool:
        """Stores the answer. The caller limits its length. False if this request counted as dead and another request
        took its place."""
        c = idempotency_key.c
        update = sa.update(idempotency_key).where(_is_of(environment, request), c.token == token, c.state == _UNDER_WAY)
        with self._database.writing() as connection:
            done = connection.execute(
                update.values(state=_ANSWERED, token=None, lease_until_ms=None, status=status, answer=answer)
            )
            return done.rowcount == 1

    def forget(self, environment: str, request: KeyedRequest, *, token: str) -> None:
        """Frees the key of a request that changed nothing, or whose changes may be made twice."""
        c = idempotency_key.c
        delete = sa.delete(idempotency_key).where(_is_of(environment, request), c.token == token, c.state == _UNDER_WAY)
        with self._database.writing() as connection:
            connection.execute(delete)

    def _insert(self, environment: str, request: KeyedRequest, *, token: str, lease_seconds: float) -> bool:
        now = self._database.now()
        try:
            with self._database.writing() as connection:
                connection.execute(
                    sa.insert(idempotency_key).values(
                        environment=environment,
                        by=request.by,
                        idempotency_key=request.key,
                        digest=request.digest,
                        state=_UNDER_WAY,
                        token=token,
                        lease_until_ms=now + wait_ms(lease_seconds),
                        created_at_ms=now,
                    )
                )
        except IntegrityError:
            return False
        return True

    def _read(self, environment: str, request: KeyedRequest) -> KeyAnswer | None:
        found = self._row(_is_of(environment, request))
        if found is None:
            return None
        if found.damage is not None or found.values["digest"] != request.digest:
            return KeyAnswer(use=KeyUse.OTHER_REQUEST)  # a damaged row does not show its request
        return _answer(found.values)

    def _row(self, which: sa.ColumnElement[bool]) -> ReadRow | None:
        query = sa.select(*(idempotency_key.c[name] for name in _NAMES)).where(which)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _ROWS.parse(row)

    def _take_over(self, environment: str, request: KeyedRequest, token: str, lease_seconds: float) -> bool:
        c, now = idempotency_key.c, self._database.now()
        is_over = c.lease_until_ms < now
        here = _is_of(environment, request)
        is_stranded = self._stranded.among(now, lease_seconds=lease_seconds)
        with self._database.reading() as connection:
            stranded = connection.execute(sa.select(c.token, c.lease_until_ms).where(here, is_stranded)).one_or_none()
        thing = (environment, request.by, request.key)
        if stranded is not None and self._stranded.is_over(thing, stranded, lease_seconds=lease_seconds):
            is_over |= self._stranded.as_seen(stranded)
        is_dead = (c.state == _UNDER_WAY) & (c.digest == request.digest) & is_over
        update = sa.update(idempotency_key).where(here, is_dead)
        with self._database.writing() as connection:
            taken = connection.execute(update.values(token=token, lease_until_ms=now + wait_ms(lease_seconds)))
            return taken.rowcount == 1


def _answer(values: Mapping[str, Any]) -> KeyAnswer:
    if values["state"] == _UNDER_WAY or values["status"] is None or values["answer"] is None:
        return KeyAnswer(use=KeyUse.UNDER_WAY)
    return KeyAnswer(use=KeyUse.ANSWERED, status=values["status"], answer=values["answer"])


def _is_of(environment: str, request: KeyedRequest) -> sa.ColumnElement[bool]:
    return _is(environment, by=request.by, key=request.key)


def _is(environment: str, *, by: str, key: str) -> sa.ColumnElement[bool]:
    c = idempotency_key.c
    return (c.environment == environment) & (c.by == by) & (c.idempotency_key == key)
