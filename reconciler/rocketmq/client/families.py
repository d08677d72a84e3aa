"""Broker families: which version does what with a transactional message, found from the version in any answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from reconciler.clock import Clock
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import MQVersion, RequestCode
from reconciler.rocketmq.wire.frame import Command

#: A broker may be replaced by another version: ask again after this time.
_REMEMBER_SECONDS = 600.0

#: A heartbeat of nobody: every version answers it, and it registers nothing.
_EMPTY_HEARTBEAT = b'{"clientID":"reconciler-family","producerDataSet":[],"consumerDataSet":[]}'


class BrokerFamily(StrEnum):
    """Versions that treat transactions alike."""

    #: 3.2.6: prepared message in its own topic, UNIQ_KEY not indexed, committed copy not indexed, no check-back.
    V3_2 = "3.2.6"
    #: 3.4.9 to 4.2: the same, UNIQ_KEY and committed copy indexed.
    V4_2 = "3.5-4.2"
    #: 4.3 to 5.0: half topic and check-back.
    V4_3 = "4.3-5.0"
    #: 5.1 and newer: OP records in batches; END refused after the immunity window from 5.1.1 on.
    V5_1 = "5.1+"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """What follows from a broker's version (BrokerConfig and TransactionalMessageServiceImpl of that tag)."""

    #: MQVersion ordinal as the broker reports it.
    version: int
    family: BrokerFamily
    #: Halves lie in HALF_TOPIC; else prepared records lie in their own topic.
    has_half_topic: bool
    #: 5.4: halves may lie in ROCKSDB_HALF_TOPIC instead, as the broker is set (TransactionalMessageBridge).
    may_keep_halves_in_rocksdb: bool
    #: UNIQ_KEY is indexed; else only KEYS are.
    indexes_unique_key: bool
    #: A committed copy is found by QUERY_MESSAGE; else only by scanning its queue.
    indexes_committed: bool
    has_check_back: bool
    #: Halves that were given up are kept in DISCARD_TOPIC.
    keeps_discarded: bool
    has_batch_send: bool
    #: Defaults, where the broker's configuration cannot be read.
    transaction_timeout_seconds: float
    transaction_check_interval_seconds: float
    transaction_check_maximum: int


def family_of(version: int) -> BrokerFamily:
    """The family of a version ordinal; one less than a release is its snapshot build."""
    if version < MQVersion.V3_4_9 - 1:
        return BrokerFamily.V3_2
    if version < MQVersion.V4_3_0 - 1:
        return BrokerFamily.V4_2
    if version < MQVersion.V5_1_0 - 1:
        return BrokerFamily.V4_3
    return BrokerFamily.V5_1


def facts_of(version: int) -> BrokerFacts:
    """Everything that follows from a version ordinal."""
    family = family_of(version)
    is_half = family in (BrokerFamily.V4_3, BrokerFamily.V5_1)
    timeout_seconds, interval_seconds, maximum = _check_defaults(version) if is_half else (0.0, 0.0, 0)
    return BrokerFacts(
        version=version,
        family=family,
        has_half_topic=is_half,
        may_keep_halves_in_rocksdb=version > MQVersion.V5_3_3,
        indexes_unique_key=family is not BrokerFamily.V3_2,
        indexes_committed=family is not BrokerFamily.V3_2,
        has_check_back=is_half,
        keeps_discarded=version >= MQVersion.V4_5_2 - 1,
        has_batch_send=version >= MQVersion.V4_0_0 + 20,
        transaction_timeout_seconds=timeout_seconds,
        transaction_check_interval_seconds=interval_seconds,
        transaction_check_maximum=maximum,
    )


def _check_defaults(version: int) -> tuple[float, float, int]:
    if version < MQVersion.V4_3_1 - 1:
        return 3.0, 60.0, 5
    if version < MQVersion.V5_1_1 - 1:
        return 6.0, 60.0, 15
    return 6.0, 30.0, 15


class Families:
    """Facts of brokers by address, asked once in a while. Shared; confined by its lock."""

    def __init__(self, client: RemotingClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[BrokerFacts, float]] = {}

    def facts(self, address: str) -> BrokerFacts:
        """Facts of the broker at the address. Raises BrokerUnavailable or RequestTimeout."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            known = self._known.get(address)
        if known is not None and now - known[1] < _REMEMBER_SECONDS:
            return known[0]
        answer = self._client.request(address, Command(code=RequestCode.HEART_BEAT, body=_EMPTY_HEARTBEAT))
        facts = facts_of(answer.version)
        with self._lock:
            self._known[address] = (facts, now)
        return facts

    def forget(self, address: str) -> None:
        """The broker at the address may be another one now."""
        with self._lock:
            self._known.pop(address, None)
