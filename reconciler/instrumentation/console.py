"""Text for people on standard error: never data."""

from __future__ import annotations

from rich.console import Console


def people() -> Console:
    """A console that shows progress on a terminal and plain lines elsewhere; honours NO_COLOR."""
    return Console(stderr=True, highlight=False)
