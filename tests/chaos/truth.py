"""Tables of the run's own, which nothing guards: what was meant, and every effect that happened."""

from __future__ import annotations

import hashlib
from enum import StrEnum

import sqlalchemy as sa


class Intent(StrEnum):
    """What the business wants of a message."""

    COMMIT = "commit"
    ROLL_BACK = "roll-back"


DDL = (
    "CREATE TABLE attempts (key TEXT PRIMARY KEY, intent TEXT NOT NULL, digest TEXT NOT NULL, at_ms BIGINT NOT NULL)",
    "CREATE TABLE effects (consumer_group TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, at_ms BIGINT)",
    "CREATE TABLE orders (key TEXT NOT NULL)",
    # The proxies' diary, for latencies only: END_TRANSACTION requests that were lost on purpose.
    "CREATE TABLE lost_ends (key TEXT NOT NULL)",
    "CREATE TABLE copies (key TEXT NOT NULL, broker TEXT NOT NULL, queue INTEGER NOT NULL, queue_offset BIGINT)",
)

NOW_MS = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
WRITE_ATTEMPT = sa.text(f"INSERT INTO attempts VALUES (:key, :intent, :digest, {NOW_MS})")
WRITE_ORDER = sa.text("INSERT INTO orders VALUES (:key)")
WRITE_EFFECT = sa.text(f"INSERT INTO effects VALUES (:group, :key, :digest, {NOW_MS})")


def make_tables(engine: sa.Engine) -> None:
    """Makes them in an empty database."""
    with engine.begin() as connection:
        for statement in DDL:
            connection.execute(sa.text(statement))


def digest_of(body: bytes) -> str:
    """What attempts and effects keep of a body."""
    return hashlib.sha256(body).hexdigest()
