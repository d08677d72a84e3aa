"""Connections that keep the server waiting for a request are closed, so that none can hold its place for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from reconciler.web.bounded_listener import AcceptedConnection, BoundedListener


class ImpatientProtocol(H11Protocol):
    """uvicorn's, which limits the pause between two requests, and not the time that one takes to arrive.

    The body of a request is waited for by the application.
    """

    #: From when the connection was made.
    _place: AcceptedConnection

    def __init__(self, *arguments: Any, listener: BoundedListener, **more: Any) -> None:
        """`listener`: accepted the connection."""
        super().__init__(*arguments, **more)
        self._listener = listener

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """The wait for the first request began when the connection was accepted, before TLS."""
        super().connection_made(transport)
        self._place = self._listener.place_of(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """A piece of a request; the last one of its headers ends the wait."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._place.end_wait()
        else:
            self._place.wait()
