"""Lines of the table of broker families that the client does not act on, and the embedded broker imitates.

Asked over the wire, where it can be without the client under test. The defaults of check-back, which the tests change,
are read from RocketMQ's source only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from reconciler.errors import BrokerRefused
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, subscribe_to
from reconciler.rocketmq.wire.codes import (
    CLIENT_VERSION,
    HALF_TOPIC,
    OP_TOPIC,
    MQVersion,
    RequestCode,
    ResponseCode,
    pop_retry_topics,
)
from reconciler.rocketmq.wire.frame import Command, Serialization
from reconciler.rocketmq.wire.properties import StoredProperties
from tests.conformance.steps import Steps
from tests.conformance.targets import Target
from tests.polling import eventually
from tests.services.remoting_probe import RemotingProbe, Reply

GROUP = "CG_facts"
MOVED_TOPIC = "OFFSET_MOVED_EVENT"


@pytest.fixture
def probe(target: Target) -> Iterator[RemotingProbe]:
    with RemotingProbe(int(target.broker.rpartition(":")[2]), timeout_seconds=60) as opened:
        yield opened


def send(probe: RemotingProbe, topic: str, *, queue: int = 0) -> Reply:
    fields = {
        "a": "PG_facts", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1700000000000",
        "h": "0", "i": "KEYS\x01order-1\x02", "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip
    return probe.ask(RequestCode.SEND_MESSAGE_V2, fields, b"body", version=CLIENT_VERSION)


def pull(probe: RemotingProbe, topic: str, offset: int = 0) -> Reply:
    fields = {
        "consumerGroup": GROUP, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return probe.ask(RequestCode.PULL_MESSAGE, fields, version=CLIENT_VERSION)


def test_what_a_broker_adds_to_a_message_and_to_its_answer(steps: Steps, probe: RemotingProbe) -> None:
    topic = steps.target.new_topic("stamped")
    sent = send(probe, topic)
    assert ("TRACE_ON" in sent.fields, "MSG_REGION" in sent.fields) == (steps.expect.replies_trace,) * 2
    (record,) = steps.until_delivered(topic, 1)
    assert ("CLUSTER" in record.properties) is steps.expect.stores_cluster
    added = {name for name in ("MSG_REGION", "TRACE_ON", "UNIQ_KEY") if name in record.properties}
    assert added == ({"MSG_REGION", "TRACE_ON", "UNIQ_KEY"} if steps.expect.stores_trace else set())


def test_the_last_separator_of_the_properties_is_kept_or_left_out(steps: Steps) -> None:
    topic = steps.target.new_topic("separator")
    half = steps.send_half(topic)
    steps.end(half)
    (copy,) = steps.until_delivered(topic, 1)
    assert isinstance(copy.properties, StoredProperties)
    assert copy.properties.raw.endswith(b"\x02") is not steps.expect.trims_properties


def test_which_queues_and_topics_take_a_message(steps: Steps, probe: RemotingProbe) -> None:
    refused = send(probe, steps.target.new_topic("narrow", queues=2), queue=99)
    assert refused.code == steps.expect.bad_queue_code, refused
    if steps.expect.has_half_topic:
        steps.send_half(steps.target.new_topic("half"))  # from then on the broker has the half topic
        # A queue that there is not: a record that is no half would trouble the check-back of the tests beside this one.
        refused = send(probe, HALF_TOPIC, queue=99)
        assert ("is illegal" in str(refused.remark)) is steps.expect.half_topic_is_writable, refused


def test_an_offset_far_beyond_the_end(steps: Steps, probe: RemotingProbe) -> None:
    topic = steps.target.new_topic("overflow")
    send(probe, topic)
    steps.until_delivered(topic, 1)
    before = steps.instance.offsets.maximum(steps.target.broker, steps.queue(MOVED_TOPIC))
    answer = pull(probe, topic, 1_000)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert answer.fields["nextBeginOffset"] == ("0" if steps.expect.overflow_starts_over else "1")
    assert ("topicSysFlag" in answer.fields) is steps.expect.pull_flags
    steps.pass_index()  # the report would be in its queue by now
    after = steps.instance.offsets.maximum(steps.target.broker, steps.queue(MOVED_TOPIC))
    assert after - before == (1 if steps.expect.reports_moved_offsets else 0)


def test_entries_of_a_queue_are_listed(steps: Steps, probe: RemotingProbe) -> None:
    if steps.expect.version < MQVersion.V4_1_0:
        return  # it knows no such request, and may not answer
    topic = steps.target.new_topic("entries")
    send(probe, topic)
    steps.until_delivered(topic, 1)
    fields = {"topic": topic, "queueId": "0", "index": "0", "count": "10", "consumerGroup": ""}
    answer = probe.ask(RequestCode.QUERY_CONSUME_QUEUE, fields, version=CLIENT_VERSION)
    assert answer.code == ResponseCode.SUCCESS
    found = json.loads(answer.body)
    assert (len(found.get("queueData") or ()), found["maxQueueIndex"]) == (
        (1, 1) if steps.expect.lists_queue_entries else (0, 0)
    )


def test_a_refusal_says_where_to_read_on(steps: Steps, probe: RemotingProbe) -> None:
    refused = pull(probe, "no-such-topic")
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert f"See {steps.expect.help_address} for" in str(refused.remark)


def test_a_message_is_sent_back_without_the_most_tries(steps: Steps, probe: RemotingProbe) -> None:
    topic = steps.target.new_topic("back")
    sent = send(probe, topic)
    heartbeat(probe)
    fields = {
        "offset": str(int(sent.fields["msgId"][16:], 16)), "group": GROUP, "delayLevel": "1",
        "originMsgId": sent.fields["msgId"], "originTopic": topic, "unitMode": "false",
    }  # fmt: skip
    answer = probe.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields, version=CLIENT_VERSION)
    fails = steps.expect.requires_max_reconsume_times
    assert answer.code == (ResponseCode.SYSTEM_ERROR if fails else ResponseCode.SUCCESS), answer.remark


def heartbeat(probe: RemotingProbe, *topics: str) -> Reply:
    subscriptions = [subscribe_to(topic, EVERY_TAG, version=1).to_heartbeat() for topic in topics]
    consumer = {
        "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    body = {"clientID": "127.0.0.1@facts", "producerDataSet": [], "consumerDataSet": [consumer]}
    return probe.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode(), version=CLIENT_VERSION)


def test_groups_have_a_request_mode_where_they_may_pop(steps: Steps, target: Target, probe: RemotingProbe) -> None:
    """All that shows whether a group pops; releases that leave unknown codes unanswered are not asked."""
    if not steps.expect.answers_unknown_codes:
        assert not steps.expect.has_pop
        return
    topic = target.new_topic("mode")
    body = {"topic": topic, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
    answer = probe.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode(), version=CLIENT_VERSION)
    if not steps.expect.has_pop:
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, answer.remark
        return
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    admin, address = Admin(steps.client), steps.target.broker
    assert admin.request_mode(address, GROUP, topic) == "POP"
    assert admin.request_mode(address, f"{GROUP}_2", topic) is None
    assert heartbeat(probe, topic).code == ResponseCode.SUCCESS
    members = admin.group_members(address, GROUP)
    assert members is not None
    assert (members.consume_type, [one.client_id for one in members.connections]) == (
        "CONSUME_PASSIVELY", ["127.0.0.1@facts"],
    )  # fmt: skip
    assert admin.group_members(address, "CG_nobody") is None
    assert admin.subscribes(address, GROUP, topic)
    assert not admin.subscribes(address, GROUP, pop_retry_topics(topic, GROUP)[0])
    assert not admin.subscribes(address, "CG_nobody", topic)
    queue = MessageQueue(topic=topic, broker_name=target.broker_name, queue_id=0)
    Offsets(steps.client).store(address, queue, GROUP, 0)
    assert topic in admin.topics_of_group(address, GROUP)


def test_what_answers_look_like(steps: Steps, probe: RemotingProbe) -> None:
    answer = heartbeat(probe)
    assert ("IS_SUPPORT_HEART_BEAT_V2" in answer.fields) is steps.expect.heartbeat_flags
    assert (b"serializeTypeCurrentRPC" in answer.raw) is steps.expect.names_serialization
    if steps.expect.knows_binary_headers:
        command = Command(code=RequestCode.HEART_BEAT, body=b"{}", serialization=Serialization.ROCKETMQ)
        in_kind = steps.client.request(steps.target.broker, command).serialization is Serialization.ROCKETMQ
        assert in_kind is steps.expect.replies_in_kind


def test_how_a_route_is_written(steps: Steps, target: Target) -> None:
    topic = target.new_topic("route")
    with RemotingProbe(int(target.name_servers.rpartition(":")[2]), timeout_seconds=60) as probe:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        text = probe.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=CLIENT_VERSION).body.decode()
    assert ('{"0":' in text) is steps.expect.standard_json
    assert ("{0:" in text) is not steps.expect.standard_json
    assert ('"cluster":' in text) is steps.expect.names_cluster_in_routes
    assert ('"enableActingMaster":' in text) is steps.expect.acting_master_in_routes
    assert f'"{steps.expect.topic_flag_name}":' in text


def test_halves_are_finished_one_by_one_or_in_batches(steps: Steps) -> None:
    """Seen where the OP topic can be pulled: from 5.0 on, which registers it at the start."""
    half = steps.send_half(steps.target.new_topic("finished"))
    steps.end(half)
    if not steps.expect.registers_half_topics_at_start:
        with pytest.raises(BrokerRefused) as refused:
            steps.pull(OP_TOPIC)
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
        return

    def finished() -> bytes | None:
        offset = str(half.sent.queue_offset).encode()
        bodies = [record.body for record in steps.delivered(OP_TOPIC)]
        return next((body for body in bodies if offset in body.split(b",")), None)

    body = eventually(finished, within_seconds=60, message="the OP record")
    assert body.endswith(b",") is steps.expect.batches_finished
