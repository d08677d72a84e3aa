"""A stored record that cannot be read is not taken for a broker that is away."""

from __future__ import annotations

from dataclasses import replace

from reconciler.rocketmq.wire.codes import RequestCode
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedCluster

KEY = "7F0000010000000000000000000000AA"


def test_a_copy_that_nobody_can_read_is_told_from_a_broker_that_is_away() -> None:
    with ScriptedCluster() as cluster:
        spoiled = replace(record(), body=b"other")
        cluster.broker.answers_queries({"Orders": [spoiled]})
        answer = cluster.lookups.committed_copies("Orders", KEY)()
        assert answer.is_unknown
        assert "does not match its CRC" in str(answer.damage)
        cluster.broker.answers_queries({"Orders": [spoiled, replace(record(), physical_offset=999)]})
        answer = cluster.lookups.committed_copies("Orders", KEY)()
        assert [copy.commit_log_offset for copy in answer.records] == [999]
        cluster.be_impatient()
        cluster.broker.on(RequestCode.QUERY_MESSAGE, lambda _: None)
        answer = cluster.lookups.committed_copies("Orders", KEY)()
        assert (answer.is_unknown, answer.damage) == (True, None)
