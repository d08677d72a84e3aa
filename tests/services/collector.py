"""A collector of spans: takes OTLP over HTTP, decodes it, and can be told to hang."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span as it came over the wire; ids in hexadecimal, empty where there is none."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    took_seconds: float
    #: Trace and span of each link.
    links: tuple[tuple[str, str], ...]
    #: As text.
    attributes: Mapping[str, str]
    #: Of the process.
    resource: Mapping[str, str]


class SpanCollector:
    """Private to one test; on a free port of the loopback. Every request is answered, or none."""

    def __init__(self) -> None:
        self._spans: list[ReceivedSpan] = []
        self._answers = threading.Event()
        self._answers.set()
        #: A request waits for an answer that does not come.
        self.holds_a_request = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="collector")

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def hang(self) -> None:
        """From now on nothing is answered."""
        self._answers.clear()

    def spans(self, name: str = "") -> list[ReceivedSpan]:
        """Those that came, of one name or all."""
        return [span for span in tuple(self._spans) if name in ("", span.name)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not collector._answers.is_set():
                    collector.holds_a_request.set()
                    collector._answers.wait()
                    return
                assert self.path == "/v1/traces"
                collector._spans += decoded(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler


def decoded(body: bytes) -> list[ReceivedSpan]:
    """The spans of a request."""
    return [
        ReceivedSpan(
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            took_seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
            links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            attributes=_texts(span.attributes),
            resource=_texts(of_resource.resource.attributes),
        )
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _texts(attributes: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in attributes:  # type: ignore[attr-defined]  # a repeated field
        kind = one.value.WhichOneof("value")
        found[one.key] = str(getattr(one.value, kind)) if kind else ""
    return found
