"""The stock Java client, unchanged from the registry, on the embedded broker and on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.addresses import Address
from tests.brokers.jars import client_jars
from tests.brokers.java_client import Event, run
from tests.services.requirements import downloaded

CLIENTS = (pytest.param("4.9.7", marks=pytest.mark.nightly), "5.3.3")

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600), pytest.mark.parametrize("client", CLIENTS)]


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def play(scenario: str, client: str, address: Address, folder: Path) -> tuple[str, list[Event]]:
    downloaded(lambda: client_jars(client))
    topic = address.new_topic(f"java_{scenario}_{client}")
    return topic, run(scenario, version=client, name_servers=address.name_servers, topic=topic, folder=folder)


def test_two_members_share_the_queues_and_one_takes_over(address: Address, client: str, tmp_path: Path) -> None:
    _, events = play("rebalance", client, address, tmp_path)
    (shared,) = of(events, "shared")
    assert sorted([shared["first"], shared["second"]]) == ["[0, 1]", "[2, 3]"]
    (received,) = of(events, "received")
    assert received["distinct"] == 80
    # A handover may deliver again what was in flight: on a busy machine all forty of before, and none of after.
    assert received["deliveries"] <= 120


def test_a_refused_message_is_retried_and_ends_as_a_dead_letter(address: Address, client: str, tmp_path: Path) -> None:
    topic, events = play("retry", client, address, tmp_path)
    ids = {event["body"]: event["id"] for event in of(events, "sent")}
    attempts = of(events, "attempt")
    assert sorted((e["body"], e["times"]) for e in attempts) == [
        ("never", 0), ("never", 1), ("never", 2), ("once", 0), ("once", 1),
    ]  # fmt: skip
    assert {event["topic"] for event in attempts} == {topic}
    assert all(event["id"] == ids[event["body"]] for event in attempts)
    (dead,) = of(events, "dead")
    assert dead == {"event": "dead", "body": "never", "times": 3, "origin": topic, "id": ids["never"]}


def test_shards_stay_in_order_across_a_refusal(address: Address, client: str, tmp_path: Path) -> None:
    _, events = play("orderly", client, address, tmp_path)
    shards = of(events, "shard")
    assert [event["name"] for event in shards] == ["0", "1", "2", "3"]
    assert {event["order"] for event in shards} == {str(list(range(25)))}
    (refusals,) = of(events, "refusals")
    assert refusals["count"] >= 5  # the refused one came back


def test_transactions_are_committed_rolled_back_and_checked_back(address: Address, client: str, tmp_path: Path) -> None:
    topic, events = play("transaction", client, address, tmp_path)
    ids = {event["body"]: event["id"] for event in of(events, "sent")}
    assert {event["status"] for event in of(events, "sent")} == {"SEND_OK"}
    checks = of(events, "check")
    assert {event["topic"] for event in checks} == {topic}
    assert all(event["transaction"] == ids[event["body"]] for event in checks)
    assert [event["body"] for event in checks].count("check-twice") >= 2
    received = of(events, "received")
    assert {event["body"] for event in received} == {"commit", "check-commit", "check-twice"}
    assert all(event["id"] == ids[event["body"]] for event in received)


def test_messages_are_found_by_unique_key_offset_id_and_keys(address: Address, client: str, tmp_path: Path) -> None:
    _, events = play("lookup", client, address, tmp_path)
    (sent,) = of(events, "sent")
    by_key, by_offset = of(events, "view")
    assert by_key == {
        "event": "view", "by": "unique key", "body": "found", "keys": "order-1 customer-9", "tags": "TagA",
        "queue_offset": 0,
    }  # fmt: skip
    assert by_offset["body"] == "found"
    queries = {event["key"]: event for event in of(events, "query")}
    for key in ("order-1", "customer-9"):
        assert (queries[key]["count"], queries[key]["body"], queries[key]["id"]) == (1, "found", sent["id"])
    assert queries["no-such-key"]["count"] == 0
