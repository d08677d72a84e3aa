"""A member of a consumer group that broadcasts: brokers know it by its heartbeat, and store no offset for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.rocketmq.client.heartbeat import ConsumeFrom, ConsumerMembership
from reconciler.rocketmq.client.topic_subscription import subscribe_to
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from tests.services.patient_instance import patient_client


@contextmanager
def broadcasting_member(address: str, *, group: str, topic: str) -> Iterator[None]:
    """Connected to the broker inside the block; its connection is closed at the end."""
    membership = ConsumerMembership(
        group=group, consume_from=ConsumeFrom.LAST, subscriptions=[subscribe_to(topic, "*", version=1)]
    )
    consumer = {**membership.to_heartbeat(), "messageModel": "BROADCASTING"}
    beat = {"clientID": f"broadcasting-{group}", "consumerDataSet": [consumer], "producerDataSet": []}
    with patient_client() as client:
        answer = client.request(address, Command(code=RequestCode.HEART_BEAT, body=json.dumps(beat).encode()))
        require_success(answer, "heartbeat")
        yield
