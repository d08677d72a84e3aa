"""Whether the logins of the settings may do what `run` and `sweep` do, by table and verb: one finding a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.commands.finding import Check, Finding
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import inbox, ledger_metadata, outbox, outbox_filter, outbox_identity
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import inbox_databases, outbox_databases

#: A finding is a line: so many tables with the same rights are named.
TABLES_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededRights:
    """What one database is used for."""

    name: str
    url: str
    tree: str
    #: Without these `run` cannot do its work.
    run: tuple[Right, ...]
    #: Without these `sweep` cannot; a login that has none of them is one for `run` alone.
    sweep: tuple[Right, ...] = ()


def rights_checks(connections: Connections) -> Iterator[tuple[str, str, Check]]:
    """A check for each database of the settings, as doctor.examine takes them."""
    for needed in needed_rights(connections.settings):
        yield needed.name, "start the database, or correct its URL", _check(connections, needed)


def needed_rights(settings: Settings) -> list[NeededRights]:
    """One entry a database, however many sections of the settings name it."""
    outboxes: dict[str, list[str]] = {}
    inboxes: dict[str, list[str]] = {}
    answering = {url for p in settings.producers if p.answer_checks for url in p.outbox_urls}
    for found in outbox_databases(settings):
        outboxes.setdefault(found.url, []).append(found.name.removeprefix("outbox of "))
    for found in inbox_databases(settings):
        inboxes.setdefault(found.url, []).append(found.name.removeprefix("inbox of "))
    return [
        NeededRights(
            name="rights in the ledger",
            url=settings.ledger.url.get_secret_value(),
            tree="ledger",
            run=tuple(
                Right(verb, table)
                for table in ledger_metadata.sorted_tables
                for verb in ("SELECT", "INSERT", "UPDATE", "DELETE")
            ),
        ),
        *(
            NeededRights(
                name=f"rights in the outbox of {', '.join(groups)}",
                url=url,
                tree="outbox",
                run=(Right("SELECT", outbox), Right("SELECT", outbox_identity)),
                sweep=(
                    Right("UPDATE", outbox, ("state", "announced_at_ms", "settled_at_ms")),
                    Right("DELETE", outbox),
                    Right("UPDATE", outbox_identity, ("swept_at_ms",)),
                    Right("SELECT", outbox_filter),
                    Right("INSERT", outbox_filter),
                    Right("UPDATE", outbox_filter, ("tags", "version")),
                    *((Right("INSERT", outbox),) if url in answering else ()),
                ),
            )
            for url, groups in outboxes.items()
        ),
        *(
            NeededRights(
                name=f"rights in the inbox of {', '.join(names)}", url=url, tree="inbox", run=(Right("SELECT", inbox),)
            )
            for url, names in inboxes.items()
        ),
    ]


def _check(connections: Connections, needed: NeededRights) -> Check:
    def check() -> Sequence[Finding]:
        if not schema.has_tables(needed.url, needed.tree):
            return []  # told as such
        rights = (*needed.run, *needed.sweep)
        reads_only = all(right.verb == "SELECT" for right in rights)
        return [finding_of(needed, refused_rights(connections.engine(needed.url, read_only=reads_only), rights))]

    return check


def finding_of(needed: NeededRights, refused: Mapping[Right, str]) -> Finding:
    """Whether that is enough, for whom, and what to grant."""
    may = _on_tables(right for right in (*needed.run, *needed.sweep) if right not in refused)
    if not refused:
        return Finding(check=needed.name, level="ok", found=may)
    grants = "; ".join(f"GRANT {verbs} ON {table}" for table, verbs in _verbs(refused).items())
    if not any(right in refused for right in needed.run) and set(refused) == set(needed.sweep):
        remedy = f"enough for `reconciler run`; a login for `reconciler sweep` needs {grants}"
        return Finding(check=needed.name, level="note", found=f"may only {may}", remedy=remedy)
    who = " and ".join(
        command
        for command, rights in (("run", needed.run), ("sweep", needed.sweep))
        if any(right in refused for right in rights)
    )
    words = next(iter(refused.values()))
    found = f"{who} may not {', '.join(map(str, refused))}: {words}"
    return Finding(check=needed.name, level="fail", found=found, remedy=grants)


def _verbs(rights: Iterable[Right]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for right in rights:
        found.setdefault(right.table.name, []).append(right.verb)
    return {table: ", ".join(verbs) for table, verbs in found.items()}


def _on_tables(rights: Iterable[Right]) -> str:
    tables: dict[str, list[str]] = {}
    for table, verbs in _verbs(rights).items():
        tables.setdefault(verbs, []).append(table)
    return "; ".join(
        f"{verbs} on {', '.join(names)}" if len(names) <= TABLES_NAMED else f"{verbs} on {len(names)} tables"
        for verbs, names in tables.items()
    )
