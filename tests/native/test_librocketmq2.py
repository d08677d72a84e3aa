"""The real thing: rocketmq-client-python 2.0.0 on librocketmq 2.x, which no registry carries.

Where `ctypes.util.find_library("rocketmq")` finds it, these run on the embedded broker and on a real one.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from reconciler.contract.tables import OutboxState
from reconciler.contract.unique_key import shard_of
from tests.brokers.addresses import Address
from tests.native.package import package_folder
from tests.native.services import Played, play
from tests.services.requirements import downloaded

pytestmark = pytest.mark.librocketmq2

QUEUES = 4


def run(program: str, scenario: str, *arguments: str, home: Path, clean: bool = True) -> Played:
    folder = downloaded(package_folder)
    return play(Path(sys.executable), program, scenario, *arguments, home=home, library_folder=folder, clean=clean)


def transact(scenario: str, address: Address, home: Path) -> Played:
    topics = [address.new_topic(f"native2_{role}") for role in ("orders", "probe", "keys")]
    database_url = f"sqlite:///{home}/orders.db"
    return run("transaction_service.py", scenario, address.name_servers, *topics, database_url, home=home)


def test_every_outcome_is_read_ended_and_announced(address: Address, tmp_path: Path) -> None:
    played = transact("outcomes", address, tmp_path)
    sent = {event["name"]: event for event in played.of("sent")}
    committed = {f"commit-{number}" for number in range(5)}
    assert {name for name, event in sent.items() if event["outcome"] == "COMMIT" and event["announced"]} == committed
    assert {name: event["raised"] for name, event in sent.items() if event["raised"]} == {
        "raises": "ValueError",
        "interrupted": "KeyboardInterrupt",
        "forgotten": "NotRecorded",
    }
    assert sent["open"]["outcome"] == "UNKNOWN"
    (copies,), (announced,) = played.of("copies"), played.of("announced")
    small = {body: key for key, body in copies["found"].items() if len(body) < 100}
    assert small == {name: sent[name]["key"] for name in committed | {"open"}}
    assert len(announced["found"]) == 6  # the five and the large one; the open one is the sweeper's
    assert all(shard_of(key, QUEUES) == queue for queue, key in announced["found"])
    (outbox,) = played.of("outbox")
    states = {key: state for key, state, _ in outbox["rows"]}
    assert {states[sent[name]["key"]] for name in ("raises", "interrupted")} == {OutboxState.ROLLED_BACK}
    assert {offset for _, _, offset in outbox["rows"]} == {None}
    assert played.of("registered")[0]["everywhere"] is True


def test_a_half_of_the_first_second_is_asked_back(address: Address, tmp_path: Path) -> None:
    played = transact("check_at_once", address, tmp_path)
    first, forgotten = played.of("sent")
    (copies,) = played.of("copies")
    assert copies["found"] == {first["key"]: "first"}
    assert (first["outcome"], forgotten["raised"]) == ("UNKNOWN", "NotRecorded")
    (outbox,) = played.of("outbox")
    assert {key: state for key, state, _ in outbox["rows"]} == {first["key"]: "NEW", forgotten["key"]: "ROLLED_BACK"}


@pytest.mark.slow
def test_messages_are_freed(address: Address, tmp_path: Path) -> None:
    (grown,) = transact("memory", address, tmp_path).of("grown")
    assert grown["bytes"] < 20_000_000  # 500 messages of 75 KB compressed


def test_a_refused_message_comes_again(address: Address, tmp_path: Path) -> None:
    topics = address.new_topic("native2_first"), address.new_topic("native2_second")
    url = f"sqlite:///{tmp_path}/inbox.db"
    played = run("ordinary_service.py", "consume", address.name_servers, *topics, url, home=tmp_path)
    sent = sorted((event["topic"], event["unique_key"]) for event in played.of("sent"))
    assert sorted((event["topic"], event["unique_key"]) for event in played.of("applied")) == sent
    assert {"raises 3", "refused 3"} <= {event["body"] for event in played.of("applied") if event["times"] > 0}


def test_announcements_lie_in_the_queue_of_their_shard(address: Address, tmp_path: Path) -> None:
    topic = address.new_topic("native2_unique_key")
    played = run("ordinary_service.py", "announce", address.name_servers, topic, str(QUEUES), home=tmp_path)
    admitted = [(event["number"], key) for event in played.of("queue") for key in event["admitted"]]
    assert sorted(key for _, key in admitted) == played.of("announced")[0]["keys"]
    assert all(shard_of(key, QUEUES) == number for number, key in admitted)


def test_a_program_that_forgets_the_shutdown_still_ends(address: Address, tmp_path: Path) -> None:
    topic = address.new_topic("native2_forgotten")
    played = run("ordinary_service.py", "forgotten", address.name_servers, topic, home=tmp_path)
    assert "was not shut down: it is now" in played.log


def test_name_servers_that_never_answer_cost_neither_the_send_nor_the_exit(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        played = run("ordinary_service.py", "black_hole", address, "ORDERS", home=tmp_path, clean=False)
    (refused,), (stopped,) = played.of("refused"), played.of("shut down")
    assert refused["kind"] == "RequestTimeout"
    assert max(refused["seconds"], stopped["seconds"]) < 5
    assert played.code in {0, -14}
