"""The *horizon*: the proof that a broker's index has reached a certain time. Without a horizon, "not found" proves
nothing.

The answer "not found" does not show how far the index has come (DefaultMessageStore.queryMessage). So a probe with a
new key is sent to every broker, and looked up until the index has it. The index follows the log in order. So every
message that was stored before the probe is indexed, too.

The broker's time is read from the stored probe, because this host's clock may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.clock import Backoff
from reconciler.contract.answers import PROBE_TOPIC_MISSING
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import BrokerRefused, BrokerUnavailable, ReconcilerError
from reconciler.evidence.lookup import query_messages, records_at
from reconciler.policy.judging.clock_reading import ClockReading
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes, TopicNotFound
from reconciler.rocketmq.client.sending import Sender
from reconciler.rocketmq.wire.codes import PROBE_TOPIC, ResponseCode
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator

ROUTE_UNKNOWN = Code("evidence.route-unknown", why=Field.TEXT)
PROBE_NOT_TO_BE_SENT = Code("evidence.probe-not-to-be-sent", why=Field.TEXT)
PROBE_NOT_SENT = Code("evidence.probe-not-sent", why=Field.TEXT)
PROBE_NOT_LOOKED_UP = Code("evidence.probe-not-looked-up", why=Field.TEXT)
PROBE_NOT_INDEXED = Code("evidence.probe-not-indexed", seconds=Field.NUMBER)

#: Producer group of probes.
PROBE_GROUP = "RECONCILER_PROBE"
#: The name of the only answer if the topic's route cannot be read.
ROUTE = "route"
#: An index entry stores whole seconds after its file's beginning, so its time is up to 999 ms too early.
_INDEX_STEP_MS = 1_000
_LOOKS = Backoff(first_seconds=0.002, longest_seconds=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The progress of one broker's index, and a reading of the broker's clock."""

    #: The store time of the probe. None if the index did not show the probe.
    at_ms: int | None
    #: Why the probe proves nothing. None if the index showed the probe.
    why: Fact | None = None
    #: The probe's store time, which lies between the sending and the answer. None: the broker did not show the probe.
    clock: ClockReading | None = None


@dataclass(slots=True, kw_only=True)
class _SentProbe:
    """A probe that one broker has stored."""

    broker_name: str
    address: str
    unique_key: str
    commit_log_offset: int
    asked_seconds: float
    answered_seconds: float
    #: None until the record was read.
    stored_ms: int | None = None

    def answer(self, at_ms: int | None, why: Fact | None = None) -> ProbeAnswer:
        if self.stored_ms is None:
            return ProbeAnswer(at_ms=at_ms, why=why)
        clock = ClockReading(
            at_ms=self.stored_ms, asked_seconds=self.asked_seconds, answered_seconds=self.answered_seconds
        )
        return ProbeAnswer(at_ms=at_ms, why=why, clock=clock)


def no_probe_topic(broker: str, topic: str) -> Fact:
    """Returns the fact that a broker lacks the probe topic."""
    return PROBE_TOPIC_MISSING(broker=broker, topic=topic)


class Probes:
    """Sends probes and looks them up. Thread-safe, without state. `sender` sends for the group PROBE_GROUP. The probe
    topic must exist."""

    def __init__(
        self,
        client: RemotingClient,
        routes: Routes,
        sender: Sender,
        unique_keys: UniqueKeyGenerator,
        *,
        probe_topic: str = PROBE_TOPIC,
    ) -> None:
        self._client = client
        self._routes = routes
        self._sender = sender
        self._unique_keys = unique_keys
        self._topic = probe_topic

    def horizon(self, topic: str, *, within_seconds: float = 3.0) -> Horizon:
        """Returns the horizon of every broker that may hold messages of the topic. Leaves out brokers that prove
        nothing."""
        answers = self.probe(topic, within_seconds=within_seconds)
        return Horizon(
            at_ms={name: answer.at_ms for name, answer in answers.items() if answer.at_ms is not None},
            why={name: answer.why for name, answer in answers.items() if answer.why is not None},
        )

    def probe(self, topic: str, *, within_seconds: float = 3.0) -> dict[str, ProbeAnswer]:
        """Returns the answer of each broker to a probe. A broker's failure raises nothing."""
        answers: dict[str, ProbeAnswer] = {}
        sent: list[_SentProbe] = []
        try:
            places = self._routes.whereabouts(topic)
        except (TopicNotFound, BrokerUnavailable) as error:
            return {ROUTE: ProbeAnswer(at_ms=None, why=ROUTE_UNKNOWN(why=str(error)))}
        for place in places:
            if place.master is None or place.doubt:  # a broker's index proves nothing about another broker
                why = PROBE_NOT_TO_BE_SENT(why=place.detail if place.master is None else place.doubt)
                answers[place.broker_name] = ProbeAnswer(at_ms=None, why=why)
                continue
            try:
                sent.append(self._send(place.broker_name, place.master))
            except ReconcilerError as error:
                answers[place.broker_name] = ProbeAnswer(at_ms=None, why=self._unsent(place.broker_name, error))
        answers.update(self._await(sent, within_seconds))
        return answers

    def _unsent(self, broker: str, error: ReconcilerError) -> Fact:
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            return no_probe_topic(broker, self._topic)
        return PROBE_NOT_SENT(why=str(error))

    def _send(self, broker_name: str, address: str) -> _SentProbe:
        key = self._unique_keys.next_key()
        queue = MessageQueue(topic=self._topic, broker_name=broker_name, queue_id=0)
        # The probe is looked up like the messages in question: by its unique key alone.
        probe = Message(topic=self._topic, body=b"index probe", unique_key=key)
        asked_seconds = self._client.clock.monotonic_seconds()
        stored = self._sender.send_to(address, queue, probe)
        return _SentProbe(
            broker_name=broker_name,
            address=address,
            unique_key=key,
            commit_log_offset=stored.commit_log_offset,
            asked_seconds=asked_seconds,
            answered_seconds=self._client.clock.monotonic_seconds(),
        )

    def _await(self, sent: Sequence[_SentProbe], within_seconds: float) -> dict[str, ProbeAnswer]:
        clock = self._client.clock
        deadline = clock.monotonic_seconds() + within_seconds
        answers: dict[str, ProbeAnswer] = {}
        waiting = list(sent)
        looks = 0
        while waiting:
            for probe in waiting:
                answer = self._look(probe)
                if answer is not None:
                    answers[probe.broker_name] = answer
            waiting = [probe for probe in waiting if probe.broker_name not in answers]
            if not waiting:
                break
            if clock.monotonic_seconds() >= deadline:
                late = PROBE_NOT_INDEXED(seconds=within_seconds)
                answers.update({probe.broker_name: probe.answer(None, late) for probe in waiting})
                break
            clock.sleep(_LOOKS.pause_seconds(looks))
            looks += 1
        return answers

    def _look(self, probe: _SentProbe) -> ProbeAnswer | None:
        try:
            if probe.stored_ms is None:
                probe.stored_ms = self._stored_ms(probe)
            hits = query_messages(
                self._client,
                probe.address,
                self._topic,
                probe.unique_key,
                # The broker does not search index files that are older than the probe. If the probe's time is unknown,
                # the broker searches all files.
                begin_ms=max(0, (probe.stored_ms or 0) - _INDEX_STEP_MS),
                broker_name=probe.broker_name,
                by_unique_key=True,
            )
        except ReconcilerError as error:
            return probe.answer(None, PROBE_NOT_LOOKED_UP(why=str(error)))
        found_ms = self._time_in(hits, probe)
        if found_ms is None:
            return None
        probe.stored_ms = found_ms
        return probe.answer(found_ms)

    def _stored_ms(self, probe: _SentProbe) -> int | None:
        """Reads the probe by its offset. None if the broker does not show the record, or not yet
        (transientStorePoolEnable)."""
        try:
            records = records_at(self._client, probe.address, probe.commit_log_offset, broker_name=probe.broker_name)
        except BrokerRefused:
            return None
        return self._time_in(records, probe)

    def _time_in(self, records: Sequence[MessageRecord], probe: _SentProbe) -> int | None:
        own = (one for one in records if one.topic == self._topic and one.unique_key == probe.unique_key)
        return next((one.store_timestamp_ms for one in own), None)
