"""The composition root: the only part that names concrete adapters and plug-ins. Commands call these functions."""

from reconciler.bootstrap.announcing import run_announcements, run_replay
from reconciler.bootstrap.checks import examine
from reconciler.bootstrap.operating import lift_hold, place_hold, rebuild, repair_now
from reconciler.bootstrap.reporting import explain, list_rows, read_status
from reconciler.bootstrap.service import run_service
from reconciler.bootstrap.setup import create_topics, database_ddl, serve_broker, start_logging, upgrade_database
from reconciler.bootstrap.single_round import run_once
from reconciler.bootstrap.sweeping import run_sweeper

__all__ = [
    "create_topics",
    "database_ddl",
    "examine",
    "explain",
    "lift_hold",
    "list_rows",
    "place_hold",
    "read_status",
    "rebuild",
    "repair_now",
    "run_announcements",
    "run_once",
    "run_replay",
    "run_service",
    "run_sweeper",
    "serve_broker",
    "start_logging",
    "upgrade_database",
]
