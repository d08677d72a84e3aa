"""Runs the blocking steps of blocks in an event loop. The steps run on a few threads of the producer, until the
producer ends. A block without a free place waits.

A step is not a task of the loop, for two reasons. asyncio.run cancels every task at its end, and a cancelled anyio
scope cancels each further await inside it. The caller that waits for a step may be cancelled. The step then continues
in the context of its block.
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

#: The most steps at a time. Each step waits for a broker or a database, but not for long.
THREADS_MAX = 32
#: How long a producer's end waits for remaining steps. A database and an END may take this long together.
DRAIN_SECONDS = 15.0


class StepsApart:
    """Runs blocking steps on threads. The object belongs to the loop in which it was opened, and refuses another loop
    or a forked process."""

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
        """Opens the object in the running loop. Raises UsageError at a second call."""
        if self._loop is not None:
            raise UsageError("an asynchronous producer is opened once: make another one")
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()

    def require_open(self) -> None:
        """Raises UsageError in another loop or process. Raises UsageError, too, before the object was opened, and after
        its end."""
        if self._loop is None or self._is_closed:
            raise UsageError("the producer is not open: use it inside `async with`")
        if self._process != os.getpid():
            raise UsageError("the producer was opened before a fork: open one in each process")
        if self._loop is not asyncio.get_running_loop():
            raise UsageError("the producer belongs to the loop that opened it: open one in each loop")

    async def take_place(self) -> None:
        """Waits for one of `blocks_max` places. Raises NoPlace if no place becomes free in time."""
        if not self._places.locked():
            await self._places.acquire()  # without waiting, because a time-out costs as much as a step
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError as error:
            raise NoPlace(
                f"{self._blocks_max} blocks (blocks_max) were open for {self._wait_seconds:g} s: nothing was sent"
            ) from error

    def give_place_back(self) -> None:
        """Returns the place of a block that has begun nothing."""
        self._places.release()

    def start(self, step: Callable[[], T]) -> Future[T]:
        """Starts a step. Raises UsageError after the end."""
        try:
            return self._threads.submit(copy_context().run, step)
        except RuntimeError as error:
            raise UsageError("the producer was closed before its block had ended") from error

    async def run(self, step: Callable[[], T]) -> T:
        """Starts a step and waits for it."""
        return await self.answer_of(self.start(step))

    async def answer_of(self, step: Future[T]) -> T:
        """Waits for a step. A cancellation ends only the waiting; the step continues."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            if not answered.done():
                answered.set_result(None)

        step.add_done_callback(lambda _: self._tell(answer))
        await answered
        return step.result()

    def leave(self, step: Callable[[], None]) -> Future[None]:
        """Starts the last step of a block. When the step ends, the block's place is free again. The producer's end
        waits for the step. After the end, frees the place and raises UsageError."""
        try:
            ending = self.start(step)
        except UsageError:
            self._places.release()
            raise
        self._left.add(ending)
        ending.add_done_callback(self._note_left)
        return ending

    def close(self, then: Callable[[], None]) -> Future[None]:
        """Waits at most DRAIN_SECONDS for remaining steps. Then calls `then` on a thread of its own, so that a
        cancellation of the caller does not stop `then`."""
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
        """Makes the loop call functions that any thread hands over. Waking the loop is expensive, so functions that
        arrive together share one wake-up."""
        self._told.append(call)
        if self._is_waking or self._loop is None:
            return
        self._is_waking = True
        with suppress(RuntimeError):  # the loop is closed: no task waits
            self._loop.call_soon_threadsafe(self._call_told)

    def _call_told(self) -> None:
        self._is_waking = False  # comes first, because a call after this line has to wake the loop again
        while self._told:
            self._told.popleft()()
