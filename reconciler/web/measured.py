"""The metrics that the web server shows. They are the metrics of its process, or else the figures of status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from reconciler.commands.metrics import dependency_samples, report_samples
from reconciler.errors import MissingDependency
from reconciler.web.services import WebServices
from reconciler.wiring.metrics import Metering, build_samples, new_metering


@contextmanager
def measured(services: WebServices, metering: Metering | None) -> Iterator[WebServices]:
    """Yields the services with their metrics, within the block. `metering`: the metrics of the process, if it has
    any."""
    if metering is not None:
        yield replace(services, metrics=metering.book.page)
        return
    try:
        own = new_metering(services.settings, "run", clock=services.clock)
    except MissingDependency:
        yield services
        return
    with own.book.reading(
        build_samples,
        lambda: dependency_samples(services.dependencies.get()),
        lambda: report_samples(services.status, services.settings),
    ):
        yield replace(services, metrics=own.book.page)
