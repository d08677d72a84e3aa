"""The embedded broker as a process: how it starts and ends, and what survives kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import BrokerUnavailable
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.patient_instance import patient_client
from tests.unit.embedded.raw_client import GROUP, HALF_TOPIC, TOPIC, RawClient, body_of, pull_fields, records

START_SECONDS = 60
ASK = Command(code=RequestCode.GET_BROKER_CLUSTER_INFO)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "reconciler.embedded", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            ready = json.loads(running.stdout.readline())
            yield running, ready["listen"]
        finally:
            running.kill()


def test_it_says_where_it_listens_and_ends_with_0_on_sigterm() -> None:
    with process("--listen", "127.0.0.1:0", "--family", "4.2.0") as (running, address):
        host, port = address.split(":")
        with RawClient(address) as client, RawClient(f"{host}:{int(port) - 2}") as vip:
            assert client.send_message().code == 0
            assert vip.call(28).version == 253
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""


def test_sigterm_ends_it_while_clients_wait_for_messages() -> None:
    with process("--listen", "127.0.0.1:0") as (running, address), RawClient(address) as client:
        client.send_message()
        fields = pull_fields(TOPIC, 0, 1) | {"sysFlag": 6, "suspendTimeoutMillis": 60_000}
        client.send(11, {name: str(value) for name, value in fields.items()})
        client.send_message(DELAY="5")
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


def test_arguments_make_it_speak_tls_and_ask_for_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, ours = authority.issue("server"), authority.issue("client")
    files = ("--tls-certificate", str(server.certificate), "--tls-key", str(server.key))
    only = ("--tls-mode", "enforcing", "--tls-client-ca", str(authority.file))
    settings = TlsSettings(ca_file=str(authority.file))
    with process("--listen", "127.0.0.1:0", *files, *only) as (_, address):
        for refused in (None, settings):
            with patient_client(tls=refused) as client, pytest.raises(BrokerUnavailable):
                client.request(address, ASK)
        whole = replace(settings, certificate_file=str(ours.certificate), key_file=str(ours.key))
        with patient_client(tls=whole) as client:
            assert client.request(address, ASK).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tls-mode", "enforcing"),
        ("--tls-certificate", "nowhere.pem"),
        ("--tls-certificate", "nowhere.pem", "--tls-mode", "sometimes"),
        ("--listen", "nowhere"),
        ("--family", "7"),
        ("--knob", "nonsense=1"),
        ("--knob", "drop_ends"),
        ("--knob", "drop_ends=x"),
    ],
)
def test_arguments_that_cannot_work_end_with_2(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "reconciler.embedded", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_taken_port_ends_with_2() -> None:
    with process("--listen", "127.0.0.1:0") as (_, address):
        command = [sys.executable, "-m", "reconciler.embedded", "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
        assert done.returncode == 2
        assert address.split(":")[1] in done.stderr


def test_knobs_work_from_the_command_line() -> None:
    knobs = ("--knob", "drop_nth_end=1", "--knob", "brokerName=b7", "--knob", "transactionCheckMax=4")
    with process("--listen", "127.0.0.1:0", *knobs) as (_, address), RawClient(address) as client:
        half = client.send_half(UNIQ_KEY="K1")
        fields = {
            "producerGroup": GROUP, "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
            "fromTransactionCheck": "false", "msgId": "-",
        }  # fmt: skip
        assert client.answer(client.send(37, fields), 0.3) is None
        assert client.end(half).code == 0
        assert b"transactionCheckMax=4\n" in client.call(26).body
        assert body_of(client.call(105, topic=TOPIC))["brokerDatas"][0]["brokerName"] == "b7"


def test_it_registers_with_another_name_server() -> None:
    with (
        process("--listen", "127.0.0.1:0", "--knob", "brokerName=first") as (_, names),
        process("--listen", "127.0.0.1:0", "--knob", "brokerName=second", "--namesrv", names) as (second, _address),
        RawClient(names) as client,
    ):
        assert sorted(body_of(client.call(106))["brokerAddrTable"]) == ["first", "second"]
        second.kill()
        eventually(lambda: sorted(body_of(client.call(106))["brokerAddrTable"]) == ["first"], within_seconds=60)


class Load:
    """Sends, commits and ends halves until the broker dies; remembers only what was acknowledged."""

    def __init__(self, address: str, number: int) -> None:
        self.number = number
        self.sent: dict[str, int] = {}
        self.committed: set[str] = set()
        self.offsets: list[int] = []
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with RawClient(self._address) as client:
                for count in range(1_000_000):
                    self._step(client, f"{self.number}-{count}", count)
        except (OSError, AssertionError):
            return

    def _step(self, client: RawClient, key: str, count: int) -> None:
        if count % 3:
            reply = client.send_message(body=os.urandom(700), queue_id=self.number, UNIQ_KEY=key)
            assert reply.code == 0
            self.sent[key] = int(reply.fields["queueOffset"])
        else:
            half = client.send_half(UNIQ_KEY=key)
            assert half.code == 0
            assert client.end(half).code == 0
            self.committed.add(key)
        answer = client.call(15, consumerGroup="CG", topic=TOPIC, queueId=self.number, commitOffset=count)
        assert answer.code == 0
        self.offsets.append(count)

    def join(self) -> None:
        self._thread.join()


@pytest.mark.parametrize("segment_bytes", [64 * 1024 * 1024, 50_000])
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, segment_bytes: int) -> None:
    arguments = ("--data", str(tmp_path), "--knob", f"segmentBytes={segment_bytes}")
    loads: list[Load] = []
    with process("--listen", "127.0.0.1:0", *arguments) as (running, address):
        with RawClient(address) as client:
            client.send_message("TOUCH")
            client.send_message(queue_id=3, UNIQ_KEY="FIRST")
            client.pull(queue_id=3, consumerGroup="CG")
        loads = [Load(address, number) for number in range(3)]
        eventually(lambda: all(len(load.offsets) > 200 for load in loads), within_seconds=60)
        running.kill()
        running.wait()
        for load in loads:
            load.join()
    with process("--listen", "127.0.0.1:0", *arguments) as (_, address), RawClient(address) as client:
        for load in loads:
            stored = read_queue(client, load.number)
            for key, offset in load.sent.items():
                assert stored[offset] == key
            saved = int(client.call(14, consumerGroup="CG", topic=TOPIC, queueId=load.number).fields["offset"])
            assert saved >= load.offsets[-1]
        everything = [key for number in range(4) for key in read_queue(client, number).values()]
        for load in loads:
            assert load.committed <= set(everything)
        assert len(everything) == len(set(everything))
        assert client.call(105, topic="TOUCH").code == 0
        last = max(loads[0].committed, key=lambda key: int(key.partition("-")[2]))
        assert client.found(TOPIC, last)[0].properties["UNIQ_KEY"] == last
        assert client.found(HALF_TOPIC, last)


def read_queue(client: RawClient, queue_id: int) -> dict[int, str]:
    found: dict[int, str] = {}
    offset = 0
    while True:
        reply = client.pull(queue_id=queue_id, offset=offset)
        if reply.code != 0:
            return found
        for message in records(reply.body):
            found[message.queue_offset] = message.properties["UNIQ_KEY"]
        offset = int(reply.fields["nextBeginOffset"])
