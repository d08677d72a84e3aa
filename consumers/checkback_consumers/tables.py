"""The inbox's table for a service's own migrations, and an engine like the plug-in's own.

`open_engine` is mainly for SQLite: it sets WAL, and BEGIN IMMEDIATE for writers.
"""

from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox

__all__ = ["inbox", "open_engine"]
