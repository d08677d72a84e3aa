"""The command's function in this process, and peers that send nonsense."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.embedded.__main__ import main
from reconciler.embedded.channel import Channel, Channels
from reconciler.embedded.families import FAMILIES
from reconciler.embedded.faults import Faults
from reconciler.embedded.handlers.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.serving import serve, turn
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.tls import ServerTls, TlsMode
from reconciler.errors import ConfigurationError, InvalidValue, ProtocolViolation
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.address import parse_address
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command, decode_frame, encode_frame
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.ports import free_port
from tests.unit.embedded.raw_client import RawClient, body_of

FRAMES = Path(__file__).resolve().parents[2] / "frames"


class TermAfterFirstLine(io.StringIO):
    """Standard output that sends SIGTERM as soon as the broker has said that it is ready."""

    def flush(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_it_serves_until_sigterm_and_names_the_address_that_settings_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str
) -> None:
    output = TermAfterFirstLine()
    monkeypatch.setattr("sys.stdout", output)
    assert serve(f"{host}:0", family="4.9.7", data=tmp_path, knobs=["drop_ends=1", "transactionCheckMax=2"]) == 0
    ready = json.loads(output.getvalue())
    assert ready["family"] == "4.9"
    assert ready["listen"] == f"{host}:{parse_address(ready['listen'])[1]}"


def test_the_loop_of_a_service_that_sets_a_policy_is_not_the_brokers() -> None:
    """As uvloop's is set: its transports are of another kind."""
    of_the_service = []

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            of_the_service.append(super().new_event_loop())
            return of_the_service[-1]

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        with EmbeddedBroker() as broker, RawClient(broker.address) as client:
            assert client.send_message().code == 0
    finally:
        asyncio.set_event_loop_policy(before)
    assert of_the_service == []


def test_main_ends_with_2_and_a_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--listen", "nowhere"])
    assert ended.value.code == 2
    with EmbeddedBroker(data=tmp_path), pytest.raises(SystemExit) as refused:
        main(["--listen", "127.0.0.1:0", "--data", str(tmp_path)])
    assert refused.value.code == 2
    assert "in use" in capsys.readouterr().err


def test_a_knob_is_a_fault_or_a_property() -> None:
    faults, settings = Faults(), BrokerSettings()
    turn("busy=1", faults, settings)
    assert faults.is_busy(10)
    for knob in ("brokerName=b", "retentionSeconds=0.5", "fileReservedTime=2", "autoCreateTopicEnable=false"):
        turn(knob, faults, settings)
    assert (settings.broker_name, settings.retention_seconds, settings.reserved_seconds) == ("b", 0.5, 7200.0)
    assert settings.auto_create_topic is False
    for bad in ("busy", "nonsense=1", "retentionSeconds=x", "transactionCheckMax=x"):
        with pytest.raises(InvalidValue):
            turn(bad, faults, settings)
    untold = set()
    for name in BrokerSettings.names():
        is_switch = name.endswith("Enable") or name.startswith(("autoCreate", "reject")) or name == "traceOn"
        value = "true" if is_switch else "1s" if name == "messageDelayLevel" else "1"
        assert settings.configure(name, value)
        if settings.as_properties().get(name) != value:
            untold.add(name)
    own = {"reservedSeconds", "retentionSeconds", "suspendScanSeconds", "channelExpirySeconds", "lockExpirySeconds"}
    assert untold == {*own, "maxStoredBytes", "maxStoredMessages", "segmentBytes"}


def test_a_broker_starts_without_its_name_server_and_registers_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.embedded.registration._FIRST_SECONDS", 0.05)
    monkeypatch.setattr("reconciler.embedded.registration._RETRY_SECONDS", 0.05)
    names = EmbeddedBroker(is_broker=False, listen=f"127.0.0.1:{free_port()}")
    names.start()
    names.stop()
    with EmbeddedBroker(name_servers=names.address) as broker, RawClient(broker.address) as client:
        assert client.send_message().code == 0
        for _ in range(2):  # the second time it has to notice that its connection is dead
            with names, RawClient(names.address) as asking:
                eventually(lambda: asking.call(105, topic="TopicA").code == 0, within_seconds=60)
                assert broker.name_servers == names.address
                assert list(body_of(asking.call(106))["brokerAddrTable"]) == ["embedded"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("server")
    made.issue("client")
    return made


@contextmanager
def an_enforcing_name_server(authority: Authority) -> Iterator[tuple[EmbeddedBroker, TlsSettings]]:
    """One that wants certificates of its clients; and how to speak to it."""
    folder = authority.folder
    served = ServerTls(
        certificate_file=folder / "server.pem",
        key_file=folder / "server.key",
        client_ca_file=authority.file,
        requires_client_certificate=True,
        mode=TlsMode.ENFORCING,
    )
    ours = [str(folder / name) for name in ("client.pem", "client.key")]
    with EmbeddedBroker(is_broker=False, tls=served) as names:
        yield names, TlsSettings(ca_file=str(authority.file), certificate_file=ours[0], key_file=ours[1])


def brokers_known_to(names: EmbeddedBroker, tls: TlsSettings) -> list[str]:
    with RemotingClient(tls=tls) as client:
        return sorted(NameServers(names.address, client).brokers())


def test_a_broker_registers_over_tls_where_the_name_server_demands_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reconciler.embedded.registration._FIRST_SECONDS", 0.05)
    caplog.set_level(logging.INFO, logger="reconciler.embedded.registration")
    with an_enforcing_name_server(authority) as (names, tls):
        with EmbeddedBroker(name_servers=names.address):
            eventually(lambda: "name_server_away" in caplog.text, within_seconds=20)
            assert brokers_known_to(names, tls) == []
        with EmbeddedBroker(name_servers=names.address, name_server_tls=tls):
            assert eventually(lambda: brokers_known_to(names, tls) == ["embedded"], within_seconds=20)
        assert eventually(lambda: brokers_known_to(names, tls) == [], within_seconds=20), "it has said goodbye"
        stranger = replace(tls, ca_file=None)
        with EmbeddedBroker(name_servers=names.address, name_server_tls=stranger):
            eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text, within_seconds=20)
            assert brokers_known_to(names, tls) == []


def test_a_broker_that_cannot_register_over_tls_says_so_before_it_takes_a_port(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, part in (
        (["--namesrv-ca", str(authority.file)], "namesrv"),
        (["--namesrv-ca", str(authority.folder / "nowhere.pem"), "--namesrv", "127.0.0.1:1"], "nowhere.pem"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["--listen", "127.0.0.1:0", *given])
        assert ended.value.code == 2
        assert part in capsys.readouterr().err


def test_a_name_server_list_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name_servers"):
        EmbeddedBroker(name_servers="somewhere")


def recorded_requests() -> list[Command]:
    found = []
    for path in sorted(FRAMES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["dir"] == "request":
                found.append(decode_frame(bytes.fromhex(entry["hex"])[4:]))
    return found


@pytest.mark.parametrize("family", ["3.2.6", "4.4", "5.x"])
def test_mutated_requests_cost_their_own_connection_at_most(family: str, caplog: pytest.LogCaptureFixture) -> None:
    values = ["", "-1", "NaN", "9" * 20, "x" * 40_000, "%RETRY%", "\x01\x02", "\ud800", "TopicA", "0", "32"]
    bodies = [b"", b"{}", b"[]", b"null", b"\xff", b'{"mqSet":[{}]}', b'{"consumerDataSet":[{"groupName":5}]}']
    chance, requests = random.Random(7), recorded_requests()
    codes = [*BROKER_HANDLERS, *NAME_SERVER_HANDLERS, 9999]
    caplog.set_level(logging.ERROR)
    with EmbeddedBroker(family=family) as broker, RawClient(broker.address) as witness:
        for _ in range(20):
            with RawClient(broker.address) as client:
                frames = [_mutated(chance, chance.choice(requests), values, bodies, codes) for _ in range(50)]
                try:
                    client.send_bytes(b"".join(frames))
                    client.answer(client.send(28, {}), 0.1)  # a wrong length may have swallowed it
                except (OSError, ProtocolViolation):
                    continue  # the broker has hung up
            assert witness.call(28).code == 0
    assert [record for record in caplog.records if record.exc_info is not None] == []


def _mutated(
    chance: random.Random, request: Command, values: list[str], bodies: list[bytes], codes: list[int]
) -> bytes:
    fields = dict(request.fields)
    for name in chance.sample(sorted(fields), k=min(len(fields), chance.randrange(3))):
        if chance.random() < 0.3:
            del fields[name]
        else:
            fields[name] = chance.choice(values)
    code = request.code if chance.random() < 0.7 else chance.choice(codes)
    body = request.body if chance.random() < 0.7 else chance.choice(bodies)
    frame = bytearray(encode_frame(Command(code=code, opaque=0, version=request.version, fields=fields, body=body)))
    if chance.random() < 0.1:
        frame[chance.randrange(len(frame))] = chance.randrange(256)
    return bytes(frame)


class Closing(asyncio.Transport):
    """A transport whose client has gone, before the loop has told the channel."""

    def is_closing(self) -> bool:
        return True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 4_000) if name == "peername" else default


def test_a_connection_that_is_closing_is_given_nothing_to_write() -> None:
    lost: list[Channel] = []
    family = FAMILIES["5.x"]
    channels = Channels(
        family=family, faults=Faults(), on_request=lambda *_: None, on_lost=lost.append, commit=lambda: None
    )
    channel = Channel(channels)
    channel.connection_made(Closing())
    channel.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {})
    assert not channel.is_open
    assert channels._with_output == [], "it would be kept for a client that is gone"
