"""Closes connections that keep the server waiting for a request, so that none can hold its place for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from reconciler.web.bounded_listener import AcceptedConnection, BoundedListener


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol with one more limit. uvicorn limits the pause between two requests, but not the time in which
    one request arrives.

    The application limits the wait for a request's body.
    """

    #: Place of this connection, which is set once the connection is made.
    _place: AcceptedConnection

    def __init__(self, *arguments: Any, listener: BoundedListener, **more: Any) -> None:
        """`listener`: the listener that accepted the connection."""
        super().__init__(*arguments, **more)
        self._listener = listener

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Finds the place of the connection. The wait for the first request began when the connection was accepted,
        before TLS."""
        super().connection_made(transport)
        self._place = self._listener.place_of(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Takes a piece of a request. The wait ends with the headers of the request."""
        super().data_received(data)
        if self._answers():
            self._place.end_wait(is_waiting=self.cycle.more_body)
        else:
            self._place.wait()

    def on_response_complete(self) -> None:
        """Waits for the next request, unless it has come already. uvicorn limits this pause."""
        super().on_response_complete()
        self._place.end_wait(is_waiting=not self._answers() or self.cycle.more_body)

    def _answers(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
