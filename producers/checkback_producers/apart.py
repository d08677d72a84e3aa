"""The blocking steps of blocks that stand in an event loop: a few threads of the producer's own, places, the end.

A step is no task of the loop: asyncio.run cancels every task when it ends, and an anyio scope that is cancelled cancels
each await in it again. Whoever waits for a step may be cancelled; the step goes on, in the context of its block.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

from checkback_producers.errors import NoPlace
from reconciler.errors import UsageError

T = TypeVar("T")

#: Steps at a time; each waits for a broker or a database, and none of them for long.
THREADS_MAX = 32
#: How long the end of a producer waits for steps that are left: as long as a database and an END may take.
DRAIN_SECONDS = 15.0


class StepsApart:
    """Runs them. Opened in the loop that it then belongs to; in another loop, or after a fork, it refuses."""

    def __init__(self, *, blocks_max: int, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._blocks_max = blocks_max
        self._places = asyncio.Semaphore(blocks_max)
        self._threads = ThreadPoolExecutor(min(blocks_max, THREADS_MAX), thread_name_prefix="producer-steps")
        self._left: set[Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._is_closed = False
        self._told: deque[Callable[[], None]] = deque()
        self._is_waking = False

    def open(self) -> None:
        """From here on it belongs to the running loop. Raises UsageError the second time."""
        if self._loop is not None:
            raise UsageError("an asynchronous producer is opened once: make another one")
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()

    def require_open(self) -> None:
        """Raises UsageError in another loop or process, before it is opened and after its end."""
        if self._loop is None or self._is_closed:
            raise UsageError("the producer is not open: use it inside `async with`")
        if self._process != os.getpid():
            raise UsageError("the producer was opened before a fork: open one in each process")
        if self._loop is not asyncio.get_running_loop():
            raise UsageError("the producer belongs to the loop that opened it: open one in each loop")

    async def take_place(self) -> None:
        """Waits for one of `blocks_max` places. Raises NoPlace."""
        if not self._places.locked():
            await self._places.acquire()  # at once; a time-out costs as much as a step
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise NoPlace(
                f"{self._blocks_max} blocks (blocks_max) were open for {self._wait_seconds:g} s: nothing was sent"
            ) from error

    def give_place_back(self) -> None:
        """Of a block that has begun nothing."""
        self._places.release()

    def start(self, step: Callable[[], T]) -> Future[T]:
        """Begins a step. Raises UsageError after the end."""
        try:
            return self._threads.submit(copy_context().run, step)
        except RuntimeError as error:
            raise UsageError("the producer was closed before its block had ended") from error

    async def run(self, step: Callable[[], T]) -> T:
        """A step, waited for."""
        return await self.answer_of(self.start(step))

    async def answer_of(self, step: Future[T]) -> T:
        """Waits for a step. A cancellation ends the waiting alone."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            if not answered.done():
                answered.set_result(None)

        step.add_done_callback(lambda _: self._tell(answer))
        await answered
        return step.result()

    def leave(self, step: Callable[[], None]) -> Future[None]:
        """Begins the last step of a block, which is then waited for by the end of the producer; it gives the block's
        place back. Raises UsageError after the end, the place given back."""
        try:
            ending = self.start(step)
        except UsageError:
            self._places.release()
            raise
        self._left.add(ending)
        ending.add_done_callback(self._note_left)
        return ending

    def close(self, then: Callable[[], None]) -> Future[None]:
        """Ends what is left, for DRAIN_SECONDS at most, then calls `then`: on a thread of its own, which a cancellation
        of the caller does not end."""
        self._is_closed = True
        closed: Future[None] = Future()

        def run() -> None:
            try:
                wait(tuple(self._left), timeout=DRAIN_SECONDS)
                self._threads.shutdown(wait=False, cancel_futures=True)
                then()
            except BaseException as error:  # noqa: BLE001  # whoever waits gets it
                closed.set_exception(error)
            else:
                closed.set_result(None)

        threading.Thread(target=run, name="producer-end", daemon=True).start()
        return closed

    def _note_left(self, ending: Future[None]) -> None:
        self._left.discard(ending)
        self._tell(self._places.release)

    def _tell(self, call: Callable[[], None]) -> None:
        """Calls it in the loop, from any thread. To wake the loop is dear: what is told meanwhile needs no other."""
        self._told.append(call)
        if self._is_waking or self._loop is None:
            return
        self._is_waking = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._call_told)

    def _call_told(self) -> None:
        self._is_waking = False  # first: what is told from here on wakes the loop again
        while self._told:
            self._told.popleft()()
