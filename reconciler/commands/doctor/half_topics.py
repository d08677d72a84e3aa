"""What `reconciler doctor` says about halves that are read as announcements: whether each broker allows the reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from reconciler.commands.diagnosis import Diagnosis, failed
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import BrokerRefused, ReconcilerError
from reconciler.halves.announced import half_masters
from reconciler.halves.half_topic import TOOLS_GROUP
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.codes import HALF_TOPIC, ResponseCode
from reconciler.wiring.connections import Connections

HALVES_OF = Code("doctor.halves-of", broker=Field.NAME)
HALVES_READ = Code("doctor.halves-read", number=Field.NUMBER)
NO_HALF_TOPIC = Code("doctor.no-half-topic")
NO_HALF_TOPIC_YET = Code("doctor.no-half-topic-yet")
HALVES_NOT_IN_TOPIC = Code("doctor.halves-not-in-topic")
ANNOUNCE_THERE = Code("doctor.announce-there")
WAIT_FOR_A_ROUND = Code("doctor.wait-for-a-round")
WRITE_HALVES_TO_TOPIC = Code("doctor.write-halves-to-topic")


def check_half_topics(connections: Connections) -> Iterator[Diagnosis]:
    """Yields one line for each broker that has a topic whose halves are announcements. Raises BrokerUnavailable."""
    topics = {one.topic for one in connections.settings.subscriptions if one.reads_halves}
    for broker, address in sorted(half_masters(connections.rocketmq.routes, topics).items()):
        yield _broker(connections, broker, address)


def _broker(connections: Connections, broker: str, address: str) -> Diagnosis:
    check, queue = HALVES_OF(broker=broker), MessageQueue(topic=HALF_TOPIC, broker_name=broker, queue_id=0)
    try:
        if not connections.rocketmq.families.facts(address).has_half_topic:
            return _failed(check, NO_HALF_TOPIC(), ANNOUNCE_THERE())
        begin = max(0, connections.rocketmq.offsets.minimum(address, queue))
        end = connections.rocketmq.offsets.maximum(address, queue)
        request = PullRequest(queue=queue, offset=end, group=TOOLS_GROUP, maximum=1)
        pull(connections.rocketmq.client, address, request)
    except BrokerRefused as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return Diagnosis(check=check, level="note", found=NO_HALF_TOPIC_YET(), remedy=WAIT_FOR_A_ROUND())
        return failed(check, error)
    except ReconcilerError as error:
        return failed(check, error)
    config: dict[str, str] = {}
    with suppress(ReconcilerError):  # this needs a right of its own, which the check `rights` reports
        config = connections.admin.broker_config(address)
    if config.get("transRocksDBEnable") == "true" and config.get("transWriteOriginTransHalfEnable") == "false":
        return _failed(check, HALVES_NOT_IN_TOPIC(), WRITE_HALVES_TO_TOPIC())
    return Diagnosis(check=check, level="ok", found=HALVES_READ(number=end - begin))


def _failed(check: Fact, found: Fact, remedy: Fact) -> Diagnosis:
    return Diagnosis(check=check, level="fail", found=found, remedy=remedy)
