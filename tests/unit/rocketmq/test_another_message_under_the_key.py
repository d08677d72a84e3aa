"""What a look-up found of another message proves no absence of this one: each way in which more may be hidden."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import OutboxState
from reconciler.evidence.broker_answer import MAXIMUM_HITS, BrokerAnswer
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.policy.evidence import Lookup, Presence, StoredMessage
from reconciler.policy.ports.evidence import Horizon
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import HALF_TOPIC, MQVersion, RequestCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.words import said
from tests.simulation.outbox_table import TableRow
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

KEY = "7F0000010000000000000000000000AA"
OTHER_KEY = "7F0000010000000000000000000000BB"
THEIRS = record(body=b"theirs", physical_offset=2_000)
PREPARED = int(SystemFlag.PREPARED)
V3_2_6 = 78
ROW = TableRow(
    unique_key=KEY, topic="Orders", producer_group="PG", tag=None, half_broker="broker-a", half_commit_log_offset=700,
    half_queue_offset=0, content_digest=None, state=OutboxState.NEW, created_at_ms=1,
).seen  # fmt: skip


def ours(found: Lookup[StoredMessage]) -> Lookup[StoredMessage]:
    """The answer about messages of another body than theirs."""
    assert found.is_found
    return found.only(lambda copy: copy.body != THEIRS.body)


@contextmanager
def evidence_of(cluster: ScriptedCluster) -> Iterator[RemotingBrokerEvidence]:
    with ClientInstance(cluster.name_server.address, clock=cluster.clock) as instance:
        yield RemotingBrokerEvidence(instance, skew_margin_seconds=1.0)


def test_all_brokers_answered_in_full_so_it_is_absent() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        for broker in cluster.brokers:
            broker.answers_queries({"Orders": [THEIRS]})
        found = ours(cluster.lookups.committed_copies("Orders", KEY)())
        assert found.is_absent
        assert "of another message" in said(found.reason)
        cluster.broker.answers_queries({"Orders": [THEIRS, record()]})
        assert [copy.body for copy in ours(cluster.lookups.committed_copies("Orders", KEY)()).records] == [b"body"]


def test_a_broker_that_is_away_may_have_it() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        here, away = cluster.brokers
        here.answers_queries({"Orders": [THEIRS]})
        away.close()
        assert ours(cluster.lookups.committed_copies("Orders", KEY)()).is_unknown


def test_a_full_answer_may_hide_it() -> None:
    hits = [THEIRS, *(record(key=OTHER_KEY, physical_offset=n * 3_000) for n in range(1, MAXIMUM_HITS))]
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"Orders": hits})
        assert ours(cluster.lookups.committed_copies("Orders", KEY)()).is_unknown
        cluster.broker.answers_queries({"Orders": hits[:-1]})
        assert ours(cluster.lookups.committed_copies("Orders", KEY)()).is_absent


def test_a_record_that_nobody_can_read_may_be_it_and_is_told_as_damage() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.answers_queries({"Orders": [THEIRS, replace(record(), body=b"other")]})
        found = cluster.lookups.committed_copies("Orders", KEY)()
        assert found.damage is None
        assert ours(found).is_unknown
        damage = ours(found).damage
        assert damage is not None
        assert "1 records" in said(damage)


def test_an_index_that_is_behind_may_not_have_it_yet() -> None:
    with ScriptedCluster() as cluster, evidence_of(cluster) as evidence:
        cluster.broker.answers_queries({"Orders": [THEIRS]})
        for at_ms, presence in ((10_000, Presence.UNKNOWN), (10_001, Presence.ABSENT)):
            horizon = Horizon(at_ms={"broker-a": at_ms})
            found = evidence.committed_copies("Orders", KEY, horizon=horizon, not_before_ms=10_000)()
            assert ours(found).presence is presence


@pytest.mark.parametrize("presence", Presence)
def test_a_broker_that_is_doubted_may_have_it_elsewhere(presence: Presence) -> None:
    doubted = BrokerAnswer("broker-a", presence, "as it says").doubted("another broker may have answered")
    assert doubted.presence is (Presence.UNKNOWN if presence is Presence.ABSENT else presence)
    assert doubted.is_partial == (presence is not Presence.ABSENT)


def test_one_of_two_places_of_halves_that_does_not_answer_may_have_it() -> None:
    theirs = replace(THEIRS, topic=HALF_TOPIC, properties={"UNIQ_KEY": KEY, "REAL_TOPIC": "Orders", "PGROUP": "PG"})
    with ScriptedCluster(versions=(MQVersion.V5_3_3 + 2,)) as cluster:

        def query(request: Command) -> Command:
            if request.fields["topic"] == HALF_TOPIC:
                return cluster.broker.success(request, body=encode_record(theirs))
            return cluster.broker.refuse(request, 1, "the index is broken")

        cluster.broker.on(RequestCode.QUERY_MESSAGE, query)
        assert ours(cluster.lookups.view_message("Orders", KEY)()).is_unknown


# --------------------------------------------------------------------------- up to 4.2


def test_3_2_6_has_the_committed_copy_in_a_queue_although_a_key_finds_another_message() -> None:
    half = record(system_flag=PREPARED, physical_offset=700)
    copy = record(system_flag=int(SystemFlag.COMMIT), prepared_transaction_offset=700, queue_offset=0)
    with ScriptedCluster(versions=(V3_2_6,)) as cluster:
        broker = cluster.broker
        broker.answers_queries({"Orders": [half, THEIRS]})
        assert ours(cluster.lookups.committed_copies("Orders", KEY)()).is_unknown, "the queue could not be read"
        broker.on(RequestCode.GET_MAX_OFFSET, lambda request: broker.success(request, {"offset": "1"}))
        broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, lambda request: broker.success(request, {"offset": "0"}))
        ends = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
        broker.on(
            RequestCode.PULL_MESSAGE, lambda request: broker.success(request, ends, encode_record(copy))
        )  # fmt: skip
        assert [one.commit_log_offset for one in ours(cluster.lookups.committed_copies("Orders", KEY)()).records] == [
            copy.physical_offset
        ]


def test_3_2_6_may_have_retries_that_no_key_finds() -> None:
    subscription = Subscription(environment="test", topic="Orders", group="CG")
    with ScriptedCluster(versions=(V3_2_6,)) as cluster, evidence_of(cluster) as evidence:
        cluster.broker.answers_queries({"%DLQ%CG": [replace(THEIRS, topic="%DLQ%CG")]})
        found = evidence.group_copies(subscription, KEY, horizon=Horizon(at_ms={"broker-a": 1}))()
        assert ours(found["dead-letter"]).is_unknown


def test_half_that_only_the_outbox_shows_is_found_beside_one_that_the_key_finds() -> None:
    half = record(system_flag=PREPARED, physical_offset=700)
    with ScriptedCluster(versions=(V3_2_6,)) as cluster, evidence_of(cluster) as evidence:
        broker = cluster.broker
        broker.answers_queries({"Orders": [replace(THEIRS, system_flag=PREPARED)]})
        broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request: broker.success(request, body=encode_record(half)))
        found = evidence.half_copies(
            "Orders", KEY, horizon=Horizon(at_ms={"broker-a": 5_000}), not_before_ms=1, outbox=ROW
        )()
        assert [one.commit_log_offset for one in ours(found).records] == [700]


def test_broker_of_the_half_that_left_every_route_may_have_it() -> None:
    theirs = replace(THEIRS, topic=HALF_TOPIC, properties={"UNIQ_KEY": KEY, "REAL_TOPIC": "Orders", "PGROUP": "PG"})
    row = replace(ROW, half_broker="broker-z")
    with ScriptedCluster() as cluster, evidence_of(cluster) as evidence:
        cluster.broker.answers_queries({HALF_TOPIC: [theirs]})
        found = evidence.half_copies(
            "Orders", KEY, horizon=Horizon(at_ms={"broker-a": 5_000}), not_before_ms=1, outbox=row
        )()
        assert ours(found).is_unknown
