"""What real brokers answered to recorded requests, the embedded broker answers too, byte offsets included."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import ManualClock
from reconciler.embedded.families import FAMILIES, Family
from reconciler.embedded.layout import BrokerMessage
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.rocketmq.wire.broker_facts import facts_of
from reconciler.rocketmq.wire.codes import MQVersion
from tests.unit.embedded.raw_client import RawClient, records

FRAMES = Path(__file__).resolve().parents[2] / "frames"
FAMILY_OF = {"3.2.6": "3.2.6", "4.2.0": "4.2", "4.4.0": "4.4", "4.9.8": "4.9", "5.1.3": "5.x"}
# Before which request the real broker happened to run a check round: its copy of the half shifts all offsets.
ROUND_BEFORE = {"4.4.0": "QUERY_MESSAGE prepared", "5.1.3": "QUERY_MESSAGE committed"}
RECORDED_PORT = 10911
HAS_RECORDS = ("QUERY_MESSAGE", "PULL_MESSAGE", "VIEW_MESSAGE")


def exchanges(version: str) -> list[tuple[str, bytes, bytes]]:
    found, requests = [], {}
    for line in (FRAMES / f"frames_{version}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        frame = bytes.fromhex(entry["hex"])
        if entry["dir"] == "request":
            requests[entry["what"]] = frame
        elif entry["dir"] == "response":
            found.append((entry["what"], requests[entry["what"]], frame[4:]))
    return found


def parts(frame: bytes) -> tuple[dict[str, Any], bytes]:
    header_length = int.from_bytes(frame[:4], "big")
    return json.loads(frame[4 : 4 + header_length]), frame[4 + header_length :]


def comparable_header(header: dict[str, Any]) -> dict[str, Any]:
    fields = dict(header.get("extFields", {}))
    if "msgId" in fields:
        fields["msgId"] = fields["msgId"][16:]  # the offset; the address differs
    fields.pop("indexLastUpdateTimestamp", None)
    return {**header, "extFields": fields, "version": 0}


def comparable_record(message: BrokerMessage) -> tuple[object, ...]:
    return (
        message.topic,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        message.sys_flag,
        message.born_timestamp_ms,
        message.reconsume_times,
        message.prepared_offset,
        message.body,
        message.properties,
        message.size,
    )


@pytest.mark.parametrize("version", FAMILY_OF)
def test_every_recorded_request_gets_the_recorded_answer(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = FAMILY_OF[version]
    # The family as it was at the recorded release, from which it may have moved on: 5.2 stores properties otherwise.
    facts = facts_of(MQVersion.of_release(version))
    monkeypatch.setitem(FAMILIES, name, Family(name=name, release=version, **asdict(facts)))
    recorded = exchanges(version)
    assert len(recorded) >= 20
    born_ms = 1_795_169_475_000
    clock = ManualClock(now_ms=born_ms + 3_600_000)
    settings = BrokerSettings(cluster_name="C1", broker_name="b1", transaction_timeout_seconds=0.0)
    with EmbeddedBroker(family=name, settings=settings, clock=clock) as broker:
        address = broker.address.encode()
        for what, request, expected in recorded:
            clock.advance(0.002)
            if what == ROUND_BEFORE.get(version):
                broker.check_now()
            with RawClient(broker.address) as client:
                client.send_bytes(request)
                header, body = parts(client.raw_answer())
            expected_header, expected_body = parts(expected)
            assert comparable_header(header) == comparable_header(expected_header), what
            if what.startswith(HAS_RECORDS):
                assert list(map(comparable_record, records(body))) == list(
                    map(comparable_record, records(expected_body))
                ), what
            else:
                assert body.replace(address, b"127.0.0.1:%d" % RECORDED_PORT) == expected_body, what
