"""reconciler_half: the halves of topics whose commits a query proves. Siblings are found in this table: halves with the
same business key.

If the ledger was not upgraded, or the login has no right to the table, halves cannot be stored, and no row of the
business proves a loss.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from reconciler.contract.row_rules import is_storable
from reconciler.contract.row_values import RowReader
from reconciler.contract.tables import HALF
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.ledger.database import ROWS_A_STATEMENT, LedgerDatabase, chunks
from reconciler.policy.ports.ledger import NotedHalf
from reconciler.sql.rights import is_lacking
from reconciler.sql.tables import half

_NAMES = ("unique_key", "broker", "key_digest", "tag_digest", "stored_at_ms")
_COLUMNS = tuple(half.c[name] for name in _NAMES)
_ROWS = RowReader(HALF, _NAMES)

_log = logging.getLogger(__name__)


class SqlNotedHalves:
    """The noted halves in SQL. Thread-safe. Noting known halves only reads. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._has_told = False

    def note(self, environment: str, topic: str, halves: Sequence[NotedHalf], *, replaces: bool = False) -> bool:
        """Writes rows that are missing or damaged, with `replaces` also different ones. Writes in order, so that two
        processes never wait for each other."""
        if not all(is_storable(name) for name in (topic, *(one.broker for one in halves))):
            return False
        wanted = {(one.unique_key, one.broker): one for one in halves}
        try:
            for some in chunks(sorted(wanted), ROWS_A_STATEMENT):
                self._note(environment, topic, [wanted[place] for place in some], replaces=replaces)
        except (DatabaseAway, ConfigurationError) as error:
            self._cannot(error)
            return False
        return True

    def _note(self, environment: str, topic: str, halves: Sequence[NotedHalf], *, replaces: bool) -> None:
        of_topic = (half.c.environment == environment) & (half.c.topic == topic)
        query = sa.select(*_COLUMNS).where(of_topic, half.c.unique_key.in_({one.unique_key for one in halves}))
        with self._database.reading() as connection:
            rows = [_ROWS.parse(row) for row in connection.execute(query)]
        known = {(row.values["unique_key"], row.values["broker"]): row for row in rows}
        missing = [one for one in halves if (one.unique_key, one.broker) not in known]
        changed = [
            one
            for one in halves
            if (row := known.get((one.unique_key, one.broker))) is not None
            and (row.damage is not None or (replaces and _digests(_half(row.values)) != _digests(one)))
        ]
        if not (missing or changed):
            return
        with self._database.writing() as connection:
            self._database.insert_missing(
                connection, half, [{"environment": environment, "topic": topic} | _values(one) for one in missing]
            )
            for one in changed:
                is_it = of_topic & (half.c.unique_key == one.unique_key) & (half.c.broker == one.broker)
                connection.execute(sa.update(half).where(is_it).values(_values(one)))

    def of_keys(
        self, environment: str, topic: str, key_digests: Collection[bytes]
    ) -> Mapping[bytes, Sequence[NotedHalf]] | None:
        """Runs one SELECT per ROWS_A_STATEMENT digests."""
        found: dict[bytes, list[NotedHalf]] = {digest: [] for digest in key_digests}
        of_topic = (half.c.environment == environment) & (half.c.topic == topic)
        try:
            for some in chunks(sorted(found), ROWS_A_STATEMENT):
                query = sa.select(*_COLUMNS).where(of_topic, half.c.key_digest.in_(some))
                with self._database.reading() as connection:
                    rows = [_ROWS.parse(row) for row in connection.execute(query)]
                for row in rows:
                    if row.damage is not None:
                        return None
                    found[row.values["key_digest"]].append(_half(row.values))
        except (DatabaseAway, ConfigurationError) as error:
            self._cannot(error)
            return None
        return found

    def noted(self, environment: str, topic: str, unique_keys: Collection[str]) -> Collection[str]:
        """Runs one SELECT per ROWS_A_STATEMENT keys. Returns no key if the ledger lacks the table, or the login has no
        right to the table: in this case, no half was an announcement."""
        found: set[str] = set()
        of_topic = (half.c.environment == environment) & (half.c.topic == topic)
        try:
            for some in chunks(sorted(unique_keys), ROWS_A_STATEMENT):
                query = sa.select(half.c.unique_key).where(of_topic, half.c.unique_key.in_(some))
                with self._database.reading() as connection:
                    found.update(connection.scalars(query))
        except (DatabaseAway, ConfigurationError) as error:
            if not is_lacking(error):
                raise
            return frozenset()
        return found

    def _cannot(self, error: DatabaseAway | ConfigurationError) -> None:
        """Logs a missing table or right once. Raises every other error."""
        if not is_lacking(error):
            raise error
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "halves_not_kept: %s: a row of the business proves no loss: `reconciler db upgrade ledger`, and the "
                "rights that `reconciler doctor` names (%s)",
                half.name,
                error,
            )


def _digests(one: NotedHalf) -> tuple[bytes | None, bytes | None]:
    return one.key_digest, one.tag_digest


def _values(one: NotedHalf) -> dict[str, object]:
    return {name: getattr(one, name) for name in _NAMES}


def _half(values: Mapping[str, object]) -> NotedHalf:
    return NotedHalf(**{name: values[name] for name in _NAMES})  # type: ignore[arg-type]  # as the reader proved
