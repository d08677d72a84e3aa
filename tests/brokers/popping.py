"""The least of a consumer that pops, by the requests themselves: what PopMessageProcessor, AckMessageProcessor and
ChangeInvisibleTimeProcessor of 5.x take. One message a pop, so that its check point begins with it."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode, pop_retry_topics
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import MessageRecord, decode_records

POP_MESSAGE, ACK_MESSAGE, CHANGE_INVISIBLE = 200050, 200051, 200053


@dataclass(frozen=True, kw_only=True, slots=True)
class Popped:
    """A message in the hands of a consumer."""

    record: MessageRecord
    #: The topic that it was popped from: the business topic, or the group's retry topic.
    topic: str
    #: Names the hand-out (ExtraInfoUtil.buildExtraInfo).
    extra_info: str

    @property
    def unique_key(self) -> str:
        return self.record.unique_key


@dataclass(frozen=True, kw_only=True, slots=True)
class PoppingConsumer:
    """A member of a group that no broker knows as one: it sends no heartbeats, as a proxy's consumers do not."""

    instance: ClientInstance
    address: str
    broker_name: str
    group: str
    topic: str

    def pop(self, *, invisible_seconds: float) -> Popped | None:
        """The next message of the topic, or one that comes again; None: there is none now."""
        clock = self.instance.clock
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": "-1", "maxMsgNums": "1",
            "invisibleTime": str(round(invisible_seconds * 1000)), "pollTime": "0", "bornTime": str(clock.now_ms()),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false", "bname": self.broker_name,
        }  # fmt: skip
        answer = self.instance.client.request(self.address, Command(code=POP_MESSAGE, fields=fields))
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL):
            return None
        found = require_success(answer, "POP_MESSAGE")
        (record,) = decode_records(found.body, self.broker_name)
        is_retry, queue_id, start = found.fields["startOffsetInfo"].split(" ")
        said = [found.fields[name] for name in ("popTime", "invisibleTime", "reviveQid")]
        info = [start, *said, is_retry, self.broker_name, queue_id, str(record.queue_offset)]
        names = (self.topic, *pop_retry_topics(self.topic, self.group))
        return Popped(record=record, topic=names[int(is_retry)], extra_info=" ".join(info))

    def acknowledge(self, popped: Popped) -> None:
        """It does not come again."""
        self._about(ACK_MESSAGE, popped)

    def change_invisible(self, popped: Popped, *, seconds: float) -> None:
        """It comes again after this time: how a consumer says that it failed."""
        self._about(CHANGE_INVISIBLE, popped, invisibleTime=str(round(seconds * 1000)))

    def give_up(self, popped: Popped) -> None:
        """To the dead letters, then acknowledged: as proxies do after the last try."""
        record = popped.record
        fields = {
            "offset": str(record.physical_offset), "group": self.group, "delayLevel": "-1", "unitMode": "false",
            "originMsgId": record.unique_key, "originTopic": self.topic, "maxReconsumeTimes": "0",
        }  # fmt: skip
        command = Command(code=RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields)
        require_success(self.instance.client.request(self.address, command), "CONSUMER_SEND_MSG_BACK")
        self.acknowledge(popped)

    def _about(self, code: int, popped: Popped, **more: str) -> None:
        queue_id = popped.extra_info.split(" ")[6]
        fields = {
            "consumerGroup": self.group, "topic": popped.topic, "queueId": queue_id,
            "extraInfo": popped.extra_info, "offset": str(popped.record.queue_offset), "bname": self.broker_name,
        }  # fmt: skip
        answer = self.instance.client.request(self.address, Command(code=code, fields=fields | more))
        require_success(answer, f"request {code}")
