"""The rights that `run` and `sweep` need in the databases of the settings, and those that a login lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.settings.schema import Settings
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import inbox, ledger_metadata, outbox, outbox_filter, outbox_identity
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import ConfiguredDatabase, configured_databases

#: What a database refuses, with its words.
RefusedRights = Mapping[Right, str]

_LEDGER = tuple(
    Right(verb, table) for table in ledger_metadata.sorted_tables for verb in ("SELECT", "INSERT", "UPDATE", "DELETE")
)
_OUTBOX = (Right("SELECT", outbox), Right("SELECT", outbox_identity))
_OUTBOX_OF_SWEEP = (
    Right("UPDATE", outbox, ("state", "announced_at_ms", "settled_at_ms")),
    Right("DELETE", outbox),
    Right("UPDATE", outbox_identity, ("swept_at_ms",)),
    Right("SELECT", outbox_filter),
    Right("INSERT", outbox_filter),
    Right("UPDATE", outbox_filter, ("tags", "version")),
)
_INBOX = (Right("SELECT", inbox),)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRights:
    """What one database is used for, by table and verb."""

    database: ConfiguredDatabase
    #: Without these `run` cannot do its work.
    run: tuple[Right, ...]
    #: Without these `sweep` cannot; a login that has none of them is one for `run` alone.
    sweep: tuple[Right, ...] = ()


def needed_rights(settings: Settings) -> list[NeededRights]:
    """One entry a database, however many sections of the settings name it."""
    answering = {url for p in settings.producers if p.answer_checks for url in p.outbox_urls}
    return [_needed(database, answers_checks=database.url in answering) for database in configured_databases(settings)]


def _needed(database: ConfiguredDatabase, *, answers_checks: bool) -> NeededRights:
    match database.tree:
        case "ledger":
            return NeededRights(database=database, run=_LEDGER)
        case "outbox":
            tombstones = (Right("INSERT", outbox),) if answers_checks else ()
            return NeededRights(database=database, run=_OUTBOX, sweep=(*_OUTBOX_OF_SWEEP, *tombstones))
        case _:
            return NeededRights(database=database, run=_INBOX)


def rights_refused(connections: Connections, needed: NeededRights) -> RefusedRights:
    """Rights that the login lacks, in a database that has its tables. Raises DatabaseAway."""
    rights = (*needed.run, *needed.sweep)
    reads_only = all(right.verb == "SELECT" for right in rights)
    return refused_rights(connections.engine(needed.database.url, read_only=reads_only), rights)


def verbs_by_table(rights: Iterable[Right]) -> dict[str, str]:
    """Table -> verbs, in the order of the rights."""
    found: dict[str, list[str]] = {}
    for right in rights:
        found.setdefault(right.table.name, []).append(right.verb)
    return {table: ", ".join(verbs) for table, verbs in found.items()}
