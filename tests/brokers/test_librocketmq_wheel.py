"""librocketmq, as the wheel rocketmq 0.4.4 carries it, on the embedded broker and on a real one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.addresses import Address
from tests.services.requirements import downloaded
from tests.services.wheel_environment import wheel_python

PROGRAM = Path(__file__).parent / "native" / "wheel_client.py"
# The library may crash, or hang in its shutdown: it runs in a process with a deadline.
RUN_SECONDS = 120

pytestmark = pytest.mark.native


def play(scenario: str, address: Address, folder: Path) -> list[dict[str, Any]]:
    topic = address.new_topic(f"native_{scenario}")
    done = subprocess.run(
        [downloaded(wheel_python), PROGRAM, scenario, address.name_servers, topic],
        env={**os.environ, "HOME": str(folder)},  # it writes logs there, and does not start if it cannot
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
        cwd=folder,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
    said = f"{scenario} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == 0, said
    assert events[-1] == {"event": "end"}, said
    return events[:-1]


def test_what_librocketmq_sends_its_push_consumer_receives(address: Address, tmp_path: Path) -> None:
    events = play("push", address, tmp_path)
    sent = [event for event in events if event["event"] == "sent"]
    received = [event for event in events if event["event"] == "received"]
    assert {event["status"] for event in sent} == {"OK"}
    assert len({event["id"] for event in sent}) == 20
    assert {event["id"] for event in received} == {event["id"] for event in sent}
    assert all(event["unique_key"] == event["id"] for event in received)
    assert {event["body"] for event in received} == {f"body-{number}" for number in range(20)}
    assert all(event["keys"] == event["body"].replace("body", "key") for event in received)
    assert {(event["tags"], event["colour"]) for event in received} == {("TagA", "blue")}


def test_shards_of_librocketmq_stay_in_order(address: Address, tmp_path: Path) -> None:
    events = play("orderly", address, tmp_path)
    assert [(event["name"], event["order"]) for event in events] == [
        (str(shard), list(range(10))) for shard in range(4)
    ]
