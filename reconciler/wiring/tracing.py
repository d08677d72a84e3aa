"""Wiring of the spans. Spans and opentelemetry are loaded only if tracing.enabled is set."""

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
    """Turns the policy's events into spans within the block. Yields None if tracing.enabled is not set.

    Log records within the block have the trace of their round. `metering`: counts the spans. Raises MissingDependency.
    Raises ConfigurationError for invalid OTEL_* variables.
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
    """Returns a function that runs a round. If tracing is on, the round runs within spans."""
    return run if spans is None else spans.traced(run)


def require_opentelemetry() -> None:
    """Raises MissingDependency if opentelemetry is not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401 - only spans need them
    except ImportError as error:
        raise MissingDependency(
            "tracing.enabled is set, and the OpenTelemetry SDK with its OTLP exporter, which sends spans, is not "
            f"installed: {install('otel')}, or remove tracing.enabled"
        ) from error
