"""Traps of looking up: collisions, full answers, families, brokers that are away, an index that is behind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import OutboxState
from reconciler.evidence.broker_answer import MAXIMUM_HITS
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.horizon import PROBE_NOT_INDEXED, Probes
from reconciler.evidence.lookup import FEW_HITS
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, StoredMessage, TransactionState
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC, PROBE_TOPIC, RequestCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from reconciler.words import said
from tests.simulation.outbox_table import TableRow
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.missing_packages import without_package
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

KEY = "7F0000010000000000000000000000AA"
OTHER = "7F0000010000000000000000000000BB"
HALF = {"REAL_TOPIC": "Orders", "PGROUP": "PG"}


def _half(**changes: object) -> object:
    return record(topic=HALF_TOPIC, key=KEY, properties=HALF, **changes)  # type: ignore[arg-type]


def test_a_hash_collision_is_not_the_message() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"Orders": [record(key=OTHER), record(topic="Aa", key=KEY)]})
        answer = cluster.lookups.committed_copies("Orders", KEY)()
        assert answer.is_absent
        assert "2 hits of other messages" in said(answer.reason)


def test_as_many_collisions_as_fit_hide_the_message() -> None:
    with ScriptedCluster() as cluster:
        hits = [record(key=OTHER, physical_offset=n * 200) for n in range(MAXIMUM_HITS)]
        cluster.broker.answers_queries({"Orders": hits})
        assert cluster.lookups.committed_copies("Orders", KEY)().is_unknown
        cluster.broker.answers_queries({"Orders": [*hits[:-1], record(key=KEY, physical_offset=9_999)]})
        assert cluster.lookups.committed_copies("Orders", KEY)().is_found


def test_a_key_that_is_indexed_twice_is_one_record() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"Orders": [record(), record()]})
        assert len(cluster.lookups.committed_copies("Orders", KEY)().records) == 1


def test_prepared_and_rolled_back_records_are_no_committed_copies() -> None:
    with ScriptedCluster(versions=(253,)) as cluster:
        cluster.broker.answers_queries(
            {
                "Orders": [
                    record(system_flag=int(SystemFlag.PREPARED)),
                    record(system_flag=int(SystemFlag.ROLLBACK), physical_offset=2_000),
                ]
            }
        )
        assert cluster.lookups.committed_copies("Orders", KEY)().is_absent
        halves = cluster.lookups.view_message("Orders", KEY)()
        assert [half.transaction_state for half in halves.records] == [TransactionState.PREPARED]


def test_each_family_keeps_halves_in_its_own_place() -> None:
    with ScriptedCluster(versions=(253, 479)) as cluster:
        old, new = cluster.brokers
        old.answers_queries({"Orders": [record(system_flag=int(SystemFlag.PREPARED), store_timestamp_ms=5)]})
        copies = [
            _half(physical_offset=3_000, store_timestamp_ms=30),
            _half(physical_offset=1_000, store_timestamp_ms=10),
        ]
        new.answers_queries({HALF_TOPIC: copies})  # type: ignore[dict-item]  # records
        halves = cluster.lookups.view_message("Orders", KEY)()
        assert [(half.broker, half.commit_log_offset) for half in halves.records] == [
            ("broker-a", 1_000),
            ("broker-b", 1_000),
            ("broker-b", 3_000),
        ]


def test_a_half_of_another_topic_is_not_this_message() -> None:
    with ScriptedCluster() as cluster:
        foreign = record(topic=HALF_TOPIC, properties={"REAL_TOPIC": "Invoices"})
        cluster.broker.answers_queries({HALF_TOPIC: [foreign], DISCARD_TOPIC: [replace(foreign, topic=DISCARD_TOPIC)]})
        assert cluster.lookups.view_message("Orders", KEY)().is_absent
        assert cluster.lookups.parked_copies("Orders", KEY)().is_absent


def test_one_broker_that_is_away_makes_absent_unknown_but_not_found() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        here, away = cluster.brokers
        here.answers_queries({})
        away.close()
        absent = cluster.lookups.committed_copies("Orders", KEY)()
        assert absent.is_unknown
        assert {answer.witness: answer.presence for answer in absent.answers} == {
            "broker-a": Presence.ABSENT,
            "broker-b": Presence.UNKNOWN,
        }
        here.answers_queries({"Orders": [record()]})
        assert cluster.lookups.committed_copies("Orders", KEY)().is_found


@pytest.mark.parametrize("code", [1, 2, 3, 16, 17])
def test_an_error_of_a_broker_is_no_absence(code: int) -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.QUERY_MESSAGE, lambda request: cluster.broker.refuse(request, code, "why"))
        for answer in (
            cluster.lookups.committed_copies("Orders", KEY)(),
            cluster.lookups.view_message("Orders", KEY)(),
            cluster.lookups.find("Orders", KEY)(),
        ):
            assert answer.is_unknown
            assert "why" in said(answer.reason)


def test_silence_and_damaged_records_are_no_absence() -> None:
    with ScriptedCluster() as cluster:
        broker = cluster.broker
        damaged = encode_record(record(body=b"x" * 50))[:-10]
        spoiled = replace(record(), body=b"other")
        for body in (damaged, encode_record(spoiled)):
            broker.on(RequestCode.QUERY_MESSAGE, partial(broker.success, body=body))
            assert cluster.lookups.committed_copies("Orders", KEY)().is_unknown
        cluster.be_impatient()
        broker.on(RequestCode.QUERY_MESSAGE, lambda _: None)
        assert cluster.lookups.committed_copies("Orders", KEY)().is_unknown


@pytest.mark.parametrize("module", ["zstandard", "lz4"])
def test_a_copy_that_lacks_only_a_package_here_is_unknown_and_never_damage(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_package(monkeypatch, module)
    kind = {"zstandard": SystemFlag.COMPRESSION_ZSTD, "lz4": SystemFlag.COMPRESSION_LZ4}[module]
    packed = record(body=b"packed", system_flag=int(SystemFlag.COMPRESSED | kind))
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"Orders": [packed], HALF_TOPIC: [replace(packed, topic=HALF_TOPIC)]})
        for answer in (cluster.lookups.committed_copies("Orders", KEY)(), cluster.lookups.find("Orders", KEY)()):
            assert answer.is_unknown
            assert f"pip install {module}" in said(answer.reason)
            assert answer.damage is None  # what is damaged is quarantined: no round would ask for it again
        spoiled = replace(record(physical_offset=2_000), body=b"other")
        cluster.broker.answers_queries({"Orders": [spoiled, packed]})
        assert cluster.lookups.committed_copies("Orders", KEY)().damage is None
        readable = record(physical_offset=3_000)
        cluster.broker.answers_queries({"Orders": [packed, readable]})
        partly = cluster.lookups.committed_copies("Orders", KEY)()
        assert [found.commit_log_offset for found in partly.records] == [3_000]
        assert partly.answers[0].is_partial


@pytest.mark.parametrize(
    ("keys", "presence"),
    [
        ([KEY], Presence.FOUND),
        ([OTHER] * (FEW_HITS - 1), Presence.ABSENT),
        ([OTHER] * (FEW_HITS - 1) + [KEY], Presence.FOUND),
        ([OTHER] * FEW_HITS, Presence.UNKNOWN),  # this message's may be among those that were cut off
    ],
)
def test_more_copies_than_fit_a_frame_do_not_hide_the_newest(keys: list[str], presence: Presence) -> None:
    hits = [encode_record(record(key=one, physical_offset=1_000 * n)) for n, one in enumerate(keys)]

    def many(request: Command) -> Command | bytes:
        if int(request.fields["maxNum"]) > FEW_HITS:
            return (17 * 1024 * 1024).to_bytes(4, "big")
        return cluster.broker.success(request, body=b"".join(hits))

    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.QUERY_MESSAGE, many)
        cluster.families.facts(cluster.broker.address)
        assert cluster.lookups.committed_copies("Orders", KEY)().presence is presence


def test_a_topic_without_a_route_is_unknown() -> None:
    with ScriptedCluster() as cluster:
        assert cluster.lookups.committed_copies("Nothing", KEY)().is_unknown
        assert cluster.lookups.view_message("Nothing", KEY)().is_unknown
        assert cluster.lookups.at_offset("Nothing", "broker-a", 0, KEY)().is_unknown
        assert cluster.lookups.at_offset("Orders", "broker-z", 0, KEY)().is_unknown


def test_every_time_is_looked_in() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({})
        cluster.lookups.find("Orders", KEY)()
        query = next(request for request in cluster.broker.asked if request.code == RequestCode.QUERY_MESSAGE)
        assert (query.fields["beginTimestamp"], query.fields["endTimestamp"]) == ("0", str(2**63 - 1))
        assert "_UNIQUE_KEY_QUERY" not in query.fields


@pytest.mark.parametrize(
    ("remark", "presence"),
    [
        ("can not find message by the offset, 5", Presence.ABSENT),
        ("java.lang.IllegalArgumentException: newLimit < 0", Presence.UNKNOWN),
        (None, Presence.UNKNOWN),
    ],
)
def test_only_one_remark_says_that_nothing_is_at_an_offset(remark: str | None, presence: Presence) -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request: cluster.broker.refuse(request, 1, remark))
        assert cluster.lookups.at_offset("Orders", "broker-a", 5, KEY)().presence is presence


# --------------------------------------------------------------------------- 3.2.6: the queue is scanned


def _queue_of(broker: ScriptedBroker, found: list[object], *, maximum: int) -> None:
    broker.on(RequestCode.GET_MAX_OFFSET, lambda request: broker.success(request, {"offset": str(maximum)}))
    broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, lambda request: broker.success(request, {"offset": "0"}))

    def pull(request: Command) -> Command:
        at = int(request.fields["queueOffset"])
        body = b"".join(encode_record(one) for one in found[at : at + 2])  # type: ignore[arg-type]  # records
        following = min(at + 2, len(found))
        fields = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": str(maximum)}
        answer = broker.success(request, fields, body)
        return answer if body else replace(answer, code=19)

    broker.on(RequestCode.PULL_MESSAGE, pull)


def test_a_committed_copy_that_is_not_indexed_is_seen_in_its_queue() -> None:
    half = record(system_flag=int(SystemFlag.PREPARED), physical_offset=700)
    copies = [record(key=OTHER, queue_offset=n, physical_offset=1_000 + n) for n in range(5)]
    copies[3] = record(
        queue_offset=3, system_flag=int(SystemFlag.COMMIT), prepared_transaction_offset=700, physical_offset=5_000
    )
    with ScriptedCluster(versions=(78,)) as cluster:
        cluster.broker.answers_queries({"Orders": [half]})
        _queue_of(cluster.broker, list(copies), maximum=5)
        answer = cluster.lookups.committed_copies("Orders", KEY)()
        assert [copy.commit_log_offset for copy in answer.records] == [5_000]
        _queue_of(cluster.broker, list(copies[:3]), maximum=3)
        assert cluster.lookups.committed_copies("Orders", KEY)().is_absent
        _queue_of(cluster.broker, list(copies[:3]), maximum=5)  # the broker does not give all it has
        assert cluster.lookups.committed_copies("Orders", KEY)().is_unknown


# --------------------------------------------------------------------------- index horizon


def _indexes_probes(broker: ScriptedBroker, *, after: int = 0, stored_at_ms: int = 50_000) -> None:
    """Takes probes, and finds the last one only when it was asked more often than `after`."""
    sent: list[str] = []
    asked = 0

    def send(request: Command) -> Command:
        properties = decode_properties(request.fields["i"])
        assert "KEYS" not in properties  # 5.4's RocksDB index would find it by them, and messages that have none not
        sent.append(properties["UNIQ_KEY"])
        fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, 0), "queueId": "0", "queueOffset": "0"}
        return broker.success(request, fields)

    def query(request: Command) -> Command:
        nonlocal asked
        if request.fields["topic"] != PROBE_TOPIC:
            return broker.refuse(request, 22)
        asked += 1
        assert request.fields["indexType"] == "U"
        if asked <= after:
            return broker.refuse(request, 22)
        probe = record(topic=PROBE_TOPIC, key=sent[-1], store_timestamp_ms=stored_at_ms)
        return broker.success(request, body=encode_record(probe))

    broker.on(RequestCode.SEND_MESSAGE_V2, send)
    broker.on(RequestCode.QUERY_MESSAGE, query)


def _probes(cluster: ScriptedCluster) -> Probes:
    return Probes(cluster.client, cluster.routes, cluster.sender(), cluster.unique_keys)


def test_the_horizon_is_the_store_time_of_a_probe_that_was_found() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        _indexes_probes(cluster.brokers[0], after=3, stored_at_ms=50_000)
        _indexes_probes(cluster.brokers[1], stored_at_ms=60_000)
        found = _probes(cluster).horizon("Orders", within_seconds=60)
        assert found == Horizon(at_ms={"broker-a": 50_000, "broker-b": 60_000})


def test_an_index_that_is_behind_proves_nothing() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        _indexes_probes(cluster.brokers[0], after=10_000)
        _indexes_probes(cluster.brokers[1])
        answers = _probes(cluster).probe("Orders", within_seconds=0.1)
        assert answers["broker-a"].at_ms is None
        assert answers["broker-a"].why == PROBE_NOT_INDEXED(seconds=0.1)
        assert answers["broker-b"].at_ms == 50_000


def test_a_broker_that_takes_no_probe_proves_nothing() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.brokers[0].on(
            RequestCode.SEND_MESSAGE_V2, lambda request: cluster.brokers[0].refuse(request, 17, "no such topic")
        )
        cluster.brokers[1].close()
        answers = _probes(cluster).probe("Orders")
        assert [answer.at_ms for answer in answers.values()] == [None, None]
        refused = answers["broker-a"].why
        assert refused is not None
        assert "lacks the probe topic" in said(refused)
        assert _probes(cluster).probe("Nothing")["route"].at_ms is None


# --------------------------------------------------------------------------- as the policy asks


def _evidence(cluster: ScriptedCluster, instance: ClientInstance) -> RemotingBrokerEvidence:
    del cluster
    return RemotingBrokerEvidence(instance, skew_margin_seconds=1.0)


def test_absent_counts_only_where_the_index_has_passed_the_moment() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        for broker in cluster.brokers:
            broker.answers_queries({})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            evidence = _evidence(cluster, instance)

            def ask(**at_ms: int) -> Lookup[StoredMessage]:
                horizon = Horizon(at_ms={name.replace("_", "-"): time for name, time in at_ms.items()})
                return evidence.committed_copies("Orders", KEY, horizon=horizon, not_before_ms=10_000)()

            assert ask(broker_a=10_001, broker_b=10_001).is_absent
            for unproved, why in (
                (ask(broker_a=10_001, broker_b=7_000), "3.0 s are missing"),
                (ask(broker_a=10_001), "did not show the probe"),
            ):
                assert unproved.is_unknown
                assert [why in said(answer.fact) for answer in unproved.answers] == [False, True]
            parked = evidence.parked_copies("Orders", KEY, horizon=Horizon(at_ms={}), not_before_ms=0)()
            assert parked.is_unknown


def test_a_delayed_retry_of_another_group_is_nobodys_retry_here() -> None:
    subscription = Subscription(environment="test", topic="Orders", group="CG")
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries(
            {"SCHEDULE_TOPIC_XXXX": [record(topic="SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "%RETRY%OTHER"})]}
        )
        horizon = Horizon(at_ms={"broker-a": 1})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            evidence = _evidence(cluster, instance)
            assert evidence.group_copies(subscription, KEY, horizon=horizon)()["retry"].is_absent
            waiting = record(
                topic="SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "%RETRY%CG", "RETRY_TOPIC": "Orders"}
            )
            cluster.broker.answers_queries({"SCHEDULE_TOPIC_XXXX": [waiting]})
            found = evidence.group_copies(subscription, KEY, horizon=horizon)()
            assert [copy.real_topic for copy in found["retry"].records] == ["Orders"]
            assert found["dead-letter"].is_absent


@pytest.mark.parametrize("brokers", [["broker-a"], ["broker-a", "broker-b"]], ids=["one broker", "one offset on two"])
def test_a_copy_that_waits_in_the_retry_topic_of_its_group_is_missed(brokers: list[str]) -> None:
    subscription = Subscription(environment="test", topic="Orders", group="CG")
    given_back = record(topic="%RETRY%CG", properties={"RETRY_TOPIC": "Orders"})
    with ScriptedCluster(versions=(479,) * len(brokers)) as cluster:
        for broker in cluster.brokers:
            broker.answers_queries({"%RETRY%CG": [given_back]})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            horizon = Horizon(at_ms=dict.fromkeys(brokers, 1))
            found = _evidence(cluster, instance).group_copies(subscription, KEY, horizon=horizon)()
    assert [(copy.broker, copy.real_topic) for copy in found["retry"].records] == [(name, "Orders") for name in brokers]
    assert found["dead-letter"].is_absent


@pytest.mark.parametrize("named", ["Orders", "%RETRY%CG_Orders", "%RETRY%CG+Orders"])
def test_a_dead_letter_that_names_the_retry_topic_of_pop_is_taken_for_one_of_another_topic(named: str) -> None:
    subscription = Subscription(environment="test", topic="Orders", group="CG")
    given_up = record(topic="%DLQ%CG", properties={"RETRY_TOPIC": named})
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"%DLQ%CG": [given_up]})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            horizon = Horizon(at_ms={"broker-a": 1})
            found = _evidence(cluster, instance).group_copies(subscription, KEY, horizon=horizon)()
    assert [copy.real_topic for copy in found["dead-letter"].records] == ["Orders"]


def test_3_2_6_does_not_see_retries_of_transactions_in_its_index() -> None:
    subscription = Subscription(environment="test", topic="Orders", group="CG")
    with ScriptedCluster(versions=(78,)) as cluster:
        cluster.broker.answers_queries({})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            horizon = Horizon(at_ms={"broker-a": 1})
            found = _evidence(cluster, instance).group_copies(subscription, KEY, horizon=horizon)()
            assert found["retry"].is_unknown
            assert found["dead-letter"].is_unknown


def test_up_to_4_2_the_outbox_shows_a_half_that_no_key_finds() -> None:
    half = record(system_flag=int(SystemFlag.PREPARED), physical_offset=700)
    row = replace(_ROW, half_broker="broker-a", half_commit_log_offset=700)
    horizon = Horizon(at_ms={"broker-a": 5_000})
    with ScriptedCluster(versions=(78,)) as cluster:
        broker = cluster.broker
        broker.answers_queries({})
        broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request: broker.success(request, body=encode_record(half)))
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            evidence = _evidence(cluster, instance)

            def ask(outbox: OutboxRow | None) -> Lookup[StoredMessage]:
                return evidence.half_copies("Orders", KEY, horizon=horizon, not_before_ms=1, outbox=outbox)()

            assert ask(None).is_absent
            assert [copy.commit_log_offset for copy in ask(row).records] == [700]
            committed = replace(half, system_flag=int(SystemFlag.COMMIT))
            broker.on(
                RequestCode.VIEW_MESSAGE_BY_ID, lambda request: broker.success(request, body=encode_record(committed))
            )
            assert ask(row).is_absent
            broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request: broker.refuse(request, 1, "broken"))
            assert ask(row).is_unknown


def test_a_half_whose_broker_left_every_route_is_not_absent() -> None:
    row = replace(_ROW, half_broker="broker-z", half_commit_log_offset=700)
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({})
        with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
            evidence = _evidence(cluster, instance)
            horizon = Horizon(at_ms={"broker-a": 5_000})
            found = evidence.half_copies("Orders", KEY, horizon=horizon, not_before_ms=1, outbox=row)()
            assert found.is_unknown
            assert "broker-z" in said(found.reason)
            # Whoever says that it never comes back waits for its answer no longer: the kept body can be sent.
            retired = RemotingBrokerEvidence(instance, skew_margin_seconds=1.0, retired_brokers=["broker-z"])
            assert retired.half_copies("Orders", KEY, horizon=horizon, not_before_ms=1, outbox=row)().is_absent


_ROW = TableRow(
    unique_key=KEY,
    topic="Orders",
    producer_group="PG",
    tag=None,
    content_digest=None,
    state=OutboxState.NEW,
    created_at_ms=1,
).seen
