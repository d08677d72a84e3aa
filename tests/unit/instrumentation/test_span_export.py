"""A collector that is away, hangs or lies costs spans, which are counted: no round waits, and no secret is told."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from reconciler.clock import ManualClock
from reconciler.errors import ConfigurationError, MissingDependency
from reconciler.instrumentation.tracing import export as export_module
from reconciler.instrumentation.tracing.export import SpanExport, open_export, read_endpoint
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.tracing import tracing
from tests.services.ports import free_port
from tests.unit.metrics.measured_world import EXAMPLE

SECRET = "s3cret"


def settings(*, enabled: bool) -> Settings:
    return load_settings(EXAMPLE, {}, {"tracing": {"enabled": enabled}})


class Collector(SpanExporter):
    """Answers as it is told to; hangs until it is let go."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS, *, hangs: bool = False) -> None:
        self.result = result
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.got = 0
        if not hangs:
            self.go_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.go_on.wait(60)
        self.got += len(spans)
        return self.result


def export_to(exporter: SpanExporter) -> SpanExport:
    return SpanExport(exporter, environment="test", release="1", clock=ManualClock())


def spans(export: SpanExport, number: int) -> None:
    for _ in range(number):
        export.tracer.start_span("round ORDERS").end()


def test_all_spans_are_sent_at_the_end_and_nothing_is_called_lost(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    export = export_to(collector)
    spans(export, 3)
    export.close()
    assert (export.counts.made, export.counts.sent, collector.got) == (3, 3, 3)
    assert "spans_lost" not in caplog.text


def test_a_collector_that_hangs_stops_no_round_and_not_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    monkeypatch.setattr(export_module, "LAST_SPANS_SECONDS", 0.01)
    collector = Collector(hangs=True)
    export = export_to(collector)
    spans(export, 5)
    assert collector.asked.wait(30)
    spans(export, 100)  # returns: the queue drops its oldest
    with caplog.at_level(logging.WARNING):
        export.close()
    assert (export.counts.made, export.counts.sent) == (105, 0)
    assert "spans_lost: 105 of 105 spans were not sent" in caplog.text
    collector.go_on.set()


def test_batches_that_are_refused_are_counted_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    exporter = export_module.CountedExporter(
        Collector(SpanExportResult.FAILURE), clock=clock, reason=export_module._Reason()
    )
    batch: list[ReadableSpan] = [ReadableSpan(f"span {number}") for number in range(4)]
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            exporter.export(batch)
            clock.advance(10)
    assert (exporter.sent, exporter.refused) == (0, 40)
    assert [record.getMessage().split(" so far")[0] for record in caplog.records] == [
        "spans_lost: the collector did not take 4 spans",
        "spans_lost: the collector did not take 28 spans",
    ]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401, "go away \x1b]0;owned\x07")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def refusing_collector() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_why_a_collector_refuses_is_told_and_neither_header_nor_hostile_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with refusing_collector() as endpoint, caplog.at_level(logging.DEBUG):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}")
        export = open_export("test", release="1", clock=ManualClock())
        spans(export, 1)
        export.close()
    assert "code: 401, reason: go away" in caplog.text
    assert endpoint in caplog.text
    told = "".join(record.getMessage() for record in caplog.records if record.name.startswith("reconciler"))
    assert "\x1b" not in told
    assert SECRET not in caplog.text


def test_a_header_that_cannot_be_sent_is_not_told_with_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{free_port()}", headers={"x": f" {SECRET}\n"}, timeout=1)
    export = export_to(exporter)
    spans(export, 1)
    with caplog.at_level(logging.DEBUG):
        export.close()
    assert "spans_lost: 1 of 1" in caplog.text
    assert SECRET not in caplog.text


def test_a_collector_that_is_away_is_told_by_its_error_and_leaves_no_filter_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")  # one attempt is tried again
    before = list(logging.getLogger(export_module._EXPORTER_LOGGER).filters)
    export = open_export("test", release="1", clock=ManualClock())
    spans(export, 1)
    with caplog.at_level(logging.DEBUG):
        export.close()
    assert "spans_lost: 1 of 1 spans were not sent: Transient error " in caplog.text
    assert logging.getLogger(export_module._EXPORTER_LOGGER).filters == before


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL = 'grpc'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: expected http://host:port"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1"}, "expected http://host:port"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://ops:{SECRET}@collector:4318"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://collector:4318?key={SECRET}"}, "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_variables_that_can_never_work_are_refused_at_the_start(variables: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_endpoint(variables)
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)


def test_variables_for_traces_alone_beat_those_for_everything() -> None:
    everything = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
    own = {
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector/v1/traces",
    }
    assert read_endpoint(everything | own) == "https://collector/v1/traces"
    assert read_endpoint({}) == "http://localhost:4318"


def test_a_variable_that_the_sdk_refuses_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with pytest.raises(ConfigurationError, match="OTEL_"):
        open_export("test", release="1", clock=ManualClock())


def test_a_resource_says_which_deployment_it_is_and_the_operator_s_words_beat_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=payments,deployment.environment.name=theirs")
    collector = Collector()
    seen: list[ReadableSpan] = []
    collector.export = lambda spans: seen.extend(spans) or SpanExportResult.SUCCESS  # type: ignore[method-assign, func-returns-value]  # one test looks at spans
    export = export_to(collector)
    spans(export, 1)
    export.close()
    said = seen[0].resource.attributes
    assert (said["service.name"], said["service.version"]) == ("reconciler", "1")
    assert (said["service.namespace"], said["deployment.environment.name"]) == ("payments", "theirs")


def test_without_the_setting_nobody_loads_what_makes_spans() -> None:
    modules = "checkback_producers, checkback_consumers, reconciler.commands.run, reconciler.commands.once"
    code = f"import sys, {modules}; sys.exit('reconciler.instrumentation.tracing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with tracing(settings(enabled=False), clock=ManualClock()) as nothing:
        assert nothing is None


@pytest.mark.parametrize("missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"])
def test_a_missing_extra_is_a_configuration_error_that_names_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with (
        pytest.raises(MissingDependency, match="install the extra otel"),
        tracing(settings(enabled=True), clock=ManualClock()),
    ):
        pass
