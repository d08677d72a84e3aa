from __future__ import annotations

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerUnavailable, RequestTimeout
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import KEEP_MISSING_SECONDS, MessageQueue, NameServers, Routes, TopicNotFound
from reconciler.rocketmq.wire.broker_facts import BrokerFamily, facts_of, family_of
from reconciler.rocketmq.wire.codes import MQVersion, RequestCode, ResponseCode
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster, ScriptedNameServer

# --------------------------------------------------------------------------- name servers


def test_a_dead_name_server_is_passed_over() -> None:
    with ScriptedCluster() as cluster:
        servers = NameServers(f"127.0.0.1:1;{cluster.name_server.address};127.0.0.1:2", cluster.client)
        for _ in range(5):
            assert servers.topic_route("Orders").masters == {"broker-a": cluster.broker.address}


def test_a_name_server_that_talks_nonsense_is_passed_over() -> None:
    bad = ScriptedNameServer()
    bad.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda request: bad.success(request, body=b"{nonsense"))
    with ScriptedCluster() as cluster:
        servers = NameServers(f"{bad.address};{cluster.name_server.address}", cluster.client)
        for _ in range(4):
            assert servers.topic_route("Orders").broker_names == ("broker-a",)
    bad.close()


@pytest.mark.parametrize("first", [0, 1])
def test_a_topic_is_unknown_only_if_no_name_server_knows_it(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda _servers: first)
    young = ScriptedNameServer()
    with ScriptedCluster() as cluster:
        servers = NameServers(f"{young.address};{cluster.name_server.address}", cluster.client)
        for _ in range(2):
            assert servers.topic_route("Orders").topic == "Orders"
        with pytest.raises(TopicNotFound):
            servers.topic_route("Nothing")
    young.close()


def test_the_name_server_that_answered_is_asked_first_again() -> None:
    silent = ScriptedNameServer()
    silent.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda request: silent.refuse(request, ResponseCode.SYSTEM_BUSY))
    with ScriptedCluster() as cluster:
        servers = NameServers(f"{silent.address};{cluster.name_server.address}", cluster.client)
        for _ in range(5):
            assert servers.topic_route("Orders").topic == "Orders"
    silent.close()
    assert len(silent.asked) <= 1, "each time it would cost a time-out where it hangs"


def test_no_name_server_at_all_is_no_unknown_topic() -> None:
    with RemotingClient() as client, pytest.raises(BrokerUnavailable, match="no name server answers"):
        NameServers("127.0.0.1:1;127.0.0.1:2", client).topic_route("Orders")


@pytest.mark.parametrize("integer_keys", [True, False])
def test_both_dialects_of_routes(*, integer_keys: bool) -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.name_server.writes_integer_keys = integer_keys
        cluster.name_server.place("Orders", cluster.brokers[0], queues=2)
        route = cluster.routes.route("Orders")
        assert route.readable_queues == [
            MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0),
            MessageQueue(topic="Orders", broker_name="broker-a", queue_id=1),
            MessageQueue(topic="Orders", broker_name="broker-b", queue_id=0),
        ]
        assert set(cluster.routes.brokers()) == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"queueDatas":{}}',
        b'{"queueDatas":[1]}',
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":-1,"writeQueueNums":1,"perm":6}]}',
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":2147483647,"writeQueueNums":1,"perm":6}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":[]}]}',
        b'{"brokerDatas":[{"brokerName":5,"brokerAddrs":{}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":"nowhere"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"0":"host:99999"}}]}',
    ],
)
def test_a_hostile_route_is_an_error_and_no_memory(body: bytes) -> None:
    with ScriptedCluster() as cluster:
        server = cluster.name_server
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda request: server.success(request, body=body))
        with pytest.raises(BrokerUnavailable, match="no name server answers"):
            cluster.routes.route("Orders")
        assert cluster.lookups.find("Orders", "key")().is_unknown


# --------------------------------------------------------------------------- kept routes


def test_a_route_is_asked_again_after_its_time_only() -> None:
    clock = ManualClock()
    with ScriptedCluster() as cluster:
        routes = Routes(NameServers(cluster.name_server.address, cluster.client), clock=clock, refresh_seconds=30)
        routes.route("Orders")
        before = len(cluster.name_server.asked)
        routes.route("Orders")
        routes.refresh("Orders")
        assert len(cluster.name_server.asked) == before
        clock.advance(1)
        routes.refresh("Orders")
        assert len(cluster.name_server.asked) == before + 1
        clock.advance(31)
        routes.route("Orders")
        assert len(cluster.name_server.asked) == before + 2


def test_the_last_route_stands_while_name_servers_are_away() -> None:
    with ScriptedCluster() as cluster:
        assert cluster.routes.masters("Orders")
        cluster.name_server.close()
        assert cluster.routes.masters("Orders") == {"broker-a": cluster.broker.address}
        with pytest.raises(BrokerUnavailable):
            cluster.routes.route("Another")


def test_a_name_server_that_has_just_started_does_not_stop_sends_and_pulls() -> None:
    clock = ManualClock()
    with ScriptedCluster(clock=clock) as cluster:
        routes, server = cluster.routes, cluster.name_server
        known = routes.route("Orders")
        told = server.routes.pop("Orders")
        for _ in range(2):
            assert routes.route("Orders") == routes.refresh("Orders") == known
            assert routes.write_queues("Orders") == routes.read_queues("Orders") == known.readable_queues
            clock.advance(KEEP_MISSING_SECONDS - 1)
            assert routes.route("Orders") == known
            server.routes["Orders"] = told  # the broker has registered again: the time begins anew
            routes.route("Orders")
            del server.routes["Orders"]
        routes.route("Orders")
        clock.advance(KEEP_MISSING_SECONDS)
        for _ in range(2):
            with pytest.raises(TopicNotFound):
                routes.route("Orders")


def test_a_topic_that_was_deleted_is_not_sent_to_for_ever_however_often_it_is_asked_for() -> None:
    clock = ManualClock()
    with ScriptedCluster(clock=clock) as cluster:
        cluster.routes.route("Orders")
        del cluster.name_server.routes["Orders"]
        for _ in range(4):
            assert cluster.routes.route("Orders").topic == "Orders"
            clock.advance(KEEP_MISSING_SECONDS / 4)
        with pytest.raises(TopicNotFound):
            cluster.routes.route("Orders")


def test_the_kept_route_of_a_missing_topic_does_not_outlive_its_time_in_memory() -> None:
    clock = ManualClock()
    with ScriptedCluster(clock=clock) as cluster:
        routes = Routes(cluster.routes.name_servers, clock=clock, refresh_seconds=3_600.0)
        routes.route("Orders")
        del cluster.name_server.routes["Orders"]
        clock.advance(1.0)
        assert routes.refresh("Orders").topic == "Orders"
        clock.advance(KEEP_MISSING_SECONDS)
        with pytest.raises(TopicNotFound):
            routes.route("Orders")


def test_a_route_that_stands_for_sends_alone_proves_no_absence() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({})
        assert cluster.lookups.find("Orders", "KEY")().is_absent
        del cluster.name_server.routes["Orders"]
        for _ in range(2):
            assert cluster.routes.write_queues("Orders")
            with pytest.raises(TopicNotFound):
                cluster.routes.whereabouts("Orders")
            assert cluster.lookups.find("Orders", "KEY")().is_unknown
        cluster.routes.expect("Orders", ())
        assert cluster.routes.seen("Orders") == frozenset()
        cluster.name_server.close()
        assert cluster.routes.write_queues("Orders")
        assert cluster.lookups.find("Orders", "KEY")().is_unknown


def test_an_ipv6_broker_is_reached_with_and_without_brackets() -> None:
    with ScriptedCluster() as cluster:
        for written in ("[::1]:10911", "::1:10911"):
            cluster.name_server.routes["Orders"]["broker-a"] = ({0: written}, 1, 1, 6)
            assert cluster.routes.masters("Orders") == {"broker-a": "[::1]:10911"}


def test_a_broker_without_a_master_keeps_its_place_but_takes_no_messages() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.name_server.routes["Orders"]["broker-b"] = ({1: "127.0.0.1:1"}, 1, 1, 6)
        route = cluster.routes.route("Orders")
        assert route.broker_names == ("broker-a", "broker-b")
        assert {queue.broker_name for queue in route.writable_queues} == {"broker-a"}
        assert {queue.broker_name for queue in route.readable_queues} == {"broker-a", "broker-b"}
        assert [(place.broker_name, place.master is None) for place in cluster.routes.whereabouts("Orders")] == [
            ("broker-a", False),
            ("broker-b", True),
        ]


def test_queues_without_the_permission_are_left_out() -> None:
    with ScriptedCluster() as cluster:
        cluster.name_server.place("Orders", cluster.broker, queues=2, permission=4)
        assert cluster.routes.write_queues("Orders") == []
        assert len(cluster.routes.read_queues("Orders")) == 2
        cluster.name_server.place("Orders", cluster.broker, queues=2, permission=2)
        assert len(cluster.routes.write_queues("Orders")) == 2
        assert cluster.routes.read_queues("Orders") == []


def test_a_broker_that_left_the_route_may_still_hold_messages() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.routes.route("Orders")
        del cluster.name_server.routes["Orders"]["broker-b"]
        moved = {place.broker_name: place.master for place in cluster.routes.whereabouts("Orders")}
        assert moved == {broker.name: broker.address for broker in cluster.brokers}
        del cluster.name_server.cluster["broker-b"]
        dead = {place.broker_name: place.master for place in cluster.routes.whereabouts("Orders")}
        assert dead == {"broker-a": cluster.broker.address, "broker-b": None}


def places(cluster: ScriptedCluster) -> dict[str, str | None]:
    return {place.broker_name: place.master for place in cluster.routes.whereabouts("Orders")}


def test_a_broker_that_another_process_saw_is_no_absence_while_it_is_away() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        address = cluster.name_server.cluster["broker-b"]
        del cluster.name_server.routes["Orders"]["broker-b"], cluster.name_server.cluster["broker-b"]
        assert cluster.routes.seen("Orders") == frozenset({"broker-a"})
        cluster.routes.expect("Orders", {"broker-a", "broker-b"})
        assert places(cluster) == {"broker-a": cluster.broker.address, "broker-b": None}
        cluster.name_server.cluster["broker-b"] = address
        cluster.routes.expect("Orders", {"broker-a"})
        assert places(cluster) == {"broker-a": cluster.broker.address}


def test_a_broker_that_left_since_the_memory_was_given_is_beside_those_of_the_memory() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.routes.expect("Orders", {"broker-c"})
        assert set(places(cluster)) == {"broker-a", "broker-b", "broker-c"}
        del cluster.name_server.routes["Orders"]["broker-b"]
        assert set(places(cluster)) == {"broker-a", "broker-b", "broker-c"}


def test_who_keeps_the_memory_of_brokers_is_told_of_one_that_came_and_went_in_between() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.routes.expect("Orders", ())
        assert cluster.routes.seen("Orders") == frozenset({"broker-a", "broker-b"})
        del cluster.name_server.routes["Orders"]["broker-b"]
        assert cluster.routes.seen("Orders") == frozenset({"broker-a", "broker-b"})
        cluster.routes.expect("Orders", {"broker-a"})
        assert cluster.routes.seen("Orders") == frozenset({"broker-a"})
        assert places(cluster) == {"broker-a": cluster.broker.address}


def test_brokers_of_a_route_that_nobody_tells_are_not_known() -> None:
    with ScriptedCluster() as cluster:
        cluster.name_server.close()
        assert cluster.routes.seen("Orders") is None


def test_a_topic_that_has_left_every_broker_has_none_in_its_route() -> None:
    with ScriptedCluster() as cluster:
        assert cluster.routes.seen("Nowhere") == frozenset()


# --------------------------------------------------------------------------- families


def test_versions_fall_into_their_families() -> None:
    expected = {
        BrokerFamily.V3_2: (78, 79, 119),
        BrokerFamily.V4_2: (MQVersion.V3_4_9, 137, MQVersion.V4_0_0, 252, 253),
        BrokerFamily.V4_3: (MQVersion.V4_3_0, 292, 293, 407, MQVersion.V5_0_0),
        BrokerFamily.V5_1: (432, MQVersion.V5_1_0, 439, MQVersion.V5_3_3, 10_000),
    }
    for family, versions in expected.items():
        for version in versions:
            assert family_of(version) is family


def test_the_ordinal_of_a_release_is_the_one_its_broker_reports() -> None:
    """MQVersion.Version.ordinal() of each; 4.9.7, for instance, is not between the names of the enumeration."""
    ordinals = {
        "3.2.6": 79,
        "4.2.0": 253,
        "4.4.0": 293,
        "4.6.1": 335,
        "4.9.7": 407,
        "5.1.4": 441,
        "5.4.0": 493,
        "5.5.0": 513,
    }
    assert {release: MQVersion.of_release(release) for release in ordinals} == ordinals
    for member in MQVersion:
        assert MQVersion.of_release(member.name.removeprefix("V").replace("_", ".")) == member
    with pytest.raises(KeyError, match="V3_3_1"):
        MQVersion.of_release("3.3.1")


def test_what_follows_from_a_version() -> None:
    old, middle, first_half, newer, newest = (facts_of(v) for v in (79, 253, 273, 317, 479))
    assert (old.indexes_unique_key, old.indexes_committed, old.has_batch_send) == (False, False, False)
    assert (middle.indexes_unique_key, middle.has_half_topic, middle.has_batch_send) == (True, False, True)
    assert (first_half.transaction_check_maximum, first_half.keeps_discarded) == (5, False)
    assert (newer.keeps_discarded, newer.transaction_check_interval_seconds) == (True, 60.0)
    assert (newest.transaction_check_interval_seconds, newest.has_check_back) == (30.0, True)


@pytest.mark.parametrize(
    ("fact", "releases"),
    [
        ("answers_unknown_codes", "4.9.8 5.3.3"),
        ("replies_in_kind", "4.9.8"),
        ("dead_letters_readable", "4.9.8 5.3.3"),
        ("requires_max_reconsume_times", "4.2.0 4.4.0"),
    ],
)
def test_what_only_some_releases_do(fact: str, releases: str) -> None:
    every = ("3.2.6", "4.2.0", "4.4.0", "4.9.8", "5.3.3")
    assert [one for one in every if getattr(facts_of(MQVersion.of_release(one)), fact)] == releases.split()


def test_a_broker_is_asked_once_in_a_while_and_again_when_it_may_be_another() -> None:
    clock = ManualClock()
    broker = ScriptedBroker(version=253)
    with RemotingClient(request_timeout_seconds=2) as client:
        families = Families(client, clock=clock)
        assert families.facts(broker.address).family is BrokerFamily.V4_2
        broker.version = 479
        assert families.facts(broker.address).family is BrokerFamily.V4_2
        assert len(broker.asked) == 1
        clock.advance(601)
        assert families.facts(broker.address).family is BrokerFamily.V5_1
        families.forget(broker.address)
        broker.on(RequestCode.HEART_BEAT, lambda _: None)
        with pytest.raises(RequestTimeout):
            families.facts(broker.address)
    broker.close()
