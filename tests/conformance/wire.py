"""Single requests through the remoting client: what producers, look-ups and consumers are made of."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.rocketmq.client import RemotingClient
from reconciler.rocketmq.codes import RequestCode, ResponseCode, SystemFlag
from reconciler.rocketmq.frame import Command
from reconciler.rocketmq.properties import encode_properties
from reconciler.rocketmq.record import MessageRecord, decode_records
from tests.conformance.targets import Target
from tests.polling import eventually

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
_NUMBERS = itertools.count(1)


def new_key() -> str:
    """A unique key of the classic shape."""
    return f"7F000001{os.getpid() & 0xFFFF:04X}{time.time_ns() & 0xFFFFFFFFFFFF:012X}{next(_NUMBERS):08X}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """A half that was sent, with what its send reply said."""

    topic: str
    unique_key: str
    business_key: str
    group: str
    queue_offset: int
    commit_log_offset: int
    body: bytes


class Wire:
    """Requests to one broker. Confined to its test."""

    def __init__(self, client: RemotingClient, target: Target) -> None:
        self.client = client
        self.target = target

    def ask(
        self, code: RequestCode, fields: dict[str, str], body: bytes = b"", *, to_name_server: bool = False
    ) -> Command:
        """One two-way request."""
        address = self.target.name_servers if to_name_server else self.target.broker
        return self.client.request(address, Command(code=code, fields=fields, body=body))

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        unique_key: str | None = None,
        keys: str | None = None,
        queue_id: int = 0,
        system_flag: int = 0,
        group: str = "PG_conformance",
        version_2: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> Command:
        """SEND_MESSAGE or SEND_MESSAGE_V2."""
        wired = {"UNIQ_KEY": unique_key or new_key(), **({"KEYS": keys} if keys else {}), **(properties or {})}
        fields = {
            "producerGroup": group,
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(queue_id),
            "sysFlag": str(system_flag),
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": encode_properties(wired),
            "reconsumeTimes": "0",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
            "batch": "false",
        }
        if not version_2:
            return self.ask(RequestCode.SEND_MESSAGE, fields, body)
        short = dict(zip("abcdefghijklm", fields.values(), strict=True))
        return self.ask(RequestCode.SEND_MESSAGE_V2, short, body)

    def send_half(self, topic: str, *, group: str = "PG_conformance", **properties: str) -> Half:
        """A half, whose END is up to the test. On brokers without a unique-key index the key leads KEYS."""
        unique_key, business_key = new_key(), f"order-{next(_NUMBERS)}"
        keys = business_key if self.target.expect.indexes_unique_key else f"{unique_key} {business_key}"
        body = f"half of {business_key}".encode()
        reply = self.send(
            topic,
            body,
            unique_key=unique_key,
            keys=keys,
            system_flag=int(SystemFlag.PREPARED),
            group=group,
            properties={"TRAN_MSG": "true", "PGROUP": group, **properties},
        )
        assert reply.code == ResponseCode.SUCCESS, reply
        return Half(
            topic=topic,
            unique_key=unique_key,
            business_key=business_key,
            group=group,
            queue_offset=int(reply.fields["queueOffset"]),
            commit_log_offset=int(reply.fields["msgId"][16:], 16),
            body=body,
        )

    def end(
        self,
        half: Half,
        decision: int = COMMIT,
        *,
        group: str | None = None,
        queue_offset: int | None = None,
        commit_log_offset: int | None = None,
        from_check: bool = False,
    ) -> Command:
        """END_TRANSACTION, two-way."""
        position = half.queue_offset if queue_offset is None else queue_offset
        place = half.commit_log_offset if commit_log_offset is None else commit_log_offset
        return self.ask(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": half.group if group is None else group,
                "tranStateTableOffset": str(position),
                "commitLogOffset": str(place),
                "commitOrRollback": str(decision),
                "fromTransactionCheck": "true" if from_check else "false",
                "msgId": half.unique_key,
                "transactionId": half.unique_key,
            },
        )

    def query(self, topic: str, key: str) -> list[MessageRecord]:
        """QUERY_MESSAGE: records under topic and key, hash collisions taken out; [] for code 22."""
        now = time.time_ns() // 1_000_000
        reply = self.ask(
            RequestCode.QUERY_MESSAGE,
            {
                "topic": topic,
                "key": key,
                "maxNum": "64",
                "beginTimestamp": str(now - 3_600_000),
                "endTimestamp": str(now + 3_600_000),
            },
        )
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        assert reply.code == ResponseCode.SUCCESS, reply
        return [
            record
            for record in decode_records(reply.body)
            if record.topic == topic and (record.unique_key == key or key in record.keys)
        ]

    def until_indexed(
        self, topic: str, key: str, *, count: int = 1, within_seconds: float = 15.0
    ) -> list[MessageRecord]:
        """Waits until so many records are found."""
        return eventually(
            lambda: found if len(found := self.query(topic, key)) >= count else None,
            within_seconds=within_seconds,
            message=f"{count} records of {key} under {topic}",
        )

    def pass_index(self) -> None:
        """Returns when everything stored before the call is in the index: a later message was found in it."""
        probe = new_key()
        self.send("RECONCILER_PROBE", b"probe", unique_key=probe, keys=probe)
        self.until_indexed("RECONCILER_PROBE", probe)

    def pull(self, topic: str, *, queue_id: int = 0, offset: int = 0, group: str = "CG_conformance") -> Command:
        """PULL_MESSAGE with a subscription of its own, without waiting."""
        return self.ask(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": group,
                "topic": topic,
                "queueId": str(queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": "32",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": "*",
                "subVersion": "0",
                "expressionType": "TAG",
            },
        )

    def delivered(self, topic: str, *, queue_id: int = 0) -> list[MessageRecord]:
        """All records that consumers of the queue see."""
        records: list[MessageRecord] = []
        while True:
            reply = self.pull(topic, queue_id=queue_id, offset=len(records))
            if reply.code != ResponseCode.SUCCESS:
                assert reply.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED}, reply
                return records
            records += decode_records(reply.body)

    def until_delivered(self, topic: str, count: int, *, within_seconds: float = 15.0) -> list[MessageRecord]:
        """Waits until queue 0 has so many records."""
        return eventually(
            lambda: found if len(found := self.delivered(topic)) >= count else None,
            within_seconds=within_seconds,
            message=f"{count} records in {topic}",
        )

    def view(self, commit_log_offset: int) -> Command:
        """VIEW_MESSAGE_BY_ID."""
        return self.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(commit_log_offset)})
