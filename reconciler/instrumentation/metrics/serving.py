"""Small server for the pages of one process. Each request has a thread and a time limit, and few requests run at
once."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer

from reconciler.clock import SystemClock
from reconciler.contract.own_limits import lacking
from reconciler.instrumentation.listening import address_refused, host_and_port
from reconciler.instrumentation.metrics.pages import MetricPages

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


#: Time after which a client that sends or takes nothing is cut off.
CLIENT_SECONDS_MAX = 10.0
#: Largest number of pages that are made at once. Further requests get 503.
REQUESTS_MAX = 16
#: Largest number of connections at once, silent ones included. Further connections are closed.
CONNECTIONS_MAX = 64
#: Pause before the next try to accept a connection without a free descriptor.
ACCEPT_AGAIN_SECONDS = 0.5


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS_MAX

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Logs nothing, because a scrape every few seconds is no event."""


class _Server(ThreadingWSGIServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._clock = SystemClock()
        super().__init__(*arguments, **more)

    def server_bind(self) -> None:
        """Binds the address. HTTPServer would also ask DNS for the name of the address, which can take many seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> Any:
        """Accepts a connection. If this process has no free descriptor, waits, because the connection stays ready."""
        try:
            return super().get_request()
        except OSError as error:
            if lacking(error):
                self._clock.sleep(ACCEPT_AGAIN_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread per connection. A connection above the limit is closed."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread starts
            self._room.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextmanager
def serving(pages: MetricPages, listen: str) -> Iterator[tuple[str, int]]:
    """Serves within the block, and yields the address on which it listens.

    Raises ConfigurationError if the address cannot be bound.
    """
    host, port = host_and_port(listen)
    kind = _Server6 if ":" in host else _Server
    try:
        server = make_server(host, port, _Application(pages), server_class=kind, handler_class=_Handler)
    except (OSError, OverflowError) as error:
        raise address_refused("metrics.listen", listen, error) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield host, server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Application:
    def __init__(self, pages: MetricPages) -> None:
        self._pages = pages
        self._room = threading.BoundedSemaphore(REQUESTS_MAX)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = environ.get("REQUEST_METHOD", "")
        if method not in {"GET", "HEAD"}:
            return _bare(start_response, HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        if not self._room.acquire(blocking=False):
            return _bare(start_response, HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "1"))
        try:
            accept, host = (environ.get(name, "") for name in ("HTTP_ACCEPT", "HTTP_HOST"))
            answer = self._pages.answer(environ.get("PATH_INFO", ""), accept=accept, host=host)
        finally:
            self._room.release()
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers.items(),
        ]
        start_response(f"{answer.status.value} {answer.status.phrase}", headers)
        return [] if method == "HEAD" else [answer.body]


def _bare(start_response: StartResponse, status: HTTPStatus, header: tuple[str, str]) -> Iterable[bytes]:
    start_response(f"{status.value} {status.phrase}", [header, ("Content-Length", "0")])
    return []
