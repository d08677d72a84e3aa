"""The plug-ins on librocketmq for real, as far as the wheel rocketmq 0.4.4 goes: everything but transactions."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.contract.unique_key import shard_of
from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.brokers.addresses import Address
from tests.native.services import Played, play
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.requirements import downloaded
from tests.services.topics import create_topic, topic_name
from tests.services.wheel_environment import wheel_python

# The first one installs the wheel, the others wait for it.
pytestmark = [pytest.mark.native, pytest.mark.timeout(900)]

PROGRAM = "ordinary_service.py"
QUEUES = 4


def run(scenario: str, *arguments: str, home: Path, clean: bool = True) -> Played:
    return play(downloaded(wheel_python), PROGRAM, scenario, *arguments, home=home, clean=clean)


def test_a_refused_message_comes_again_although_0_4_4_ignores_what_callbacks_return(
    address: Address, tmp_path: Path
) -> None:
    first, second = address.new_topic("native_first"), address.new_topic("native_second")
    played = run("consume", address.name_servers, first, second, f"sqlite:///{tmp_path}/inbox.db", home=tmp_path)
    sent = {(event["topic"], event["unique_key"]) for event in played.of("sent")}
    applied = played.of("applied")
    # Both topics of the one consumer, each in its own handler, each once: the one that raised, and the refused one.
    assert sorted((event["topic"], event["unique_key"]) for event in applied) == sorted(sent)
    assert len(sent) == 20
    again = {event["body"] for event in applied if event["times"] > 0}
    assert {"raises 3", "refused 3"} <= again
    assert {(event["tags"], event["colour"], event["properties"]) for event in applied} == {("paid", "blue", None)}
    assert all(event["keys"] == "k-" + event["body"].split()[1] for event in applied)
    # Content is not checked, because the library cannot list properties; the business id is known all the same.
    (inbox,) = played.of("inbox")
    assert {(topic, key) for topic, key, has_digest in inbox["rows"] if not has_digest} == sent
    (effects,) = played.of("effects")
    assert len(effects["rows"]) == 20
    assert all(identifier == "order-" + body.split()[1] for _, body, identifier in effects["rows"])
    (failures,) = played.of("failures")
    assert (failures["count"], failures["failed"]) == (0, 2)
    assert played.of("members")[0]["brokers"] == 1


def test_announcements_lie_in_the_queue_of_their_shard(address: Address, tmp_path: Path) -> None:
    topic = address.new_topic("native_unique_key")
    played = run("announce", address.name_servers, topic, str(QUEUES), home=tmp_path)
    (announced,) = played.of("announced")
    assert len(announced["keys"]) == 60
    admitted = [(event["number"], key) for event in played.of("queue") for key in event["admitted"]]
    assert sorted({key for _, key in admitted}) == announced["keys"]
    assert all(shard_of(key, QUEUES) == number for number, key in admitted)


def test_brokers_know_the_group_at_once_and_not_after_thirty_seconds(address: Address, tmp_path: Path) -> None:
    played = run("register", address.name_servers, address.new_topic("native_probe"), home=tmp_path)
    (registered,) = played.of("registered")
    # The cold one is the library's own behaviour: its group is unknown, its halves would never be asked back.
    assert (registered["warm"], registered["cold"]) == (True, False)
    assert "is registered for check-back" in played.log


def test_a_message_to_the_second_cluster_does_not_go_to_the_first(tmp_path: Path) -> None:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        topic = topic_name("native_clusters")
        for broker in (first, second):
            create_topic(broker.port, topic, name_server_port=broker.port)
        played = run("two_clusters", first.name_servers, second.name_servers, topic, home=tmp_path)
        bodies = {broker.name_servers: _bodies(broker, topic) for broker in (first, second)}
    assert len(played.of("sent")) == 2
    assert bodies == {address: [address] for address in bodies}


def test_a_program_that_forgets_the_shutdown_still_ends(address: Address, tmp_path: Path) -> None:
    played = run("forgotten", address.name_servers, address.new_topic("native_forgotten"), home=tmp_path)
    assert "was not shut down: it is now" in played.log


def test_name_servers_that_never_answer_cost_neither_the_send_nor_the_exit(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        played = run("black_hole", address, "ORDERS", home=tmp_path, clean=False)
    (refused,), (stopped,) = played.of("refused"), played.of("shut down")
    assert refused["kind"] == "RequestTimeout"
    assert refused["seconds"] < 5
    assert stopped["ended"] is False
    assert stopped["seconds"] < 5
    # The library would hold the process for up to a minute: it ended by the alarm, or by itself before it. Its threads
    # still run then, and may crash while the process takes itself down.
    assert played.code in {0, -signal.SIGALRM, -signal.SIGSEGV, -signal.SIGABRT}
    assert played.events[-1] == {"event": "end"}


def test_the_wheel_is_told_apart_from_a_library_with_transactions(tmp_path: Path) -> None:
    (missing,) = run("no_transactions", "127.0.0.1:9876", "ORDERS", home=tmp_path).of("missing")
    assert "0.4.4 has no transactions" in missing["text"]
    assert "the extra native" in missing["text"]
    assert "rocketmq-client-cpp 2.x" in missing["text"]


def _bodies(broker: EmbeddedBroker, topic: str) -> list[str]:
    with ClientInstance(broker.name_servers) as instance:
        source = RemotingAnnouncementSource(instance.client, instance.routes)
        return [
            message.body.decode()
            for queue in source.queues(topic)
            for message in source.pull(queue, tag="*", offset=0, max_messages=32).messages
        ]
