"""Where spans go: over HTTP to an OTLP collector that the standard OTEL_* variables name.

A bounded queue and a thread of its own: a collector that is away or hangs costs spans, which are counted, and no time.
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

#: How long the end of the process waits for the last spans.
LAST_SPANS_SECONDS = 3.0
#: Lost spans are logged at most this often.
LOSS_LOG_SECONDS = 60.0
PROTOCOL = "http/protobuf"
#: Whose records tell why a batch was not taken.
_EXPORTER_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
REASON_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCounts:
    """What became of the spans of a process; those that were made and never sent are lost, or wait in the queue."""

    made: int
    sent: int


class _Reason(logging.Filter):
    """Keeps the last reason for which a batch was not taken, and drops the record: it comes with every attempt.

    An error's text is left out: it may hold a header.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = "no answer"

    def filter(self, record: logging.LogRecord) -> bool:
        values = tuple(map(_harmless, record.args)) if isinstance(record.args, tuple) else ()
        if len(values) > 1:  # others say only that it was given up
            self.last = record.msg % values
        return False


def _harmless(value: object) -> object:
    if isinstance(value, BaseException):
        return type(value).__name__
    return visible_line(value[:REASON_CHARACTERS_MAX]) if isinstance(value, str) else value


class CountedExporter(SpanExporter):
    """An exporter whose answers are counted. Confined to the thread of its queue."""

    def __init__(self, exporter: SpanExporter, *, clock: Clock, reason: _Reason) -> None:
        self._exporter = exporter
        self._clock = clock
        self._reason = reason
        self._logged_seconds: float | None = None
        self.sent = 0
        self.refused = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends them, for the exporter's time-out at most."""
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
        """Lets a send that waits go."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return self._exporter.force_flush(timeout_millis)

    def _log(self) -> None:
        now = self._clock.monotonic_seconds()
        if self._logged_seconds is None or now - self._logged_seconds >= LOSS_LOG_SECONDS:
            self._logged_seconds = now
            logger.warning(
                "spans_lost: the collector did not take %d spans so far: %s", self.refused, self._reason.last
            )


class CountedBatches(BatchSpanProcessor):
    """A queue as OTEL_BSP_* bound it, and the number of spans that came to it. Shared by threads."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self._lock = threading.Lock()
        self.made = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Puts a span into the queue, which drops its oldest one where it is full."""
        if span.context is not None and span.context.trace_flags.sampled:
            with self._lock:
                self.made += 1
        super().on_end(span)


class SpanExport:
    """The tracer, and the thread that sends what it makes."""

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
        """So far."""
        return SpanCounts(made=self._batches.made, sent=self._exporter.sent)

    def close(self) -> None:
        """Sends what waits, for a bounded time; what is not sent then is lost, and said to be."""
        ending = threading.Thread(target=self._provider.shutdown, name="reconciler-last-spans", daemon=True)
        ending.start()
        ending.join(LAST_SPANS_SECONDS)
        counts = self.counts
        if counts.made > counts.sent:
            lost, reason = counts.made - counts.sent, self._reason.last
            logger.warning("spans_lost: %d of %d spans were not sent: %s", lost, counts.made, reason)
        logging.getLogger(_EXPORTER_LOGGER).removeFilter(self._reason)


def open_export(environment: str, *, release: str, clock: Clock) -> SpanExport:
    """The exporter that the variables describe; nothing is connected to. Raises ConfigurationError."""
    endpoint = read_endpoint(os.environ)
    try:
        export = SpanExport(OTLPSpanExporter(), environment=environment, release=release, clock=clock)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"tracing: a variable OTEL_* cannot be used: {error}") from error
    logger.info("tracing_started: spans go to %s", endpoint)
    return export


def read_endpoint(variables: Mapping[str, str]) -> str:
    """The collector's URL, for people. Raises ConfigurationError for one that can never work.

    A password in it is refused: errors of many libraries repeat URLs.
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
    """What the process is; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES beat it."""
    ours = {
        names.SERVICE_NAME: "reconciler",
        names.SERVICE_VERSION: release,
        names.SERVICE_INSTANCE: f"{socket.gethostname()[:64]}:{os.getpid()}",
        names.DEPLOYMENT: environment,
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
