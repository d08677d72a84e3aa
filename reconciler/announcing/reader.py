"""Reads one queue for all subscriptions of a process, and hands its messages out by tag. A subscription that takes
these messages is a *follower*.

The reader pulls without a filter at the end of the queue, and the broker holds the pull until an announcement comes.
The reader knows the record before its place. After each pull, the reader checks whether the queue still has this
record. A lost tail does not come back, so a record that is unchanged then was unchanged before. If the record has
changed, or if the broker fails twice in a row, the reader lets its followers go. Each follower then pulls by itself
from its stored offset, for which the follower has a proof of its own (reconciler/announcing/step.py).

A follower names its tag, and gets all messages with this tag from a place on that the reader returns. The number of
messages that wait for followers of a queue is limited. Above the limit, the reader lets the follower with the most
waiting messages go, and this follower reads the queue by itself again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from reconciler.announcing.port import AnnouncementSource, PulledBatch, PullUnderWay
from reconciler.announcing.rules import PulledAnnouncement
from reconciler.clock import Backoff, Clock
from reconciler.contract.queue_proof import QueueRecord
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.announcing import AnnouncementQueue

#: Seconds between two checks of a queue without new messages.
IDLE_PROOF_SECONDS = 5.0
#: The longest time for which a broker may hold a pull until a message comes.
HOLD_SECONDS = 15.0
#: The time between two pulls while announcements come one by one. Messages that come in this time form one batch.
BATCH_SECONDS = 0.2
#: The most messages of one pull, because brokers return at most 32 messages from memory. A script adds 32 times 500
#: keys in 10 ms.
PULL_MESSAGES_MAX = 32
#: The most messages that may wait for the followers of one queue. If several followers have not taken a message, it
#: counts once for each follower.
WAITING_MESSAGES_MAX = 4_000
WAITING_BYTES_MAX = 4 * 1024 * 1024
#: Pauses after failures in a row.
AGAIN = Backoff(first_seconds=0.1, longest_seconds=5.0)
#: Pauses after answers without a new message, for a broker that does not hold pulls.
IDLE = Backoff(first_seconds=0.02, longest_seconds=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedPlace:
    """An offset of a queue, with the proof that the queue was read up to this offset and is still the same queue."""

    offset: int
    #: The record before the offset. None: there is no record, or the broker does not show it.
    record: QueueRecord | None
    #: True if the queue began at this offset, as its broker said.
    is_beginning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """The messages that a follower has to admit next. The list has all messages with the follower's tag before the
    place `following`."""

    messages: tuple[PulledAnnouncement, ...]
    following: ProvedPlace
    #: Number of messages that wait after these messages. Messages that were not read yet count whatever their tag is.
    behind: int


@dataclass(slots=True, eq=False)
class Follower:
    """One subscription at one queue. The reader's lock guards all fields except `start`, which is set once."""

    tag: str
    wake: Callable[[], None]
    #: The place from which on all messages with the tag are handed out. None: the reader has no place yet.
    start: ProvedPlace | None = None
    waiting: deque[PulledAnnouncement] = field(default_factory=deque)
    waiting_bytes: int = 0


class QueueReader:
    """The reader of one queue. Thread-safe: one thread at a time calls `run_once`, and the followers' threads call the
    other methods."""

    def __init__(
        self, queue: AnnouncementQueue, *, source: AnnouncementSource, clock: Clock, wake: Callable[[], None]
    ) -> None:
        """`wake` calls for `run_once`, from any thread."""
        self.queue = queue
        self._source = source
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        #: Followers by tag, in the order in which they came.
        self._followers: dict[str, dict[Follower, None]] = {}
        self._here: ProvedPlace | None = None
        #: The position of the first follower. The reader begins there.
        self._begins_at = 0
        self._end = 0
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._under_way: PullUnderWay | None = None
        self._proved_at = 0.0
        self._failures = 0
        self._idle_turns = 0

    # ---- called by followers

    def follow(self, tag: str, *, position: int, wake: Callable[[], None]) -> Follower:
        """Adds a follower. From its `start` on, messages with the tag wait for the follower.

        `position` is the offset up to which the follower has read by itself. `wake` is called from any thread when
        messages wait, and when the follower was let go. `wake` must be short.
        """
        with self._lock:
            follower = Follower(tag=tag, wake=wake, start=self._here)
            if not self._followers:
                self._begins_at = position
            self._followers.setdefault(tag, {})[follower] = None
        self._wake()
        return follower

    def is_following(self, follower: Follower) -> bool:
        """Returns False if the follower was let go. The messages that it has not taken are dropped then."""
        with self._lock:
            return follower in self._followers.get(follower.tag, ())

    def leave(self, follower: Follower) -> None:
        """Removes the follower."""
        with self._lock:
            self._let_go(follower)

    def handed_out(self, follower: Follower) -> HandedOut | None:
        """Returns the messages that the follower has to admit next. The messages keep waiting until `taken` is called.
        Returns None if the follower was let go, or if the reader has no place yet."""
        with self._lock:
            if self._here is None or follower not in self._followers.get(follower.tag, ()):
                return None
            messages = tuple(islice(follower.waiting, PULL_MESSAGES_MAX))
            left = len(follower.waiting) - len(messages)
            following = self._here
            if left:
                offset = follower.waiting[len(messages)].queue_offset
                following = ProvedPlace(offset=offset, record=messages[-1].record, is_beginning=False)
            behind = left + max(0, self._end - self._here.offset)
            return HandedOut(messages=messages, following=following, behind=behind)

    def taken(self, follower: Follower, count: int) -> None:
        """Removes the first `count` waiting messages, because they are in the half set."""
        with self._lock:
            for _ in range(min(count, len(follower.waiting))):
                self._forget(follower, follower.waiting.popleft())

    def is_ahead(self, follower: Follower, position: int, *, is_idle: bool) -> bool:
        """Returns True if messages wait for the follower, or if the follower was let go. Without `is_idle`, also
        returns True if the reader has read beyond `position`."""
        with self._lock:
            if self._here is None or follower.waiting or follower not in self._followers.get(follower.tag, ()):
                return True
            return not is_idle and self._here.offset > position

    def is_still(self, place: ProvedPlace) -> bool:
        """Returns True if the queue still has the same record before this place. Raises what the source raises."""
        if place.offset == 0:
            return True
        offset = place.offset if place.record is None else place.record.queue_offset
        seen = self._source.look(self.queue, offset=offset)
        if place.record is not None:
            return seen.record == place.record
        return seen.max_offset >= place.offset and (seen.min_offset >= place.offset or not place.is_beginning)

    # ---- reading

    def run_once(self) -> float | None:
        """Handles at most one pull that is done, and its proof. Returns the seconds until the next call, or None if the
        next call comes from a new follower. Raises no ReconcilerError."""
        with self._lock:
            is_wanted = bool(self._followers)
        if not is_wanted:
            self.stop()
            return None
        try:
            return self._read()
        except ReconcilerError:
            self._cancel()
            self._failures += 1
            if self._failures > 1:  # the followers find out what is wrong, and report it
                self._begin_anew()
            return AGAIN.pause_seconds(self._failures - 1)
        except Exception:  # a bug here must not stop followers, which can read by themselves
            self.stop()
            raise

    def stop(self) -> None:
        """Lets all followers go. The next follower starts the reader again."""
        self._cancel()
        self._begin_anew()

    def _read(self) -> float:
        here = self._here or self._first_place()
        if self._under_way is None:
            self._under_way = self._source.begin_pull(
                self.queue, offset=here.offset, max_messages=PULL_MESSAGES_MAX, hold_seconds=HOLD_SECONDS
            )
            if not self._under_way.is_done:
                self._under_way.when_done(self._wake)
        now = self._clock.monotonic_seconds()
        is_due = now - self._proved_at >= IDLE_PROOF_SECONDS
        if not self._under_way.is_done:
            if is_due:
                self._prove(here)
            return IDLE_PROOF_SECONDS
        under_way, self._under_way = self._under_way, None
        pulled = under_way.batch()
        self._failures = 0
        messages = [one for one in pulled.messages if one.queue_offset >= here.offset]
        if self._is_of_another(here, pulled, messages):
            self._begin_anew()
            return AGAIN.first_seconds
        if (messages or is_due) and not self._prove(here, is_behind=bool(messages)):
            return AGAIN.first_seconds
        self._hand_out(pulled, messages)
        self._idle_turns = 0 if messages else self._idle_turns + 1
        if messages:
            return 0.0 if pulled.next_offset < pulled.max_offset else BATCH_SECONDS
        return IDLE.pause_seconds(self._idle_turns)

    def _first_place(self) -> ProvedPlace:
        """Returns the first place of the reader. This place is the position of the first follower, near the end of the
        queue."""
        offset = self._begins_at
        record, is_beginning = None, True
        if offset > 0:
            seen = self._source.look(self.queue, offset=offset - 1)
            record, is_beginning = seen.record, seen.record is None and seen.min_offset >= offset
        self._proved_at = self._clock.monotonic_seconds()
        with self._lock:
            here = self._here = ProvedPlace(offset=offset, record=record, is_beginning=is_beginning)
            self._end = offset
            for followers in self._followers.values():
                for follower in followers:
                    follower.start = here
        return here

    @staticmethod
    def _is_of_another(here: ProvedPlace, pulled: PulledBatch, messages: Sequence[PulledAnnouncement]) -> bool:
        """Returns True if the answer itself shows that the queue is another queue, or has lost its next messages."""
        if pulled.is_offset_illegal or (pulled.next_offset != here.offset and not messages):
            return True
        return here.is_beginning and pulled.min_offset < here.offset and here.offset > 0

    def _prove(self, here: ProvedPlace, *, is_behind: bool = False) -> bool:
        """Returns True if the queue is still the queue that was read. Otherwise, makes the reader begin again.
        `is_behind` says that new messages have come.

        If the record was deleted by age, it proves nothing. If no message has come since, the queue counts as beginning
        at this place from now on.
        """
        if self.is_still(here):
            self._proved_at = self._clock.monotonic_seconds()
            return True
        if here.record is not None and not is_behind:
            begins = ProvedPlace(offset=here.offset, record=None, is_beginning=True)
            seen = self._source.look(self.queue, offset=here.record.queue_offset)
            if seen.record is None and seen.min_offset >= here.offset and self.is_still(begins):
                with self._lock:
                    self._here = begins
                self._proved_at = self._clock.monotonic_seconds()
                return True
        self._cancel()
        self._begin_anew()
        return False

    def _hand_out(self, pulled: PulledBatch, messages: list[PulledAnnouncement]) -> None:
        woken: dict[Follower, None] = {}
        with self._lock:
            for message in messages:
                for follower in self._followers.get(message.tag or "", ()):
                    follower.waiting.append(message)
                    follower.waiting_bytes += len(message.body)
                    self._waiting_messages += 1
                    self._waiting_bytes += len(message.body)
                    woken[follower] = None
            if messages:
                self._here = ProvedPlace(offset=pulled.next_offset, record=messages[-1].record, is_beginning=False)
            self._end = pulled.max_offset
            while self._waiting_messages > WAITING_MESSAGES_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
                everybody = (one for followers in self._followers.values() for one in followers)
                most = max(everybody, key=lambda one: (one.waiting_bytes, len(one.waiting)))
                self._let_go(most)
                woken[most] = None
        for follower in woken:
            follower.wake()

    def _begin_anew(self) -> None:
        with self._lock:
            gone = [one for followers in self._followers.values() for one in followers]
            for follower in gone:
                self._let_go(follower)
            self._here = None
        for follower in gone:
            follower.wake()

    def _let_go(self, follower: Follower) -> None:
        while follower.waiting:
            self._forget(follower, follower.waiting.popleft())
        others = self._followers.get(follower.tag, {})
        others.pop(follower, None)
        if not others:
            self._followers.pop(follower.tag, None)

    def _forget(self, follower: Follower, message: PulledAnnouncement) -> None:
        follower.waiting_bytes -= len(message.body)
        self._waiting_messages -= 1
        self._waiting_bytes -= len(message.body)

    def _cancel(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.cancel()
