"""Many look-ups wait for one broker at the same time: what happens to one of them is nothing to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from reconciler.errors import BrokerBusy, RequestTimeout
from reconciler.evidence.broker_answer import MAXIMUM_HITS
from reconciler.evidence.lookup import FEW_HITS
from reconciler.policy.evidence import Lookup, StoredMessage
from reconciler.policy.ports.asked import ASKED_MAX, Asked, heard
from reconciler.rocketmq.client.connection import Connection
from reconciler.rocketmq.client.in_flight import BYTES_MAX, RequestsInFlight
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

KEYS = [f"7F000001{number:024X}" for number in range(8)]
QUERY = Command(code=RequestCode.QUERY_MESSAGE)
LARGE = Command(code=RequestCode.SEND_MESSAGE, body=bytes(BYTES_MAX - 10))
TOO_LARGE = (17 * 1024 * 1024).to_bytes(4, "big")


def test_the_last_question_is_sent_before_the_first_answer_comes() -> None:
    are_asked = threading.Event()

    def answer(request: Command) -> Command:
        assert are_asked.wait(20)
        return cluster.broker.success(request, body=encode_record(record(key=request.fields["key"])))

    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.QUERY_MESSAGE, answer)
        cluster.families.facts(cluster.broker.address)
        asked = [cluster.lookups.committed_copies("Orders", key) for key in KEYS]
        are_asked.set()
        assert [[copy.unique_key for copy in one().records] for one in asked] == [[key] for key in KEYS]


@pytest.mark.parametrize("copies", [1, FEW_HITS + 2], ids=["one copy", "more copies than few"])
def test_an_answer_that_costs_the_connection_takes_no_copy_from_the_other_keys(copies: int) -> None:
    are_asked = threading.Event()

    def answer(request: Command) -> Command | bytes:
        key, maximum = request.fields["key"], int(request.fields["maxNum"])
        if key == KEYS[0] and maximum == MAXIMUM_HITS:
            assert are_asked.wait(20)
            return TOO_LARGE
        hits = [encode_record(record(key=key, physical_offset=1_000 * n)) for n in range(copies)][:maximum]
        return cluster.broker.success(request, body=b"".join(hits))

    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.QUERY_MESSAGE, answer)
        cluster.families.facts(cluster.broker.address)
        asked = [cluster.lookups.committed_copies("Orders", key) for key in KEYS]
        are_asked.set()
        first, *others = [one() for one in asked]
    assert len(first.records) == min(copies, FEW_HITS)
    assert first.answers[0].is_partial is (copies > FEW_HITS)
    assert [(len(one.records), one.answers[0].is_partial) for one in others] == [(copies, False)] * len(others)


def _is_closed_first(connection: Connection) -> None:
    """The look-up has chosen this connection, and then it is closed."""
    really = connection.submit

    def submit(command: Command, timeout_seconds: float) -> Future[Command]:
        connection.close()
        return really(command, timeout_seconds)

    connection.submit = submit  # type: ignore[method-assign]


def _takes_no_bytes(connection: Connection) -> None:
    """The peer has closed the connection, and its reader has not noticed."""
    connection._socket = BrokenSocket(connection._socket)  # type: ignore[assignment]


class BrokenSocket:
    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def sendall(self, _data: bytes) -> None:
        raise BrokenPipeError("Broken pipe")


@pytest.mark.parametrize("damage", [_is_closed_first, _takes_no_bytes])
def test_a_look_up_whose_connection_ends_just_then_is_asked_over_a_fresh_one(
    damage: Callable[[Connection], None],
) -> None:
    def answer(request: Command) -> Command:
        return cluster.broker.success(request, body=encode_record(record(key=KEYS[0])))

    with ScriptedCluster() as cluster:
        for code in (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID):
            cluster.broker.on(code, answer)
        cluster.families.facts(cluster.broker.address)
        look_ups: list[Callable[[], Asked[Lookup[StoredMessage]]]] = [
            lambda: cluster.lookups.committed_copies("Orders", KEYS[0]),
            lambda: cluster.lookups.at_offset("Orders", cluster.broker.name, 1_000, KEYS[0]),
        ]
        for look_up in look_ups:
            connection = cluster.client._peers[cluster.broker.address].connection
            assert connection is not None
            damage(connection)
            assert look_up()().is_found


def test_what_a_silent_broker_did_not_answer_is_asked_once() -> None:
    """Each of a page asked again would wait for its time-out, one after the other."""
    with ScriptedCluster() as cluster:
        cluster.families.facts(cluster.broker.address)
        cluster.broker.on(RequestCode.QUERY_MESSAGE, lambda _request: None)
        cluster.be_impatient()
        asked = [cluster.lookups.committed_copies("Orders", key) for key in KEYS]
        assert all(one().is_unknown for one in asked)
        queries = [request for request in cluster.broker.asked if request.code == RequestCode.QUERY_MESSAGE]
    assert len(queries) == len(KEYS)


def test_so_many_are_asked_and_not_heard_at_most() -> None:
    unheard, most = 0, 0

    def ask(number: int) -> Asked[int]:
        nonlocal unheard, most
        unheard += 1
        most = max(most, unheard)

        def hear() -> int:
            nonlocal unheard
            unheard -= 1
            return number

        return hear

    assert list(heard(ask, range(3 * ASKED_MAX))) == list(range(3 * ASKED_MAX))
    assert most == ASKED_MAX


# ---- the bound


def answered(code: int = 0) -> Future[Command]:
    future: Future[Command] = Future()
    future.set_result(Command(code=code))
    return future


def given_up() -> Future[Command]:
    future: Future[Command] = Future()
    future.cancel()
    return future


def unanswered() -> Future[Command]:
    future: Future[Command] = Future()
    future.set_exception(RequestTimeout("no answer in time"))
    return future


def room(bound: RequestsInFlight, address: str = "a") -> int:
    """How many more may be sent."""
    entered = 0
    try:
        while True:
            bound.enter(address, QUERY, 0.0)
            entered += 1
    except BrokerBusy:
        for _ in range(entered):
            bound.leave(address, QUERY, None)
        return entered


def test_so_many_wait_for_one_broker_whoever_asks() -> None:
    bound = RequestsInFlight(4)
    assert room(bound) == 4
    bound.enter("a", QUERY, 0.0)
    assert (room(bound), room(bound, "b")) == (3, 4)


@pytest.mark.parametrize("strain", [unanswered(), given_up(), answered(ResponseCode.SYSTEM_BUSY)])
def test_half_as_many_wait_for_a_broker_that_is_strained_and_all_again_once_it_answers(strain: Future[Command]) -> None:
    bound = RequestsInFlight(8)
    for allowed in (4, 2, 1, 1):
        bound.enter("a", QUERY, 0.0)
        bound.leave("a", QUERY, strain)
        assert room(bound) == allowed
    for _ in range(64):
        bound.enter("a", QUERY, 0.0)
        bound.leave("a", QUERY, answered())
    assert room(bound) == 8


def test_bodies_of_more_than_the_bound_wait_and_one_goes_alone_however_large() -> None:
    bound = RequestsInFlight(8)
    bound.enter("a", LARGE, 0.0)
    with pytest.raises(BrokerBusy):
        bound.enter("a", LARGE, 0.0)
    bound.enter("a", QUERY, 0.0)
    bound.leave("a", LARGE, answered())
    bound.leave("a", QUERY, answered())
    bound.enter("a", Command(code=RequestCode.SEND_MESSAGE, body=bytes(BYTES_MAX + 1)), 0.0)


def test_who_waits_for_room_sends_as_soon_as_an_answer_comes() -> None:
    bound, sent = RequestsInFlight(1), threading.Event()
    bound.enter("a", QUERY, 0.0)

    def second() -> None:
        bound.enter("a", QUERY, 20.0)
        sent.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not sent.is_set()
    bound.leave("a", QUERY, answered())
    assert sent.wait(20)
    thread.join()
