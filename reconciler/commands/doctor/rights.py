"""Checks whether the configured logins may do what `run` and `sweep` do. Each database gets one line."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.doctor.needed_rights import NeededRights, RefusedRights, rights_refused, verbs_by_table
from reconciler.contract.facts import Code, Fact, Field
from reconciler.wiring.connections import Connections

RIGHTS_IN = Code("doctor.rights-in", database=Field.FACT)
MAY = Code("doctor.may", rights=Field.FACTS)
MAY_ONLY = Code("doctor.may-only", rights=Field.FACTS)
ON_TABLES = Code("doctor.on-tables", verbs=Field.NAME, tables=Field.NAMES)
ON_MANY_TABLES = Code("doctor.on-many-tables", verbs=Field.NAME, number=Field.NUMBER)
ENOUGH_FOR_RUN = Code("doctor.enough-for-run", grants=Field.FACT)
WITHOUT_RIGHTS = Code("doctor.without-rights", rights=Field.NAMES, told=Field.FACTS)
MAY_NOT = Code("doctor.may-not", command=Field.NAME, rights=Field.NAMES, why=Field.TEXT)
BOTH_MAY_NOT = Code("doctor.both-may-not", rights=Field.NAMES, why=Field.TEXT)
GRANTS = Code("doctor.grants", statements=Field.FACTS)
GRANT = Code("doctor.grant", verbs=Field.NAME, table=Field.NAME)

#: Maximum number of tables with the same rights that a line names. Further tables are counted.
TABLES_NAMED = 3


def grants(verbs_of: Mapping[str, str]) -> Fact:
    """Returns what to grant to a login. `verbs_of`: table -> SQL verbs."""
    return GRANTS(statements=tuple(GRANT(verbs=verbs, table=table) for table, verbs in verbs_of.items()))


def check_rights(connections: Connections, needed: NeededRights) -> Diagnosis:
    """Checks the rights of the login in one database, which must have its tables. Raises DatabaseAway."""
    return diagnosis_of(needed, rights_refused(connections, needed))


def diagnosis_of(needed: NeededRights, refused: RefusedRights) -> Diagnosis:
    """Returns whether the rights are enough, for which command, and what to grant."""
    check = RIGHTS_IN(database=needed.database.fact)
    may = _on_tables(verbs_by_table(right for right in (*needed.run, *needed.sweep) if right not in refused))
    if not refused:
        return Diagnosis(check=check, level="ok", found=MAY(rights=may))
    lacking = grants(verbs_by_table(refused))
    writes = [right for right in needed.sweep if right.verb != "SELECT"]
    if writes and set(refused) <= set(needed.sweep) and set(writes) <= set(refused):
        return Diagnosis(check=check, level="note", found=MAY_ONLY(rights=may), remedy=ENOUGH_FOR_RUN(grants=lacking))
    rights = tuple(map(str, refused))
    told = tuple(dict.fromkeys(right.without_it for right in refused if right.without_it is not None))
    if all(right.without_it is not None for right in refused):
        return Diagnosis(check=check, level="note", found=WITHOUT_RIGHTS(rights=rights, told=told), remedy=lacking)
    why = next(iter(refused.values()))
    of_run, of_sweep = (any(right in refused for right in rights) for rights in (needed.run, needed.sweep))
    if of_run and of_sweep:
        found = BOTH_MAY_NOT(rights=rights, why=why)
    else:
        found = MAY_NOT(command="run" if of_run else "sweep", rights=rights, why=why)
    return Diagnosis(check=check, level="fail", found=found, remedy=lacking)


def _on_tables(verbs_of: Mapping[str, str]) -> tuple[Fact, ...]:
    tables: dict[str, list[str]] = {}
    for table, verbs in verbs_of.items():
        tables.setdefault(verbs, []).append(table)
    return tuple(
        ON_TABLES(verbs=verbs, tables=tuple(names))
        if len(names) <= TABLES_NAMED
        else ON_MANY_TABLES(verbs=verbs, number=len(names))
        for verbs, names in tables.items()
    )
