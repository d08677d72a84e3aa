"""The stock clients that tests run beside the product, each pinned where its program is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.brokers.jars import client_jars, grpc_jars
from tests.clients.programs import (
    SOURCES,
    cargo_missing,
    go_missing,
    go_program,
    java_program,
    node_program,
    npm_missing,
    python_program,
    rust_program,
)
from tests.services.requirements import java_missing, wheel_missing
from tests.services.wheel_environment import wheel_python


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """A stock client, and what its keys look like."""

    name: str
    #: None, or how to get what builds and runs it.
    missing: Callable[[], str | None]
    #: Builds it; its command line.
    command: Callable[[], list[str]]
    key: str
    #: Whether releases up to 0.2.0 took its keys.
    has_digits: bool = True
    #: Connects to a proxy, not to name servers and brokers.
    is_grpc: bool = False


def _nothing_missing() -> str | None:
    return None


GO = Client(
    name="go-remoting",
    missing=go_missing,
    command=lambda: go_program("go_remoting"),
    key=r"[0-9A-F]{20}[0-9a-f]{12}",
    has_digits=False,
)
JAVA = Client(
    name="java-remoting",
    missing=java_missing,
    command=lambda: java_program("java_remoting", lambda: client_jars("5.3.3")),
    key=r"[0-9A-F]{32}|[0-9A-F]{56}",  # the longer ones on a host without an IPv4 address
)
LIBROCKETMQ = Client(
    name="librocketmq",
    missing=wheel_missing,
    command=lambda: [str(wheel_python()), str(SOURCES / "librocketmq" / "client_python.py")],
    key=r"[0-9A-F]{32}",
)
#: MessageIdCodec: a version, six bytes of the host, two of the process, seconds, a number.
_OF_GRPC = r"01[0-9A-F]{32}"
GRPC = (
    Client(name="go-grpc", missing=go_missing, command=lambda: go_program("go_grpc"), key=_OF_GRPC, is_grpc=True),
    Client(
        name="rust-grpc",
        missing=cargo_missing,
        command=lambda: rust_program("rust_grpc"),
        key=r"01[0-9A-F]{16}[0-9a-f]{16}",
        has_digits=False,
        is_grpc=True,
    ),
    Client(
        name="node-grpc", missing=npm_missing, command=lambda: node_program("node_grpc"), key=_OF_GRPC, is_grpc=True
    ),
    Client(
        name="python-grpc",
        missing=_nothing_missing,
        command=lambda: python_program("python_grpc"),
        key=_OF_GRPC,
        is_grpc=True,
    ),
    Client(
        name="java-grpc",
        missing=java_missing,
        command=lambda: java_program("java_grpc", lambda: grpc_jars("5.2.0")),
        key=_OF_GRPC,
        is_grpc=True,
    ),
)
