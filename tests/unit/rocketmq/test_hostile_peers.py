"""A hostile or broken peer costs its connection and a clear error, nothing else."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import replace

import pytest

from reconciler.errors import BrokerBusy, BrokerUnavailable, RequestTimeout
from reconciler.rocketmq.client.connection import ConnectionLimits, ConnectionLost
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.frame import FLAG_RESPONSE, Command, encode_frame, reply_to
from tests.polling import eventually
from tests.unit.rocketmq.peers import Peer, Script, answering, drain, echo, requests

ASK = Command(code=30, fields={"topic": "T"})


def _first_reads(then: bytes) -> Script:
    def script(connected: socket.socket) -> None:
        next(requests(connected))
        connected.sendall(then)
        drain(connected)

    return script


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param(b"\x7f\xff\xff\xff", "frame length 2147483647", id="2 GiB length"),
        pytest.param(b"\xff\xff\xff\xff", "frame length 4294967295", id="4 GiB length"),
        pytest.param(b"\0\0\0\0", "frame length 0", id="zero length"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "frame length", id="another protocol"),
        pytest.param(b"\0\0\0\x08\0\0\0\x04null", "no JSON object", id="garbage header"),
        pytest.param(b"\0\0\0\x08\x07\0\0\x04null", "unknown header form", id="unknown form"),
        pytest.param(b"\0\1\x86\xa4\0\1\x86\xa0" + b"[" * 100_000, "no JSON", id="deep JSON"),
        pytest.param(b"\0\0\0\x06\0\0\0\x08{}", "header of 8 bytes", id="header beyond its frame"),
    ],
)
def test_bad_bytes_cost_the_connection_and_say_why(sent: bytes, said: str) -> None:
    with Peer(_first_reads(sent)) as bad, Peer(answering(echo)) as good, RemotingClient() as client:
        with pytest.raises(ConnectionLost, match=said) as caught:
            client.request(bad.address, ASK)
        assert bad.address in str(caught.value)
        assert client.request(good.address, ASK).fields == {"topic": "T"}


def test_a_frame_that_is_cut_off_fails_its_request_at_once() -> None:
    def script(connected: socket.socket) -> None:
        request = next(requests(connected))
        connected.sendall(encode_frame(echo(request))[:-3])

    with Peer(script) as peer, RemotingClient() as client:
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            client.request(peer.address, ASK, timeout_seconds=60)
        assert time.monotonic() - began < 30


def test_a_reset_connection_fails_its_request() -> None:
    def script(connected: socket.socket) -> None:
        next(requests(connected))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connected.close()

    with Peer(script) as peer, RemotingClient() as client, pytest.raises(ConnectionLost):
        client.request(peer.address, ASK, timeout_seconds=60)


def test_answers_with_a_wrong_number_go_to_nobody() -> None:
    def wrong(request: Command) -> Command:
        return Command(code=0, opaque=request.opaque + 1_000, flag=FLAG_RESPONSE)

    with Peer(answering(wrong)) as peer, RemotingClient() as client:
        with pytest.raises(RequestTimeout):
            client.request(peer.address, ASK, timeout_seconds=0.3)
        eventually(lambda: peer.connections == 1, within_seconds=60)


def test_a_slow_drip_is_cut_off() -> None:
    stop = threading.Event()

    def script(connected: socket.socket) -> None:
        frame = encode_frame(echo(next(requests(connected))))
        for byte in frame:
            if stop.wait(0.02):
                return
            connected.sendall(bytes((byte,)))

    limits = ConnectionLimits(frame_seconds=0.3)
    with Peer(script) as peer, RemotingClient(limits=limits) as client:
        with pytest.raises(ConnectionLost, match="not whole"):
            client.request(peer.address, ASK, timeout_seconds=60)
        stop.set()


def test_a_peer_that_never_answers_costs_the_time_out_only() -> None:
    with Peer(drain) as peer, RemotingClient() as client:
        with pytest.raises(RequestTimeout):
            client.request(peer.address, ASK, timeout_seconds=0.2)
        # Its connection may have been closed a moment ago: then the address is not tried again yet.
        with pytest.raises((RequestTimeout, BrokerUnavailable)):
            client.submit(peer.address, ASK, 0.2).result(60)
        assert peer.connections <= 2


def test_a_peer_that_answers_nothing_any_more_gets_a_new_connection() -> None:
    """A load balancer that swallows what it is sent keeps a connection alive for ever."""
    answer = answering(echo)

    def script(connected: socket.socket) -> None:
        (drain if peer.connections == 1 else answer)(connected)

    def is_answered() -> bool:
        with contextlib.suppress(RequestTimeout, ConnectionLost, BrokerUnavailable):
            return client.request(peer.address, ASK, timeout_seconds=60).is_response
        return False

    with Peer(script) as peer, RemotingClient() as client:
        with pytest.raises(RequestTimeout):
            client.request(peer.address, ASK, timeout_seconds=0.2)
        eventually(is_answered, within_seconds=60)
        assert peer.connections == 2


def test_a_slow_answer_costs_no_connection_while_others_come() -> None:
    """The long poll of a pull, and a broker that leaves one request unanswered."""

    def script(connected: socket.socket) -> None:
        for command in requests(connected):
            if command.fields.get("topic") != "slow":
                connected.sendall(encode_frame(reply_to(command, 0)))

    with Peer(script) as peer, RemotingClient() as client:
        slow = client.submit(peer.address, replace(ASK, fields={"topic": "slow"}), 1.0)
        while not slow.done():
            assert client.request(peer.address, ASK, timeout_seconds=60).code == 0
        assert isinstance(slow.exception(), RequestTimeout)
        assert client.request(peer.address, ASK).code == 0
        assert peer.connections == 1


def test_a_peer_that_reads_nothing_blocks_no_other_request_for_ever() -> None:
    release = threading.Event()

    def script(connected: socket.socket) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        release.wait(60)

    limits = ConnectionLimits(write_seconds=0.2)
    big = Command(code=10, body=b"x" * (12 * 1024 * 1024))
    with Peer(script) as peer, RemotingClient(limits=limits) as client:
        try:
            with pytest.raises(ConnectionLost):
                client.request(peer.address, big, timeout_seconds=60)
        finally:
            release.set()


def test_requests_that_a_stuck_connection_did_not_take_leave_nothing_behind() -> None:
    release, has_begun = threading.Event(), threading.Event()

    def script(connected: socket.socket) -> None:
        connected.recv(1, socket.MSG_PEEK)
        has_begun.set()
        release.wait(60)
        answering(echo)(connected)

    answers: list[Command] = []
    big = Command(code=10, body=b"x" * (12 * 1024 * 1024))
    limits = ConnectionLimits(in_flight=2, write_seconds=60)
    with Peer(script) as peer, RemotingClient(limits=limits) as client:
        sending = threading.Thread(
            target=lambda: answers.append(client.request(peer.address, big, timeout_seconds=60)), daemon=True
        )
        sending.start()
        assert has_begun.wait(60)
        try:
            for _ in range(3):  # each would take a place among those that wait for an answer
                with pytest.raises(BrokerBusy, match="nothing was sent"):
                    client.request(peer.address, ASK, timeout_seconds=0.05)
        finally:
            release.set()
        sending.join(60)
        assert [answer.code for answer in answers] == [0]
        assert peer.connections == 1


def test_more_requests_in_flight_than_allowed_are_refused() -> None:
    with Peer(drain) as peer, RemotingClient(limits=ConnectionLimits(in_flight=5)) as client:
        futures = [client.submit(peer.address, ASK, 5) for _ in range(5)]
        with pytest.raises(BrokerBusy):
            client.submit(peer.address, ASK, 5)
        assert eventually(lambda: peer.connections == 1, within_seconds=60)
        peer.drop_connections()
        for future in futures:
            with pytest.raises(ConnectionLost):
                future.result(60)


def test_a_peer_that_always_misbehaves_is_called_more_and_more_rarely() -> None:
    with Peer(_first_reads(b"\xff\xff\xff\xff")) as peer, RemotingClient() as client:
        refusals: list[str] = []
        until = time.monotonic() + 0.6
        while time.monotonic() < until or len(refusals) <= 10:
            try:
                client.request(peer.address, ASK, timeout_seconds=60)
            except ConnectionLost:
                pass
            except BrokerUnavailable as error:
                refusals.append(str(error))
        assert len(refusals) > 10
        assert all("next try in" in text for text in refusals)
        assert peer.connections <= 7


def test_requests_of_a_peer_that_floods_are_dropped_and_counted() -> None:
    running = threading.Event()
    go_on = threading.Event()

    def handler(_address: str, _command: Command) -> Command | None:
        running.set()
        go_on.wait(60)
        return None

    def script(connected: socket.socket) -> None:
        request = next(requests(connected))
        connected.sendall(encode_frame(Command(code=39, flag=2)) * 50)
        connected.sendall(encode_frame(reply_to(request, 0)))
        drain(connected)

    with Peer(script) as peer, RemotingClient(handler_threads=1, handler_queue=10) as client:
        client.on_request(39, handler)
        assert client.request(peer.address, ASK).code == 0
        assert running.wait(60)
        assert eventually(lambda: client.dropped_requests == 40, within_seconds=60)
        go_on.set()
