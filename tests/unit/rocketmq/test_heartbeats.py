"""Groups and brokers of one heartbeat: what one of them lacks costs the others nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerUnavailable, ReconcilerError, RequestTimeout
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import (
    INTERVAL_SECONDS,
    TIMEOUT_SECONDS,
    ConsumeFrom,
    ConsumerMembership,
    HeartbeatService,
)
from reconciler.rocketmq.client.name_servers import BrokerAddresses, TopicRoute
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, reply_to
from tests.polling import eventually
from tests.unit.rocketmq.peers import Peer, answering


class Brokers:
    """Client and thread of the service in one. A broker takes a heartbeat unless it is away, hangs or refuses."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.away: set[str] = set()
        self.hanging: set[str] = set()
        self.refusing: set[str] = set()
        self.beats: list[tuple[str, dict[str, Any]]] = []
        self.left: list[tuple[str, str]] = []
        self.waited: list[float] = []
        self.order: list[tuple[str, list[str]]] = []
        self.before_it_is_sent: Callable[[], object] = lambda: None
        self.ready: list[Callable[[], object]] = []

    def service(self) -> HeartbeatService:
        made = HeartbeatService(cast("Any", self), client_id="me", clock=self.clock)
        made._steps = cast("Any", self)
        return made

    def submit_soon(self, address: str, command: Command, _timeout_seconds: float) -> Future[Command]:
        if address in self.away:
            raise BrokerUnavailable("away")
        self.before_it_is_sent()
        self.beats.append((address, json.loads(command.body)))
        self.order.append((address, self.told_by(self.beats[-1][1])))
        future: Future[Command] = Future()
        if address not in self.hanging:
            code = ResponseCode.SYSTEM_BUSY if address in self.refusing else ResponseCode.SUCCESS
            future.set_result(Command(code=code))
        return future

    def wait(self, future: Future[Command], timeout_seconds: float, what: str) -> Command:
        if future.done():
            return future.result()
        self.waited.append(timeout_seconds)
        self.clock.advance(max(0.0, timeout_seconds))
        raise RequestTimeout(what)

    def request(self, address: str, command: Command, *, timeout_seconds: float) -> Command:
        assert timeout_seconds == TIMEOUT_SECONDS
        if address in self.away:
            raise BrokerUnavailable("away")
        self.left.append((address, command.fields.get("producerGroup") or command.fields["consumerGroup"]))
        self.order.append((address, ["left"]))
        return Command(code=0)

    def start(self) -> None: ...

    def every(self, _interval_seconds: float, step: Callable[[], object]) -> None:
        self.look = step

    def soon(self, step: Callable[[], object]) -> None:
        self.ready.append(step)

    def close(self, **_: object) -> bool:
        return True

    def told(self) -> list[tuple[str, list[str]]]:
        """Broker and groups of each heartbeat since the last call."""
        beats, self.beats = self.beats, []
        return [(address, self.told_by(body)) for address, body in beats]

    def told_by(self, body: dict[str, Any]) -> list[str]:
        return [one["groupName"] for kind in ("producerDataSet", "consumerDataSet") for one in body[kind]]


def membership(group: str = "CG") -> ConsumerMembership:
    return ConsumerMembership(group=group, consume_from=ConsumeFrom.FIRST, subscriptions=())


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.mark.parametrize("fails", ["away", "hanging", "refusing"])
@pytest.mark.parametrize(("bad", "good"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("was_well", [False, True])
def test_a_broker_that_takes_no_heartbeat_keeps_no_other_one_from_it_and_is_told_until_it_does(
    bad: str, good: str, fails: str, brokers: Brokers, *, was_well: bool
) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a", "b"])
    if was_well:
        service.beat()
        brokers.told()
    setattr(brokers, fails, {bad})
    answers = service.beat()
    assert answers[good] is None
    assert isinstance(answers[bad], ReconcilerError)
    assert (good, ["PG"]) in brokers.told()
    brokers.look()
    assert all(address == bad for address, _ in brokers.told()), "the other one knows it"
    setattr(brokers, fails, set())
    brokers.look()
    assert brokers.told() == [(bad, ["PG"])]
    brokers.look()
    assert brokers.told() == []


def test_every_broker_gets_a_heartbeat_each_interval_and_none_between(brokers: Brokers) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a", "b"])
    service.beat()
    for _ in range(2):
        brokers.told()
        brokers.clock.advance(INTERVAL_SECONDS - 1)
        brokers.look()
        assert brokers.told() == []
        brokers.clock.advance(1)
        brokers.look()
        assert sorted(brokers.told()) == [("a", ["PG"]), ("b", ["PG"])]


def test_brokers_that_hang_cost_one_time_out_together(brokers: Brokers) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a", "b", "c"])
    brokers.hanging = {"a", "b", "c"}
    service.beat()
    assert sum(brokers.waited) == 2 * TIMEOUT_SECONDS, "the next heartbeat comes in time"


def test_a_broker_that_fails_is_told_once_and_again_after_it_was_well(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a", "b"])

    def warnings() -> int:
        number = sum("heartbeat_failed" in record.message for record in caplog.records)
        caplog.clear()
        return number

    brokers.refusing = {"a"}
    service.beat()
    assert warnings() == 1
    service.doubt("b")
    brokers.refusing = {"a", "b"}
    brokers.look()
    assert warnings() == 1, "a is known"
    brokers.refusing = {"b"}
    brokers.look()
    brokers.refusing = {"a"}
    service.beat()
    assert warnings() == 1, "a once more"


def test_all_groups_of_a_broker_are_told_together_and_one_that_joins_later_at_the_next_look(brokers: Brokers) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a"])
    service.beat()
    assert brokers.told() == [("a", ["PG"])]
    service.join_producer("PH", lambda: ["a"])
    service.join_consumer("CG", membership, lambda: ["a", "b"])
    service.join_consumer("CH", lambda: membership("CH"), lambda: ["a"])
    brokers.look()
    assert sorted(brokers.told()) == [("a", ["PG", "PH", "CG", "CH"]), ("b", ["CG"])]
    service.leave_producer("PG")
    assert brokers.left == [("a", "PG")]
    brokers.look()
    assert brokers.told() == [("a", ["PH", "CG", "CH"])]


def test_a_group_whose_brokers_nobody_tells_costs_the_others_no_heartbeat(brokers: Brokers) -> None:
    def nobody_tells() -> list[str]:
        raise BrokerUnavailable("no name server answers")

    service = brokers.service()
    service.join_producer("PG", nobody_tells)
    service.join_producer("PH", lambda: ["a"])
    assert service.beat() == {"a": None}
    service.leave_producer("PG")
    assert brokers.told() == [("a", ["PH"])]


@pytest.mark.parametrize("is_beat", [True, False], ids=["each interval", "between"])
@pytest.mark.parametrize("is_made", [True, False], ids=["while it is made", "while it is sent"])
@pytest.mark.parametrize("group", ["PG", "CG"])
def test_a_group_that_leaves_during_a_heartbeat_does_not_stay_registered(
    group: str, brokers: Brokers, *, is_made: bool, is_beat: bool
) -> None:
    """Else queues of a consumer that stopped are its own, and nobody's, for two minutes."""
    service = brokers.service()
    leaving = [group]

    def leaves() -> None:
        for one in [leaving.pop()] if leaving else []:
            service.leave_producer(one)
            service.leave_consumer(one)

    def as_it_is_made() -> ConsumerMembership:
        leaves()
        return membership()

    if not is_made:
        brokers.before_it_is_sent = leaves
    service.join_producer("PG", lambda: ["a"])
    service.join_consumer("CG", as_it_is_made if is_made else membership, lambda: ["a"])
    if is_beat:
        service.beat()
    else:
        brokers.look()
    assert brokers.order == [("a", ["left"]), ("a", ["PG", "CG"]), ("a", ["left"])]
    assert {one for _, one in brokers.left} == {group}
    brokers.look()
    assert brokers.told()[-1] == ("a", [one for one in ("PG", "CG") if one != group])
    assert len(brokers.left) == 2


def test_every_group_leaves_every_broker_that_is_there_when_its_client_is_closed(brokers: Brokers) -> None:
    service = brokers.service()
    service.join_producer("PG", lambda: ["a", "b"])
    service.join_consumer("CG", membership, lambda: ["a", "b"])
    for away in ("a", "b"):
        brokers.away = {away}
        service.close()
        service.join_producer("PG", lambda: ["a", "b"])
        service.join_consumer("CG", membership, lambda: ["a", "b"])
    assert sorted(brokers.left) == [("a", "CG"), ("a", "PG"), ("b", "CG"), ("b", "PG")]


# --------------------------------------------------------------------------- groups of one instance


def test_a_broker_whose_connection_broke_is_told_its_groups_again_and_no_other_one() -> None:
    """It has forgotten them, and neither asks nor delivers."""
    beats: list[str] = []

    def taking(name: str) -> Peer:
        def take(request: Command) -> Command:
            beats.append(name)
            return reply_to(request, 0)

        return Peer(answering(take))

    with (
        taking("a") as a,
        taking("b") as b,
        RemotingClient() as client,
        ClientInstance("127.0.0.1:1", client=client) as instance,
    ):
        instance.heartbeats.join_producer("PG", lambda: [a.address, b.address])
        assert instance.heartbeats.beat() == {a.address: None, b.address: None}
        a.drop_connections()
        eventually(lambda: sorted(beats) == ["a", "a", "b"], within_seconds=60)


def test_a_consumer_that_stops_leaves_the_handlers_of_the_others() -> None:
    with ClientInstance("127.0.0.1:1") as instance:
        for group in ("CG", "CH"):
            instance.on_group_request(
                RequestCode.GET_CONSUMER_RUNNING_INFO, group, lambda _address, _request: Command(code=0)
            )
        instance.forget_group("CG")
        codes = {
            group: instance._dispatch(
                "a", Command(code=RequestCode.GET_CONSUMER_RUNNING_INFO, fields={"consumerGroup": group})
            )
            for group in ("CG", "CH")
        }
    assert {group: answer and answer.code for group, answer in codes.items()} == {
        "CG": ResponseCode.SYSTEM_ERROR,
        "CH": ResponseCode.SUCCESS,
    }


def test_a_topic_without_a_route_hides_the_brokers_of_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = {
        "T": TopicRoute(
            topic="T",
            queues=(),
            brokers={
                "a": BrokerAddresses(broker_name="a", cluster="", addresses={0: "master", 1: "slave"}),
                "b": BrokerAddresses(broker_name="b", cluster="", addresses={1: "left alone"}),
            },
        )
    }

    def route(topic: str) -> TopicRoute:
        if topic not in routes:
            raise BrokerUnavailable("no name server answers")
        return routes[topic]

    with ClientInstance("127.0.0.1:1") as instance:
        monkeypatch.setattr(instance.routes, "route", route)
        assert instance.master_addresses(["U", "T"]) == {"master"}
        assert instance.broker_addresses(["U", "T"]) == {"master", "slave", "left alone"}
