"""The composition root: the only part that names concrete adapters and plug-ins. Commands call these functions.

Each function's module is loaded when it is asked for: `--help` must not wait for drivers and brokers' clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from reconciler.bootstrap.announcing import run_announcements, run_replay
    from reconciler.bootstrap.checks import examine
    from reconciler.bootstrap.embedded_broker import serve_broker
    from reconciler.bootstrap.explaining import explain
    from reconciler.bootstrap.listing import list_rows
    from reconciler.bootstrap.operating import dismiss, lift_hold, place_hold, rebuild, repair_now
    from reconciler.bootstrap.reporting import read_status
    from reconciler.bootstrap.service import run_service
    from reconciler.bootstrap.setup import (
        create_topics,
        database_ddl,
        missing_drivers,
        start_logging,
        upgrade_configured,
        upgrade_database,
    )
    from reconciler.bootstrap.single_round import run_once
    from reconciler.bootstrap.sweeping import run_sweeper

__all__ = [
    "create_topics",
    "database_ddl",
    "dismiss",
    "examine",
    "explain",
    "lift_hold",
    "list_rows",
    "missing_drivers",
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
    "upgrade_configured",
    "upgrade_database",
]

if not TYPE_CHECKING:  # the checker sees the imports above, and no attribute besides them
    __getattr__ = loading(
        __name__,
        {
            "reconciler.bootstrap.announcing": "run_announcements run_replay",
            "reconciler.bootstrap.checks": "examine",
            "reconciler.bootstrap.embedded_broker": "serve_broker",
            "reconciler.bootstrap.explaining": "explain",
            "reconciler.bootstrap.listing": "list_rows",
            "reconciler.bootstrap.operating": "dismiss lift_hold place_hold rebuild repair_now",
            "reconciler.bootstrap.reporting": "read_status",
            "reconciler.bootstrap.service": "run_service",
            "reconciler.bootstrap.setup": (
                "create_topics database_ddl missing_drivers start_logging upgrade_configured upgrade_database"
            ),
            "reconciler.bootstrap.single_round": "run_once",
            "reconciler.bootstrap.sweeping": "run_sweeper",
        },
    )
