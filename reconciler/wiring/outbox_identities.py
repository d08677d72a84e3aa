"""Two configured outboxes must be two databases: a copy has its original's identity, and could not be told from it."""

from __future__ import annotations

from reconciler.errors import ConfigurationError, ReconcilerError
from reconciler.sql.identity import read_identity
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import outbox_databases


def shared_identity(connections: Connections) -> str | None:
    """What is wrong where two outbox_urls lead to databases of one identity; None: nothing that could be seen.

    A database that does not answer, or whose identity the login may not read, is not compared.
    """
    settings: dict[str, str] = {}
    for database in outbox_databases(connections.settings):
        settings.setdefault(database.url, database.setting)
    first: dict[str, str] = {}
    for url, setting in settings.items():
        try:
            identity = read_identity(connections.engine(url, read_only=True))
        except ReconcilerError:
            continue
        same = first.setdefault(identity, setting)
        if same != setting:
            return (
                f"{same} and {setting} lead to databases with one identity: "
                "they are one database under two names (write the same URL in both), or one is a copy of the other "
                "(delete the row of its reconciler_outbox_identity and run `reconciler db upgrade outbox`)"
            )
    return None


def require_own_identities(connections: Connections) -> None:
    """Raises ConfigurationError for two outboxes with one identity."""
    problem = shared_identity(connections)
    if problem is not None:
        raise ConfigurationError(problem)
