"""Bodies of the unique-key topic that cannot be read: refused one by one, in any packing."""

from __future__ import annotations

import sys
import zlib
from dataclasses import replace

import pytest

from reconciler.announcing.rules import AnnouncementRules, PulledAnnouncement
from reconciler.announcing.source import RemotingAnnouncementSource, announcement_of
from reconciler.contract.queue_proof import record_of
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement
from reconciler.rocketmq.wire.codes import RequestCode, SystemFlag
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import PLAIN
from tests.unit.rocketmq.scripted import ScriptedCluster

QUEUE = AnnouncementQueue(unique_key_topic="KEYS", broker="broker-a", queue_id=0)
RULES = AnnouncementRules(environment="test", topic="ORDERS")
RECORD = replace(PLAIN, topic="KEYS", queue_offset=7, body=b"", body_crc=0, properties={"TAGS": "ORDERS"})


def pulled(body: bytes, system_flag: int) -> PulledAnnouncement:
    return announcement_of(replace(RECORD, body=body, system_flag=system_flag))


def refused(body: bytes, system_flag: int) -> tuple[str, str]:
    judged = RULES.screen(QUEUE, pulled(body, system_flag))
    assert isinstance(judged, RefusedAnnouncement)
    return judged.reason, judged.detail


def test_body_packed_with_a_package_that_is_not_installed_does_not_stop_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    reason, detail = refused(b"packed", SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZSTD)
    assert reason == "MALFORMED"
    assert "pip install zstandard" in detail


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no zlib stream", "MALFORMED"),
        (zlib.compress(b" " * (1024 * 1024 + 1)), "MALFORMED"),
        (zlib.compress(b" " * 100_000), "SIZE"),
    ],
    ids=["damaged", "bomb", "oversized"],
)
def test_damaged_or_too_big_body_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    assert refused(body, int(SystemFlag.COMPRESSED))[0] == reason


def test_body_that_could_be_read_is_judged_as_it_was_meant() -> None:
    assert pulled(zlib.compress(b"plain"), int(SystemFlag.COMPRESSED)).body == b"plain"


@pytest.mark.parametrize(("offset", "found"), [(6, None), (7, 7), (8, 8), (9, None)])
def test_a_look_at_an_offset_sees_the_record_that_is_there_and_no_neighbour_of_its_batch(
    offset: int, found: int | None
) -> None:
    with ScriptedCluster(topic="KEYS") as cluster:
        batch = b"".join(encode_record(replace(RECORD, queue_offset=there)) for there in (7, 8))
        bounds = {"nextBeginOffset": "9", "minOffset": "0", "maxOffset": "9"}
        cluster.broker.on(RequestCode.PULL_MESSAGE, lambda request: cluster.broker.success(request, bounds, batch))
        seen = RemotingAnnouncementSource(cluster.client, cluster.routes).look(QUEUE, offset=offset)
    assert seen.record == (None if found is None else record_of(replace(RECORD, queue_offset=found)))
