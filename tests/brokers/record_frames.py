"""Records from running brokers the frames that tests/frames/frames_*.jsonl lack.

    python tests/brokers/record_frames.py [version ...]

writes tests/frames/extra_<version>.jsonl, one JSON object a frame: {dir: request | response |
broker-request, what, hex}; the hex starts at the length word. Needs Java and Maven; frames are recorded with
tests/services/remoting_probe.py, which shares no code with the client that is tested against them.
"""

from __future__ import annotations

import json
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from reconciler.rocketmq.wire.codes import MQVersion  # noqa: E402 - needs the path above
from tests.services.remoting_probe import RemotingProbe, Reply, decode  # noqa: E402 - as above
from tests.services.rocketmq import VERSIONS, RocketMQCluster  # noqa: E402 - as above

FRAMES = ROOT / "tests" / "frames"
GROUP, TOPIC = "CG_A", "TopicExtra"
KEYS = {"zlib": "A" * 32, "plain": "B" * 32, "half": "C" * 32, "v6": "D" * 32}


def properties(**values: str) -> str:
    """The property string of a message."""
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


class Recorder:
    """Asks one broker over the wire and keeps every frame, in both directions. Confined to one thread."""

    def __init__(self, version: str, port: int, *, host: str = "127.0.0.1") -> None:
        self.version = version
        self._ordinal = MQVersion.of_release(version)
        self.lines: list[dict[str, str]] = []
        self._probe = RemotingProbe(port, host=host, timeout_seconds=15)

    def close(self) -> None:
        """Closes the connection."""
        self._probe.close()

    def ask(self, what: str, code: int, fields: dict[str, str], body: bytes = b"", *, keep: bool = True) -> Reply:
        """A JSON request and its answer."""
        frame = self._probe.encode(code, fields, body, version=self._ordinal)
        return self._exchange(what, frame, keep=keep)

    def ask_binary(self, what: str, code: int, fields: dict[str, str], body: bytes = b"") -> Reply:
        """A request in the binary header form and its answer, whatever form that has."""
        extra = b"".join(
            struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
            for key, value in fields.items()
        )
        header = struct.pack(">hbhiii", code, 3, self._ordinal, 777, 0, 0)
        header += struct.pack(">i", len(extra)) + extra
        word = (1 << 24) | len(header)
        frame = struct.pack(">II", 4 + len(header) + len(body), word) + header + body
        return self._exchange(what, frame, keep=True)

    def unsolicited(self, what: str, code: int) -> None:
        """Keeps the next request that the broker sends by itself."""
        pending = list(self._probe.unsolicited)
        self._probe.unsolicited.clear()
        while True:
            raw = pending.pop(0) if pending else self._probe.read_frame()
            frame, is_response = decode(raw)
            if not is_response and frame.code == code:
                self._keep("broker-request", what, raw)
                return

    def _exchange(self, what: str, frame: bytes, *, keep: bool) -> Reply:
        reply = self._probe.ask_raw(frame)
        if keep:
            self._keep("request", what, frame)
            self._keep("response", what, reply.raw)
        return reply

    def _keep(self, direction: str, what: str, raw: bytes) -> None:
        self.lines.append({"dir": direction, "what": what, "hex": raw.hex()})


def send_fields(key: str, *, sys_flag: int = 0, queue: int = 0, **more: str) -> dict[str, str]:
    """Header fields of SEND_MESSAGE_V2."""
    return {
        "a": "PG_A", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue), "f": str(sys_flag),
        "g": str(time.time_ns() // 1_000_000), "h": "7", "j": "0", "k": "false", "l": "0", "m": "false",
        "i": properties(UNIQ_KEY=key, KEYS="order-1 customer-9", TAGS="TagA", **more),
    }  # fmt: skip


def pull_fields(topic: str, queue: int, offset: int) -> dict[str, str]:
    """Header fields of PULL_MESSAGE with a subscription of its own, without waiting."""
    return {
        "consumerGroup": GROUP, "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def batch_body(*bodies: bytes) -> bytes:
    """MessageDecoder.encodeMessages."""
    encoded = b""
    for number, body in enumerate(bodies):
        text = properties(UNIQ_KEY=f"{number:032X}", KEYS=f"batch-{number}").encode()
        total = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(text)
        encoded += struct.pack(">iiiii", total, 0, 0, 0, len(body)) + body
        encoded += struct.pack(">h", len(text)) + text
    return encoded


def heartbeat(client: str, topic: str) -> bytes:
    """Body of a push consumer's HEART_BEAT."""

    def subscription(name: str, text: str, tags: list[str], codes: list[int]) -> dict[str, object]:
        return {
            "topic": name, "subString": text, "tagsSet": tags, "codeSet": codes, "subVersion": 1_700_000_000_000,
            "expressionType": "TAG", "classFilterMode": False,
        }  # fmt: skip

    consumer = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [
            subscription(topic, "TagA || TagB", ["TagA", "TagB"], [2598919, 2598920]),
            subscription(f"%RETRY%{GROUP}", "*", [], []),
        ],
    }  # fmt: skip
    data = {"clientID": client, "producerDataSet": [{"groupName": "PG_A"}], "consumerDataSet": [consumer]}
    return json.dumps(data).encode()


def record(version: str, cluster: RocketMQCluster) -> list[dict[str, str]]:
    """All extra frames of one broker."""
    port = cluster.broker().port
    recorder, other = Recorder(version, port), Recorder(version, port)
    try:
        _topic_and_connections(recorder)
        first = _sends(recorder)
        _consumer_group(recorder, other, first)
        if version != "3.2.6":  # a binary request kills the connection there
            _binary(recorder)
    finally:
        recorder.close()
        other.close()
    return recorder.lines


def _topic_and_connections(recorder: Recorder) -> None:
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    recorder.ask("UPDATE_AND_CREATE_TOPIC", 17, fields)
    recorder.ask("GET_PRODUCER_CONNECTION_LIST none", 204, {"producerGroup": "nobody"})


def _sends(recorder: Recorder) -> int:
    """Sends of every form; returns the commit-log offset of the first message."""
    sent = recorder.ask("SEND_MESSAGE_V2 plain", 310, send_fields(KEYS["plain"]), b"plain body")
    compressed = zlib.compress(b"compressed " * 600, 5)
    recorder.ask("SEND_MESSAGE_V2 zlib", 310, send_fields(KEYS["zlib"], sys_flag=1), compressed)
    if recorder.version != "3.2.6":
        fields = {**send_fields("", queue=1), "i": "", "m": "true"}
        recorder.ask("SEND_BATCH_MESSAGE", 320, fields, batch_body(b"one", b"two", b"three"))
        retry_until(lambda: _pulled(recorder, 1) >= 3)
        recorder.ask("PULL_MESSAGE batch", 11, pull_fields(TOPIC, 1, 0))
    half = send_fields(KEYS["half"], sys_flag=4, TRAN_MSG="true", PGROUP="PG_A")
    recorder.ask("SEND_MESSAGE_V2 half", 310, half, b"half body")
    retry_until(lambda: _pulled(recorder, 0) >= 2)
    recorder.ask("PULL_MESSAGE zlib", 11, pull_fields(TOPIC, 0, 0))
    return int(sent.fields["msgId"][16:], 16)


def _consumer_group(recorder: Recorder, other: Recorder, offset: int) -> None:
    recorder.ask("HEART_BEAT push consumer", 34, {}, heartbeat("127.0.0.1@1#1", TOPIC))
    other.ask("HEART_BEAT second member", 34, {}, heartbeat("127.0.0.1@2#2", TOPIC))
    recorder.unsolicited("NOTIFY_CONSUMER_IDS_CHANGED", 40)
    recorder.ask("GET_CONSUMER_LIST_BY_GROUP", 38, {"consumerGroup": GROUP})
    recorder.ask("GET_CONSUMER_LIST_BY_GROUP none", 38, {"consumerGroup": "nobody"})
    recorder.ask("GET_PRODUCER_CONNECTION_LIST", 204, {"producerGroup": "PG_A"})
    queue = {"topic": TOPIC, "brokerName": "broker-1", "queueId": 0}
    lock = {"consumerGroup": GROUP, "clientId": "127.0.0.1@1#1", "mqSet": [queue]}
    recorder.ask("LOCK_BATCH_MQ", 41, {}, json.dumps(lock).encode())
    other_lock = {**lock, "clientId": "127.0.0.1@2#2"}
    recorder.ask("LOCK_BATCH_MQ held by another", 41, {}, json.dumps(other_lock).encode())
    recorder.ask("UNLOCK_BATCH_MQ", 42, {}, json.dumps(lock).encode())
    position = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    recorder.ask("UPDATE_CONSUMER_OFFSET", 15, {**position, "commitOffset": "1"})
    recorder.ask("QUERY_CONSUMER_OFFSET", 14, position)
    recorder.ask("QUERY_CONSUMER_OFFSET none", 14, {**position, "consumerGroup": "nobody", "queueId": "3"})
    recorder.ask("GET_MIN_OFFSET", 31, {"topic": TOPIC, "queueId": "0"})
    recorder.ask("SEARCH_OFFSET_BY_TIMESTAMP", 29, {"topic": TOPIC, "queueId": "0", "timestamp": "0"})
    back = {
        "offset": str(offset), "group": GROUP, "delayLevel": "1", "originMsgId": KEYS["plain"],
        "originTopic": TOPIC, "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    recorder.ask("CONSUMER_SEND_MSG_BACK", 36, back)
    retry = f"%RETRY%{GROUP}"
    retry_until(lambda: recorder.ask("", 30, {"topic": retry, "queueId": "0"}, keep=False).fields["offset"] == "1")
    recorder.ask("PULL_MESSAGE retry topic", 11, pull_fields(retry, 0, 0))
    recorder.ask(
        "UNREGISTER_CLIENT", 35,
        {"clientID": "127.0.0.1@1#1", "producerGroup": "PG_A", "consumerGroup": GROUP},
    )  # fmt: skip


def _binary(recorder: Recorder) -> None:
    recorder.ask_binary("GET_MAX_OFFSET binary", 30, {"topic": TOPIC, "queueId": "0"})
    recorder.ask_binary("PULL_MESSAGE binary", 11, pull_fields(TOPIC, 0, 0))
    recorder.ask_binary("SEND_MESSAGE_V2 binary", 310, send_fields("E" * 32, queue=2), b"binary header")
    recorder.ask_binary("PULL_MESSAGE binary refused", 11, pull_fields("no-such-topic", 0, 0))


def record_ipv6(version: str) -> list[dict[str, str]]:
    """Records of producers and brokers with IPv6 addresses (4.6 and later)."""
    properties = {"brokerIP1": "::1", "brokerIP2": "::1", "bindAddress": "::"}
    with RocketMQCluster(version, properties=properties) as cluster:
        recorder = Recorder(version, cluster.broker().port, host="::1")
        try:
            recorder.ask("SEND_MESSAGE_V2 IPv6", 310, send_fields(KEYS["v6"]), b"from ::1 to ::1")
            retry_until(lambda: _pulled(recorder, 0) >= 1)
            recorder.ask("PULL_MESSAGE IPv6", 11, pull_fields(TOPIC, 0, 0))
        finally:
            recorder.close()
        mixed = Recorder(version, cluster.broker().port)
        try:
            mixed.ask("SEND_MESSAGE_V2 IPv4 to IPv6", 310, send_fields(KEYS["v6"], queue=1), b"to ::1")
            retry_until(lambda: _pulled(mixed, 1) >= 1)
            mixed.ask("PULL_MESSAGE IPv4 born, IPv6 stored", 11, pull_fields(TOPIC, 1, 0))
        finally:
            mixed.close()
    return recorder.lines + mixed.lines


def _pulled(recorder: Recorder, queue: int) -> int:
    reply = recorder.ask("", 30, {"topic": TOPIC, "queueId": str(queue)}, keep=False)
    return int(reply.fields["offset"])


def retry_until(condition: Callable[[], bool], *, within_seconds: float = 20.0) -> None:
    """Polls, with a deadline."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker did not get there")
        time.sleep(0.05)


def main(versions: list[str]) -> None:
    """Records the named versions, or all."""
    for version in versions or VERSIONS:
        with RocketMQCluster(version) as cluster:
            lines = record(version, cluster)
        if version in {"4.9.7", "5.3.3"}:
            lines += record_ipv6(version)
        target = FRAMES / f"extra_{version}.jsonl"
        target.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        sys.stdout.write(f"{target.name}: {len(lines)} frames\n")


if __name__ == "__main__":
    main(sys.argv[1:])
