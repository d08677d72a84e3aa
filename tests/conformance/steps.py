"""The client's calls the way the tests write them: one broker, short names, waiting with a deadline."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Unpack

from reconciler.evidence.lookup import Lookups, query_messages
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.consumer.pulling import PullRequest, PullResult, PullStatus, pull
from reconciler.rocketmq.producer.ending import EndAnswer, EndDecision
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import HALF_TOPIC, RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.record import MessageRecord
from tests.conformance.targets import Target
from tests.polling import eventually
from tests.services.patient_instance import TIMEOUT_SECONDS, OtherValues, end_half, patient_instance

GROUP = "PG_conformance"
PROBE_TOPIC = "CONFORMANCE_PROBE"
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """A half that was sent; its END is up to the test."""

    sent: SendResult
    message: Message
    group: str

    @property
    def topic(self) -> str:
        """The business topic."""
        return self.message.topic

    @property
    def unique_key(self) -> str:
        """Its UNIQ_KEY."""
        return self.sent.unique_key

    @property
    def business_key(self) -> str:
        """Its only entry in KEYS, before the client adds anything."""
        return self.message.keys[0]


class Steps:
    """Calls to one broker. Confined to its test."""

    def __init__(self, instance: ClientInstance, target: Target) -> None:
        self.instance = instance
        self.client: RemotingClient = instance.client
        self.target = target
        self.expect = target.expect
        self.lookups = Lookups(instance.client, instance.routes, instance.families)
        self.admin = Admin(instance.client)

    def queue(self, topic: str, number: int = 0) -> MessageQueue:
        """A queue of the broker under test."""
        return MessageQueue(topic=topic, broker_name=self.target.broker_name, queue_id=number)

    def configure(self, **properties: str) -> None:
        """Changes properties of the running broker."""
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        command = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
        require_success(self.client.request(self.target.broker, command), text)

    def send(self, topic: str, body: bytes, *, queue: int = 0, tags: str | None = None) -> SendResult:
        """An ordinary message into one queue."""
        message = Message(topic=topic, body=body, tags=tags)
        return self.instance.sender(GROUP).send(message, queue=self.queue(topic, queue))

    def send_half(self, topic: str, *, group: str = GROUP, **properties: str) -> Half:
        """A half in queue 0."""
        # All halves of a broker share one topic, and its tests other than these number their orders too.
        key = f"conformance-{next(_NUMBERS)}"
        message = Message(topic=topic, body=f"half of {key}".encode(), keys=(key,), properties=properties)
        sent = self.instance.sender(group).send(message, queue=self.queue(topic), is_half=True)
        return Half(sent=sent, message=message, group=group)

    def end(
        self,
        half: Half,
        decision: EndDecision = EndDecision.COMMIT,
        *,
        group: str | None = None,
        **others: Unpack[OtherValues],
    ) -> EndAnswer:
        """As end_half() at the broker under test."""
        group = half.group if group is None else group
        return end_half(self.client, half.sent, decision, address=self.target.broker, group=group, **others)

    def half_topic(self, topic: str) -> str:
        """Topic under which a half of the topic is looked up."""
        return HALF_TOPIC if self.expect.has_half_topic else topic

    def query(self, topic: str, key: str) -> list[MessageRecord]:
        """What the index has under topic and key: each record once, hash collisions taken out."""
        found = query_messages(self.client, self.target.broker, topic, key)
        records = {
            record.physical_offset: record
            for record in found
            if record.topic == topic and (record.unique_key == key or key in record.keys)
        }
        return [records[offset] for offset in sorted(records)]

    def until_indexed(
        self, topic: str, key: str, *, count: int = 1, within_seconds: float = 60.0
    ) -> list[MessageRecord]:
        """Waits until so many records are found."""
        return eventually(
            lambda: found if len(found := self.query(topic, key)) >= count else None,
            within_seconds=within_seconds,
            message=f"{count} records of {key} under {topic}",
        )

    def pass_index(self) -> None:
        """Returns when everything stored before the call is in the index: a later message was found in it."""
        self.target.create(PROBE_TOPIC, queues=1)
        sent = self.send(PROBE_TOPIC, b"probe")
        self.until_indexed(PROBE_TOPIC, sent.unique_key)

    def pull(
        self, topic: str, offset: int = 0, *, queue: int = 0, subscription: str = "*", suspend_seconds: float = 0.0
    ) -> PullResult:
        """One pull with a subscription of its own."""
        request = PullRequest(
            queue=self.queue(topic, queue),
            offset=offset,
            group="CG_conformance",
            subscription=subscription,
            suspend_seconds=suspend_seconds,
        )
        return pull(self.client, self.target.broker, request)

    def delivered(self, topic: str, *, queue: int = 0) -> list[MessageRecord]:
        """All records that consumers of the queue see."""
        records: list[MessageRecord] = []
        result = self.pull(topic, queue=queue)
        while result.status is PullStatus.FOUND:
            records += result.records
            result = self.pull(topic, result.next_offset, queue=queue)
        return records

    def until_delivered(
        self, topic: str, count: int, *, queue: int = 0, within_seconds: float = 60.0
    ) -> list[MessageRecord]:
        """Waits until the queue has so many records."""
        return eventually(
            lambda: found if len(found := self.delivered(topic, queue=queue)) >= count else None,
            within_seconds=within_seconds,
            message=f"{count} records in {topic}",
        )


@contextlib.contextmanager
def new_steps(target: Target, *, request_timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Steps]:
    """Another client with connections of its own."""
    with patient_instance(target.name_servers, request_timeout_seconds=request_timeout_seconds) as instance:
        yield Steps(instance, target)
