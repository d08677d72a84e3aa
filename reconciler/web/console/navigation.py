"""The pages that every page leads to, in their order: from what is wrong now to what was done about it."""

from __future__ import annotations

from collections.abc import Sequence

#: Path below the prefix -> the last word of its name's key in the catalogues.
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
