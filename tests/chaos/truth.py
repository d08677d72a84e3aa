"""Tables of the run's own, which nothing guards: what was meant, and every effect that happened."""

from __future__ import annotations

import hashlib
from enum import StrEnum

import sqlalchemy as sa


class Intent(StrEnum):
    """What the business wants of a message."""

    COMMIT = "commit"
    ROLL_BACK = "roll-back"


NOW_MS = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
#: Statements, parted by empty lines.
DDL = f"""
CREATE TABLE attempts (key TEXT PRIMARY KEY, intent TEXT NOT NULL, digest TEXT NOT NULL, at_ms BIGINT NOT NULL)

CREATE TABLE effects (consumer_group TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, at_ms BIGINT)

CREATE TABLE orders (key TEXT NOT NULL)

-- The proxies' diary, for latencies only: END_TRANSACTION requests that were lost on purpose.
CREATE TABLE lost_ends (key TEXT NOT NULL)

CREATE TABLE copies (
  key TEXT NOT NULL, broker TEXT NOT NULL, queue INTEGER NOT NULL, queue_offset BIGINT, stored_at_ms BIGINT)

-- The ledger keeps the newest state of a row; these two keep every one, for stories: written by the database itself.
CREATE TABLE verdicts (
  at_ms BIGINT NOT NULL, consumer_group TEXT NOT NULL, key TEXT NOT NULL, verdict TEXT NOT NULL, evidence TEXT NOT NULL)

CREATE INDEX chaos_verdicts ON verdicts (key)

CREATE FUNCTION chaos_verdict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO verdicts VALUES ({NOW_MS}, NEW.consumer_group, NEW.unique_key, NEW.verdict, NEW.evidence);
  RETURN NULL;
END $$

CREATE TRIGGER chaos_verdict AFTER INSERT OR UPDATE ON reconciler_candidate
  FOR EACH ROW EXECUTE FUNCTION chaos_verdict()

CREATE TABLE repair_steps (
  number BIGSERIAL, at_ms BIGINT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, rung TEXT NOT NULL,
  attempts INTEGER NOT NULL, token TEXT, answer TEXT)

CREATE INDEX chaos_repair_steps ON repair_steps (key)

CREATE FUNCTION chaos_repair_step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO repair_steps (at_ms, key, state, rung, attempts, token, answer)
  VALUES ({NOW_MS}, NEW.unique_key, NEW.state, NEW.rung, NEW.attempts, NEW.token, NEW.answer);
  RETURN NULL;
END $$

CREATE TRIGGER chaos_repair_step AFTER INSERT OR UPDATE ON reconciler_repair
  FOR EACH ROW EXECUTE FUNCTION chaos_repair_step()
"""
#: For psycopg: (key, intent, digest), (key), (group, key, digest).
WRITE_ATTEMPT = f"INSERT INTO attempts VALUES (%s, %s, %s, {NOW_MS})"
WRITE_ORDER = "INSERT INTO orders VALUES (%s)"
WRITE_EFFECT = f"INSERT INTO effects VALUES (%s, %s, %s, {NOW_MS})"


def make_tables(engine: sa.Engine) -> None:
    """Makes them in a database that has the product's tables and nothing else."""
    with engine.begin() as connection:
        for statement in DDL.split("\n\n"):
            connection.exec_driver_sql(statement)


def digest_of(body: bytes) -> str:
    """What attempts and effects keep of a body."""
    return hashlib.sha256(body).hexdigest()
