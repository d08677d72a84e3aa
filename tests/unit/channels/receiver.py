"""A real HTTP server that keeps what it was sent, and answers as a test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.certificates import Certificate


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer. `hangs`: set by the test when it may be given at last."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hangs: threading.Event | None = None


class Receiver:
    """What it was sent, in order."""

    def __init__(self, answer: Callable[[Received], Reply]) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.url = ""


@contextmanager
def receiving(
    answer: Callable[[Received], Reply] = lambda _: Reply(), *, certificate: Certificate | None = None
) -> Iterator[Receiver]:
    """Serves on a free port within the block, with TLS if there is a certificate."""
    receiver = Receiver(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found = Received(method=self.command, target=self.path, headers=headers, body=body)
            receiver.received.append(found)
            reply = receiver.answer(found)
            if reply.hangs is not None:
                reply.hangs.wait(60)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_CONNECT = do_POST  # noqa: N815 - http.server names them so

        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                """The client has hung up."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        # The handshake is left to the request's own thread: a client that breaks it off stops no other.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if certificate is None else "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
