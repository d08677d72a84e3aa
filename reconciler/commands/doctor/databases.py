"""What `reconciler doctor` says about each database: tables, rights, collations and time-outs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from reconciler.commands.diagnosis import Diagnosis, NamedCheck, as_told, failed
from reconciler.commands.doctor.needed_rights import NeededRights, needed_rights
from reconciler.commands.doctor.rights import check_rights, grants
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.tables import VERSION_TABLES
from reconciler.errors import DatabaseAway, known_remedy
from reconciler.sql.rights import lacks_right
from reconciler.sql.table_shapes import TableShapes
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import ConfiguredDatabase, commit_evidence, database_fact, effect_evidence

WEAKER = Code("doctor.weaker", setting=Field.NAME)
CONFIGURE = Code("doctor.configure", setting=Field.NAME)
START_DATABASE = Code("doctor.start-database", setting=Field.NAME)
NO_TABLES = Code("doctor.no-tables")
TABLES_GONE = Code("doctor.tables-gone", tables=Field.NAMES)
PUT_BACK = Code("doctor.put-back")
TABLES_IN = Code("doctor.tables-in", database=Field.FACT)
NOT_UNIQUE = Code("doctor.not-unique", keys=Field.NAMES)
MAKE_UNIQUE = Code("doctor.make-unique")
COLUMNS_ALTERED = Code("doctor.columns-altered", columns=Field.NAMES)
GIVE_TYPES = Code("doctor.give-types")
NO_TRANSACTIONS = Code("doctor.no-transactions", tables=Field.NAMES)
GIVE_ENGINE = Code("doctor.give-engine")
UNLOGGED_TABLES = Code("doctor.unlogged-tables", tables=Field.NAMES)
LET_LOG = Code("doctor.let-log")
NO_INDEX = Code("doctor.no-index", indexes=Field.NAMES)
MAKE_INDEXES = Code("doctor.make-indexes")
CORRECT_OR_UPGRADE = Code("doctor.correct-or-upgrade", setting=Field.NAME, tree=Field.NAME)
UPGRADE_DATABASE = Code("doctor.upgrade-database", tree=Field.NAME)
COLLATIONS_IN = Code("doctor.collations-in", database=Field.FACT)
NAMES_FOLDED = Code("doctor.names-folded", columns=Field.NAME)
GIVE_COLLATIONS = Code("doctor.give-collations")
NO_TIME_OUT = Code("doctor.no-time-out", name=Field.NAME)
LET_SET = Code("doctor.let-set", name=Field.NAME)
REVISION_UNREADABLE = Code("doctor.revision-unreadable")
REVISION = Code("doctor.revision", revision=Field.NAME)
OWN_REVISION = Code("doctor.own-revision")
NEWER_REVISION = Code("doctor.newer-revision", found=Field.NAME, newest=Field.NAME)
INSTALL_NEWER = Code("doctor.install-newer")
REVISION_TOO_OLD = Code("doctor.revision-too-old", found=Field.NAME, oldest=Field.NAME)
UPGRADE_TO_EARLIER_RELEASE = Code("doctor.upgrade-to-earlier-release")
OLDER_REVISION = Code("doctor.older-revision", found=Field.NAME, newest=Field.NAME)


def database_checks(connections: Connections) -> Iterator[NamedCheck]:
    """Yields one check for each database, and one note for each outbox or inbox that the settings lack."""
    settings = connections.settings
    for needed in needed_rights(settings):
        url = needed.database.url
        yield NamedCheck(needed.database.fact, None, partial(_database, connections, needed), needs=(url,), tells=url)
    for group in commit_evidence(settings).announced_only:
        yield _weaker(database_fact("outbox", group), "outbox_url")
    for subscription in effect_evidence(settings).unknown:
        yield _weaker(database_fact("inbox", str(subscription)), "inbox_url")


def _weaker(check: Fact, setting: str) -> NamedCheck:
    found, remedy = WEAKER(setting=setting), CONFIGURE(setting=setting)
    return NamedCheck(check, None, lambda: [Diagnosis(check=check, level="note", found=found, remedy=remedy)])


def _database(connections: Connections, needed: NeededRights) -> Iterator[Diagnosis]:
    database = needed.database
    try:
        yield from _tables(connections, needed)
    except DatabaseAway as error:
        away, known = failed(database.fact, error, START_DATABASE(setting=database.setting)), known_remedy(error)
        yield replace(away, remedy=as_told(known.replace("its URL", database.setting))) if known else away


def _tables(connections: Connections, needed: NeededRights) -> Iterator[Diagnosis]:
    database = needed.database
    revision = check_revision(connections, database)
    shapes = database.shapes(connections) if revision.level != "fail" else None
    if shapes is not None and shapes.missing:
        revision = _missing(database, revision, shapes)
    yield revision
    if shapes is None or revision.level == "fail":
        return
    yield from _altered(database, shapes, revision)
    yield from _time_out(connections, database)
    yield check_rights(connections, needed)
    yield from _collations(connections, database)


def _missing(database: ConfiguredDatabase, revision: Diagnosis, shapes: TableShapes) -> Diagnosis:
    if revision.found.code is REVISION:  # an upgrade made them all
        gone = TABLES_GONE(tables=tuple(shapes.missing))
        return Diagnosis(check=database.fact, level="fail", found=gone, remedy=PUT_BACK())
    remedy = CORRECT_OR_UPGRADE(setting=database.setting, tree=database.tree)
    return Diagnosis(check=database.fact, level="fail", found=NO_TABLES(), remedy=remedy)


def _altered(database: ConfiguredDatabase, shapes: TableShapes, revision: Diagnosis) -> Iterator[Diagnosis]:
    """Yields one finding for each kind of difference. Tables of another revision have a finding already."""
    if revision.found.code not in (REVISION, OWN_REVISION):
        return
    check = TABLES_IN(database=database.fact)
    if shapes.not_unique:
        found = NOT_UNIQUE(keys=tuple(shapes.not_unique))
        yield Diagnosis(check=check, level="fail", found=found, remedy=MAKE_UNIQUE())
    if shapes.without_transactions:
        found = NO_TRANSACTIONS(tables=tuple(shapes.without_transactions))
        yield Diagnosis(check=check, level="fail", found=found, remedy=GIVE_ENGINE())
    if shapes.unlogged:
        yield Diagnosis(
            check=check, level="fail", found=UNLOGGED_TABLES(tables=tuple(shapes.unlogged)), remedy=LET_LOG()
        )
    if shapes.columns:
        found = COLUMNS_ALTERED(columns=tuple(shapes.columns))
        yield Diagnosis(check=check, level="fail", found=found, remedy=GIVE_TYPES())
    if shapes.indexes:
        found = NO_INDEX(indexes=tuple(shapes.indexes))
        yield Diagnosis(check=check, level="note", found=found, remedy=MAKE_INDEXES())


def _collations(connections: Connections, database: ConfiguredDatabase) -> Iterator[Diagnosis]:
    """Yields a failure if the database does not compare names and keys byte for byte."""
    folded = database.folded_names(connections)
    if folded:
        check, found = COLLATIONS_IN(database=database.fact), NAMES_FOLDED(columns=", ".join(folded))
        yield Diagnosis(check=check, level="fail", found=found, remedy=GIVE_COLLATIONS())


def _time_out(connections: Connections, database: ConfiguredDatabase) -> Iterator[Diagnosis]:
    """Yields a note if the server does not end long statements by itself."""
    name = connections.missing_time_out(database.url)
    if name is not None:
        found, remedy = NO_TIME_OUT(name=name), LET_SET(name=name)
        yield Diagnosis(check=database.fact, level="note", found=found, remedy=remedy)


def check_revision(connections: Connections, database: ConfiguredDatabase) -> Diagnosis:
    """Returns whether this release can work with the tables. Raises DatabaseAway."""
    check, tree = database.fact, database.tree
    try:
        found, newest = database.revision(connections), database.newest_revision()
    except DatabaseAway as error:
        if not lacks_right(error):
            raise
        return Diagnosis(
            check=check, level="note", found=REVISION_UNREADABLE(), remedy=grants({VERSION_TABLES[tree]: "SELECT"})
        )
    if found is None:
        return Diagnosis(check=check, level="ok", found=OWN_REVISION())
    if found > newest:  # revisions are numbers, so they can be compared
        newer = NEWER_REVISION(found=found, newest=newest)
        return Diagnosis(check=check, level="note", found=newer, remedy=INSTALL_NEWER())
    if found < (oldest := database.oldest_revision()):
        too_old = REVISION_TOO_OLD(found=found, oldest=oldest)
        return Diagnosis(check=check, level="fail", found=too_old, remedy=UPGRADE_TO_EARLIER_RELEASE())
    if found != newest:
        older = OLDER_REVISION(found=found, newest=newest)
        return Diagnosis(check=check, level="note", found=older, remedy=_upgrade_database(database))
    return Diagnosis(check=check, level="ok", found=REVISION(revision=found))


def _upgrade_database(database: ConfiguredDatabase) -> Fact:
    return UPGRADE_DATABASE(tree=database.tree)
