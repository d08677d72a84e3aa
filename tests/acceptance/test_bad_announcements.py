"""Hostile and broken messages on the unique-key topic: kept aside and counted, and the queue moves on."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from reconciler.contract.unique_key import shard_of
from reconciler.rocketmq.wire.message import Message
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.polling import eventually
from tests.services.patient_instance import patient_instance

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

KEY = "7F00000100002A9F0000000000000090"


def bad_bodies(deployed: Deployment) -> dict[str, tuple[str, bytes]]:
    """What is wrong -> (reason in the quarantine, body)."""
    entry = {"key": KEY, "tag": None, "committed_at_ms": 1_763_716_000_000}
    good = {
        "v": 1,
        "env": deployed.environment,
        "topic": deployed.topic,
        "group": deployed.producer_group,
        "keys": [entry],
    }

    def body(**changes: object) -> bytes:
        return json.dumps({**good, **changes}).encode()

    return {
        "no JSON": ("MALFORMED", b"\xff\xfe not JSON"),
        "JSON that is no object": ("MALFORMED", b"[1, 2, 3]"),
        "JSON nested without end": ("MALFORMED", b"[" * 50_000),
        "cut off": ("MALFORMED", body()[:-5]),
        "no keys": ("MALFORMED", body(keys=[])),
        "too many keys": ("MALFORMED", body(keys=[entry] * 501)),
        "oversized": ("SIZE", body(note="x" * 65_536)),
        "a bomb": ("MALFORMED", b" " * 3_000_000),
        "unknown version": ("VERSION", body(v=2)),
        "no version": ("VERSION", json.dumps({k: v for k, v in good.items() if k != "v"}).encode()),
        "wrong topic": ("TOPIC", body(topic="SOMEBODY_ELSES")),
        "wrong environment": ("ENVIRONMENT", body(env="production")),
        "a key of a wrong shape": ("SHAPE", body(keys=[entry, {**entry, "key": "../../etc/passwd"}])),
        "a key that is too long": ("SHAPE", body(keys=[{**entry, "key": KEY.lower() * 3}])),
    }


def announce_raw(deployed: Deployment, bodies: list[bytes]) -> None:
    """Each body once into every queue of the unique-key topic, tagged as an announcement of the topic."""
    with patient_instance(deployed.name_servers) as instance:
        sender = instance.sender("somebody")
        for queue in instance.routes.route(deployed.unique_key_topic).writable_queues:
            for body in bodies:
                sender.send(Message(topic=deployed.unique_key_topic, body=body, tags=deployed.topic), queue=queue)


def announced_so_far(deployed: Deployment) -> int:
    """Keys that rounds took. A key counts in each round that took it: what is written to Redis without an answer is
    written again."""
    (total,) = deployed.rows(deployed.ledger, "SELECT coalesce(sum(announced), 0) FROM reconciler_round")
    return int(total)


def test_bad_announcements_are_quarantined_and_the_good_ones_behind_them_are_matched(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(has_marked_secrets=False)
    producer = deployed.producer()
    # All of it is waiting before the service starts: good, bad, good in every queue.
    before = deployed.commit(8, producer=producer)
    bad = bad_bodies(deployed)
    announce_raw(deployed, [body for _, body in bad.values()])
    behind = deployed.commit(40, producer=producer)
    lost = deployed.commit(4, lose=True, producer=producer)
    assert {shard_of(key, SHARDS) for key in behind} == set(range(SHARDS)), "a queue without a good one behind bad ones"
    committed = before + behind + lost

    service = deployed.run("run")
    deployed.consume()
    eventually(lambda: deployed.effects() == sorted(committed), within_seconds=60)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    assert set(deployed.repairs()) == set(lost)
    # Every good key was taken, no key of a bad announcement was.
    assert announced_so_far(deployed) >= len(committed)
    assert KEY not in deployed.verdicts()

    expected = Counter({reason: 0 for reason, _ in bad.values()})
    for reason, _ in bad.values():
        expected[reason] += SHARDS
    listed = deployed.command("list", "quarantine", "--limit", "1000", "--output", "json")
    assert listed.exit_code == 0, listed.stderr
    rows = listed.document["quarantine"]
    assert Counter(row["reason"] for row in rows) == expected
    assert all(row["detail"] for row in rows)
    assert {(row["unique_key_topic"], row["queue"]) for row in rows} == {
        (deployed.unique_key_topic, number) for number in range(SHARDS)
    }
    assert "SHAPE" in deployed.command("list", "quarantine").stdout

    # What the broker hands out again after a restart is not quarantined twice, and new ones still are.
    assert service.end() == 0, service.output[-2000:]
    assert service.output.count("REFUSED") >= SHARDS
    taken = announced_so_far(deployed)
    deployed.run("run")
    announce_raw(deployed, [b"one more"])
    later = deployed.commit(4, producer=producer)
    eventually(lambda: announced_so_far(deployed) >= taken + len(later), within_seconds=60)
    # Not every queue has a later key: no queue has waited for the others.
    count = "SELECT count(*) FROM reconciler_quarantine"
    eventually(lambda: deployed.rows(deployed.ledger, count) == [(len(bad) + 1) * SHARDS], within_seconds=60)


def test_keys_of_a_service_whose_outbox_was_forgotten_are_not_settled_in_silence(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(has_marked_secrets=False)
    announcement = {
        "v": 1,
        "env": deployed.environment,
        "topic": deployed.topic,
        "group": "a_group_without_a_section",
        "keys": [{"key": KEY, "tag": None, "committed_at_ms": 1_763_716_000_000}],
    }
    announce_raw(deployed, [json.dumps(announcement).encode()])
    deployed.run("run")
    deployed.consume()
    eventually(lambda: deployed.verdicts().get(KEY) == "REJECTED", within_seconds=60)
    status = deployed.command("status", "--output", "json")
    assert status.exit_code == 0, status.stderr
    (line,) = status.document["rejected"]
    assert line.startswith(f"{deployed.topic}/{deployed.group}: 1 announced keys are committed in no configured outbox")
    assert f"rejected: {line}" in status.stderr
