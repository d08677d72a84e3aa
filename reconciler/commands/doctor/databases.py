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
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import ConfiguredDatabase, commit_evidence, database_fact, effect_evidence

WEAKER = Code("doctor.weaker", setting=Field.NAME)
CONFIGURE = Code("doctor.configure", setting=Field.NAME)
START_DATABASE = Code("doctor.start-database", setting=Field.NAME)
NO_TABLES = Code("doctor.no-tables")
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
    if revision.level != "fail" and not database.has_tables(connections):
        remedy = CORRECT_OR_UPGRADE(setting=database.setting, tree=database.tree)
        revision = Diagnosis(check=database.fact, level="fail", found=NO_TABLES(), remedy=remedy)
    yield revision
    if revision.level == "fail":
        return
    yield from _time_out(connections, database)
    yield check_rights(connections, needed)
    yield from _collations(connections, database)


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
