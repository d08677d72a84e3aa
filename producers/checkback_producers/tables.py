"""The outbox's tables for a service's own migrations, and an engine like the plug-in's own.

After `create_all`, call `ensure_identity(engine)` once, which gives the database its identity. `open_engine` is mainly
for SQLite. `open_engine` sets WAL, and BEGIN IMMEDIATE for writers.
"""

from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox, outbox_filter, outbox_identity

__all__ = ["ensure_identity", "open_engine", "outbox", "outbox_filter", "outbox_identity"]
