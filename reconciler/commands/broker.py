"""Wiring of the command broker: the embedded name server and broker, which need no settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reconciler.embedded.serving import serve


def serve_broker(*, listen: str, family: str, data: Path | None, knobs: Iterable[str]) -> int:
    """Serves the embedded broker until SIGTERM; returns 0."""
    return serve(listen, family=family, data=data, knobs=list(knobs))
