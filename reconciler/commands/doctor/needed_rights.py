"""The rights that `run` and `sweep` need in the databases of the settings, and the rights that a login lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reconciler.contract.least_rights import RUN, SWEEP, Role
from reconciler.contract.urls import read_database_url
from reconciler.settings.schema import Settings
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import half, inbox_metadata, ledger_metadata, outbox_metadata
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import ConfiguredDatabase, commit_evidence, configured_databases

#: Refused right -> the database's error text.
RefusedRights = Mapping[Right, str]

_TABLES = {
    table.name: table for trees in (outbox_metadata, inbox_metadata, ledger_metadata) for table in trees.sorted_tables
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRights:
    """The rights that one database has to give. A right is a table and a verb."""

    database: ConfiguredDatabase
    #: Rights that `run` needs.
    run: tuple[Right, ...]
    #: Rights that only `sweep` needs. A login that lacks every write among these is a login for `run` and `doctor`.
    sweep: tuple[Right, ...] = ()


def needed_rights(settings: Settings) -> list[NeededRights]:
    """Returns one entry for each database. Several sections of the settings may name one database."""
    answering = {url for source, url in commit_evidence(settings).outboxes if source.answers_checks}
    asks_queries = any(producer.commit_queries for producer in settings.producers)
    return [
        _needed(database, answers_checks=database.url in answering, asks_queries=asks_queries)
        for database in configured_databases(settings)
    ]


def _needed(database: ConfiguredDatabase, *, answers_checks: bool, asks_queries: bool) -> NeededRights:
    run = _rights(RUN, database)
    if asks_queries:  # a commit query proves nothing without noted halves, so these rights are never optional
        run = tuple(replace(right, without_it=None) if right.table is half else right for right in run)
    if database.tree != "outbox":
        return NeededRights(database=database, run=run)
    sweep = (right for right in _rights(SWEEP, database, answers_checks=answers_checks) if right not in run)
    return NeededRights(database=database, run=run, sweep=tuple(sweep))


def _rights(role: Role, database: ConfiguredDatabase, *, answers_checks: bool = False) -> tuple[Right, ...]:
    is_mysql = read_database_url(database.url).scheme in ("mysql", "mariadb")
    return tuple(
        Right(right.verb, _TABLES[right.table], right.columns, right.without_it)
        for right in role.rights_in(database.tree)
        if (is_mysql or not right.only_mysql) and (answers_checks or not right.only_with)
    )


def rights_refused(connections: Connections, needed: NeededRights) -> RefusedRights:
    """Returns the rights that the login lacks. The database must have its tables. Raises DatabaseAway."""
    rights = (*needed.run, *needed.sweep)
    reads_only = all(right.verb == "SELECT" for right in rights)
    return refused_rights(connections.engine(needed.database.url, read_only=reads_only), rights)


def verbs_by_table(rights: Iterable[Right]) -> dict[str, str]:
    """Returns table -> verbs, in the order of the rights."""
    found: dict[str, list[str]] = {}
    for right in rights:
        found.setdefault(right.table.name, []).append(right.verb)
    return {table: ", ".join(verbs) for table, verbs in found.items()}
