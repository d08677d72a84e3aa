"""Wiring of the spans: nothing of them, and no opentelemetry, is loaded unless tracing.enabled is set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from reconciler.clock import Clock
from reconciler.contract.extras import install
from reconciler.contract.release import release
from reconciler.contract.subscription import Subscription
from reconciler.errors import MissingDependency
from reconciler.policy.round import RoundReport
from reconciler.settings.schema import Settings
from reconciler.wiring.metrics import Metering
from reconciler.words import said

if TYPE_CHECKING:
    from reconciler.instrumentation.tracing.spans import EventSpans


@contextmanager
def tracing(settings: Settings, *, clock: Clock, metering: Metering | None = None) -> Iterator[EventSpans | None]:
    """Where the policy's events become spans, within the block; None: tracing.enabled is not set.

    Log records of the block name the trace of the round that they come from. `metering` counts the spans.

    Raises MissingDependency, ConfigurationError for variables OTEL_* that cannot work.
    """
    if not settings.tracing.enabled:
        yield None
        return
    require_opentelemetry()
    from reconciler.instrumentation.tracing.export import open_export
    from reconciler.instrumentation.tracing.spans import EventSpans, TraceOfRecords

    export = open_export(settings.environment, release=release(), clock=clock)
    handlers, naming = tuple(logging.getLogger().handlers), TraceOfRecords()
    for handler in handlers:
        handler.addFilter(naming)
    counted = nullcontext() if metering is None else metering.reading_spans(lambda: asdict(export.counts))
    try:
        with counted:
            yield EventSpans(export.tracer, clock=clock, english=said)
    finally:
        for handler in handlers:
            handler.removeFilter(naming)
        export.close()


def traced_by(
    spans: EventSpans | None, run: Callable[[Subscription], RoundReport]
) -> Callable[[Subscription], RoundReport]:
    """The function that runs a round, in spans if there are any."""
    return run if spans is None else spans.traced(run)


def require_opentelemetry() -> None:
    """Raises MissingDependency."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401 - only spans need them
    except ImportError as error:
        raise MissingDependency(
            "tracing.enabled is set, and the OpenTelemetry SDK with its OTLP exporter, which sends spans, is not "
            f"installed: {install('otel')}, or remove tracing.enabled"
        ) from error
