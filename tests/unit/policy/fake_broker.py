"""A broker in memory for policy tests: half topic, real topic, parked topic, END with all its traps. One thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from reconciler.clock import ManualClock
from reconciler.contract.subscription import Subscription
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import (
    ConsumeMode,
    EndOutcome,
    FilterKind,
    HalfQuestions,
    Lookup,
    OutboxRow,
    Presence,
    ProducerLook,
    QueuePosition,
    Recorded,
    SendAnswer,
    StoredMessage,
    TransactionState,
    Watermark,
    WatermarkState,
    WitnessAnswer,
)
from reconciler.policy.ports.asked import Asked, known
from reconciler.policy.ports.evidence import Horizon

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


class FakeBroker:
    """BrokerEvidence and BrokerRepairs. END is not idempotent, as in every version."""

    def __init__(self, clock: ManualClock, *, name: str = "broker-a") -> None:
        self.clock = clock
        self.name = name
        self.halves: list[StoredMessage] = []
        self.copies: list[StoredMessage] = []
        self.parked: list[StoredMessage] = []
        #: group -> "retry"/"dead-letter" -> copies
        self.group_topics: dict[str, dict[str, list[StoredMessage]]] = {}
        #: group -> next offset in the only queue of the real topic; None: positions are not answered
        self.offsets: dict[str, int] = {}
        self.positions_known = True
        self.watermark_known = True
        #: Offsets below it were given twice.
        self.doubtful_below = 0
        self.unknown: set[str] = set()
        self.proves_horizon = True
        #: If set, every probe is found with this store time.
        self.horizon_at_ms: int | None = None
        #: What was asked once a round, in order.
        self.snapshot: list[str] = []
        self.check_back_wait = 0.0
        self.rollback_evident_after: float | None = None
        self.past_check: bool | None = None
        self.check_back: HalfQuestions | None = None
        #: Whether producers are connected; None: it does not tell.
        self.producers: bool | None = False
        self.producers_left_ms = 0
        #: Time and end of the half queue at looks that found none.
        self._half_queue_ends: list[tuple[int, int]] = []
        #: An open half that is asked for is put back once it is so old, as a check round does. None: none is.
        self.put_back_after_seconds: float | None = None
        #: Answers of the next ENDs and republishes; what is executed although NO_ANSWER is said: "executed".
        self.scripted: list[SendAnswer] = []
        self.executes_unanswered = True
        self.look_ups: list[tuple[str, str]] = []
        self.ends: list[tuple[str, int, bool]] = []
        #: Told of the half, before each END is executed.
        self.on_end: Callable[[StoredMessage], object] = lambda _half: None
        self.republished: list[StoredMessage] = []
        #: Names in the topic's route; None: no name server answers.
        self.route: frozenset[str] | None = frozenset({name})
        self.away: frozenset[str] = frozenset()
        self._log_offset = 1000
        self.group_filters = FilterKind.TAG
        self.consumes = ConsumeMode.PULL

    # ---- what happens on a broker

    def _next(self) -> int:
        self._log_offset += 100
        return self._log_offset

    def send_half(
        self,
        unique_key: str,
        *,
        topic: str = "ORDERS",
        group: str = "order-service",
        tag: str | None = "paid",
        body: bytes = b"body",
        broker: str | None = None,
        check_times: int | None = None,
    ) -> StoredMessage:
        """A half copy in the half topic."""
        properties = {"UNIQ_KEY": unique_key, "PGROUP": group, "REAL_TOPIC": topic, "user": "value"}
        if tag is not None:
            properties["TAGS"] = tag
        half = StoredMessage(
            unique_key=unique_key,
            topic=HALF_TOPIC,
            real_topic=topic,
            broker=broker or self.name,
            queue_id=0,
            queue_offset=len(self.halves),
            commit_log_offset=self._next(),
            born_timestamp_ms=self.clock.now_ms(),
            store_timestamp_ms=self.clock.now_ms(),
            transaction_state=TransactionState.NONE,
            prepared_transaction_offset=0,
            producer_group=group,
            check_times=check_times,
            reconsume_times=0,
            properties=properties,
            body=body,
        )
        self.halves.append(half)
        return half

    def put_back(self, half: StoredMessage) -> StoredMessage:
        """What a check round does: the same half once more, newer."""
        again = replace(
            half,
            queue_offset=len(self.halves),
            commit_log_offset=self._next(),
            store_timestamp_ms=self.clock.now_ms(),
            check_times=(half.check_times or 0) + 1,
        )
        self.halves.append(again)
        return again

    def give_up(self, half: StoredMessage) -> StoredMessage:
        """What a broker does with a half that it asks about no more: a copy that is newer than all halves."""
        parked = replace(half, topic="TRANS_CHECK_MAX_TIME_TOPIC", commit_log_offset=5_000)
        self.parked.append(parked)
        return parked

    def commit(self, half: StoredMessage, *, topic: str | None = None) -> StoredMessage:
        """A committed copy in the real topic."""
        copy = replace(
            half,
            topic=topic or half.real_topic,
            queue_offset=sum(c.topic == half.real_topic for c in self.copies),
            commit_log_offset=self._next(),
            store_timestamp_ms=self.clock.now_ms(),
            transaction_state=TransactionState.COMMIT,
            prepared_transaction_offset=half.commit_log_offset,
        )
        self.copies.append(copy)
        return copy

    def in_group_topic(self, group: str, kind: str, message: StoredMessage, *, topic: str) -> None:
        """A retry, delay or dead-letter copy of a group."""
        copy = replace(message, topic=topic, commit_log_offset=self._next(), store_timestamp_ms=self.clock.now_ms())
        self.group_topics.setdefault(group, {}).setdefault(kind, []).append(copy)

    # ---- BrokerEvidence

    def _answer(self, kind: str, key: str, records: Sequence[StoredMessage], not_before_ms: int, horizon: Horizon
                ) -> Lookup[StoredMessage]:  # fmt: skip
        self.look_ups.append((kind, key))
        if kind in self.unknown:
            return Lookup.unknown(self.name, "timed out")
        if self.away and not records:
            return Lookup.unknown(sorted(self.away)[0], "left the route")
        if records:
            partial = not horizon.covers([self.name], not_before_ms)
            found = WitnessAnswer(witness=self.name, presence=Presence.FOUND, detail="hit", is_partial=partial)
            gone = [WitnessAnswer(witness=n, presence=Presence.UNKNOWN, detail="left") for n in sorted(self.away)]
            return Lookup(presence=Presence.FOUND, records=tuple(records), answers=(found, *gone))
        if not horizon.covers([self.name], not_before_ms):
            return Lookup.unknown(self.name, "the index is not proved to be late enough")
        answer = WitnessAnswer(witness=self.name, presence=Presence.ABSENT, detail="code 22")
        return Lookup(presence=Presence.ABSENT, answers=(answer,))

    def brokers_seen(self, topic: str) -> frozenset[str] | None:
        """The broker itself, and who is in the route beside it."""
        del topic
        return self.route

    def expect(self, topic: str, brokers: Collection[str]) -> None:
        """Brokers that are expected and not in the route do not answer."""
        del topic
        self.away = frozenset(brokers) - (self.route or frozenset())

    def watermark(self, subscription: Subscription) -> Watermark:
        """Caught up, or the store time of the next copy."""
        if not self.watermark_known:
            return Watermark(state=WatermarkState.UNKNOWN, at_ms=0, detail=CONSUMED())
        at = self.offsets.get(subscription.group, 0)
        waiting = [c for c in self.copies if c.topic == subscription.topic and c.queue_offset >= at]
        if waiting:
            return Watermark(state=WatermarkState.KNOWN, at_ms=waiting[0].store_timestamp_ms, detail=CONSUMED())
        return Watermark(state=WatermarkState.KNOWN, at_ms=self.clock.now_ms(), detail=CONSUMED())

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """One queue, and the retry topic's."""
        self.snapshot.append("positions")
        if not self.positions_known:
            return None
        at = self.offsets.get(subscription.group)
        return [
            QueuePosition(
                topic=topic,
                broker=self.name,
                queue_id=0,
                consumer_offset=at,
                min_offset=0,
                max_offset=len(self.copies),
                doubtful_below=self.doubtful_below,
            )
            for topic in (subscription.topic, f"%RETRY%{subscription.group}")
        ]

    def horizon(self, topic: str) -> Horizon:
        """Proved now."""
        del topic
        self.snapshot.append("horizon")
        self.clock.advance(0.002)
        at_ms = self.clock.now_ms() if self.horizon_at_ms is None else self.horizon_at_ms
        return Horizon(at_ms={self.name: at_ms} if self.proves_horizon else {})

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Copies under the real topic."""
        found = [c for c in self.copies if (c.topic, c.unique_key) == (topic, unique_key)]
        answer = self._answer("copies", unique_key, found, not_before_ms, horizon)
        return known(answer)

    def messages_of_key(
        self, topic: str, key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Copies under the real topic whose KEYS have the word."""
        found = [c for c in self.copies if c.topic == topic and key in c.properties.get("KEYS", "").split()]
        return known(self._answer("messages of key", key, found, not_before_ms, horizon))

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Asked[Lookup[StoredMessage]]:
        """Copies under the half topic."""
        del topic, outbox
        found = [h for h in self.halves if h.unique_key == unique_key]
        found += self._put_back_of(found)
        answer = self._answer("halves", unique_key, found, not_before_ms, horizon)
        return known(answer)

    def _put_back_of(self, halves: Sequence[StoredMessage]) -> list[StoredMessage]:
        """What a check round has put back since, of halves that were not committed."""
        after_seconds = self.put_back_after_seconds
        ended = {copy.unique_key for copy in self.copies}
        newest = {half.broker: half for half in halves if half.unique_key not in ended}
        return [
            self.put_back(half)
            for half in newest.values()
            if after_seconds is not None and self.clock.now_ms() - half.store_timestamp_ms >= 1000 * after_seconds
        ]

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Copies that the broker gave up."""
        del topic
        found = [p for p in self.parked if p.unique_key == unique_key]
        answer = self._answer("parked", unique_key, found, not_before_ms, horizon)
        return known(answer)

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Asked[Mapping[str, Lookup[StoredMessage]]]:
        """Retry and dead-letter copies."""
        topics = self.group_topics.get(subscription.group, {})
        answers = {
            kind: self._answer(
                kind, unique_key, [m for m in topics.get(kind, []) if m.unique_key == unique_key], 0, horizon
            )
            for kind in ("retry", "dead-letter")
        }
        return known(answers)

    def consume_mode(self, subscription: Subscription) -> ConsumeMode:
        """As set."""
        del subscription
        return self.consumes

    def is_deserted(self, subscription: Subscription) -> bool:
        """Nobody asks in a round."""
        raise AssertionError(f"a round asked who consumes {subscription}")

    def filter_kind(self, subscription: Subscription) -> FilterKind:
        """As set."""
        del subscription
        return self.group_filters

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """As set."""
        del half
        return self.check_back_wait

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """As set."""
        del half
        return self.rollback_evident_after

    def is_past_check(self, half: StoredMessage) -> bool | None:
        """As set."""
        del half
        return self.past_check

    def producers_of(self, half: StoredMessage) -> ProducerLook:
        """As set."""
        del half
        now_ms = self.clock.now_ms()
        since = now_ms if self.producers is not False else self.producers_left_ms
        if self.producers is False:
            self._half_queue_ends.append((now_ms, len(self.halves)))
        return ProducerLook(
            is_connected=self.producers,
            away_seconds=(now_ms - since) / 1000,
            half_queue_ends=tuple(((now_ms - at) / 1000, end) for at, end in self._half_queue_ends if at >= since),
            interval_seconds=30.0,
        )

    def check_back_of(self, half: StoredMessage) -> HalfQuestions | None:
        """As set."""
        del half
        return self.check_back

    # ---- BrokerRepairs

    def end_transaction(self, half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        """Executes when it is sent, unless a scripted answer says otherwise."""
        assert expected.producer_group == half.producer_group

        def send() -> Asked[SendAnswer]:
            self.on_end(half)
            self.ends.append((half.unique_key, half.commit_log_offset, commit))
            answer = self.scripted.pop(0) if self.scripted else SendAnswer(outcome=EndOutcome.DONE, code=0)
            executed = answer.outcome is EndOutcome.DONE or (
                answer.outcome is EndOutcome.NO_ANSWER and self.executes_unanswered
            )
            if commit and executed:
                self.commit(half)
            return known(answer)

        return send

    def republish(self, message: StoredMessage) -> Asked[SendAnswer]:
        """An ordinary message with the same key."""
        self.republished.append(message)
        answer = self.scripted.pop(0) if self.scripted else SendAnswer(outcome=EndOutcome.DONE, code=0)
        if answer.outcome is EndOutcome.DONE:
            copy = self.commit(message)
            self.copies[-1] = replace(
                copy, transaction_state=TransactionState.NONE, prepared_transaction_offset=0, broker=self.name
            )
        return known(answer)
