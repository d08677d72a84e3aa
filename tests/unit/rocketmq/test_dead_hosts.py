"""A host that swallows packets: connecting to it takes its whole time-out, and no other host's time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from reconciler.errors import BrokerBusy, BrokerUnavailable
from reconciler.rocketmq.client.connection import ConnectionLimits
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.frame import Command, reply_to
from tests.polling import eventually
from tests.unit.rocketmq.peers import Peer, answering

ASK = Command(code=105)
#: Long enough that whoever waits for it is told from whoever does not.
CONNECT_SECONDS = 120.0


@dataclass
class DeadHost:
    """Connections to it are never made: the listener's queue is full, so SYNs are dropped."""

    listener: socket.socket
    fillers: list[socket.socket]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"


@pytest.fixture
def dead_host() -> Iterator[DeadHost]:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [stack.enter_context(socket.socket()) for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        found = DeadHost(listener, fillers)
        address = found.address
        yield found
    # Whoever still connects is refused at its next SYN, now that nobody listens.
    eventually(lambda: connecting(address) == 0, within_seconds=120)


def connecting(address: str) -> int:
    return sum(thread.name == f"rocketmq-connect-{address}" for thread in threading.enumerate())


def test_a_thread_that_serves_many_brokers_is_not_held_up_by_a_dead_host(dead_host: DeadHost) -> None:
    began = time.monotonic()
    with (
        Peer(answering(lambda request: reply_to(request, 0))) as peer,
        RemotingClient(connect_timeout_seconds=CONNECT_SECONDS) as client,
    ):
        lost = [client.submit_soon(dead_host.address, ASK, CONNECT_SECONDS) for _ in range(20)]
        with pytest.raises(BrokerUnavailable, match="not connected yet"):
            client.oneway_if_connected(dead_host.address, ASK)
        assert client.submit_soon(peer.address, ASK).result(CONNECT_SECONDS / 2).code == 0
        assert not any(future.done() for future in lost)
        assert connecting(dead_host.address) == 1  # one thread an address, however much waits
    assert time.monotonic() - began < CONNECT_SECONDS / 2  # nor is closing the client


def test_what_waited_for_a_host_that_stays_dead_is_told_that_nothing_was_sent(dead_host: DeadHost) -> None:
    with RemotingClient(connect_timeout_seconds=0.2) as client:
        for _ in range(2):
            futures = [client.submit_soon(dead_host.address, ASK, 60) for _ in range(3)]
            for future in futures:
                with pytest.raises(BrokerUnavailable):
                    future.result(30)
        eventually(lambda: connecting(dead_host.address) == 0, within_seconds=30)


def test_what_waits_for_a_dead_host_is_bounded(dead_host: DeadHost) -> None:
    limits = ConnectionLimits(in_flight=3)
    with RemotingClient(connect_timeout_seconds=CONNECT_SECONDS, limits=limits) as client:
        for _ in range(3):
            client.submit_soon(dead_host.address, ASK)
        with pytest.raises(BrokerBusy):
            client.submit_soon(dead_host.address, ASK)


def test_requests_that_waited_for_a_connection_go_out_in_order_and_cancelled_ones_not_at_all() -> None:
    got: list[str] = []

    def answer(request: Command) -> Command:
        got.append(request.fields["n"])
        return reply_to(request, 0)

    gate, is_connected = threading.Event(), threading.Event()

    def passage(_address: str, command: Command) -> Command:
        if command.fields["n"] == "0":
            is_connected.set()
            gate.wait(30)
        return command

    with Peer(answering(answer)) as peer, RemotingClient(outgoing=passage) as client:
        futures = [client.submit_soon(peer.address, Command(code=105, fields={"n": str(n)})) for n in range(6)]
        assert futures[3].cancel()  # its caller has given up: an offset must not be stored that late
        assert is_connected.wait(30)
        futures.append(client.submit_soon(peer.address, Command(code=105, fields={"n": "6"})))
        gate.set()
        for number in (0, 1, 2, 4, 5, 6):
            assert futures[number].result(30).code == 0
        assert got == ["0", "1", "2", "4", "5", "6"], "a newer offset would be overwritten by an older one"


@pytest.mark.parametrize("was_connected", [False, True])
def test_after_a_one_way_request_that_found_no_connection_the_next_one_has_it(*, was_connected: bool) -> None:
    got: list[Command] = []

    def note(request: Command) -> Command | None:
        if request.is_oneway:
            got.append(request)
            return None
        return reply_to(request, 0)

    with Peer(answering(note)) as peer, RemotingClient() as client:
        if was_connected:
            client.request(peer.address, ASK, timeout_seconds=30)
            client.disconnect(peer.address)

        def sent() -> bool:
            try:
                client.oneway_if_connected(peer.address, ASK)
            except BrokerUnavailable:
                return False
            return True

        assert not sent()
        eventually(sent, within_seconds=30)
        eventually(lambda: len(got) == 1, within_seconds=30)
