"""The clock of a broker is its own: how far its index is, and what time it has, is told by the probe that it stored."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reconciler.clock import ManualClock
from reconciler.evidence.horizon import PROBE_NOT_INDEXED, PROBE_NOT_SENT, Probes
from reconciler.policy.judging.clock_reading import ClockReading
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.wire.codes import PROBE_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from reconciler.rocketmq.wire.record import MessageRecord
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

NOW_MS = 1_800_000_000_000
#: First offset of a probe in the log.
FIRST_OFFSET = 4_000
DAY_SECONDS = 86_400


@dataclass
class Stamping:
    """A broker that stores probes by its own clock and finds them by it, as IndexFile does with whole seconds."""

    broker: ScriptedBroker
    clock: ManualClock
    ahead_seconds: int
    #: False: the index is off, or has come to a standstill.
    is_indexing: bool = True
    #: Reads by offset that find the end of the log unwritten, as with transientStorePoolEnable; None: all are refused.
    unwritten: int | None = 0
    #: Between storing a probe and the answer to its sender.
    answer_seconds: float = 0.0
    stored: dict[int, MessageRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.broker.on(RequestCode.SEND_MESSAGE_V2, self._send)
        self.broker.on(RequestCode.QUERY_MESSAGE, self._query)
        self.broker.on(RequestCode.VIEW_MESSAGE_BY_ID, self._view)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms() + self.ahead_seconds * 1000

    @property
    def begins_ms(self) -> list[int]:
        """Where the look-ups of probes began."""
        asked = [one for one in self.broker.asked if one.code == RequestCode.QUERY_MESSAGE]
        return [int(one.fields["beginTimestamp"]) for one in asked]

    def _send(self, request: Command) -> Command:
        key = decode_properties(request.fields["i"])["UNIQ_KEY"]
        offset = FIRST_OFFSET + 200 * len(self.stored)
        self.stored[offset] = record(
            topic=PROBE_TOPIC, key=key, physical_offset=offset, store_timestamp_ms=self.now_ms + 999
        )
        fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, offset), "queueId": "0", "queueOffset": "0"}
        self.clock.sleep(self.answer_seconds)
        return self.broker.success(request, fields)

    def _query(self, request: Command) -> Command:
        begin_ms, key = int(request.fields["beginTimestamp"]), request.fields["key"]
        found = [one for one in self.stored.values() if self.is_indexing and one.unique_key == key]
        if not found or found[0].store_timestamp_ms // 1000 * 1000 < begin_ms:
            return self.broker.refuse(request, ResponseCode.QUERY_NOT_FOUND, "can not find message")
        return self.broker.success(request, body=encode_record(found[0]))

    def _view(self, request: Command) -> Command:
        if self.unwritten is None:
            return self.broker.refuse(request, ResponseCode.NO_PERMISSION, "no permission")
        offset = int(request.fields["offset"])
        if self.unwritten:
            self.unwritten -= 1
            return self.broker.refuse(request, 1, f"can not find message by the offset, {offset}")
        return self.broker.success(request, body=encode_record(self.stored[offset]))


def probes(cluster: ScriptedCluster) -> Probes:
    return Probes(cluster.client, cluster.routes, cluster.sender(), cluster.unique_keys)


@pytest.mark.parametrize("ahead_seconds", [-601, -40 * DAY_SECONDS, 3_600, 40 * DAY_SECONDS])
def test_a_broker_with_another_time_proves_how_far_its_index_is(ahead_seconds: int) -> None:
    clock = ManualClock(NOW_MS)
    with ScriptedCluster(versions=(479, 479), clock=clock) as cluster:
        right, wrong = Stamping(cluster.brokers[0], clock, 0), Stamping(cluster.brokers[1], clock, ahead_seconds)
        expected = {"broker-a": right.now_ms + 999, "broker-b": wrong.now_ms + 999}
        assert probes(cluster).horizon("Orders") == Horizon(at_ms=expected)
        # Its index is asked for what lies behind the probe only: older files of it stay untouched.
        assert [right.begins_ms, wrong.begins_ms] == [[at_ms - 1_000] for at_ms in expected.values()]


@pytest.mark.parametrize("unwritten", [3, None], ids=["at first", "at all"])
def test_a_probe_that_cannot_be_read_by_its_offset_is_found_by_its_key(unwritten: int | None) -> None:
    clock = ManualClock(NOW_MS)
    with ScriptedCluster(clock=clock) as cluster:
        broker = Stamping(cluster.broker, clock, -601, unwritten=unwritten)
        expected = Horizon(at_ms={"broker-a": broker.now_ms + 999})
        assert probes(cluster).horizon("Orders") == expected


@pytest.mark.parametrize(("is_indexing", "unwritten"), [(False, 0), (False, 2), (True, None)])
def test_the_clock_of_a_broker_is_measured_by_index_or_by_offset(is_indexing: bool, unwritten: int | None) -> None:
    clock = ManualClock(NOW_MS)
    with ScriptedCluster(versions=(479, 479), clock=clock) as cluster:
        broker = Stamping(
            cluster.brokers[0], clock, -601, is_indexing=is_indexing, unwritten=unwritten, answer_seconds=2.0
        )
        stored_at_ms = broker.now_ms + 999
        Stamping(cluster.brokers[1], clock, 0)
        answers = probes(cluster).probe("Orders", within_seconds=1.0)
        assert (answers["broker-a"].at_ms is not None) is is_indexing
        # Between sending and the answer, however long the index was waited for.
        assert answers["broker-a"].clock == ClockReading(at_ms=stored_at_ms, asked_seconds=0.0, answered_seconds=2.0)


def test_a_broker_that_shows_no_probe_has_no_known_clock() -> None:
    clock = ManualClock(NOW_MS)
    with ScriptedCluster(versions=(479, 479), clock=clock) as cluster:
        Stamping(cluster.brokers[0], clock, 0, is_indexing=False, unwritten=None)
        answers = probes(cluster).probe("Orders", within_seconds=0.5)
        assert [answer.clock for answer in answers.values()] == [None, None]
        assert answers["broker-a"].why == PROBE_NOT_INDEXED(seconds=0.5)
        refused = answers["broker-b"].why
        assert refused is not None
        assert refused.code is PROBE_NOT_SENT
