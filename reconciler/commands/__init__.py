"""The composition root: the only part that names concrete adapters and plug-ins. Commands call these functions.

Each function's module is loaded when it is asked for: `--help` must not wait for drivers and brokers' clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from reconciler.commands.announcements import run_announcements
    from reconciler.commands.broker import serve_broker
    from reconciler.commands.doctor.checks import examine
    from reconciler.commands.listing import list_rows
    from reconciler.commands.once import run_once
    from reconciler.commands.operate import dismiss, lift_hold, place_hold, rebuild, repair_now
    from reconciler.commands.replay import run_replay
    from reconciler.commands.run import run_service
    from reconciler.commands.setup import (
        create_topics,
        database_ddl,
        missing_drivers,
        start_logging,
        upgrade_configured,
        upgrade_database,
    )
    from reconciler.commands.status.report import read_status
    from reconciler.commands.story import explain
    from reconciler.commands.sweep import run_sweeper

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
            "reconciler.commands.announcements": "run_announcements",
            "reconciler.commands.replay": "run_replay",
            "reconciler.commands.doctor.checks": "examine",
            "reconciler.commands.broker": "serve_broker",
            "reconciler.commands.story": "explain",
            "reconciler.commands.listing": "list_rows",
            "reconciler.commands.operate": "dismiss lift_hold place_hold rebuild repair_now",
            "reconciler.commands.status.report": "read_status",
            "reconciler.commands.run": "run_service",
            "reconciler.commands.setup": (
                "create_topics database_ddl missing_drivers start_logging upgrade_configured upgrade_database"
            ),
            "reconciler.commands.once": "run_once",
            "reconciler.commands.sweep": "run_sweeper",
        },
    )
