"""The *horizon*: proof that a broker's index has come as far as a moment. Without it "not found" proves nothing.

A "not found" answer says nothing about how far the index is (DefaultMessageStore.queryMessage). So a probe with a
fresh key is sent to every broker and looked up until it is found: the index follows the log in order, hence
everything stored before the probe's store time is indexed too.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.clock import Backoff
from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.evidence.lookup import query_messages
from reconciler.policy.ports import Horizon
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes, TopicNotFound
from reconciler.rocketmq.client.sending import Sender
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator

#: Producer group of probes.
PROBE_GROUP = "RECONCILER_PROBE"
#: Look-ups of a probe begin this long before now: the clocks of client and broker differ.
_CLOCKS_DIFFER_MS = 600_000
_LOOKS = Backoff(first_seconds=0.002, longest_seconds=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """How far one broker's index has come."""

    #: Store time of the probe that was found; None: unknown.
    at_ms: int | None
    detail: str


class Probes:
    """Thread-safe, holds no state. `sender` sends for the group PROBE_GROUP; the probe topic must exist."""

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
        """The horizon of every broker that may hold messages of the topic; brokers that prove nothing are left out."""
        answers = self.probe(topic, within_seconds=within_seconds)
        return Horizon(at_ms={name: answer.at_ms for name, answer in answers.items() if answer.at_ms is not None})

    def probe(self, topic: str, *, within_seconds: float = 3.0) -> dict[str, ProbeAnswer]:
        """The horizon of each broker, or the reason why it proves nothing. Never raises for a broker that fails."""
        answers: dict[str, ProbeAnswer] = {}
        sent: dict[str, tuple[str, str]] = {}
        try:
            places = self._routes.whereabouts(topic)
        except (TopicNotFound, BrokerUnavailable) as error:
            return {"route": ProbeAnswer(at_ms=None, detail=str(error))}
        for place in places:
            if place.master is None:
                answers[place.broker_name] = ProbeAnswer(at_ms=None, detail=place.detail)
                continue
            if place.doubt:  # one broker's index says nothing about another's
                answers[place.broker_name] = ProbeAnswer(at_ms=None, detail=place.doubt)
                continue
            try:
                sent[place.broker_name] = (place.master, self._send(place.broker_name, place.master))
            except ReconcilerError as error:
                answers[place.broker_name] = ProbeAnswer(at_ms=None, detail=f"probe not sent: {error}")
        answers.update(self._await(sent, within_seconds))
        return answers

    def _send(self, broker_name: str, address: str) -> str:
        key = self._unique_keys.next_key()
        queue = MessageQueue(topic=self._topic, broker_name=broker_name, queue_id=0)
        # Found in the same way as the messages that it speaks for: by its unique key, and no other word.
        probe = Message(topic=self._topic, body=b"index probe", unique_key=key)
        self._sender.send_to(address, queue, probe)
        return key

    def _await(self, sent: dict[str, tuple[str, str]], within_seconds: float) -> dict[str, ProbeAnswer]:
        clock = self._client.clock
        deadline = clock.monotonic_seconds() + within_seconds
        begin_ms = max(0, clock.now_ms() - _CLOCKS_DIFFER_MS)
        answers: dict[str, ProbeAnswer] = {}
        waiting = dict(sent)
        looks = 0
        while waiting:
            for name, (address, key) in list(waiting.items()):
                answer = self._look(name, address, key, begin_ms)
                if answer is not None:
                    answers[name] = answer
                    del waiting[name]
            if not waiting:
                break
            if clock.monotonic_seconds() >= deadline:
                late = ProbeAnswer(at_ms=None, detail=f"the index did not have the probe within {within_seconds} s")
                answers.update(dict.fromkeys(waiting, late))
                break
            clock.sleep(_LOOKS.pause_seconds(looks))
            looks += 1
        return answers

    def _look(self, broker_name: str, address: str, key: str, begin_ms: int) -> ProbeAnswer | None:
        try:
            hits = query_messages(
                self._client,
                address,
                self._topic,
                key,
                begin_ms=begin_ms,
                broker_name=broker_name,
                by_unique_key=True,
            )
        except ReconcilerError as error:
            return ProbeAnswer(at_ms=None, detail=f"probe not looked up: {error}")
        for hit in hits:
            if hit.topic == self._topic and hit.unique_key == key:
                return ProbeAnswer(at_ms=hit.store_timestamp_ms, detail="probe found")
        return None
