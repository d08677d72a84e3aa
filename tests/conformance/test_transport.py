"""Connections, routes, administration, and the index horizon on every broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.unique_key import is_unique_key
from reconciler.errors import ReconcilerError, RequestTimeout, TopicNotFound
from reconciler.evidence.horizon import PROBE_GROUP, Probes
from reconciler.rocketmq.client.name_servers import MessageQueue
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command, Serialization
from tests.conformance.steps import Steps, new_steps
from tests.conformance.targets import Target
from tests.polling import eventually


def test_what_a_broker_says_it_is_leads_to_the_facts_of_its_release(steps: Steps) -> None:
    facts = steps.instance.families.facts(steps.target.broker)
    assert facts == replace(steps.expect, version=facts.version)


def test_many_requests_share_one_connection_and_find_their_answers(steps: Steps) -> None:
    topic = steps.target.new_topic("many")
    for number in range(10):
        steps.send(topic, f"{number}".encode())
    steps.until_delivered(topic, 10)
    asked = {}
    for number in range(500):
        fields = {"topic": topic, "queueId": "0"} if number % 2 else {"topic": topic, "queueId": "1"}
        command = Command(code=RequestCode.GET_MAX_OFFSET, fields=fields)
        asked[number] = steps.client.submit(steps.target.broker, command)
    answers = {number: future.result(60).fields["offset"] for number, future in asked.items()}
    assert answers == {number: "10" if number % 2 else "0" for number in range(500)}


def test_a_request_in_the_binary_form(target: Target) -> None:
    with new_steps(target, request_timeout_seconds=20.0 if target.expect.knows_binary_headers else 2.0) as steps:
        topic = target.new_topic("binary")
        command = Command(
            code=RequestCode.GET_MAX_OFFSET,
            fields={"topic": topic, "queueId": "0"},
            serialization=Serialization.ROCKETMQ,
        )
        if target.expect.knows_binary_headers:
            answer = steps.client.request(target.broker, command)
            assert (answer.code, answer.fields["offset"]) == (ResponseCode.SUCCESS, "0")
        else:
            with pytest.raises(ReconcilerError):
                steps.client.request(target.broker, command)

        def answered() -> bool:
            try:
                return steps.instance.offsets.maximum(target.broker, steps.queue(topic)) == 0
            except ReconcilerError:  # the pause before it connects again, or a starved broker
                return False

        eventually(answered, within_seconds=60, message="the client to connect again")


def test_a_request_nobody_knows(target: Target) -> None:
    with new_steps(target, request_timeout_seconds=20.0 if target.expect.answers_unknown_codes else 1.0) as steps:
        command = Command(code=29_999)
        if target.expect.answers_unknown_codes:
            answer = steps.client.request(target.broker, command)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        else:
            with pytest.raises(RequestTimeout):
                steps.client.request(target.broker, command)


def test_a_topic_has_as_many_queues_as_it_was_created_with(steps: Steps, target: Target) -> None:
    topic = f"created_{target.new_topic('seed')}"
    with pytest.raises(TopicNotFound):
        steps.instance.routes.refresh(topic)
    steps.admin.create_topic(target.broker, topic, queues=7)

    def routed() -> list[MessageQueue]:
        try:
            return steps.instance.routes.name_servers.topic_route(topic).writable_queues
        except TopicNotFound:
            return []

    queues = eventually(routed, within_seconds=60, message="the route")
    assert queues == [steps.queue(topic, number) for number in range(7)]
    route = steps.instance.routes.name_servers.topic_route(topic)
    assert route.masters == {target.broker_name: target.broker}
    assert steps.admin.topics(target.broker)[topic] == 7
    brokers = steps.instance.routes.brokers()
    assert brokers[target.broker_name].master == target.broker


def test_the_brokers_configuration_can_be_read(steps: Steps) -> None:
    config = steps.admin.broker_config(steps.target.broker)
    assert config["brokerName"] == steps.target.broker_name
    if steps.expect.has_half_topic:
        assert config["transactionTimeOut"] == "1000"
        assert config["transactionCheckInterval"] == "2000"
        assert config["transactionCheckMax"] == "3"


def test_the_index_horizon_follows_what_was_stored(steps: Steps, target: Target) -> None:
    """Without it "not found" proves nothing."""
    target.create("RECONCILER_PROBE", queues=1)
    topic = target.new_topic("horizon")
    instance = steps.instance
    probes = Probes(instance.client, instance.routes, instance.sender(PROBE_GROUP), instance.unique_keys)
    sent = steps.send(topic, b"before")
    answer = probes.probe(topic, within_seconds=60.0)[target.broker_name]
    (record,) = steps.query(topic, sent.unique_key)
    assert answer.at_ms is not None
    assert answer.at_ms >= record.store_timestamp_ms
    # The same by the probe's offset, which needs no index.
    assert answer.clock is not None
    assert answer.clock.at_ms == answer.at_ms
    assert is_unique_key(sent.unique_key)
