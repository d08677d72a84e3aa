"""Step 6 for one queue: one atomic step adds announced keys to a half set and moves the offset.

A restart loses no state. A position is a guess, which Redis confirms or corrects at every compare-and-set. So any
number of consumers may run. Redis may lose its last or all writes. An earlier offset only repeats harmless additions.

A broker may assign an offset again. So a step stores the last record that it saw beside the offset, and begins each
pull at this record. If the broker has another record there, the step reads again from the newest known record that the
broker still has.

A key may lie in another queue than its hash says, because its sender fell back to that queue. Keys and offset move
together, so the key goes into the shard of its queue. The key's consumption is recorded in the shard of its hash. Such
a key stays pending until an inbox look-up settles it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from reconciler.announcing.outage_watch import OUTAGE_CHECK_SECONDS, OutageWatch
from reconciler.announcing.port import (
    AnnouncementEvent,
    AnnouncementQueueState,
    AnnouncementSource,
    EventKind,
    OnAnnouncementEvent,
    PulledBatch,
    StepKind,
    StepOutcome,
    log_event,
)
from reconciler.announcing.proving import Held, held, newest_held, pull_behind, record_before
from reconciler.announcing.queue_view import NEVER, JoinedQueue, QueueView
from reconciler.announcing.reader import AGAIN, IDLE, PULL_MESSAGES_MAX, HandedOut, ProvedPlace, QueueReader
from reconciler.announcing.rules import AnnouncementRules, HalfRules, PulledAnnouncement, Screened
from reconciler.clock import Clock
from reconciler.contract.defaults import HALF_SET_KEYS_MAX, LEASE_SECONDS
from reconciler.contract.queue_proof import NEAR_OFFSETS_MAX, QueueRecord, beginning_before, with_record
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.policy.ports.announcing import AnnouncementLedger, AnnouncementQueue, HalfSets

COMPARE_SECONDS = 1.0
#: Seconds between two moves of the offset of a subscription for which the common reader hands out no keys.
MOVE_SECONDS = 60.0
NOT_MINE_SECONDS_MAX = 2.0
#: Number of beginnings of a queue in a row that are doubted if no record was read after them.
BEGINNINGS_MAX = 8
_NOTHING = Screened.of(())


class AnnouncementStep:
    """Announcement consumption of one subscription. Several threads may work, but only one thread per queue."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        unique_key_topic: str,
        shards: int,
        half_sets: HalfSets,
        ledger: AnnouncementLedger,
        source: AnnouncementSource,
        rules: AnnouncementRules | HalfRules,
        token: str,
        clock: Clock,
        half_set_keys_max: int = HALF_SET_KEYS_MAX,
        lease_seconds: float = LEASE_SECONDS,
        why_refused: Callable[[Subscription], str | None] = lambda _: None,
        concerns: Callable[[Subscription], bool] = lambda _: True,
        on_event: OnAnnouncementEvent = log_event,
        outages: OutageWatch | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """`outages` is the watch for all subscriptions of the process. With None, this step asks for itself. `concerns`
        returns False while another process should read for the subscription."""
        self.subscription = subscription
        self.unique_key_topic = unique_key_topic
        self.shards = shards
        self._half_sets = half_sets
        self._ledger = ledger
        self._source = source
        self._rules = rules
        self.token = token
        self._clock = clock
        self._half_set_keys_max = half_set_keys_max
        #: While the lease of a dead holder lasts, nobody consumes its queue, and losses are found later.
        self.lease_seconds = lease_seconds
        #: Returns why nothing may be taken for the subscription. Called when a position is looked for.
        self._why_refused = why_refused
        self._concerns = concerns
        self._on_event = on_event
        self._jitter = jitter or random.Random()
        self._queues: dict[AnnouncementQueue, QueueView] = {}
        #: Grows with each open outage and each loss of memory. Positions of an earlier era prove nothing.
        self._era = 0
        self._outages = outages or OutageWatch(ledger, subscription.environment, clock=clock)
        self._outages_seen = 0

    def share(self, queue: AnnouncementQueue, reader: QueueReader, *, wake: Callable[[], None]) -> None:
        """Lets the common reader read the queue, once this subscription has reached the end of the queue."""
        known = self._queues.setdefault(queue, QueueView())
        known.reader, known.wake = reader, wake

    def run_once(self, queue: AnnouncementQueue) -> StepOutcome:
        """Makes at most one pull and one compare-and-set. Raises no ReconcilerError. After a crash, adds keys again."""
        known = self._queues.setdefault(queue, QueueView())
        try:
            outcome = self._step(queue, known)
        except ReconcilerError as error:
            known.lease_renewed_at = None
            is_broker_away = isinstance(error, (BrokerUnavailable, RequestTimeout))
            outcome = self._suspended(known, f"{type(error).__name__}: {error}", is_broker_away=is_broker_away)
        self._note(queue, known, outcome)
        return outcome

    def release(self, queue: AnnouncementQueue) -> None:
        """Releases the queue's lease at shutdown. If Redis is away, the lease expires."""
        known = self._queues.get(queue)
        if known is None:
            return
        self._leave(known)
        if known.lease_renewed_at is not None:
            with suppress(ReconcilerError):  # otherwise the lease expires
                self._half_sets.release_lease(self._shard(queue), queue, token=self.token)
        known.lease_renewed_at = None

    def release_all(self) -> None:
        """Releases the leases of all queues."""
        for queue in tuple(self._queues):
            self.release(queue)

    def states(self) -> Sequence[AnnouncementQueueState]:
        """Returns every queue that had a step."""
        return [
            AnnouncementQueueState(
                subscription=self.subscription,
                queue=queue,
                kind=known.kind,
                detail=known.suspended_for,
                position=known.position,
                behind=known.behind,
                admitted_keys=known.admitted_keys,
                refused=known.refused,
                rewinds=known.rewinds,
            )
            for queue, known in sorted(self._queues.items(), key=lambda item: (item[0].broker, item[0].queue_id))
        ]

    def leave_out(self, queue: AnnouncementQueue) -> None:
        """Reports a queue of the topic for which the subscription has no shard. Such a queue is not read."""
        detail = f"the topic has more queues than unique_key_topic.queues = {self.shards}: this one is not read"
        self._on_event(
            AnnouncementEvent(kind=EventKind.EXTRA_QUEUE, subscription=self.subscription, queue=queue, detail=detail)
        )

    # ---- called by the common look

    def joined(self, now: float) -> Iterator[JoinedQueue]:
        """Yields queues at rest that the common reader reads. `now` is in monotonic seconds."""
        for queue, known in tuple(self._queues.items()):
            position, reader, follower = known.position, known.reader, known.follower
            if not known.is_joined or position is None or reader is None or follower is None:
                continue
            if known.kind is StepKind.SUSPENDED:  # a suspended queue has its own pause, which grows with its failures
                continue
            is_idle = now - known.moved_at < MOVE_SECONDS
            renewed_at = known.lease_renewed_at
            yield JoinedQueue(
                queue=queue,
                shard=self._shard(queue),
                position=position,
                compared_at=known.compared_at,
                is_lease_due=renewed_at is None or now - renewed_at >= self.lease_seconds / 3,
                is_due=reader.is_ahead(follower, position, is_idle=is_idle) or not self._concerns(self.subscription),
                wake=known.wake,
            )

    def compared(self, queue: AnnouncementQueue, *, is_same: bool, at: float) -> None:
        """Takes over whether Redis has the offset that `joined` returned. If not, the next step asks Redis."""
        self._queues[queue].compared_at = at if is_same else NEVER

    def lease_renewed(self, queue: AnnouncementQueue, *, at: float) -> None:
        """Takes over that Redis has renewed the lease."""
        self._queues[queue].lease_renewed_at = at

    # ---- the step

    def _step(self, queue: AnnouncementQueue, known: QueueView) -> StepOutcome:
        outage = self._open_outage()
        if outage is not None and not (outage == "AWAY" and self._half_sets.is_spread):
            self._leave(known)
            return StepOutcome(kind=StepKind.SUSPENDED, wait_seconds=OUTAGE_CHECK_SECONDS, detail="an outage is open")
        if known.era != self._era:
            # In an outage of other servers, a position stays valid while this shard's own server answers.
            known.position = known.position if outage is not None and not known.failures else None
            known.era = self._era
        if not self._holds_lease(queue, known):
            known.position = None
            self._leave(known)
            is_other = not self._concerns(self.subscription)
            wait = self.lease_seconds / 3 if is_other else min(NOT_MINE_SECONDS_MAX, self.lease_seconds / 8)
            return StepOutcome(kind=StepKind.NOT_MINE, wait_seconds=wait)
        if known.position is None:
            self._leave(known)
            if (why := self._why_refused(self.subscription)) is not None:
                return self._suspended(known, why)
            self._find_position(queue, known)
        position = known.position
        if position is None:
            return StepOutcome(kind=StepKind.MOVED_ON)  # the stored offset was lost again, so the next step looks again
        if known.is_joined and known.reader is not None and known.follower is not None:
            handed = known.reader.handed_out(known.follower)
            if handed is not None:
                return self._take(queue, known, position, handed)
            self._leave(known)
        if (full := self._fullness(queue)) is not None:
            self._leave(known)
            return self._suspended(known, full)
        return self._read(queue, known, position)

    def _read(self, queue: AnnouncementQueue, known: QueueView, position: int) -> StepOutcome:
        """Pulls by tag for this subscription alone, because it is new or behind, or its queue was replaced."""
        start = None if known.follower is None else known.follower.start
        pulled = self._pull(queue, known, position)
        if known.position != position:
            return StepOutcome(kind=StepKind.MOVED_ON, detail="the stored offset was another one")
        if pulled is None:
            return self._rewind(queue, known, position)
        if pulled.is_offset_illegal:
            return self._skip_illegal(queue, known, position, pulled)
        known.behind = max(0, pulled.max_offset - pulled.next_offset)
        if pulled.next_offset <= position and not pulled.messages:
            outcome = self._idle(queue, known, position)
        else:
            outcome = self._admit(queue, known, position, pulled)
        self._join(queue, known, start)
        return outcome

    def _join(self, queue: AnnouncementQueue, known: QueueView, start: ProvedPlace | None) -> None:
        """Near the end of the queue, makes the common reader collect for the subscription. Once the subscription itself
        has read up to the start of the collecting, it takes what was collected.

        `start` is None if it was unknown before the last pull, which is proved. If the queue still has the same record
        at the start, nothing before it has changed meanwhile, because a lost tail does not come back. Messages after
        the start that were read already are taken once more.
        """
        reader, follower = known.reader, known.follower
        if reader is None or known.position is None or known.behind is None:
            return
        if follower is None:
            if known.behind <= NEAR_OFFSETS_MAX:
                tag = self._rules.tag_in(queue)
                known.follower = reader.follow(tag, position=known.position, wake=known.wake)
            return
        is_read = start is not None and known.position >= start.offset
        known.is_joined = start is not None and is_read and reader.is_still(start) and reader.is_following(follower)
        if not known.is_joined and (is_read or not reader.is_following(follower)):
            self._leave(known)

    def _leave(self, known: QueueView) -> None:
        """Makes the subscription pull by itself, from the stored offset on."""
        if known.reader is not None and known.follower is not None:
            known.reader.leave(known.follower)
        known.follower, known.is_joined = None, False

    def _take(self, queue: AnnouncementQueue, known: QueueView, position: int, handed: HandedOut) -> StepOutcome:
        """Admits what the common reader has handed out. Without messages, moves the stored offset now and then."""
        now = self._clock.monotonic_seconds()
        here = ProvedPlace(offset=position, record=known.last, is_beginning=known.beginnings > 0)
        following = handed.following if handed.following.offset > position else here
        known.behind = handed.behind + len(handed.messages)
        if not handed.messages:
            if following is not here and now - known.moved_at >= MOVE_SECONDS:
                known.moved_at = now
                self._move(
                    queue, known, position, following.offset,
                    record=following.record, is_beginning=following.is_beginning,
                )  # fmt: skip
            return self._idle(queue, known, position)
        if (full := self._fullness(queue)) is not None:
            self._leave(known)
            return self._suspended(known, full)
        screened = self._screen(queue, handed.messages)
        is_stored = self._move(
            queue, known, position, following.offset, screened,
            record=following.record, is_beginning=following.is_beginning,
        )  # fmt: skip
        if is_stored and known.reader is not None and known.follower is not None:
            known.reader.taken(known.follower, len(handed.messages))
            known.behind, known.moved_at = handed.behind, now
        return StepOutcome(kind=StepKind.MOVED_ON)

    def _fullness(self, queue: AnnouncementQueue) -> str | None:
        """Returns why nothing may be admitted, or None if there is room."""
        size, most = self._half_sets.size(self._shard(queue)), self._half_set_keys_max
        return None if size <= most else f"the half set holds {size} keys, at most {most}"

    def _pull(self, queue: AnnouncementQueue, known: QueueView, position: int) -> PulledBatch | None:
        """Returns the messages after the position, or None if the queue is not the queue that was read."""
        tag, last = self._rules.tag_in(queue), known.last
        if last is None:
            pulled = self._source.pull(queue, tag=tag, offset=position, max_messages=PULL_MESSAGES_MAX)
            is_another = known.beginnings and not pulled.is_offset_illegal and pulled.min_offset < position
            return None if is_another else pulled
        state, behind = pull_behind(self._source, queue, tag=tag, position=position, last=last)
        if state is Held.GONE and behind is not None and not behind.is_offset_illegal:
            return behind if self._prove_anew(queue, known, position, begins_at=behind.min_offset) else None
        return behind

    def _prove_anew(self, queue: AnnouncementQueue, known: QueueView, position: int, *, begins_at: int) -> bool:
        """Proves the queue anew after age deleted the last record. The new proof is the record before the position, or
        that the queue begins there. Returns False for another queue, which began later."""
        seen = self._source.look(queue, offset=position - 1)
        if seen.min_offset < begins_at:
            return False
        if seen.record is not None or seen.min_offset >= position:
            self._move(queue, known, position, position, record=seen.record, is_beginning=seen.record is None)
        return True

    def _open_outage(self) -> str | None:
        """Returns the reason of the open outage, or None if no outage is open."""
        number, reason = self._outages.seen()
        if number != self._outages_seen:
            self._outages_seen = number
            self._era += 1
        return reason

    def _holds_lease(self, queue: AnnouncementQueue, known: QueueView) -> bool:
        if not self._concerns(self.subscription):
            self.release(queue)
            return False
        now = self._clock.monotonic_seconds()
        if known.lease_renewed_at is not None and now - known.lease_renewed_at < self.lease_seconds / 3:
            return True
        is_held = self._half_sets.take_lease(
            self._shard(queue), queue, token=self.token, lease_seconds=self.lease_seconds
        )
        known.lease_renewed_at = now if is_held else None
        return is_held

    def _find_position(self, queue: AnnouncementQueue, known: QueueView) -> None:
        shard = self._shard(queue)
        stored, is_beginning = self._half_sets.position(shard, queue), False
        if stored is None:
            proved = self._proved_floor(queue)
            # The start is never the queue's end: announcements older than this consumer must be admitted, too.
            start = self._source.earliest(queue) if proved is None else proved.queue_offset + 1
            kept = beginning_before(start) if proved is None and start > 0 else proved
            answer = self._half_sets.admit(shard, queue, expected=None, following=start, unique_keys=(), record=kept)
            stored, is_beginning = answer.offset, answer.admitted and proved is None
        known.compared_at = self._clock.monotonic_seconds()
        if stored is not None:
            self._recall(queue, known, stored, is_beginning=is_beginning)

    def _proved_floor(self, queue: AnnouncementQueue) -> QueueRecord | None:
        """Returns the record of the floor, if the queue still has it. Reading starts after this record and not at the
        floor, because records between the two may have been lost and replaced by other announcements."""
        floor = self._ledger.floor(self.subscription, queue)
        if floor is None or floor.proof is None:
            return None
        record = floor.proof.record
        return record if held(self._source, queue, record) is Held.SAME else None

    def _recall(self, queue: AnnouncementQueue, known: QueueView, position: int, *, is_beginning: bool) -> None:
        """Takes over the position and the records beside it. If no stored record belongs to the position, the record
        before the position is read and stored. What was read so far is then believed, as in releases without proofs. If
        the queue has just begun there, a record before the position is of another queue.

        After an error the position stays unknown. With records of another position, messages would be skipped.
        """
        kept = self._half_sets.known_records(self._shard(queue), queue)
        is_its_own = kept.proof is not None and kept.proof.following == position
        known.last = kept.proof.record if kept.proof is not None and is_its_own else None
        known.trail = tuple(kept.trail)
        if position > 0 and known.last == beginning_before(position):
            known.last, is_its_own, is_beginning = None, False, True
        known.beginnings = int(is_beginning and not is_its_own)
        is_believed = position > 0 and not is_its_own and not is_beginning
        seen = self._source.look(queue, offset=position - 1).record if is_believed else None
        if seen is None:
            known.position = position
        else:
            self._move(queue, known, position, position, record=seen)

    def _idle(self, queue: AnnouncementQueue, known: QueueView, position: int) -> StepOutcome:
        now = self._clock.monotonic_seconds()
        if now - known.compared_at >= COMPARE_SECONDS:
            # Redis may have lost its last writes while no announcement came.
            self._follow(queue, known, position, self._half_sets.position(self._shard(queue), queue))
        if known.position != position:
            return StepOutcome(kind=StepKind.MOVED_ON)
        wait = COMPARE_SECONDS if known.is_joined else IDLE.pause_seconds(known.idle_steps)
        return StepOutcome(kind=StepKind.IDLE, wait_seconds=wait, is_called_for=known.is_joined)

    def _admit(self, queue: AnnouncementQueue, known: QueueView, position: int, pulled: PulledBatch) -> StepOutcome:
        screened = self._screen(queue, pulled.messages)
        state, record = self._last_record(queue, known, pulled)
        if state is Held.OTHER:
            return self._rewind(queue, known, position)
        if not self._move(queue, known, position, pulled.next_offset, screened, record=record):
            return StepOutcome(kind=StepKind.MOVED_ON, detail="the stored offset was another one")
        return StepOutcome(kind=StepKind.MOVED_ON)

    def _screen(self, queue: AnnouncementQueue, messages: Sequence[PulledAnnouncement]) -> Screened:
        """Returns the admitted keys. Refused announcements are quarantined before the offset moves. A crash in between
        quarantines them twice, which is harmless."""
        screened = Screened.of(self._rules.screen(queue, message) for message in messages)
        if screened.refused:
            self._ledger.quarantine(self.subscription.environment, screened.refused)
            reasons = ", ".join(sorted({each.reason for each in screened.refused}))
            self._report(queue, EventKind.REFUSED, detail=reasons, count=len(screened.refused))
        return screened

    def _skip_illegal(
        self, queue: AnnouncementQueue, known: QueueView, position: int, pulled: PulledBatch
    ) -> StepOutcome:
        corrected, proved = pulled.min_offset, None
        if position > pulled.max_offset and known.trail:
            return self._rewind(queue, known, position)
        if position > pulled.max_offset:
            # The broker lost the queue's end, or the topic was created again. Going back is harmless.
            proved = self._proved_floor(queue)
            corrected = corrected if proved is None else proved.queue_offset + 1
        if corrected == position:
            return self._suspended(known, f"the broker refuses offset {position} of {queue.queue_id}")
        first, last = sorted((position, corrected))
        self._report(
            queue,
            EventKind.OFFSET_ILLEGAL,
            detail=f"offset {position} is not in {pulled.min_offset}..{pulled.max_offset}, going on at {corrected}",
            first_offset=first,
            last_offset=last,
        )
        # The queue may have begun again since its broker said this. Then earlier messages were never read.
        self._move(queue, known, position, corrected, record=proved, is_beginning=proved is None)
        return StepOutcome(kind=StepKind.MOVED_ON)

    def _rewind(self, queue: AnnouncementQueue, known: QueueView, position: int) -> StepOutcome:
        """Goes back to the newest known record that the queue still has, or to the queue's beginning."""
        seen = [one for one in known.trail if known.last is None or one.queue_offset < known.last.queue_offset]
        found = newest_held(self._source, queue, [*seen, *([known.last] if known.last is not None else [])])
        if found is None:
            proved = self._proved_floor(queue)
            found = proved if proved is not None and proved.queue_offset + 1 < position else None
        start = self._source.earliest(queue) if found is None else found.queue_offset + 1
        if start >= position and known.beginnings:
            known.beginnings = 0  # the broker confirms both, so the floor is believed, as in earlier releases
            return StepOutcome(kind=StepKind.MOVED_ON)
        if start >= position:
            return self._suspended(known, f"the records before offset {position} are other ones, and none is left")
        trail = tuple(one for one in seen if found is not None and one.queue_offset <= found.queue_offset)
        if self._move(queue, known, position, start, record=found, trail=trail, is_beginning=found is None):
            known.rewinds += 1
            self._report(
                queue,
                EventKind.OFFSETS_REUSED,
                detail=f"the broker has other records before offset {position}, it lost its tail or the topic was "
                f"created again: going on at {start}",
                first_offset=start,
                last_offset=position,
            )
        return StepOutcome(kind=StepKind.MOVED_ON)

    def _last_record(
        self, queue: AnnouncementQueue, known: QueueView, pulled: PulledBatch
    ) -> tuple[Held, QueueRecord | None]:
        """Returns the last record that the pull returned. If the filter left many records out, returns the last record
        of any tag. OTHER: the pulled messages are of a queue that was replaced."""
        if pulled.messages:
            return Held.SAME, pulled.messages[-1].record
        if known.last is not None and pulled.next_offset - known.last.queue_offset <= NEAR_OFFSETS_MAX:
            return Held.SAME, known.last
        state, seen = record_before(
            self._source, queue, tag=self._rules.tag_in(queue), following=pulled.next_offset, last=known.last
        )
        is_proof = state is Held.SAME or known.last is None
        return state, seen if is_proof else known.last

    def _move(
        self,
        queue: AnnouncementQueue,
        known: QueueView,
        position: int,
        following: int,
        screened: Screened = _NOTHING,
        *,
        record: QueueRecord | None = None,
        trail: tuple[QueueRecord, ...] | None = None,
        is_beginning: bool = False,
    ) -> bool:
        """Stores the next offset, with the keys before it and the last record that was seen, and counts the keys.
        Returns False if another consumer moved the stored offset. `trail` is the rest of the trail; None keeps all of
        it. `is_beginning` says that the queue begins at the offset."""
        trail = known.trail if trail is None else trail
        trail = trail if record is None else with_record(trail, record)
        kept = beginning_before(following) if record is None and is_beginning and following > 0 else record
        answer = self._half_sets.admit(
            self._shard(queue),
            queue,
            expected=position,
            following=following,
            unique_keys=screened.unique_keys,
            apart=screened.apart,
            record=kept,
            trail=trail if trail != known.trail else None,
        )
        if answer.admitted:
            known.position, known.last, known.trail = following, record, trail
            # A broker that gives different beginnings is believed in the end. Otherwise nobody would read the queue.
            known.beginnings = known.beginnings + 1 if is_beginning and known.beginnings < BEGINNINGS_MAX else 0
            known.compared_at = self._clock.monotonic_seconds()
            known.admitted_keys += len(screened.unique_keys)
            known.refused += len(screened.refused)
            return True
        self._follow(queue, known, position, answer.offset)
        return False

    def _follow(self, queue: AnnouncementQueue, known: QueueView, position: int, stored: int | None) -> None:
        """Takes over the offset that Redis has. With None, Redis has lost its memory, and an outage is opened."""
        if stored is None and known.era == self._era:
            # Written before the position is dropped. If the ledger is away, the next step notices the loss again.
            self._ledger.open_outage(self.subscription.environment, reason="MEMORY_LOST", noticed_by=self.token)
            self._report(queue, EventKind.MEMORY_LOST, detail=f"Redis has no offset, {position} was known")
            self._era += 1
            self._outages.ask_again()
        known.compared_at = self._clock.monotonic_seconds()
        if stored != position:
            known.position = None  # the next step reads it again, with its proof
        if stored is None or stored < position:
            known.rewinds += 1
        if stored is not None and stored < position:
            self._report(
                queue,
                EventKind.REWOUND,
                detail=f"Redis has offset {stored}, {position} was known: it lost its last writes",
                first_offset=stored,
                last_offset=position,
            )

    # ---- outcomes and events

    def _suspended(self, known: QueueView, detail: str, *, is_broker_away: bool = False) -> StepOutcome:
        wait = max(AGAIN.first_seconds, AGAIN.jittered_seconds(known.failures, self._jitter))
        known.failures += 1
        return StepOutcome(kind=StepKind.SUSPENDED, wait_seconds=wait, detail=detail, is_broker_away=is_broker_away)

    def _note(self, queue: AnnouncementQueue, known: QueueView, outcome: StepOutcome) -> None:
        known.kind = outcome.kind
        known.idle_steps = known.idle_steps + 1 if outcome.kind is StepKind.IDLE else 0
        if outcome.kind is StepKind.SUSPENDED:
            if not known.suspended_for:
                known.is_broker_away = outcome.is_broker_away
                self._report(queue, EventKind.SUSPENDED, detail=outcome.detail)
            known.suspended_for = outcome.detail
            return
        known.failures = 0
        if known.suspended_for:
            self._report(queue, EventKind.RESUMED, detail=known.suspended_for)
            known.suspended_for = ""

    def _report(
        self, queue: AnnouncementQueue, kind: EventKind, *, detail: str, count: int = 0,
        first_offset: int | None = None, last_offset: int | None = None,
    ) -> None:  # fmt: skip
        self._on_event(
            AnnouncementEvent(
                kind=kind,
                subscription=self.subscription,
                queue=queue,
                detail=detail,
                count=count,
                first_offset=first_offset,
                last_offset=last_offset,
                is_broker_away=self._queues[queue].is_broker_away,
            )
        )

    def _shard(self, queue: AnnouncementQueue) -> Shard:
        return Shard(subscription=self.subscription, number=queue.queue_id)
