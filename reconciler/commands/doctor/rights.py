"""Whether the logins of the settings may do what `run` and `sweep` do, by table and verb: one line a database."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.commands.diagnosis import Diagnosis
from reconciler.wiring.connections import Connections
from reconciler.wiring.rights import NeededRights, RefusedRights, rights_refused, verbs_by_table

#: A result is one line: of tables with the same rights this many are named, more are counted.
TABLES_NAMED = 3


def check_rights(connections: Connections, needed: NeededRights) -> Diagnosis:
    """The rights in a database that has its tables. Raises DatabaseAway."""
    return diagnosis_of(needed, rights_refused(connections, needed))


def diagnosis_of(needed: NeededRights, refused: RefusedRights) -> Diagnosis:
    """Whether the rights are enough, for which command, and what to grant."""
    name = f"rights in the {needed.database.name}"
    may = _on_tables(verbs_by_table(right for right in (*needed.run, *needed.sweep) if right not in refused))
    if not refused:
        return Diagnosis(check=name, level="ok", found=may)
    grants = "; ".join(f"GRANT {verbs} ON {table}" for table, verbs in verbs_by_table(refused).items())
    writes = [right for right in needed.sweep if right.verb != "SELECT"]
    if writes and set(refused) <= set(needed.sweep) and set(writes) <= set(refused):
        remedy = f"enough for `reconciler run`; a login for `reconciler sweep` needs {grants}"
        return Diagnosis(check=name, level="note", found=f"may only {may}", remedy=remedy)
    if all(right.without_it for right in refused):
        told = ", ".join(dict.fromkeys(right.without_it for right in refused))
        return Diagnosis(
            check=name, level="note", found=f"without {', '.join(map(str, refused))} {told}", remedy=grants
        )
    commands = " and ".join(
        command
        for command, rights in (("run", needed.run), ("sweep", needed.sweep))
        if any(right in refused for right in rights)
    )
    words = next(iter(refused.values()))
    found = f"{commands} may not {', '.join(map(str, refused))}: {words}"
    return Diagnosis(check=name, level="fail", found=found, remedy=grants)


def _on_tables(verbs_of: Mapping[str, str]) -> str:
    tables: dict[str, list[str]] = {}
    for table, verbs in verbs_of.items():
        tables.setdefault(verbs, []).append(table)
    return "; ".join(
        f"{verbs} on {', '.join(names)}" if len(names) <= TABLES_NAMED else f"{verbs} on {len(names)} tables"
        for verbs, names in tables.items()
    )
