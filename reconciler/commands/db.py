"""Tables of outbox, inbox and ledger (`reconciler db upgrade`, `reconciler db sql`), and the packages they need."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.secret import Secret
from reconciler.errors import ConfigurationError
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.wiring.databases import configured_databases, named_database


def upgrade_database(url: Secret, tree: str) -> str:
    """Creates or upgrades the tables of a tree (outbox, inbox, ledger), and returns their revision."""
    return named_database(url, tree).upgrade()


def database_ddl(tree: str, dialect: str, *, in_transaction: bool) -> str:
    """Returns the DDL of a tree as text."""
    return schema.ddl(tree, dialect, in_transaction=in_transaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedDatabase:
    """A database whose tables are up to date."""

    name: str
    revision: str


def upgrade_configured(settings: Settings, tree: str) -> list[UpgradedDatabase]:
    """Upgrades each database that the settings name for a tree once. The first error ends the upgrade."""
    named = [database for database in configured_databases(settings) if database.tree == tree]
    if not named:
        raise ConfigurationError(f"the settings name no {tree}_url: name the database with --url or RECONCILER_DB_URL")
    return [UpgradedDatabase(name=database.name, revision=database.upgrade()) for database in named]


def missing_drivers(settings: Settings) -> list[str]:
    """Returns one line for each setting whose database needs a missing package. The line says what to install."""
    first = {database.url: database for database in reversed(configured_databases(settings))}
    return [
        f"{database.setting}: {missing}"
        for database in reversed(first.values())
        if (missing := database.missing_driver()) is not None
    ]
