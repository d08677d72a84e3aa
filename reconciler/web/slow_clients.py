"""Connections that keep the server waiting for a request are closed, so that none can hold its place for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the connection, or from the first byte of a further request, to the end of its headers.
HEADERS_SECONDS_MAX = 20.0


class ImpatientProtocol(H11Protocol):
    """uvicorn's, which limits the pause between two requests, and not the time that one takes to arrive.

    The body of a request is waited for by the application.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Waits for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """A piece of a request; the last one of its headers ends the wait."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        super().connection_lost(exc)
        self._end_wait()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEADERS_SECONDS_MAX, self.transport.abort)

    def _end_wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
