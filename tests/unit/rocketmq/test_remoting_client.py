from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from unittest.mock import DEFAULT, patch

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerUnavailable, InvalidValue, RequestTimeout, UsageError
from reconciler.rocketmq.client import heartbeat
from reconciler.rocketmq.client.connection import ConnectionLimits, ConnectionLost, NotSent
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.frame import Command, FrameReader, Serialization, encode_frame, reply_to
from tests.polling import eventually
from tests.unit.rocketmq.peers import Peer, answering, drain, echo, requests


def _ask(text: str = "T") -> Command:
    return Command(code=30, fields={"topic": text})


def test_many_threads_share_one_connection_and_get_their_own_answers() -> None:
    with Peer(answering(echo)) as peer, RemotingClient() as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: client.request(peer.address, _ask(str(n))).fields["topic"], range(500)))
        assert answers == [str(n) for n in range(500)]
        assert peer.connections == 1


def test_answers_may_come_in_any_order() -> None:
    def script(connected: socket.socket) -> None:
        held: list[Command] = []
        for request in requests(connected):
            held.append(request)
            if len(held) == 10:
                connected.sendall(b"".join(encode_frame(echo(one)) for one in reversed(held)))

    with Peer(script) as peer, RemotingClient() as client:
        futures = [client.submit(peer.address, _ask(str(n)), 5) for n in range(10)]
        assert [future.result(60).fields["topic"] for future in futures] == [str(n) for n in range(10)]


def test_a_time_out_has_the_same_words_whoever_notices_it_first() -> None:
    with Peer(drain) as peer, RemotingClient() as client:
        with pytest.raises(RequestTimeout) as by_caller:
            client.wait(client.submit(peer.address, _ask(), 60), 0.01, f"{peer.address}: request 30")
        by_reader = client.submit(peer.address, _ask(), 0.1).exception(60)
        assert str(by_reader) == str(by_caller.value) == f"{peer.address}: request 30: no answer in time"


def test_an_error_code_is_an_answer_and_no_exception() -> None:
    refusing = answering(lambda request: reply_to(request, 17, remark="no such topic"))
    with Peer(refusing) as peer, RemotingClient() as client:
        answer = client.request(peer.address, _ask())
        assert (answer.code, answer.remark) == (17, "no such topic")


def test_an_ipv6_peer_is_reached() -> None:
    try:
        peer = Peer(answering(echo), host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback: enable it to run this test")
    with peer, RemotingClient() as client:
        assert client.request(peer.address, _ask()).code == 0


@pytest.mark.parametrize("seconds", [0.25, 3.0])
def test_a_connection_is_waited_for_as_long_as_was_said(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def late(_address: object, timeout: float) -> socket.socket:
        waited.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", late)
    with RemotingClient(connect_timeout_seconds=seconds) as client, pytest.raises(BrokerUnavailable, match="timed out"):
        client.request("192.0.2.1:10911", _ask())
    assert waited == [pytest.approx(seconds)]


def test_an_address_that_is_none_is_refused() -> None:
    with RemotingClient() as client, pytest.raises(InvalidValue):
        client.request("nowhere", _ask())


def test_nobody_listening_is_an_error_of_its_own_and_a_restart_is_noticed() -> None:
    with Peer(answering(echo)) as peer:
        port = peer.port
        with RemotingClient() as client:
            client.request(peer.address, _ask())
            peer.close()
            with pytest.raises(BrokerUnavailable):
                eventually(lambda: client.request(peer.address, _ask(), timeout_seconds=1) is None, within_seconds=60)
            with Peer(answering(echo), port=port) as again:

                def works() -> bool:
                    try:
                        return client.request(again.address, _ask()).code == 0
                    except BrokerUnavailable:
                        return False

                assert eventually(works, within_seconds=60)


def test_a_connection_closed_by_the_peer_is_made_anew_without_a_pause() -> None:
    with Peer(answering(echo)) as peer, RemotingClient() as client:
        for n in range(1, 6):
            assert client.request(peer.address, _ask()).code == 0
            assert peer.connections == n
            closed = client._peers[peer.address].connection
            assert closed is not None
            peer.drop_connections()
            assert eventually(lambda: closed.is_closed, within_seconds=60)  # noqa: B023  # called at once


def test_a_connection_that_only_carried_one_way_requests_is_made_anew_without_a_pause() -> None:
    clock = ManualClock()
    with Peer(drain) as peer, RemotingClient(clock=clock) as client:
        for n in (1, 2):
            client.oneway(peer.address, _ask())
            connection = client._peers[peer.address].connection
            assert connection is not None
            assert eventually(lambda: peer.connections == n, within_seconds=60)  # noqa: B023  # called at once
            clock.advance(101)
            assert eventually(lambda: connection.is_closed, within_seconds=60)  # noqa: B023  # called at once


def test_a_lost_connection_is_told_once_and_closing_the_client_is_none() -> None:
    told: list[str] = []
    with Peer(answering(echo)) as peer, Peer(answering(echo)) as other:
        with RemotingClient() as client:
            client.on_disconnect(told.append)
            client.request(peer.address, _ask())
            client.request(other.address, _ask())
            peer.drop_connections()
            eventually(lambda: told == [peer.address], within_seconds=60)
            client.request(peer.address, _ask())
        assert told == [peer.address]


def _swallowing(connected: socket.socket) -> None:
    """Answers every request but those for "swallowed"."""
    for request in requests(connected):
        if request.fields["topic"] != "swallowed":
            connected.sendall(encode_frame(echo(request)))


@pytest.mark.parametrize("moment", ["while it is answered", "while others are written to"])
def test_a_heartbeat_that_is_answered_after_its_broker_was_doubted_is_sent_again(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker forgets a client with its connection: what it took before that is no registration any more."""
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.02)
    beats: list[Command] = []

    def take(request: Command) -> Command:
        beats.append(request)
        if len(beats) == 1 and moment == "while it is answered":
            service.doubt(peer.address)
        return reply_to(request, 0)

    with Peer(answering(take)) as peer, RemotingClient() as client:
        service = heartbeat.HeartbeatService(client, client_id="a", clock=client.clock, interval_seconds=3_600)
        submit_soon = client.submit_soon

        def submit(address: str, command: Command, timeout_seconds: float | None = None) -> Future[Command]:
            is_first = not beats
            sent = submit_soon(address, command, timeout_seconds)
            if is_first and moment == "while others are written to":
                sent.result(60)
                service.doubt(address)
            return sent

        monkeypatch.setattr(client, "submit_soon", submit)
        service.join_producer("PG", lambda: [peer.address])
        try:
            eventually(lambda: len(beats) == 2, within_seconds=60)
        finally:
            service.close()


def test_the_request_after_one_that_was_not_answered_is_not_lost_with_its_connection() -> None:
    with Peer(_swallowing) as peer, RemotingClient() as client:
        client.request(peer.address, _ask("first"), timeout_seconds=60)
        with pytest.raises(RequestTimeout):
            client.request(peer.address, _ask("swallowed"), timeout_seconds=0.05)
        connection = client._peers[peer.address].connection
        assert connection is not None
        assert connection.is_closed, "the reader would end it up to a quarter of a second later"
        assert client.request(peer.address, _ask("next"), timeout_seconds=60).fields["topic"] == "next"


def test_a_request_that_is_given_up_leaves_a_connection_that_speaks() -> None:
    with Peer(_swallowing) as peer, RemotingClient() as client:
        swallowed = client.submit(peer.address, _ask("swallowed"), 60)
        client.request(peer.address, _ask("answered"), timeout_seconds=60)
        connection = client._peers[peer.address].connection
        assert connection is not None
        connection.give_up(swallowed)
        assert client.request(peer.address, _ask("next"), timeout_seconds=60).fields["topic"] == "next"
        assert peer.connections == 1


def test_a_request_that_is_given_up_before_its_time_keeps_its_connection() -> None:
    with Peer(_swallowing) as peer, RemotingClient() as client:
        swallowed = client.submit(peer.address, _ask("swallowed"), 60)
        connection = client._peers[peer.address].connection
        assert connection is not None
        connection.give_up(swallowed)
        assert not connection.is_closed, "connecting had taken the caller's time"


def test_an_idle_connection_is_closed_by_this_side() -> None:
    with Peer(answering(echo)) as peer, RemotingClient(limits=ConnectionLimits(idle_seconds=0.1)) as client:
        client.request(peer.address, _ask())
        connection = client._peers[peer.address].connection
        assert connection is not None
        assert eventually(lambda: connection.is_closed, within_seconds=60)
        assert client.request(peer.address, _ask()).code == 0


def test_a_connection_that_waits_for_an_answer_is_not_idle_however_long_that_takes() -> None:
    with Peer(drain) as peer, RemotingClient(limits=ConnectionLimits(idle_seconds=100)) as client:
        client.oneway(peer.address, _ask())
        connection = client._peers[peer.address].connection
        assert connection is not None
        later = client.clock.monotonic_seconds() + 101
        with pytest.raises(ConnectionLost, match="without traffic"):
            connection._look_after_time(later, None)
        client.submit(peer.address, _ask(), 3_600)
        connection._look_after_time(later + 1, None)


def test_a_one_way_request_is_marked_and_asks_for_nothing() -> None:
    got: list[Command] = []

    def script(connected: socket.socket) -> None:
        got.extend(requests(connected))

    with Peer(script) as peer, RemotingClient() as client:
        client.oneway(peer.address, _ask())
        assert eventually(lambda: len(got) == 1, within_seconds=60)
        assert got[0].is_oneway


def test_commands_can_be_dropped_and_changed_on_their_way_out() -> None:
    def passage(_address: str, command: Command) -> Command | None:
        return None if command.code == 37 else Command(code=command.code, fields={"signed": "yes"})

    with Peer(answering(echo)) as peer, RemotingClient(outgoing=passage) as client:
        began = time.monotonic()
        with pytest.raises(RequestTimeout):
            client.request(peer.address, Command(code=37), timeout_seconds=30)
        client.oneway(peer.address, Command(code=37))
        assert time.monotonic() - began < 20  # no answer was waited for
        assert peer.connections == 0
        assert client.request(peer.address, _ask()).fields == {"signed": "yes"}


def _asks_back(question: Command, answers: list[Command]) -> Peer:
    """A peer that asks its own question after the first request, and keeps what it hears."""

    def script(connected: socket.socket) -> None:
        reader = FrameReader()
        while data := connected.recv(65_536):
            for command in reader.feed(data):
                if command.is_response:
                    answers.append(command)
                else:
                    connected.sendall(encode_frame(reply_to(command, 0)) + encode_frame(question))

    return Peer(script)


@pytest.mark.parametrize("form", list(Serialization))
def test_a_brokers_question_is_handled_and_answered_in_its_form(form: Serialization) -> None:
    answers: list[Command] = []
    question = Command(code=220, opaque=77, fields={"topic": "T"}, serialization=form)
    with _asks_back(question, answers) as peer, RemotingClient() as client:
        client.on_request(220, lambda address, command: Command(code=0, fields={"from": address, **command.fields}))
        client.request(peer.address, _ask())
        assert eventually(lambda: answers, within_seconds=60)
        assert answers[0].opaque == 77
        assert answers[0].serialization is form
        assert answers[0].fields == {"from": peer.address, "topic": "T"}


def test_a_question_nobody_handles_or_whose_handler_fails_is_answered_too() -> None:
    def fails(_address: str, _command: Command) -> Command | None:
        raise ValueError("broken")

    for handler, code in ((None, ResponseCode.REQUEST_CODE_NOT_SUPPORTED), (fails, ResponseCode.SYSTEM_ERROR)):
        answers: list[Command] = []
        with _asks_back(Command(code=220, opaque=5), answers) as peer, RemotingClient() as client:
            if handler is not None:
                client.on_request(220, handler)
            client.request(peer.address, _ask())
            assert eventually(lambda: answers, within_seconds=60)  # noqa: B023  # called at once
            assert answers[0].code == code


def test_questions_can_be_dropped_on_their_way_in() -> None:
    handled: list[int] = []
    answers: list[Command] = []

    def handler(_address: str, command: Command) -> Command | None:
        handled.append(command.opaque)
        return None

    def passage(_address: str, command: Command) -> Command | None:
        return None if command.opaque == 1 else command

    def script(connected: socket.socket) -> None:
        request = next(requests(connected))
        for opaque in (1, 2):
            connected.sendall(encode_frame(Command(code=39, flag=2, opaque=opaque)))
        connected.sendall(encode_frame(reply_to(request, 0)))
        drain(connected)

    with Peer(script) as peer, RemotingClient(incoming=passage) as client:
        client.on_request(39, handler)
        client.request(peer.address, _ask())
        assert eventually(lambda: handled == [2], within_seconds=60)
        assert not answers


def test_a_handler_may_ask_the_broker_that_asked_it() -> None:
    answers: list[Command] = []
    with _asks_back(Command(code=221, opaque=9, flag=2), []) as peer, RemotingClient() as client:

        def handler(address: str, _command: Command) -> Command | None:
            if not answers:
                answers.append(client.request(address, _ask()))
            return None

        client.on_request(221, handler)
        client.request(peer.address, _ask())
        assert eventually(lambda: answers, within_seconds=60)


def test_closing_fails_what_waits_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with Peer(drain) as peer:
        client = RemotingClient()
        future = client.submit(peer.address, _ask(), 30)
        client.close()
        client.close()
        with pytest.raises(BrokerUnavailable, match="closed by this client"):
            future.result(60)
        with pytest.raises(UsageError):
            client.request(peer.address, _ask())
    assert {thread for thread in threading.enumerate() if thread.name.startswith("rocketmq")} <= before


def test_a_client_that_is_closed_while_it_connects_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.create_connection
    made: list[socket.socket] = []
    with Peer(drain) as peer:
        client = RemotingClient()

        def close_meanwhile(address: tuple[str, int], timeout: float) -> socket.socket:
            made.append(connect(address, timeout=timeout))
            client.close()
            return made[0]

        monkeypatch.setattr(socket, "create_connection", close_meanwhile)
        with pytest.raises(UsageError):
            client.request(peer.address, _ask())
    assert [one.fileno() for one in made] == [-1], "nobody would ever close it"


def test_a_request_whose_connection_broke_while_it_waited_for_its_turn_was_certainly_not_sent() -> None:
    """ConnectionLost would say that it may have been executed, and nobody might send it again."""
    with Peer(answering(echo)) as peer, RemotingClient() as client, ThreadPoolExecutor(1) as pool:
        client.request(peer.address, _ask())
        connection = client._peers[peer.address].connection
        assert connection is not None
        with connection._writing:
            waiting = pool.submit(connection.submit, _ask(), 60)
            eventually(lambda: connection._waiting, within_seconds=60)
            connection._fail(ConnectionLost("broken"))
        error = waiting.exception(60)
        assert type(error) is NotSent


def _submit(client: RemotingClient, address: str) -> None:
    client.submit(address, _ask()).result(60)


def _request(client: RemotingClient, address: str) -> None:
    client.request(address, _ask())


def _oneway(client: RemotingClient, address: str) -> None:
    client.oneway(address, _ask())


@pytest.mark.parametrize("has_spoken", [True, False])
@pytest.mark.parametrize("send", [_submit, _request, _oneway])
def test_a_request_that_was_certainly_not_sent_is_sent_once_over_a_fresh_connection(
    send: Callable[[RemotingClient, str], None],
    *,
    has_spoken: bool,
) -> None:
    with Peer(answering(echo) if has_spoken else drain) as peer, RemotingClient() as client:
        (_request if has_spoken else _oneway)(client, peer.address)
        connection = client._peers[peer.address].connection
        assert connection is not None
        connection._fail(ConnectionLost("broken"))
        is_chosen = patch.object(client, "_connected", side_effect=[connection, DEFAULT], wraps=client._connected)
        with is_chosen, nullcontext() if has_spoken else pytest.raises(NotSent):
            send(client, peer.address)
        assert eventually(lambda: peer.connections == 1 + has_spoken, within_seconds=60)


def test_a_forked_child_is_told_to_make_its_own_client() -> None:
    with Peer(answering(echo)) as peer, RemotingClient() as client:
        client.request(peer.address, _ask())
        child = os.fork()
        if child == 0:
            try:
                client.request(peer.address, _ask())
            except UsageError:
                os._exit(7)
            os._exit(8)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert client.request(peer.address, _ask()).code == 0
