"""The composition root: the only part that names concrete adapters and plug-ins. Commands call these functions.

Each function's module is loaded when it is asked for: `--help` must not wait for drivers and brokers' clients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.bootstrap.announcing import run_announcements, run_replay
    from reconciler.bootstrap.checks import examine
    from reconciler.bootstrap.embedded_broker import serve_broker
    from reconciler.bootstrap.operating import dismiss, lift_hold, place_hold, rebuild, repair_now
    from reconciler.bootstrap.reporting import explain, list_rows, read_status
    from reconciler.bootstrap.service import run_service
    from reconciler.bootstrap.setup import create_topics, database_ddl, start_logging, upgrade_database
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

_MODULES = {
    "announcing": ("run_announcements", "run_replay"),
    "checks": ("examine",),
    "embedded_broker": ("serve_broker",),
    "operating": ("dismiss", "lift_hold", "place_hold", "rebuild", "repair_now"),
    "reporting": ("explain", "list_rows", "read_status"),
    "service": ("run_service",),
    "setup": ("create_topics", "database_ddl", "start_logging", "upgrade_database"),
    "single_round": ("run_once",),
    "sweeping": ("run_sweeper",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # the checker sees the imports above, and no attribute besides them

    def __getattr__(name: str) -> object:
        """Loads the function's module (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
