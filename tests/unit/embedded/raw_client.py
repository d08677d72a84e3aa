"""A client of the embedded broker that shares nothing with the product's client but the frame codec."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from reconciler.embedded.layout import BrokerMessage, decode
from reconciler.rocketmq.wire.frame import Command, FrameReader, Serialization, encode_frame
from reconciler.rocketmq.wire.tolerant_json import parse_object

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TOPIC = "TopicA"
GROUP = "PG_A"


def properties(**values: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def records(body: bytes) -> list[BrokerMessage]:
    """The concatenated records of a pull or query, with their checksums verified."""
    found, position = [], 0
    while position < len(body):
        (size,) = struct.unpack_from(">i", body, position)
        record = body[position : position + size]
        message = decode(record)
        assert struct.unpack_from(">I", record, 8)[0] == zlib.crc32(message.body) & 0x7FFFFFFF
        found.append(message)
        position += size
    assert position == len(body)
    return found


class RawClient:
    """One connection. What the broker sends unasked is kept in ``pushed``."""

    def __init__(self, address: str, *, version: int = 253, serialization: Serialization = Serialization.JSON) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._reader = FrameReader()
        self._opaque = 0
        self._version = version
        self._serialization = serialization
        self._inbox: list[Command] = []
        self.pushed: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, code: int, fields: Mapping[str, str], body: bytes = b"", *, flag: int = 0) -> int:
        self._opaque += 1
        command = Command(
            code=code,
            opaque=self._opaque,
            flag=flag,
            version=self._version,
            fields=fields,
            body=body,
            serialization=self._serialization,
        )
        self._socket.sendall(encode_frame(command))
        return self._opaque

    def send_bytes(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def raw_answer(self) -> bytes:
        """The next frame as it came, without its length word; only on a connection that used nothing else."""
        length = int.from_bytes(self._exactly(4), "big")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    def answer(self, opaque: int, within_seconds: float = 60.0) -> Command | None:
        """The response to a request; None if none came in time. ConnectionError if the broker hung up."""
        deadline = time.monotonic() + within_seconds
        while True:
            for command in self._inbox:
                if command.is_response and command.opaque == opaque:
                    self._inbox.remove(command)
                    return command
            if not self._receive(deadline):
                return None

    def _receive(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(1 << 20)
        except TimeoutError:
            return False
        if not data:
            raise ConnectionError("the broker closed the connection")
        for command in self._reader.feed(data):
            (self._inbox if command.is_response else self.pushed).append(command)
        return True

    def await_push(self, code: int, within_seconds: float = 60.0) -> Command:
        """The next request of the broker with this code; taken out of ``pushed``."""
        deadline = time.monotonic() + within_seconds
        while True:
            for command in self.pushed:
                if command.code == code:
                    self.pushed.remove(command)
                    return command
            assert self._receive(deadline), f"no request {code} within {within_seconds} s"

    def call(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """A two-way request; fails without an answer."""
        found = self.answer(self.send(code, _texts(fields), body))
        assert found is not None, f"no answer to {code}"
        return found

    def respond(self, request: Command, body: bytes = b"", *, code: int = 0) -> None:
        """Answers a request of the broker."""
        self.send_bytes(encode_frame(Command(code=code, opaque=request.opaque, flag=1, body=body)))

    # -- the requests that tests use most ----------------------------------------------------------
    def send_message(
        self, topic: str = TOPIC, body: bytes = b"body", *, queue_id: int = 0, sys_flag: int = 0, **props: Any
    ) -> Command:
        return self.call(310, body, **send_fields(topic, queue_id, sys_flag, props))

    def send_half(self, topic: str = TOPIC, body: bytes = b"half", *, group: str = GROUP, **props: Any) -> Command:
        return self.send_message(topic, body, sys_flag=4, TRAN_MSG="true", PGROUP=group, **props)

    def end(self, half: Command, decision: int = 8, *, group: str = GROUP, **changes: object) -> Command:
        return self.call(37, **(end_fields(half, decision, group) | changes))

    def query(self, topic: str, key: str, **changes: object) -> Command:
        fields: dict[str, Any] = {
            "topic": topic,
            "key": key,
            "maxNum": 32,
            "beginTimestamp": 0,
            "endTimestamp": 2**63 - 1,
        }
        return self.call(12, **(fields | changes))

    def found(self, topic: str, key: str, **changes: object) -> list[BrokerMessage]:
        return records(self.query(topic, key, **changes).body)

    def pull(self, topic: str = TOPIC, queue_id: int = 0, offset: int = 0, **changes: object) -> Command:
        return self.call(11, **(pull_fields(topic, queue_id, offset) | changes))


def send_fields(topic: str, queue_id: int, sys_flag: int, props: Mapping[str, str]) -> dict[str, Any]:
    return {
        "a": GROUP,
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": sys_flag,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": properties(**props),
        "j": 0,
        "k": "false",
        "m": "false",
    }


def end_fields(half: Command, decision: int, group: str = GROUP) -> dict[str, Any]:
    return {
        "producerGroup": group,
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": int(half.fields["msgId"][-16:], 16),
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "not compared",
    }


def pull_fields(topic: str, queue_id: int, offset: int) -> dict[str, Any]:
    return {
        "consumerGroup": "CG_A",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def consumer_heartbeat(
    client_id: str, group: str, topic: str = TOPIC, expression: str = "*", **more: Any
) -> dict[str, Any]:
    """`more`: of its subscription."""
    return {
        "clientID": client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {"topic": topic, "subString": expression, "subVersion": 1, "tagsSet": [], "codeSet": [], **more}
                ],
            }
        ],
    }


def _texts(fields: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}


def body_of(command: Command) -> dict[Any, Any]:
    return dict(parse_object(command.body))
