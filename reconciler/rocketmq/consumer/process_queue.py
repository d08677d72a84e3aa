"""One assigned queue between pull and commit. The object knows the cached messages, the done messages, and the offset
to commit.

The offset to commit is the smallest offset that is not done. Without cached messages, it is the next offset to pull. So
an empty queue also has a position at the broker, and the watermark rests on this position.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from reconciler.rocketmq.client.routes import MessageQueue


class CacheItem(Protocol):
    """The part of a message that the cache of a queue needs."""

    @property
    def queue_offset(self) -> int:
        """Position in the queue."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the message for the cache limit."""
        ...


Message = TypeVar("Message", bound=CacheItem)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    """The limits at which pulling of a queue pauses. The defaults are those of DefaultMQPushConsumer."""

    messages: int = 1_000
    bytes: int = 100 * 1024 * 1024
    #: Maximum number of offsets between the smallest offset that is not done and the next offset to pull. The consumer
    #: repeats this whole span after a restart, so one stuck message must not let the span grow without end.
    span: int = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """A snapshot of the queue. GET_CONSUMER_RUNNING_INFO and tests read it."""

    next_offset: int
    committable: int
    messages: int
    bytes: int
    is_revoked: bool
    is_waiting_for_room: bool


class ProcessQueue:
    """The cache of one queue. The pulling thread, the handlers and the committer share this object. A lock protects the
    queue's state."""

    def __init__(self, queue: MessageQueue, *, start_offset: int, limits: CacheLimits | None = None) -> None:
        self.queue = queue
        self._limits = limits or CacheLimits()
        self._lock = threading.Lock()
        self._next_offset = start_offset
        #: (offset, size) in queue order. The left end has the smallest offset that is not done.
        self._in_flight: deque[tuple[int, int]] = deque()
        self._done: set[int] = set()
        self._bytes = 0
        self._is_pulling = False
        self._is_waiting = False
        self._is_revoked = False
        #: Number of seeks so far. Messages that were pulled or cached in an earlier era are void.
        self._era = 0

    @property
    def is_revoked(self) -> bool:
        """True if another member owns the queue now. Results of running handlers do not count any more."""
        return self._is_revoked

    @property
    def era(self) -> int:
        """The number of seeks so far. A message that was accepted in another era is void."""
        return self._era

    def is_void(self, era: int) -> bool:
        """Returns True if messages of this era do not count any more. The queue was lost, or a seek came since. The
        messages come again anyway, here or at another member."""
        return self._is_revoked or era != self._era

    def begin_pull(self) -> tuple[int, int] | None:
        """Returns the offset to pull, and the era. Returns None if a pull is under way, or if the queue is full or
        revoked. For a full queue, done() tells when to try again."""
        with self._lock:
            if self._is_revoked or self._is_pulling:
                return None
            if self._is_full():
                self._is_waiting = True
                return None
            self._is_pulling = True
            return self._next_offset, self._era

    def abandon_pull(self, *, era: int) -> None:
        """Records that the pull failed. Another pull may begin at the same offset."""
        with self._lock:
            if era == self._era:
                self._is_pulling = False

    def accept(self, messages: Sequence[Message], next_offset: int, *, era: int) -> Sequence[Message] | None:
        """Takes over the messages of a pull. Returns None if the queue was revoked or a seek came during the pull.

        Otherwise returns the messages to handle. Messages that were accepted before are left out, because they would be
        handled twice.
        """
        with self._lock:
            if self._is_revoked or era != self._era:
                return None
            self._is_pulling = False
            fresh = [message for message in messages if message.queue_offset >= self._next_offset]
            for message in fresh:
                self._in_flight.append((message.queue_offset, message.size_bytes))
                self._bytes += message.size_bytes
            self._next_offset = max(next_offset, self._next_offset, fresh[-1].queue_offset + 1 if fresh else 0)
            return fresh

    def done(self, messages: Sequence[CacheItem], *, era: int) -> bool:
        """Marks messages as done. Returns True if a full queue can be pulled again now."""
        with self._lock:
            if self._is_revoked or era != self._era:
                return False
            self._done.update(message.queue_offset for message in messages)
            while self._in_flight and self._in_flight[0][0] in self._done:
                offset, _ = self._in_flight.popleft()
                self._done.discard(offset)
            self._bytes -= sum(message.size_bytes for message in messages)
            if self._is_waiting and not self._is_full():
                self._is_waiting = False
                return True
            return False

    def committable(self) -> int | None:
        """Returns the offset to commit. Returns None if the queue was revoked."""
        with self._lock:
            return None if self._is_revoked else self._committable()

    def revoke(self) -> int:
        """Ends the queue for this member. Returns the last offset to commit."""
        with self._lock:
            self._is_revoked = True
            return self._committable()

    def seek(self, offset: int) -> None:
        """Continues from another offset (PULL_OFFSET_MOVED, RESET_CONSUMER_CLIENT_OFFSET). Cached messages become
        void."""
        with self._lock:
            self._era += 1
            self._next_offset = offset
            self._in_flight.clear()
            self._done.clear()
            self._bytes = 0
            self._is_pulling = False
            self._is_waiting = False

    def state(self) -> CacheState:
        """Returns a consistent snapshot."""
        with self._lock:
            return CacheState(
                next_offset=self._next_offset,
                committable=self._committable(),
                messages=len(self._in_flight) - len(self._done),
                bytes=self._bytes,
                is_revoked=self._is_revoked,
                is_waiting_for_room=self._is_waiting,
            )

    def _committable(self) -> int:
        return self._in_flight[0][0] if self._in_flight else self._next_offset

    def _is_full(self) -> bool:
        if not self._in_flight:
            return False  # one message may be bigger than the limit, and must still get through
        return (
            len(self._in_flight) - len(self._done) >= self._limits.messages
            or self._bytes >= self._limits.bytes
            or self._next_offset - self._in_flight[0][0] >= self._limits.span
        )
