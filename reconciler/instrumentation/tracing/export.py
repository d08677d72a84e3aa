"""Sends spans over HTTP to the OTLP collector that the standard OTEL_* variables name.

A bounded queue holds the spans, and a thread of its own sends them. If the collector is away or hangs, spans are lost
and counted, but nothing waits.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from reconciler.clock import Clock
from reconciler.contract.visible_text import visible_line
from reconciler.errors import ConfigurationError
from reconciler.instrumentation.tracing import names

logger = logging.getLogger(__name__)

#: Longest time that the process waits at its end for the last spans.
LAST_SPANS_SECONDS = 3.0
#: Shortest interval between two logs of lost spans.
LOSS_LOG_SECONDS = 60.0
PROTOCOL = "http/protobuf"
#: Logger whose records say why a batch was not taken.
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
REASON_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCounts:
    """Numbers of spans of a process. A span that was made but not sent is lost or waits in the queue."""

    made: int
    sent: int


class _Reason(logging.Filter):
    """Keeps the last reason why a batch was refused, and drops the log record, because each attempt logs a record.

    An error's text is left out, because it may hold a header.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = "no answer"

    def filter(self, record: logging.LogRecord) -> bool:
        values = tuple(map(_harmless, record.args)) if isinstance(record.args, tuple) else ()
        if len(values) > 1:  # other records say only that the batch was given up
            self.last = record.msg % values
        return False


def _harmless(value: object) -> object:
    if isinstance(value, BaseException):
        return type(value).__name__
    return visible_line(value[:REASON_CHARACTERS_MAX]) if isinstance(value, str) else value


class CountedExporter(SpanExporter):
    """Exporter that counts its answers. Only the thread of its queue uses it."""

    def __init__(self, exporter: SpanExporter, *, clock: Clock, reason: _Reason) -> None:
        self._exporter = exporter
        self._clock = clock
        self._reason = reason
        self._logged_seconds: float | None = None
        self.sent = 0
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends the spans within the exporter's time-out."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.sent += len(spans)
            else:
                self.refused += len(spans)
                self._log()
        return result

    def shutdown(self) -> None:
        """Ends a send that waits."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flushes the exporter. No span waits in this class."""
        return self._exporter.force_flush(timeout_millis)

    def _log(self) -> None:
        now = self._clock.monotonic_seconds()
        if self._logged_seconds is None or now - self._logged_seconds >= LOSS_LOG_SECONDS:
            self._logged_seconds = now
            logger.warning(
                "spans_lost: the collector did not take %d spans so far: %s", self.refused, self._reason.last
            )


class CountedBatches(BatchSpanProcessor):
    """Queue that counts its spans. The variables OTEL_BSP_* set its bounds. Threads share it."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self._lock = threading.Lock()
        self.made = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Puts a span into the queue. A full queue drops its oldest span."""
        if span.context is not None and span.context.trace_flags.sampled:
            with self._lock:
                self.made += 1
        super().on_end(span)


class SpanExport:
    """Tracer, and the thread that sends its spans."""

    def __init__(self, exporter: SpanExporter, *, environment: str, release: str, clock: Clock) -> None:
        self._reason = _Reason()
        self._exporter = CountedExporter(exporter, clock=clock, reason=self._reason)
        self._batches = CountedBatches(self._exporter)
        self._provider = TracerProvider(resource=_resource(environment, release), shutdown_on_exit=False)
        self._provider.add_span_processor(self._batches)
        self.tracer = self._provider.get_tracer("reconciler", release)
        logging.getLogger(_EXPORTER_LOGGER).addFilter(self._reason)

    @property
    def counts(self) -> SpanCounts:
        """Counts so far."""
        return SpanCounts(made=self._batches.made, sent=self._exporter.sent)

    def close(self) -> None:
        """Sends waiting spans for a bounded time. Spans that remain are lost, and the log says so."""
        ending = threading.Thread(target=self._provider.shutdown, name="reconciler-last-spans", daemon=True)
        ending.start()
        ending.join(LAST_SPANS_SECONDS)
        counts = self.counts
        if counts.made > counts.sent:
            lost, reason = counts.made - counts.sent, self._reason.last
            logger.warning("spans_lost: %d of %d spans were not sent: %s", lost, counts.made, reason)
        logging.getLogger(_EXPORTER_LOGGER).removeFilter(self._reason)


def open_export(environment: str, *, release: str, clock: Clock) -> SpanExport:
    """Makes the exporter that the variables describe, without connecting. Raises ConfigurationError for unusable
    variables."""
    endpoint = read_endpoint(os.environ)
    try:
        export = SpanExport(OTLPSpanExporter(), environment=environment, release=release, clock=clock)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"tracing: a variable OTEL_* cannot be used: {error}") from error
    logger.info("tracing_started: spans go to %s", endpoint)
    return export


def read_endpoint(variables: Mapping[str, str]) -> str:
    """Reads the collector's URL, to show it to people. Raises ConfigurationError for a URL that can never work.

    A password in the URL is refused, because errors of many libraries repeat URLs.
    """
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = variables.get(name)
        if protocol == PROTOCOL:
            break
        if protocol:
            raise ConfigurationError(
                f"{name} = {protocol!r}: spans go by {PROTOCOL}; set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL={PROTOCOL} and "
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT for this process"
            )
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if endpoint := variables.get(name):
            break
    else:
        return "http://localhost:4318"
    try:
        url = urlsplit(endpoint)
        is_usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigurationError(f"{name}: expected http://host:port or https://host:port")
    if url.username is not None or url.password is not None or url.query:
        raise ConfigurationError(
            f"{name}: put what proves who you are into OTEL_EXPORTER_OTLP_HEADERS, and not into the URL"
        )
    return visible_line(endpoint)


def _resource(environment: str, release: str) -> Resource:
    """Describes the process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace parts of it."""
    ours = {
        names.SERVICE_NAME: "reconciler",
        names.SERVICE_VERSION: release,
        names.SERVICE_INSTANCE: f"{socket.gethostname()[:64]}:{os.getpid()}",
        names.DEPLOYMENT: environment,
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
