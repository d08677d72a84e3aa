"""A running loop on a thread of its own, for handlers that are called from the test's threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from checkback_consumers.handler import TransactionalHandler

T = TypeVar("T")


class LoopThread:
    """The loop, the handlers that are open in it, and the engines that they have."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._handlers: list[TransactionalHandler] = []
        self._engines: list[AsyncEngine] = []

    @property
    def thread_id(self) -> int | None:
        """Where its tasks run."""
        return self._thread.ident

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it there and waits."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def kept(self, engine: AsyncEngine) -> AsyncEngine:
        """It is disposed of at the end."""
        self._engines.append(engine)
        return engine

    def opened(self, handler: TransactionalHandler) -> TransactionalHandler:
        """It is closed at the end."""
        self.run(handler.__aenter__())
        self._handlers.append(handler)
        return handler

    def closed(self, handler: TransactionalHandler) -> None:
        """Now."""
        self._handlers.remove(handler)
        self.run(handler.__aexit__(None, None, None))

    def close(self) -> None:
        for handler in self._handlers:
            self.run(handler.__aexit__(None, None, None))
        for engine in self._engines:
            self.run(engine.dispose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()
