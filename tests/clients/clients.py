"""The stock clients that tests run beside the product, each pinned where its program is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.clients.programs import go_missing, go_program


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


#: Clients of the remoting protocol, which connect to name servers and brokers.
REMOTING = (
    Client(
        name="go-remoting",
        missing=go_missing,
        command=lambda: go_program("go_remoting"),
        key=r"[0-9A-F]{20}[0-9a-f]{12}",
        has_digits=False,
    ),
)
