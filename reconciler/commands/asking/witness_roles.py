"""Findings about outboxes and inboxes as witnesses: the role of each, and whether two are one database."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import ReconcilerError
from reconciler.evidence.witness_role import WitnessRole, read_role
from reconciler.sql.identity import read_identity
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases

SHARED_IDENTITY = Code("wiring.shared-identity", one=Field.NAME, other=Field.NAME)


def witness_roles(connections: Connections) -> Iterator[WitnessRole]:
    """Yields the role of each outbox and inbox. A database that is away, or has no tables, is left out."""
    for database in configured_databases(connections.settings):
        if database.tree == "ledger":
            continue
        try:
            engine = connections.engine(database.url, read_only=True)
            yield read_role(engine, database=database.fact, tree=database.tree)
        except ReconcilerError:
            continue


def shared_identity(connections: Connections) -> Fact | None:
    """Returns a fact about two outbox_urls whose databases have one identity. None: there are no such databases.

    A copy of a database has the identity of its original, so nobody can tell copy and original apart. A database is not
    compared if it does not answer, or if the login may not read its identity.
    """
    first: dict[str, str] = {}
    for database in configured_databases(connections.settings):
        if database.tree != "outbox":
            continue
        try:
            identity = read_identity(connections.engine(database.url, read_only=True))
        except ReconcilerError:
            continue
        same = first.setdefault(identity, database.setting)
        if same != database.setting:
            return SHARED_IDENTITY(one=same, other=database.setting)
    return None
