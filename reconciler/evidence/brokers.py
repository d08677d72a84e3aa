"""The evidence of brokers for the policy (reconciler/policy/ports: BrokerEvidence).

A broker's "not found" is ABSENT only if the broker's index has provably passed the time in question. Otherwise the
answer is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from reconciler.contract.answers import (
    INDEX_BEHIND,
    INDEX_UNPROVED,
    INDEX_WITHOUT_PROBE,
    LEFT_THE_ROUTE,
    NOT_INDEXING,
    PROBE_TOPIC_MISSING,
)
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.evidence.absent_producers import AbsentProducers
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.evidence.horizon import PROBE_GROUP, Probes
from reconciler.evidence.lookup import Lookups
from reconciler.evidence.pop_groups import PopGroups
from reconciler.evidence.queue_scan import end_of_queue, record_at
from reconciler.evidence.reused_offsets import ReusedOffsets
from reconciler.evidence.watermark import Watermarks
from reconciler.policy.evidence import (
    ConsumeMode,
    FilterKind,
    HalfQuestions,
    Lookup,
    OutboxRow,
    Presence,
    ProducerLook,
    QueuePosition,
    StoredMessage,
    TransactionState,
    Watermark,
    WatermarkState,
    WitnessAnswer,
)
from reconciler.policy.ports.asked import Asked
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.admin import Admin, GroupFilter
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.broker_facts import BrokerFacts
from reconciler.rocketmq.wire.codes import (
    CHECK_GROUP,
    HALF_TOPIC,
    PROBE_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dead_letter_topic,
    pop_retry_topics,
    retry_topic,
)
from reconciler.rocketmq.wire.properties import whole_number

HANDED_OUT = Code("evidence.handed-out", position=Field.FACT)
#: The producers and the filter of a group are remembered for this time.
_REMEMBER_SECONDS = 5.0
#: Two looks at producers belong to one absence if at most this time, or three check intervals, lies between them.
_UNLOOKED_SECONDS = 600.0
#: The wait for a half whose broker's version is unknown: the longest default.
_UNKNOWN_WAIT_SECONDS = 66.0


class RemotingBrokerEvidence:
    """ports.BrokerEvidence over the remoting client. Thread-safe: each remembered entry is replaced as a whole."""

    def __init__(
        self,
        instance: ClientInstance,
        *,
        skew_margin_seconds: float,
        probe_topic: str = PROBE_TOPIC,
        retired_brokers: Collection[str] = (),
        reused: ReusedOffsets | None = None,
        pop_groups: PopGroups | None = None,
    ) -> None:
        """`retired_brokers`: brokers that never come back. No answer of a retired broker is awaited. `reused`,
        `pop_groups`: memories that other users share. None: this object has a memory of its own."""
        self._retired_brokers = frozenset(retired_brokers)
        self._routes = instance.routes
        self._families = instance.families
        self._clock = instance.clock
        self._skew_margin_seconds = skew_margin_seconds
        self._lookups = Lookups(instance.client, instance.routes, instance.families)
        self._client = instance.client
        self._reused = reused or ReusedOffsets(instance.clock)
        self._watermarks = Watermarks(instance.client, instance.routes, instance.families, reused=self._reused)
        self._probes = Probes(
            instance.client,
            instance.routes,
            instance.sender(PROBE_GROUP),
            instance.unique_keys,
            probe_topic=probe_topic,
        )
        self._admin = Admin(instance.client)
        self._offsets = instance.offsets
        self._configs = BrokerConfigs(self._admin, clock=instance.clock)
        self._pop_groups = pop_groups or PopGroups(
            self._admin, instance.routes, instance.families, self._configs, clock=instance.clock
        )
        self._producers: dict[tuple[str, str], tuple[bool, float]] = {}
        self._filters: dict[Subscription, tuple[FilterKind, float]] = {}
        self._absent_producers = AbsentProducers(instance.clock)

    def brokers_seen(self, topic: str) -> frozenset[str] | None:
        """Returns the brokers that the topic's route has had since the last expect(). None if no name server
        answers."""
        return self._routes.seen(topic)

    def expect(self, topic: str, brokers: Collection[str]) -> None:
        """Sets the brokers that may hold messages of the topic in addition to those of its route."""
        self._routes.expect(topic, brokers)

    def watermark(self, subscription: Subscription) -> Watermark:
        """Returns the low watermark of the group over all queues of the topic and its retry topics, at most now minus
        the skew margin. The state is REACHED instead of KNOWN if the group pops."""
        signs = self._pop_groups.signs(subscription)
        found = self._watermarks.watermark(
            subscription.topic,
            subscription.group,
            skew_margin_seconds=self._skew_margin_seconds,
            pop_retry_topics=signs.retry_topics,
        )
        if found.state is not WatermarkState.KNOWN or signs.consume_mode is not ConsumeMode.POP:
            return found
        return replace(found, state=WatermarkState.REACHED, detail=HANDED_OUT(position=found.detail))

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """Returns the group's offsets in every queue. None if a broker did not answer."""
        signs = self._pop_groups.signs(subscription)
        return self._watermarks.positions(subscription.topic, subscription.group, pop_retry_topics=signs.retry_topics)

    def consume_mode(self, subscription: Subscription) -> ConsumeMode:
        """Returns whether the group pulls or pops."""
        return self._pop_groups.signs(subscription).consume_mode

    def is_deserted(self, subscription: Subscription) -> bool:
        """Returns True only if every master answers that no member is connected (code 206, CONSUMER_NOT_ONLINE), and
        no broker shows that the group pops. Returns False if a master is away or refuses."""
        if self.consume_mode(subscription) is ConsumeMode.POP:
            return False
        try:
            addresses = [place.master for place in self._routes.whereabouts(subscription.topic)]
            members = [None if a is None else self._admin.group_members(a, subscription.group) for a in addresses]
        except ReconcilerError:
            return False
        return bool(addresses) and None not in addresses and not any(members)

    def filter_kind(self, subscription: Subscription) -> FilterKind:
        """Returns the kind of the group's filter. SQL92 if one broker knows an SQL92 filter."""
        now = self._clock.monotonic_seconds()
        known = self._filters.get(subscription)
        if known is None or now - known[1] >= _REMEMBER_SECONDS:
            self._filters[subscription] = known = (self._ask_filter_kind(subscription), now)
        return known[0]

    def _ask_filter_kind(self, subscription: Subscription) -> FilterKind:
        kinds: set[FilterKind] = set()
        try:
            addresses = [place.master for place in self._routes.whereabouts(subscription.topic)]
        except ReconcilerError:
            return FilterKind.UNKNOWN
        for address in addresses:
            kind = FilterKind.UNKNOWN
            with suppress(ReconcilerError):
                if address is not None:
                    kind = filter_kind_of(self._admin.group_filter(address, subscription.group, subscription.topic))
            kinds.add(kind)
        by_weight = (FilterKind.SQL92, FilterKind.TAG, FilterKind.UNKNOWN, FilterKind.NONE)
        return next((kind for kind in by_weight if kind in kinds), FilterKind.UNKNOWN)

    def horizon(self, topic: str) -> Horizon:
        """Sends a probe to every master of the topic's route, and waits until each index has the probe."""
        return self._probes.horizon(topic)

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns committed or republished copies under the real topic. ABSENT only if the horizon covers
        not_before_ms."""
        return _proving(self._lookups.committed_copies(topic, unique_key), horizon, not_before_ms)

    def messages_of_key(
        self, topic: str, key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns messages that consumers get and whose KEYS contain `key`. ABSENT only if the horizon covers
        not_before_ms."""
        return _proving(self._lookups.messages_of_key(topic, key), horizon, not_before_ms)

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns all half copies, the oldest first. On brokers up to 4.2, the offset in the outbox row may show a half
        that no key finds.

        If the outbox names a broker that has left every route, this broker's answer is UNKNOWN, unless
        `rocketmq.retired_brokers` names the broker, too.
        """
        by_key = _proving(self._lookups.view_message(topic, unique_key), horizon, not_before_ms)
        if outbox is None or outbox.half_broker is None:
            return by_key
        return partial(self._with_named_half, topic, unique_key, by_key, outbox.half_broker, outbox)

    def _with_named_half(
        self,
        topic: str,
        unique_key: str,
        by_key: Asked[Lookup[StoredMessage]],
        broker_name: str,
        outbox: OutboxRow,
    ) -> Lookup[StoredMessage]:
        """Adds the half at the place that the outbox row names."""
        found, offset = by_key(), outbox.half_commit_log_offset
        if any((half.broker, half.commit_log_offset) == (broker_name, offset) for half in found.records):
            return found
        if all(answer.witness != broker_name for answer in found.answers):
            if broker_name in self._retired_brokers:
                return found
            gone = Lookup[StoredMessage].unknown(broker_name, LEFT_THE_ROUTE())
            return _merge([found, gone])
        facts = self._facts(topic, broker_name)
        if facts is None or facts.has_half_topic or offset is None:
            return found
        by_offset = self._lookups.at_offset(topic, broker_name, offset, unique_key)()
        halves = tuple(
            record
            for record in by_offset.records
            if record.topic == topic and record.transaction_state is TransactionState.PREPARED
        )
        if halves:
            return _merge([found, replace(by_offset, records=halves)])
        return found if by_offset.is_found else _merge([found, by_offset])

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns the copies in TRANS_CHECK_MAX_TIME_TOPIC (4.5.2 and newer)."""
        return _proving(self._lookups.parked_copies(topic, unique_key), horizon, not_before_ms)

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Asked[Mapping[str, Lookup[StoredMessage]]]:
        """Returns "retry" and "dead-letter" -> the copies in the group's own topics. "retry" includes copies that still
        wait for their delay."""
        topic, retry = subscription.topic, retry_topic(subscription.group)
        waiting = [
            self._lookups.copies_under(topic, delay_topic, unique_key, meant_for=retry)
            for delay_topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
        ]
        back = [
            self._lookups.copies_under(topic, retry_of_group, unique_key)
            for retry_of_group in (retry, *self._pop_groups.signs(subscription).retry_topics)
        ]
        dead = self._lookups.copies_under(topic, dead_letter_topic(subscription.group), unique_key)
        blind = self._not_indexing(topic)
        of_pop = pop_retry_topics(topic, subscription.group)

        def named(lookup: Lookup[StoredMessage]) -> Lookup[StoredMessage]:
            """Restores the business topic. Copies that POP revived, and their dead letters, name only POP's retry
            topic."""
            return lookup.map(lambda copy: replace(copy, real_topic=topic) if copy.real_topic in of_pop else copy)

        def hear() -> Mapping[str, Lookup[StoredMessage]]:
            retries = _merge([*(asked() for asked in waiting), *(named(asked()) for asked in back)])
            return {
                "retry": _unless(_proved(retries, horizon, 0), blind),
                "dead-letter": _unless(_proved(named(dead()), horizon, 0), blind),
            }

        return hear

    def _not_indexing(self, topic: str) -> Fact | str | None:
        """Returns why retries may be missing from an index. None if all brokers index retries. 3.2.6 indexes no record
        with the bits of a committed transaction, and a retry keeps these bits."""
        try:
            masters = self._routes.masters(topic)
            blind = sorted(name for name, at in masters.items() if not self._families.facts(at).indexes_committed)
        except ReconcilerError as error:
            return str(error)
        return NOT_INDEXING(brokers=tuple(blind)) if blind else None

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """Returns how long to leave a half to its broker's check-back. 0 on brokers up to 4.2, or if no producer could
        answer.

        If the broker does not answer, assumes a producer and the version's default intervals.
        """
        address = self._address(half)
        facts = self._facts(half.real_topic, half.broker)
        if facts is not None and not facts.has_check_back:
            return 0.0
        if address is not None and self._has_no_producer(address, half.producer_group):
            return 0.0
        intervals = self._intervals(address)
        if intervals is not None:
            return sum(intervals)
        if facts is None:
            return _UNKNOWN_WAIT_SECONDS
        return facts.transaction_timeout_seconds + facts.transaction_check_interval_seconds

    def producers_of(self, half: StoredMessage) -> ProducerLook:
        """Asks the half's broker for its connected producers (GET_PRODUCER_CONNECTION_LIST), at each call. A broker
        asks only connected producers about a half. Brokers up to 4.2 ask no producer."""
        facts, address = self._facts(half.real_topic, half.broker), self._address(half)
        if facts is None or address is None:
            return ProducerLook(is_connected=None)
        if not facts.has_check_back:
            return ProducerLook(is_connected=False)
        queue = MessageQueue(topic=half.topic, broker_name=half.broker, queue_id=half.queue_id)
        of = half.broker, half.producer_group
        intervals = self._intervals(address)
        interval_seconds = facts.transaction_check_interval_seconds if intervals is None else intervals[1]
        try:
            is_connected = bool(self._admin.producer_connections(address, half.producer_group))
            absence = (
                None
                if is_connected
                else self._absent_producers.not_found(
                    *of,
                    half.topic,
                    lambda: self._offsets.maximum(address, queue),
                    known_offset=half.queue_offset,
                    unlooked_seconds_max=max(_UNLOOKED_SECONDS, 3 * interval_seconds),
                )
            )
        except ReconcilerError:
            is_connected, absence = None, None
        if absence is None:
            self._absent_producers.found(*of)
            return ProducerLook(is_connected=is_connected)
        return ProducerLook(
            is_connected=False,
            away_seconds=absence.seconds,
            half_queue_ends=absence.half_queue_ends,
            interval_seconds=interval_seconds,
        )

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """Returns the age in seconds at which the broker would have put an open half back. None if this is unknown or
        never happens.

        Halves in RocksDB (5.4) are never put back, because RocksDB counts their checks
        (TransactionalMessageRocksDBService).
        """
        if half.topic == ROCKSDB_HALF_TOPIC:
            return None
        facts = self._facts(half.real_topic, half.broker)
        intervals = self._intervals(self._address(half))
        if facts is None or not facts.has_check_back or intervals is None:
            return None
        timeout_seconds, interval_seconds = intervals
        return unasked_seconds(half.properties, timeout_seconds) + 2 * interval_seconds

    def is_past_check(self, half: StoredMessage) -> bool | None:
        """Returns True if the broker's check service has passed the half (TransactionalMessageServiceImpl.check). None
        if unknown.

        A round of this service begins at the saved offset, passes ended halves, and copies open halves to the queue's
        end. So a half before the saved offset was ended, or has a younger copy. Without a saved offset, no round has
        ended yet (5.x). A broker that lost the queue's tail keeps the saved offset, and never asks about new halves
        before this offset.
        """
        address = self._address(half)
        if address is None or half.topic != HALF_TOPIC:
            return None
        queue = MessageQueue(topic=HALF_TOPIC, broker_name=half.broker, queue_id=half.queue_id)
        try:
            progress = self._offsets.of_group(address, queue, CHECK_GROUP)
        except ReconcilerError:
            return None
        return progress is not None and half.queue_offset < progress and self._is_proved(half, address, queue, progress)

    def _is_proved(self, half: StoredMessage, address: str, queue: MessageQueue, progress: int) -> bool:
        """Returns False if the half may have the offset of a half that was lost with the queue's tail. The check
        service never reads a half at a lost offset."""
        try:
            end = end_of_queue(self._client, address, queue, offset=progress)
        except ReconcilerError:
            return True
        proved = self._reused.proved_from(
            (HALF_TOPIC, half.broker, half.queue_id),
            group=CHECK_GROUP,
            consumer_offset=progress,
            end=end,
            look=partial(record_at, self._client, address, queue),
        )
        self._reused.keep([HALF_TOPIC])
        return half.queue_offset >= proved.queue_offset and half.commit_log_offset > proved.behind_log_offset

    def check_back_of(self, half: StoredMessage) -> HalfQuestions | None:
        """Returns how long the half's broker asks about the half. None if the broker does not show its configuration.

        TransactionalMessageServiceImpl gives a half up after transactionCheckMax questions (needDiscard), or when the
        half is older than fileReservedTime (needSkip). Two questions are added: one for a round that is under way, and
        one for a broker whose rounds begin late. RocksDB (5.4) counts the questions itself, so for its halves all
        questions count as still to be asked.
        """
        facts = self._facts(half.real_topic, half.broker)
        if facts is not None and not facts.has_check_back:
            return HalfQuestions(is_asked=False, until_ms=0, never_after_ms=0)
        address = self._address(half)
        intervals = self._intervals(address)
        if address is None or intervals is None:
            return None
        try:
            config = self._configs.of(address)
            questions, hours = int(config["transactionCheckMax"]), int(config["fileReservedTime"])
        except (ReconcilerError, KeyError, ValueError, OverflowError):
            return None
        timeout_seconds, interval_seconds = intervals
        left = max(0, questions - (half.check_times or 0)) + 2
        first_seconds = unasked_seconds(half.properties, timeout_seconds)
        never_after_ms = half.born_timestamp_ms + hours * 3_600_000 + round(interval_seconds * 1000)
        until_ms = half.store_timestamp_ms + round((first_seconds + left * interval_seconds) * 1000)
        return HalfQuestions(is_asked=True, until_ms=min(until_ms, never_after_ms), never_after_ms=never_after_ms)

    # ----------------------------------------------------------------- about brokers

    def _address(self, half: StoredMessage) -> str | None:
        try:
            places = self._routes.whereabouts(half.real_topic)
        except ReconcilerError:
            return None
        return next((place.master for place in places if place.broker_name == half.broker), None)

    def _facts(self, topic: str, broker_name: str) -> BrokerFacts | None:
        try:
            places = self._routes.whereabouts(topic)
            address = next((place.master for place in places if place.broker_name == broker_name), None)
            return None if address is None else self._families.facts(address)
        except ReconcilerError:
            return None

    def _has_no_producer(self, address: str, group: str) -> bool:
        """Returns True only if the broker answers that no producer of the group is connected."""
        now = self._clock.monotonic_seconds()
        known = self._producers.get((address, group))
        if known is None or now - known[1] >= _REMEMBER_SECONDS:
            try:
                known = (not self._admin.producer_connections(address, group), now)
            except ReconcilerError:
                return False
            self._producers[address, group] = known
        return known[0]

    def _intervals(self, address: str | None) -> tuple[float, float] | None:
        """Returns the seconds of transactionTimeOut and transactionCheckInterval. None if the broker did not show its
        configuration."""
        if address is None:
            return None
        try:
            config = self._configs.of(address)
            return int(config["transactionTimeOut"]) / 1000, int(config["transactionCheckInterval"]) / 1000
        except (ReconcilerError, KeyError, ValueError, OverflowError):
            return None


def unasked_seconds(properties: Mapping[str, str], timeout_seconds: float) -> float:
    """Returns the seconds from a half's storing to its broker's first question. Like a broker, ignores an immunity time
    that is no whole number."""
    immunity = whole_number(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS", ""))
    return timeout_seconds if immunity is None else max(timeout_seconds, float(immunity))


def _proved(lookup: Lookup[StoredMessage], horizon: Horizon, not_before_ms: int) -> Lookup[StoredMessage]:
    """Weakens the answer of each broker whose index did not provably pass the time: ABSENT becomes UNKNOWN, and FOUND
    becomes partial."""
    answers = tuple(
        answer if horizon.covers([answer.witness], not_before_ms) else _unproved(answer, horizon, not_before_ms)
        for answer in lookup.answers
    )
    return _of(lookup.records, answers)


def _proving(asked: Asked[Lookup[StoredMessage]], horizon: Horizon, not_before_ms: int) -> Asked[Lookup[StoredMessage]]:
    return lambda: _proved(asked(), horizon, not_before_ms)


def _unproved(answer: WitnessAnswer, horizon: Horizon, not_before_ms: int) -> WitnessAnswer:
    if answer.presence is Presence.FOUND:
        return replace(answer, is_partial=True)
    if answer.presence is Presence.UNKNOWN:
        return answer
    return replace(answer, presence=Presence.UNKNOWN, detail=_short_of(horizon, answer, not_before_ms))


def _short_of(horizon: Horizon, answer: WitnessAnswer, not_before_ms: int) -> Fact:
    """Returns why the broker's ABSENT proves nothing."""
    at_ms = horizon.at_ms.get(answer.witness)
    why = horizon.why.get(answer.witness)
    if at_ms is None and why is not None and why.code is PROBE_TOPIC_MISSING:
        return INDEX_UNPROVED(detail=answer.fact, why=why)
    if at_ms is None:
        return INDEX_WITHOUT_PROBE(detail=answer.fact)
    return INDEX_BEHIND(detail=answer.fact, seconds=f"{(not_before_ms - at_ms) / 1000:.1f}")


def filter_kind_of(found: GroupFilter | None) -> FilterKind:
    """Returns the kind of a group's filter. `found`: None if the broker knows no filter."""
    if found is None:
        return FilterKind.NONE
    return FilterKind.SQL92 if found.is_sql92 else FilterKind.TAG


def _merge(lookups: Iterable[Lookup[StoredMessage]]) -> Lookup[StoredMessage]:
    parts = list(lookups)
    records = {(record.broker, record.commit_log_offset): record for lookup in parts for record in lookup.records}
    ordered = sorted(records.values(), key=lambda one: (one.store_timestamp_ms, one.broker, one.commit_log_offset))
    return _of(tuple(ordered), tuple(answer for lookup in parts for answer in lookup.answers))


def _unless(lookup: Lookup[StoredMessage], blind: Fact | str | None) -> Lookup[StoredMessage]:
    """Adds an UNKNOWN answer if brokers may not index the copies. `blind`: the reason, or None."""
    return lookup if blind is None or lookup.is_unknown else _merge([lookup, Lookup.unknown("index", blind)])


def _of(records: tuple[StoredMessage, ...], answers: tuple[WitnessAnswer, ...]) -> Lookup[StoredMessage]:
    if records:
        return Lookup(presence=Presence.FOUND, records=records, answers=answers)
    is_absent = bool(answers) and all(answer.presence is Presence.ABSENT for answer in answers)
    return Lookup(presence=Presence.ABSENT if is_absent else Presence.UNKNOWN, answers=answers)
