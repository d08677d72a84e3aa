"""What brokers know, as policy asks for it (ports.BrokerEvidence): look-ups whose "absent" rests on a proved index."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.evidence import (
    Lookup,
    OutboxRow,
    Presence,
    QueuePosition,
    StoredMessage,
    TransactionState,
    Watermark,
    WitnessAnswer,
)
from reconciler.ports import Horizon
from reconciler.rocketmq.admin import Admin
from reconciler.rocketmq.codes import DEAD_LETTER_TOPIC_PREFIX, retry_topic
from reconciler.rocketmq.families import BrokerFacts, Families
from reconciler.rocketmq.horizon import Probes
from reconciler.rocketmq.lookup import Lookups
from reconciler.rocketmq.routes import Routes
from reconciler.rocketmq.watermark import Watermarks

#: Messages with a delay level, so also every retry, wait there (TopicValidator.RMQ_SYS_SCHEDULE_TOPIC).
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: A broker's transaction settings and a group's producers are remembered for this long.
_REMEMBER_SECONDS = 5.0
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckTimes:
    """transactionTimeOut and transactionCheckInterval of one broker."""

    timeout_seconds: float
    interval_seconds: float
    #: False: the broker did not tell, these are its version's defaults.
    is_told: bool


class RemotingBrokerEvidence:
    """ports.BrokerEvidence over the remoting client. Thread-safe; its only state is a short memory under a lock."""

    def __init__(
        self,
        *,
        routes: Routes,
        families: Families,
        lookups: Lookups,
        probes: Probes,
        watermarks: Watermarks,
        admin: Admin,
        clock: Clock,
        skew_margin_seconds: float,
    ) -> None:
        self._routes = routes
        self._families = families
        self._lookups = lookups
        self._probes = probes
        self._watermarks = watermarks
        self._admin = admin
        self._clock = clock
        self._skew_margin_seconds = skew_margin_seconds
        self._lock = threading.Lock()
        self._check_times: dict[str, tuple[_CheckTimes, float]] = {}
        self._producers: dict[tuple[str, str], tuple[bool, float]] = {}

    # ---- where the group stands

    def watermark(self, subscription: Subscription) -> Watermark:
        """The group's low watermark, never later than now minus the skew margin."""
        return self._watermarks.watermark(
            subscription.topic, subscription.group, skew_margin_seconds=self._skew_margin_seconds
        )

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """Offsets in every queue of topic and retry topic."""
        return self._watermarks.positions(subscription.topic, subscription.group)

    def horizon(self, topic: str) -> Horizon:
        """One probe on every broker that may hold messages of the topic."""
        return self._probes.horizon(topic)

    # ---- copies

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Lookup[StoredMessage]:
        """Committed or republished copies under the real topic."""
        return _proved(self._lookups.committed_copies(topic, unique_key), horizon, not_before_ms)

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Lookup[StoredMessage]:
        """All half copies, oldest first; where UNIQ_KEY is not indexed (3.2.6) also by the outbox row's offsets."""
        found = self._lookups.view_message(topic, unique_key)
        if not found.is_found and outbox is not None and outbox.half_broker is not None:
            known = self._at_outbox_offset(topic, unique_key, outbox.half_broker, outbox.half_commit_log_offset)
            if known is not None and known.is_found:
                return known
        return _proved(found, horizon, not_before_ms)

    def _at_outbox_offset(
        self, topic: str, unique_key: str, broker: str, commit_log_offset: int | None
    ) -> Lookup[StoredMessage] | None:
        facts = self._facts(topic, broker)
        if commit_log_offset is None or facts is None or facts.has_half_topic:
            return None
        known = self._lookups.at_offset(topic, broker, commit_log_offset, unique_key)
        prepared = [r for r in known.records if r.topic == topic and r.transaction_state is TransactionState.PREPARED]
        return replace(known, records=tuple(prepared)) if prepared else None

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Lookup[StoredMessage]:
        """Copies of halves that the broker gave up."""
        return _proved(self._lookups.parked_copies(topic, unique_key), horizon, not_before_ms)

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Mapping[str, Lookup[StoredMessage]]:
        """Retry copies, delivered or still delayed, and dead letters."""
        topic, group = subscription.topic, subscription.group
        retry = retry_topic(group)
        delivered = self._lookups.copies_under(topic, retry, unique_key)
        delayed = _only(self._lookups.copies_under(topic, DELAY_TOPIC, unique_key), real_topic=retry)
        dead = self._lookups.copies_under(topic, DEAD_LETTER_TOPIC_PREFIX + group, unique_key)
        blind = self._not_indexing(topic)
        return {
            "retry": _unless(_proved(_either(delivered, delayed), horizon, 0), blind),
            "dead-letter": _unless(_proved(dead, horizon, 0), blind),
        }

    def _not_indexing(self, topic: str) -> str | None:
        """3.2.6 indexes no record with the bits of a committed transaction, so no retry of one either."""
        try:
            masters = self._routes.masters(topic)
            blind = sorted(name for name, at in masters.items() if not self._families.facts(at).indexes_committed)
        except ReconcilerError as error:
            return str(error)
        return f"{', '.join(blind)} indexes no copies of committed transactions" if blind else None

    # ---- the broker's own check-back

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """Time-out + check interval of the half's broker; 0 without check-back or without a producer of its group."""
        address, facts = self._address(half), self._facts(half.real_topic, half.broker)
        if facts is not None and not facts.has_check_back:
            return 0.0
        if address is not None and facts is not None and not self._has_producers(address, half.producer_group):
            return 0.0
        times = self._times(address, facts)
        return times.timeout_seconds + times.interval_seconds

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """Time-out (at least the half's immunity) + 2 check intervals; None if the broker cannot tell."""
        address, facts = self._address(half), self._facts(half.real_topic, half.broker)
        if facts is None or not facts.has_check_back:
            return None
        times = self._times(address, facts)
        if not times.is_told:
            return None
        return max(times.timeout_seconds, _immunity_seconds(half)) + 2 * times.interval_seconds

    def _address(self, half: StoredMessage) -> str | None:
        try:
            return self._routes.master_of(half.real_topic, half.broker)
        except ReconcilerError:
            return None

    def _facts(self, topic: str, broker: str) -> BrokerFacts | None:
        try:
            address = self._routes.master_of(topic, broker)
            return self._families.facts(address) if address is not None else None
        except ReconcilerError:
            return None

    def _has_producers(self, address: str, group: str) -> bool:
        """False only if the broker says so: then nobody could answer its question."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._producers.get((address, group))
        if known is not None and now - known[1] < _REMEMBER_SECONDS:
            return known[0]
        try:
            has_some = bool(self._admin.producer_connections(address, group))
        except ReconcilerError:
            return True
        with self._lock:
            self._producers[address, group] = (has_some, now)
        return has_some

    def _times(self, address: str | None, facts: BrokerFacts | None) -> _CheckTimes:
        if address is None or facts is None:
            # Whatever version it is: the longest of all defaults.
            return _CheckTimes(timeout_seconds=6.0, interval_seconds=60.0, is_told=False)
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._check_times.get(address)
        if known is not None and now - known[1] < _REMEMBER_SECONDS:
            return known[0]
        times = self._asked_times(address, facts)
        with self._lock:
            self._check_times[address] = (times, now)
        return times

    def _asked_times(self, address: str, facts: BrokerFacts) -> _CheckTimes:
        try:
            config = self._admin.broker_config(address)
            return _CheckTimes(
                timeout_seconds=int(config["transactionTimeOut"]) / 1000,
                interval_seconds=int(config["transactionCheckInterval"]) / 1000,
                is_told=True,
            )
        except (ReconcilerError, KeyError, ValueError):
            return _CheckTimes(
                timeout_seconds=facts.transaction_timeout_seconds,
                interval_seconds=facts.transaction_check_interval_seconds,
                is_told=False,
            )


def _proved(lookup: Lookup[StoredMessage], horizon: Horizon, not_before_ms: int) -> Lookup[StoredMessage]:
    """ABSENT becomes UNKNOWN for every broker whose index is not proved to have passed the time."""
    if not lookup.is_absent or horizon.covers([a.witness for a in lookup.answers], not_before_ms):
        return lookup
    answers = tuple(
        answer
        if horizon.covers([answer.witness], not_before_ms)
        else WitnessAnswer(
            witness=answer.witness,
            presence=Presence.UNKNOWN,
            detail=f"{answer.detail}, but its index is proved up to {horizon.at_ms.get(answer.witness)} only",
        )
        for answer in lookup.answers
    )
    return Lookup(presence=Presence.UNKNOWN, answers=answers)


def _only(lookup: Lookup[StoredMessage], *, real_topic: str) -> Lookup[StoredMessage]:
    """Those delayed copies that will go to the topic."""
    kept = tuple(r for r in lookup.records if r.properties.get("REAL_TOPIC") == real_topic)
    if not lookup.is_found or kept:
        return replace(lookup, records=kept)
    # Brokers that did not answer stay unknown; the others had copies for other groups only.
    answers = tuple(
        replace(a, presence=Presence.ABSENT, detail="copies of other groups") if a.presence is Presence.FOUND else a
        for a in lookup.answers
    )
    is_unknown = any(a.presence is Presence.UNKNOWN for a in answers)
    return Lookup(presence=Presence.UNKNOWN if is_unknown else Presence.ABSENT, answers=answers)


def _either(first: Lookup[StoredMessage], second: Lookup[StoredMessage]) -> Lookup[StoredMessage]:
    """Both look-ups as one: one FOUND is FOUND, else one UNKNOWN is UNKNOWN."""
    presences = {first.presence, second.presence}
    order = (Presence.FOUND, Presence.UNKNOWN, Presence.ABSENT)
    return Lookup(
        presence=next(presence for presence in order if presence in presences),
        records=first.records + second.records,
        answers=first.answers + second.answers,
    )


def _unless(lookup: Lookup[StoredMessage], blind: str | None) -> Lookup[StoredMessage]:
    """ABSENT means nothing where such copies are not indexed."""
    return Lookup.unknown("index", blind) if lookup.is_absent and blind is not None else lookup


def _immunity_seconds(half: StoredMessage) -> float:
    text = half.properties.get(_IMMUNITY, "")
    return float(text) if text.isascii() and text.isdigit() else 0.0
