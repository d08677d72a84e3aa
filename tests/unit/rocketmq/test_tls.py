"""TLS between client and embedded broker: what it carries, and what each way to fail says."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.contract.secret_sources import secret_from_command
from reconciler.embedded.listening import parse_address
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.tls import ServerTls, TlsMode
from reconciler.errors import BrokerUnavailable, InvalidValue
from reconciler.rocketmq.client import demands
from reconciler.rocketmq.client.connection import ConnectionLimits, ConnectionLost
from reconciler.rocketmq.client.demands import PeerDemand, demand_behind
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.tls_context import TlsContext
from reconciler.rocketmq.client.tls_failures import TlsFailure, hand_shake_failure
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.settings.rocketmq import TlsSection
from reconciler.wiring.connections import tls_settings
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.patient_instance import patient_client, patient_instance
from tests.unit.rocketmq.peers import Peer, Script, answering, drain, echo

ASK = Command(code=RequestCode.GET_BROKER_CLUSTER_INFO)
BIG = 3 * 1024 * 1024


@pytest.fixture(autouse=True)
def _patient_hand_shakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that answers late is none that answers nothing."""
    monkeypatch.setattr(demands, "_HANDSHAKE_SECONDS", 30.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.issue("server")
    made.issue("elsewhere", hosts=("127.0.0.2", "broker.example"))
    made.issue("expired", days=-1)
    made.issue("client")
    made.issue("locked", key_password="open sesame")
    stranger = Authority(made.folder, "stranger")
    stranger.write_key()
    stranger.issue("unknown")
    return made


def server(authority: Authority, name: str = "server", *, mode: TlsMode = TlsMode.ENFORCING) -> ServerTls:
    folder = authority.folder
    return ServerTls(certificate_file=folder / f"{name}.pem", key_file=folder / f"{name}.key", mode=mode)


def mutual(authority: Authority) -> ServerTls:
    return replace(server(authority), client_ca_file=authority.file, requires_client_certificate=True)


def client(authority: Authority, name: str | None = None) -> TlsSettings:
    ours = authority.folder / f"{name}.pem", authority.folder / f"{name}.key"
    certificate, key = (None, None) if name is None else map(str, ours)
    return TlsSettings(ca_file=str(authority.file), certificate_file=certificate, key_file=key)


def failure(address: str, tls: TlsSettings | None) -> BrokerUnavailable:
    with patient_client(tls=tls) as remoting, pytest.raises(BrokerUnavailable) as caught:
        remoting.request(address, ASK)
    return caught.value


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@pytest.mark.parametrize("needs_certificate", [False, True])
def test_a_server_answers_over_tls(authority: Authority, mode: TlsMode, *, needs_certificate: bool) -> None:
    tls = replace(mutual(authority) if needs_certificate else server(authority), mode=mode)
    ours = client(authority, "client" if needs_certificate else None)
    with EmbeddedBroker(tls=tls) as broker, patient_instance(broker.name_servers, tls=ours) as instance:
        assert instance.cluster_addresses() == {broker.address}


def test_a_permissive_server_answers_without_tls(authority: Authority) -> None:
    tls = server(authority, mode=TlsMode.PERMISSIVE)
    with EmbeddedBroker(tls=tls) as broker, patient_instance(broker.name_servers) as instance:
        assert instance.cluster_addresses() == {broker.address}


def test_a_server_that_demands_tls_is_not_merely_away(authority: Authority) -> None:
    with EmbeddedBroker(tls=server(authority)) as broker:
        error = failure(broker.address, None)
        assert "the port seems to demand TLS; set [rocketmq.tls] enabled = true" in str(error)
        assert demand_behind(error, broker.address) == PeerDemand.WANTS_TLS


@pytest.mark.parametrize("mode", [None, TlsMode.DISABLED])
def test_a_server_without_tls_is_named(authority: Authority, mode: TlsMode | None) -> None:
    with EmbeddedBroker(tls=None if mode is None else server(authority, mode=mode)) as broker:
        error = failure(broker.address, client(authority))
        assert "the port does not speak TLS; set tls.server.mode there" in str(error)
        assert demand_behind(error, broker.address) == PeerDemand.TLS_FAILS


@pytest.mark.parametrize("kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError])
def test_a_server_that_ends_the_hand_shake_is_named_on_every_python(kind: type[ssl.SSLError]) -> None:
    error = hand_shake_failure(kind(6, "closed (EOF)"), "10.0.0.1:9876", "10.0.0.1", TlsSettings())
    assert "10.0.0.1:9876: the port does not speak TLS" in str(error)


@pytest.mark.parametrize(
    ("served", "authority_file", "said"),
    [
        ("server", "stranger.pem", "signed by no authority of "),
        ("unknown", "authority.pem", "signed by no authority of "),
        ("stranger", "authority.pem", "it is self-signed"),
        ("expired", "authority.pem", "is expired; renew it there"),
        ("elsewhere", "authority.pem", "does not name 127.0.0.1; add IP:127.0.0.1 to the certificate's subjectAltName"),
    ],
)
def test_a_certificate_that_is_not_good_enough_is_named_with_its_fault(
    authority: Authority, served: str, authority_file: str, said: str
) -> None:
    tls = server(authority, served)
    ours = replace(client(authority), ca_file=str(authority.folder / authority_file))
    with EmbeddedBroker(tls=tls) as broker:
        error = failure(broker.address, ours)
        assert isinstance(error, TlsFailure)
        assert said in str(error)
        assert demand_behind(error, broker.address) == PeerDemand.TLS_FAILS


@pytest.mark.parametrize("shown", [None, "stranger"])
def test_a_server_that_refuses_our_certificate_is_told_as_one_without_tls(
    authority: Authority, shown: str | None
) -> None:
    with EmbeddedBroker(tls=mutual(authority)) as broker:
        error = failure(broker.address, client(authority, shown))
        assert demand_behind(error, broker.address) == PeerDemand.TLS_FAILS


def test_without_the_host_name_check_the_authority_is_still_checked(authority: Authority) -> None:
    lax = replace(client(authority), verify_host_name=False)
    with EmbeddedBroker(tls=server(authority, "elsewhere")) as broker:
        with patient_instance(broker.name_servers, tls=lax) as instance:
            assert instance.cluster_addresses() == {broker.address}
        wrong = replace(lax, ca_file=str(authority.folder / "stranger.pem"))
        assert "signed by no authority" in str(failure(broker.address, wrong))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "certificate_file and key_file"),
        ("unknown", "the certificate of this client"),  # asyncio closes without the alert that Java sends
        ("expired", "the certificate of this client"),
    ],
)
def test_a_server_that_wants_another_certificate_of_ours_says_so(
    authority: Authority, name: str | None, said: str
) -> None:
    with EmbeddedBroker(tls=mutual(authority)) as broker:
        assert said in str(failure(broker.address, client(authority, name)))


def test_the_reason_stays_in_sight_while_the_client_pauses(authority: Authority) -> None:
    with EmbeddedBroker(tls=server(authority, "expired")) as broker, patient_client(tls=client(authority)) as remoting:
        for _ in range(3):
            with pytest.raises(BrokerUnavailable, match="is expired") as caught:
                remoting.request(broker.address, ASK)
            assert demand_behind(caught.value, broker.address) == PeerDemand.TLS_FAILS


def test_a_peer_that_never_shakes_hands_costs_the_time_for_connecting(authority: Authority) -> None:
    with (
        Peer(drain) as peer,
        RemotingClient(tls=client(authority), connect_timeout_seconds=0.2) as remoting,
        pytest.raises(TlsFailure, match="hand-shake was not finished in time; correct the address"),
    ):
        remoting.request(peer.address, ASK)


def test_a_broker_that_stops_leaves_the_sockets_of_hand_shakes_open(authority: Authority) -> None:
    with EmbeddedBroker(tls=server(authority)) as broker:
        began = [socket.create_connection(parse_address(broker.address)) for _ in range(20)]
        for connected in began:
            connected.sendall(b"\x16")  # and no more of its first record
    gc.collect()  # an open transport warns when it goes, and a warning is an error here
    for connected in began:
        connected.settimeout(5.0)
        with connected, contextlib.suppress(ConnectionResetError):
            assert connected.recv(1) == b""


def encrypted(authority: Authority, script: Script) -> Script:
    """The script over TLS."""

    def run(connected: socket.socket) -> None:
        context = server(authority).context()
        with context.wrap_socket(connected, server_side=True) as spoken:
            script(spoken)

    return run


def test_many_threads_send_and_receive_big_frames_at_once(authority: Authority) -> None:
    bodies = [bytes([number]) * BIG for number in range(8)]
    with Peer(encrypted(authority, answering(echo))) as peer, RemotingClient(tls=client(authority)) as remoting:
        with ThreadPoolExecutor(len(bodies)) as pool:
            asked = [
                pool.submit(remoting.request, peer.address, Command(code=1, body=body), timeout_seconds=60)
                for body in bodies
            ]
            assert [answer.result().body for answer in asked] == bodies
        assert peer.connections == 1


def test_a_peer_that_takes_no_bytes_costs_the_connection(authority: Authority) -> None:
    over = threading.Event()

    def hold(_spoken: socket.socket) -> None:
        over.wait(60)

    limits = ConnectionLimits(write_seconds=0.2)
    with Peer(encrypted(authority, hold)) as peer, RemotingClient(tls=client(authority), limits=limits) as remoting:
        with pytest.raises(ConnectionLost, match=r"takes no bytes for 0\.2 s"):
            remoting.submit(peer.address, Command(code=1, body=bytes(15 * 1024 * 1024)), 60)
        over.set()


def test_a_connection_that_is_cut_while_idle_is_noticed_and_made_again(authority: Authority) -> None:
    with EmbeddedBroker(tls=server(authority)) as broker, patient_client(tls=client(authority)) as remoting:
        gone = threading.Event()
        remoting.on_disconnect(lambda _address: gone.set())
        remoting.request(broker.address, ASK)
        broker.drop_connections()
        assert gone.wait(30)
        assert eventually(lambda: remoting.request(broker.address, ASK), within_seconds=30).code == 0


def test_renewed_files_are_used_by_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    settings = client(ours, "client")
    ours.issue("client", days=-1)
    served = replace(mutual(authority), client_ca_file=ours.file)
    settings = replace(settings, ca_file=str(authority.file))
    with EmbeddedBroker(tls=served) as broker, patient_client(tls=settings) as remoting:
        with pytest.raises(BrokerUnavailable, match="the certificate of this client"):
            remoting.request(broker.address, ASK)
        ours.issue("client")
        answer = eventually(lambda: _answer(remoting, broker.address), within_seconds=30)
        assert answer.code == 0


def _answer(remoting: RemotingClient, address: str) -> Command | None:
    try:
        return remoting.request(address, ASK)
    except BrokerUnavailable:
        return None


def test_half_renewed_files_leave_the_former_ones_in_use(authority: Authority, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    issued = ours.issue("client")
    context = TlsContext(client(ours, "client"))
    former = context.current()
    key = issued.key.read_bytes()
    ours.issue("client")
    whole = issued.key.read_bytes()
    issued.key.write_bytes(key)  # the certificate is new, its key is not there yet
    assert context.current() is former
    issued.key.unlink()
    assert context.current() is former
    issued.key.write_bytes(whole)
    assert context.current() is not former


@pytest.mark.parametrize("form", ["text", "function"])
def test_an_encrypted_key_is_opened_by_its_password(authority: Authority, form: str) -> None:
    password = "open sesame"
    given = replace(client(authority, "locked"), key_password=password if form == "text" else lambda: password)
    with EmbeddedBroker(tls=mutual(authority)) as broker, patient_client(tls=given) as remoting:
        assert remoting.request(broker.address, ASK).code == 0


def test_renewed_key_with_another_password_is_opened_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    ours.issue("client", key_password="first")
    word = tmp_path / "password"
    word.write_text("first")
    # The answer of a command is kept for a minute: a password that opens nothing is asked for again at once.
    settings = TlsSection(
        enabled=True,
        certificate_file=str(tmp_path / "client.pem"),
        key_file=str(tmp_path / "client.key"),
        key_password=secret_from_command(["cat", str(word)]),
    )
    found = tls_settings(settings)
    assert found is not None
    context = TlsContext(found)
    former = context.current()
    ours.issue("client", key_password="second")
    assert context.current() is former, "the password is still the first one"
    word.write_text("second")
    assert eventually(lambda: context.current() is not former, within_seconds=20)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"ca_file": "nowhere.pem"}, "rocketmq.tls.ca_file"),
        ({"ca_file": os.devnull}, "rocketmq.tls.ca_file"),
        ({"certificate_file": "nowhere.pem"}, "rocketmq.tls.certificate_file"),
        ({"certificate_file": None}, "rocketmq.tls.key_file"),
        ({"key_password": None}, "rocketmq.tls.key_password"),
        ({"key_password": "wrong secret"}, "rocketmq.tls.key_password"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_once(
    authority: Authority, changed: dict[str, str | None], field: str
) -> None:
    wrong = replace(replace(client(authority, "locked"), key_password="open sesame"), **changed)  # type: ignore[arg-type] # one field each
    with pytest.raises(InvalidValue) as caught:
        RemotingClient(tls=wrong)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.load_cert_chain(authority.folder / "server.pem", authority.folder / "server.key")

    def shake(connected: socket.socket) -> None:
        old.wrap_socket(connected, server_side=True).close()

    with Peer(shake) as peer:
        assert "no version of TLS from 1.2 on" in str(failure(peer.address, client(authority)))
