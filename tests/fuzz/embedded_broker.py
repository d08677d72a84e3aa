"""The embedded broker as a target: a stranger's bytes straight into a connection, without sockets or periodic work."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from reconciler.clock import SystemClock
from reconciler.embedded.broker import Broker
from reconciler.embedded.channel import Channel
from reconciler.embedded.families import DEFAULT_FAMILY, family_named
from reconciler.embedded.faults import Faults
from reconciler.embedded.settings import BrokerSettings


class _Errors(logging.Handler):
    """An exception that a handler of the broker did not expect is logged and answered; here it is a finding."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and self.first is None:
            self.first = record.exc_info[1]


class _Transport(asyncio.Transport):
    """Takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self.written = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def is_closing(self) -> bool:
        return self.is_gone

    def write(self, data: Any) -> None:
        self.written += len(data)

    def abort(self) -> None:
        self.is_gone = True

    def close(self) -> None:
        self.is_gone = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class EmbeddedUnderFuzz:
    """One broker for some inputs, a connection for each."""

    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._runner: asyncio.Runner | None = None
        self._errors = _Errors()

    def refresh(self) -> None:
        """A new broker for the inputs that follow: a broker keeps what it is sent."""
        self._broker = None

    def run(self, data: bytes) -> bool:
        """True if something was answered."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            logger = logging.getLogger("reconciler.embedded")
            logger.addHandler(self._errors)
            logger.propagate = False
        self._errors.first = None
        answered = self._runner.run(self._feed(data))
        if self._errors.first is not None:
            raise self._errors.first
        return answered

    async def _feed(self, data: bytes) -> bool:
        if self._broker is None:
            self._broker = Broker(
                family=family_named(DEFAULT_FAMILY), settings=BrokerSettings(), faults=Faults(), clock=SystemClock()
            )
        channel, transport = Channel(self._broker.channels), _Transport()
        channel.connection_made(transport)
        channel.data_received(data)
        channel.connection_lost(None)
        self._broker.services.store.index.drain()
        return transport.written > 0
