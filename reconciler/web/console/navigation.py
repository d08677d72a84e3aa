"""The links on every page, in order: from what is wrong now to what people did about it."""

from __future__ import annotations

from collections.abc import Sequence

#: Path below the prefix -> last word of its name's key in the catalogues.
NAVIGATION: Sequence[tuple[str, str]] = (
    ("/", "overview"),
    ("/losses", "losses"),
    ("/repairs", "repairs"),
    ("/rounds", "rounds"),
    ("/brakes", "brakes"),
    ("/outages", "outages"),
    ("/quarantine", "quarantine"),
    ("/actions", "actions"),
    ("/jobs", "jobs"),
    ("/audits", "audits"),
    ("/health", "health"),
    ("/docs", "docs"),
)
