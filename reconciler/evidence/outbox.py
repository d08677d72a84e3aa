"""Reads the outboxes of producers as evidence of commits, by SELECT, on engines that cannot write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from reconciler.clock import Backoff, Clock
from reconciler.contract.answers import NO_OUTBOX, OUTBOX_ROW
from reconciler.contract.defaults import SKEW_MARGIN_SECONDS, STATEMENT_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.row_values import RowReader
from reconciler.contract.secret import Secret
from reconciler.contract.tables import OUTBOX
from reconciler.errors import ReconcilerError
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, WitnessAnswer
from reconciler.silence import PAUSES
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import open_engine
from reconciler.sql.key_probes import key_that_meets
from reconciler.sql.pools import close_engine
from reconciler.sql.tables import outbox
from reconciler.sql.witness_database import DatabaseRole, WitnessDatabase, absence

#: Maximum number of keys in one statement.
KEYS_MAX = 500

_ROWS = RowReader(OUTBOX)
_COLUMNS = len(OUTBOX.columns)


@dataclass(frozen=True, slots=True)
class Damage:
    """A row with an unreadable value."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutboxAnswer:
    """The answer of one database."""

    rows: Mapping[str, OutboxRow | Damage] = field(default_factory=dict)
    #: None if the database did not answer.
    role: DatabaseRole | None = None
    #: The database's URL in the form that people may see.
    database: str = ""
    problem: Fact | str = ""
    is_by_set_up: bool = False


class SqlOutboxReader:
    """The port OutboxEvidence over any number of databases, with one engine per URL. Thread-safe."""

    def __init__(
        self,
        sources: Iterable[CommitSource],
        *,
        statement_seconds: float | None = STATEMENT_SECONDS,
        clock: Clock | None = None,
        skew_margin_seconds: float = SKEW_MARGIN_SECONDS,
        silence_pauses: Backoff = PAUSES,
    ) -> None:
        """Connects at the first look-up. Raises InvalidValue for a malformed URL, and MissingDependency for a missing
        driver."""
        self._sources = tuple(sources)
        self._databases = {
            url: WitnessDatabase(
                open_engine(
                    url,
                    read_only=True,
                    statement_seconds=statement_seconds,
                    silence_pauses=silence_pauses,
                ),
                outbox,
                is_outbox=True,
                clock=clock,
                skew_margin_seconds=skew_margin_seconds,
            )
            for url in dict.fromkeys(found.url for found in self._sources if found.url is not None)
        }

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """Returns FOUND with the committed rows of any outbox. Returns FOUND with tombstones if every other outbox of
        the topic proved that it has no row. Returns ABSENT if every outbox proved its absence. Otherwise returns
        UNKNOWN.

        An absence needs a login that sees every row. A sign of life later than the key's time proves the absence. A
        primary without a sign of life proves the absence by its role. A tombstone needs no proof: even on an old
        replica, it excludes a commit in its database. A group without an outbox never answers, so missing keys of its
        topic stay UNKNOWN.
        """
        keys = list(not_before_ms)
        rows: dict[str, list[OutboxRow]] = {key: [] for key in keys}
        answers: dict[str, list[WitnessAnswer]] = {key: [] for key in keys}
        for witness, url in self._witnesses(topic):
            for start in range(0, len(keys), KEYS_MAX):
                batch = keys[start : start + KEYS_MAX]
                answer = self._ask(url, topic, batch, now_ms)
                for key in batch:
                    row = answer.rows.get(key)
                    answers[key].append(_answer(witness, row, answer, not_before_ms[key]))
                    if isinstance(row, OutboxRow):
                        rows[key].append(row)
        return {key: _combine(rows[key], answers[key]) for key in keys}

    def close(self) -> None:
        """Closes all engines."""
        for database in self._databases.values():
            close_engine(database.engine)

    def _of(self, topic: str) -> list[CommitSource]:
        return [found for found in self._sources if topic in found.topics]

    def _witnesses(self, topic: str) -> list[tuple[str, Secret | None]]:
        # Groups with the same database are one witness.
        named: dict[Secret | None, list[str]] = {}
        for found in self._of(topic):
            named.setdefault(found.url, []).append(found.producer_group)
        return [(f"outbox of {', '.join(groups)}", url) for url, groups in named.items()]

    def _ask(self, url: Secret | None, topic: str, keys: Sequence[str], now_ms: int | None) -> _OutboxAnswer:
        if url is None:
            return _OutboxAnswer(problem=NO_OUTBOX(), is_by_set_up=True)
        # Not by topic, too, because a row with an unreadable topic is no absence.
        try:
            role, found = self._databases[url].probe(sa.select(outbox), outbox.c.unique_key, keys, now_ms=now_ms)
        except ReconcilerError as error:
            return _OutboxAnswer(problem=str(error))
        rows = {row.unique_key: _row(row[-_COLUMNS:]) for row in found}
        of_topic = {key: row for key, row in rows.items() if isinstance(row, Damage) or row.message.topic == topic}
        return _OutboxAnswer(
            rows=of_topic | _met(keys, rows),
            role=role,
            database=shown(self._databases[url].engine),
        )


def _met(keys: Sequence[str], rows: Mapping[str, object]) -> dict[str, Damage]:
    """Returns the keys whose statement gave the row of another key: it may be their own row in another form, so it is
    no absence."""
    if rows.keys() <= set(keys):
        return {}
    met = {key: key_that_meets(key, rows) for key in keys if key not in rows}
    return {
        key: Damage(f"the row that it meets is of unique_key {other}: the database takes keys for one another")
        for key, other in met.items()
        if other is not None
    }


def _answer(witness: str, row: OutboxRow | Damage | None, answer: _OutboxAnswer, not_before_ms: int) -> WitnessAnswer:
    if isinstance(row, Damage):
        return WitnessAnswer(witness=witness, presence=Presence.UNKNOWN, detail=row.reason, is_damaged=True)
    if answer.role is None:
        return WitnessAnswer(
            witness=witness, presence=Presence.UNKNOWN, detail=answer.problem, is_by_set_up=answer.is_by_set_up
        )
    if row is None:
        absent = absence(witness, answer.role, not_before_ms)
        return replace(absent, detail=replace(absent, witness=answer.database).said)
    return WitnessAnswer(witness=witness, presence=Presence.FOUND, detail=OUTBOX_ROW(state=row.state.value))


def _combine(rows: Sequence[OutboxRow], answers: Sequence[WitnessAnswer]) -> Lookup[OutboxRow]:
    """Returns committed rows of any database. A tombstone or an absence needs answers of all databases."""
    committed = tuple(row for row in rows if row.commit is not None)
    if committed:
        return Lookup(presence=Presence.FOUND, records=committed, answers=tuple(answers))
    if not answers or any(answer.presence is Presence.UNKNOWN for answer in answers):
        return Lookup(presence=Presence.UNKNOWN, answers=tuple(answers))
    return Lookup(presence=Presence.FOUND if rows else Presence.ABSENT, records=tuple(rows), answers=tuple(answers))


def _row(row: Sequence[Any]) -> OutboxRow | Damage:
    read = _ROWS.parse(row)
    if read.damage is not None:
        return Damage(read.damage)
    return OutboxRow.of_columns(read.values)
