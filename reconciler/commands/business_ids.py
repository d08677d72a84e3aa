"""What people name a message by: its unique key, or the business id that its producer wrote into the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import OUTBOX, OutboxState
from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import DependencyAway, InvalidValue, ReconcilerError
from reconciler.sql.engines import reading
from reconciler.sql.tables import outbox
from reconciler.sql.witness_database import NOT_PROVED, WitnessDatabase
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import outbox_databases

#: Rows beyond those that are read are counted so far; a producer may give all its messages one business id.
COUNTED_MAX = 10_000

_NAMES = ("unique_key", "topic", "producer_group", "state", "created_at_ms")
_ROWS = RowReader(OUTBOX, _NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOfBusiness:
    """One outbox row of a business id."""

    unique_key: str
    topic: str
    producer_group: str
    state: OutboxState
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessMessages:
    """What the outboxes have under one business id."""

    business_id: str
    #: The newest first, each once.
    messages: tuple[MessageOfBusiness, ...] = ()
    #: Older ones that were not read, counted to COUNTED_MAX an outbox.
    older: int = 0
    #: Outboxes that did not answer, one line each.
    away: tuple[str, ...] = ()
    #: Rows that nobody can read, one line each.
    damaged: tuple[str, ...] = ()
    #: Why there may be more that nobody can see here, one line each.
    silent: tuple[str, ...] = ()

    @property
    def unique_keys(self) -> tuple[str, ...]:
        """The newest first."""
        return tuple(message.unique_key for message in self.messages)

    @property
    def older_text(self) -> str:
        """How many are not named here; empty: none."""
        if not self.older:
            return ""
        number = f"more than {COUNTED_MAX}" if self.older > COUNTED_MAX else str(self.older)
        return f"{number} older messages of business id {self.business_id!r} are left out"


def key_shaped(text: str) -> str | None:
    """The unique key that a person may mean, whatever its case and the spaces around; None: it has another shape."""
    key = text.strip().upper()
    return key if is_unique_key(key) else None


def require_name(text: str) -> str:
    """What a person typed, if any row can have it; raises InvalidValue."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("KEY", text, "no UTF-8 text, so neither a unique key nor a business id") from None
    if not text.strip():
        raise InvalidValue("KEY", text, "give a unique key or a business id")
    return text


def messages_of(connections: Connections, business_id: str, *, limit: int) -> BusinessMessages:
    """The newest messages of all configured outboxes whose business id is exactly this, case and accents included.

    `limit`: most of them. Raises nothing for an outbox that is away: it is named.
    """
    found: dict[str, MessageOfBusiness] = {}
    older = 0
    away: list[str] = []
    damaged: list[str] = []
    silent = [
        f"producer group {p.group} has no outbox here: its messages are found by unique key only"
        for p in connections.settings.producers
        if not p.outbox_urls
    ]
    for url, name in _outboxes(connections):
        try:
            engine = connections.engine(url, read_only=True)
            rows, more = _newest(engine, business_id, limit)
            if not rows and WitnessDatabase(engine, outbox).role().is_primary is False:
                silent.append(f"{name}: no row, {NOT_PROVED}: a replica")
        except ReconcilerError as error:
            away.append(f"{name}: {error}")
            continue
        older += more
        for read in map(_ROWS.read, rows):
            if read.damage is not None:
                damaged.append(f"{name}: {read.damage}")
            else:
                row = MessageOfBusiness(**read.values | {"state": OutboxState(read.values["state"])})
                found.setdefault(row.unique_key, row)
    newest = sorted(found.values(), key=lambda row: (-row.created_at_ms, row.unique_key))
    return BusinessMessages(
        business_id=business_id,
        messages=tuple(newest[:limit]),
        older=older + len(newest[limit:]),
        away=tuple(away),
        damaged=tuple(damaged),
        silent=tuple(silent),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a person meant."""

    #: The newest first.
    unique_keys: tuple[str, ...]
    #: None: the name was a unique key.
    business: BusinessMessages | None = None
    #: How the name was understood, one line each.
    notes: tuple[str, ...] = ()


def keys_named(connections: Connections, name: str, *, limit: int) -> Named:
    """The unique keys that a name stands for: its own, if ledger or outboxes have it, else those of a business id.

    Raises InvalidValue for a name that is neither, and DependencyAway while an outbox does not answer: an act on the
    messages of a business id needs all of them.
    """
    require_name(name)
    key = key_shaped(name)
    if key is not None and _is_known(connections, key):
        return Named(unique_keys=(key,))
    found = messages_of(connections, name, limit=limit)
    if found.away:
        raise DependencyAway("; ".join(found.away))
    if not found.messages and key is not None:
        return Named(unique_keys=(key,))
    if not found.messages:
        why = "; ".join(
            ("no outbox has a message of this business id, and it is no unique key", *found.damaged, *found.silent)
        )
        raise InvalidValue("KEY", name, why)
    told = (
        f"{name!r} is a business id, of {len(found.messages) + found.older} message(s): {', '.join(found.unique_keys)}"
    )
    notes = (told, *([found.older_text] if found.older else []), *found.damaged, *found.silent)
    return Named(unique_keys=found.unique_keys, business=found, notes=notes)


def _is_known(connections: Connections, unique_key: str) -> bool:
    """Raises DatabaseAway."""
    life = connections.ledger.reports.life(connections.settings.environment, unique_key)
    if life.candidates or life.repairs or life.actions:
        return True
    query = sa.select(outbox.c.unique_key).where(outbox.c.unique_key == unique_key)
    for url, _name in _outboxes(connections):
        with reading(connections.engine(url, read_only=True)) as connection:
            if connection.scalar(query) is not None:
                return True
    return False


def _outboxes(connections: Connections) -> Iterator[tuple[str, str]]:
    """(URL, whose) of each database: groups may share one."""
    owners: dict[str, list[str]] = {}
    for database in outbox_databases(connections.settings):
        owners.setdefault(database.url, []).append(database.name.removeprefix("outbox of "))
    for url, names in owners.items():
        yield url, f"outbox of {', '.join(names)}"


def _newest(engine: sa.Engine, business_id: str, limit: int) -> tuple[list[tuple[object, ...]], int]:
    """Rows, and how many older ones there are. The first condition finds them by the index, in any collation; the
    second takes the very same text only."""
    column = outbox.c.business_id
    conditions = (column == business_id, _exactly(column, business_id, engine.dialect.name))
    newest = sa.select(*(outbox.c[name] for name in _NAMES)).where(*conditions)
    newest = newest.order_by(outbox.c.created_at_ms.desc()).limit(limit)
    counted = sa.select(sa.literal(1)).where(*conditions).limit(limit + COUNTED_MAX + 1).subquery()
    with reading(engine) as connection:
        rows = [tuple(row) for row in connection.execute(newest)]
        is_full = len(rows) == limit
        total = connection.scalar(sa.select(sa.func.count()).select_from(counted)) if is_full else len(rows)
    return rows, (total or 0) - len(rows)


def _exactly(column: sa.Column[str], text: str, dialect: str) -> sa.ColumnElement[bool]:
    """Tables that users make by their own migrations may fold case, and MySQL ignores spaces at the end."""
    match dialect:
        case "postgresql":
            return sa.collate(column, "C") == text
        case "sqlite":
            return sa.collate(column, "BINARY") == text
        case _:
            return sa.cast(column, sa.BINARY()) == sa.cast(sa.literal(text, sa.String()), sa.BINARY())
