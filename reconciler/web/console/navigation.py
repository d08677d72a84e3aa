"""The links on every page, in order. The first links lead to what is wrong now, and the last ones to what people did
about it."""

from __future__ import annotations

from collections.abc import Sequence

#: Path below the prefix -> last word of the catalogue key of the link's text.
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
