"""The table of the inbox for a service's own migrations, and an engine as the plug-in's own.

`open_engine` is for SQLite above all: WAL, and BEGIN IMMEDIATE for writers.
"""

from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox

__all__ = ["inbox", "open_engine"]
