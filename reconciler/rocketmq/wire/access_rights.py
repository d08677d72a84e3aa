"""The rights that brokers demand for a request, in both generations of access control.

ACL 1.0 (4.4 to 5.2, PlainAccessValidator.parse of 4.9.7) demands PUB or SUB on topics, and SUB on groups. Codes that
change a broker demand an `admin` account. Every other request needs only a signature.

Authorization (from 5.3, DefaultAuthorizationContextBuilder of 5.3.3) demands actions on topics, groups and the cluster.
A request that names several resources needs a right on each of them. For each resource, one of the demanded actions is
enough. Requests that name no resource need no right. Examples are GET_BROKER_CONFIG and GET_BROKER_RUNTIME_INFO, and
VIEW_MESSAGE_BY_ID and END_TRANSACTION without a topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconciler.rocketmq.wire.codes import RETRY_TOPIC_PREFIX, RequestCode


class Resource(StrEnum):
    """Kinds of resources on which rights are granted."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    #: The whole broker. ACL 1.0 grants this right by `admin: true` of an account.
    BROKER = "broker"


class Action(StrEnum):
    """Actions that a right allows. ACL 1.0 knows PUB and SUB. From 5.3 on, actions are written Pub, Sub, Get and so
    on."""

    PUB = "PUB"
    SUB = "SUB"
    GET = "GET"
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    ADMIN = "ADMIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A right that a request needs on one resource. One of the actions is enough."""

    resource: Resource
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        if self.resource is Resource.BROKER:
            return "admin: true"
        return f"{' or '.join(self.actions)} on {self.resource} {self.name}"


#: Codes of requests that need an `admin` account (Permission.ADMIN_CODE of 4.9.7).
ADMIN_CODES = frozenset({17, 25, 200, 207, 215})

_SENDS = {RequestCode.SEND_MESSAGE: "topic", RequestCode.SEND_MESSAGE_V2: "b", RequestCode.SEND_BATCH_MESSAGE: "b"}
_SUB = (Action.SUB,)
_GET = (Action.GET,)
_SUB_OR_GET = (Action.SUB, Action.GET)
_PULLS = (RequestCode.PULL_MESSAGE, 361)

#: Request code -> rights on the topic that the request names, from 5.3 on. The source is RocketMQAction of the
#: request's header, or the builder itself.
_ON_TOPIC: dict[int, tuple[Action, ...]] = {
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _GET,
    RequestCode.GET_MAX_OFFSET: _GET,
    RequestCode.GET_MIN_OFFSET: _GET,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _GET,
    RequestCode.VIEW_MESSAGE_BY_ID: _GET,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _GET,
    RequestCode.GET_TOPIC_STATS_INFO: _GET,
    RequestCode.END_TRANSACTION: (Action.PUB,),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (Action.CREATE,),
    RequestCode.DELETE_TOPIC_IN_BROKER: (Action.DELETE,),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (Action.UPDATE,),
}
#: Request code -> rights on the topic and on the group that the request names.
_ON_BOTH: dict[int, tuple[Action, ...]] = {
    RequestCode.PULL_MESSAGE: _SUB,
    361: _SUB,
    RequestCode.QUERY_CONSUMER_OFFSET: _SUB_OR_GET,
    RequestCode.UPDATE_CONSUMER_OFFSET: (Action.SUB, Action.UPDATE),
    RequestCode.QUERY_CONSUME_QUEUE: _GET,
}
#: Request code -> the field that names the group, and the rights on this group.
_ON_GROUP: dict[int, tuple[str, tuple[Action, ...]]] = {
    RequestCode.CONSUMER_SEND_MSG_BACK: ("group", _SUB),
    RequestCode.UNREGISTER_CLIENT: ("consumerGroup", _SUB),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ("consumerGroup", _SUB_OR_GET),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ("consumerGroup", _GET),
    RequestCode.GET_CONSUME_STATS: ("consumerGroup", _GET),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: ("group", _GET),
    352: ("group", _GET),  # GET_SUBSCRIPTIONGROUP_CONFIG
}


def acl_demands(code: int, fields: Mapping[str, str], body: bytes) -> tuple[Demand, ...]:
    """Returns the demands of ACL 1.0. An unreadable body demands nothing."""
    if code in ADMIN_CODES:
        return (Demand(resource=Resource.BROKER, name="", actions=(Action.ADMIN,)),)
    return tuple(_acl(code, fields, body))


def authorization_demands(
    code: int, fields: Mapping[str, str], body: bytes, *, cluster: str = ""
) -> tuple[Demand, ...]:
    """Returns the demands of authorization from 5.3 on. An unreadable body demands nothing."""
    return tuple(_authorization(code, fields, body, cluster))


def _acl(code: int, fields: Mapping[str, str], body: bytes) -> Iterator[Demand]:
    if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):  # brokers do not check a batch
        topic = fields.get(_SENDS[RequestCode(code)], "")
        if topic.startswith(RETRY_TOPIC_PREFIX):
            yield _of_group(fields.get("group") or fields.get("a"), _SUB)
        else:
            yield _of_topic(topic, (Action.PUB,))
    elif code == RequestCode.CONSUMER_SEND_MSG_BACK:
        yield _of_group(fields.get("group"), _SUB)
    elif code in _PULLS:
        yield _of_topic_or_retry(fields.get("topic", ""), _SUB)
        yield _of_group(fields.get("consumerGroup"), _SUB)
    elif code == RequestCode.QUERY_MESSAGE:
        yield _of_topic_or_retry(fields.get("topic", ""), _SUB)
    elif code == RequestCode.HEART_BEAT:
        yield from _of_heartbeat(body)
    elif code in (RequestCode.UNREGISTER_CLIENT, RequestCode.GET_CONSUMER_LIST_BY_GROUP):
        if fields.get("consumerGroup"):
            yield _of_group(fields["consumerGroup"], _SUB)
    elif code == RequestCode.UPDATE_CONSUMER_OFFSET:
        yield _of_group(fields.get("consumerGroup"), _SUB)
        yield _of_topic_or_retry(fields.get("topic", ""), _SUB)


def _authorization(code: int, fields: Mapping[str, str], body: bytes, cluster: str) -> Iterator[Demand]:
    topic, group = fields.get("topic"), fields.get("consumerGroup")
    if code in _SENDS:
        yield _of_send(fields.get(_SENDS[RequestCode(code)], ""), fields)
    elif code in _ON_BOTH:
        yield from _of_both(topic, group, _ON_BOTH[code])
    elif code in _ON_GROUP:
        name, actions = _ON_GROUP[code]
        if fields.get(name):
            yield _of_group(fields[name], actions)
    elif code == RequestCode.QUERY_MESSAGE:  # here a retry topic does not count as the group
        yield _of_topic(topic, _SUB_OR_GET)
    elif code == RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER:
        if topic:
            yield _of_topic_or_retry(topic, _GET)
        yield _of_group(fields.get("group"), _GET)
    elif code in _ON_TOPIC:
        if topic:
            yield _of_topic_or_retry(topic, _ON_TOPIC[code])
    elif code in _IN_BODY:
        yield from _IN_BODY[code](body)
    elif code == RequestCode.GET_PRODUCER_CONNECTION_LIST:
        yield Demand(resource=Resource.CLUSTER, name=cluster, actions=_GET)


def _of_send(topic: str, fields: Mapping[str, str]) -> Demand:
    if topic.startswith(RETRY_TOPIC_PREFIX):
        return _of_group(fields.get("producerGroup") or fields.get("a"), _SUB)
    return _of_topic(topic, (Action.PUB,))


def _of_topic(topic: str | None, actions: tuple[Action, ...]) -> Demand:
    return Demand(resource=Resource.TOPIC, name=topic or "", actions=actions)


def _of_group(group: str | None, actions: tuple[Action, ...]) -> Demand:
    return Demand(resource=Resource.GROUP, name=(group or "").removeprefix(RETRY_TOPIC_PREFIX), actions=actions)


def _of_topic_or_retry(topic: str, actions: tuple[Action, ...]) -> Demand:
    """Demands a right on the topic. For a retry topic, demands a right on its group instead."""
    return _of_group(topic, actions) if topic.startswith(RETRY_TOPIC_PREFIX) else _of_topic(topic, actions)


def _of_both(topic: str | None, group: str | None, actions: tuple[Action, ...]) -> Iterator[Demand]:
    if not (topic or "").startswith(RETRY_TOPIC_PREFIX):
        yield _of_topic(topic, actions)
    yield _of_group(group, actions)


def _of_heartbeat(body: bytes) -> Iterator[Demand]:
    """Yields the demands of consumers. A producer's heartbeat demands no right."""
    for consumer in _entries(_object(body).get("consumerDataSet")):
        yield _of_group(_text(consumer.get("groupName")), _SUB)
        for subscription in _entries(consumer.get("subscriptionDataSet")):
            topic = _text(subscription.get("topic"))
            if not topic.startswith(RETRY_TOPIC_PREFIX):
                yield _of_topic(topic, _SUB)


def _of_lock(body: bytes) -> Iterator[Demand]:
    asked = _object(body)
    yield _of_group(_text(asked.get("consumerGroup")), _SUB)
    for queue in _entries(asked.get("mqSet")):
        topic = _text(queue.get("topic"))
        if not topic.startswith(RETRY_TOPIC_PREFIX):
            yield _of_topic(topic, _SUB)


_IN_BODY: dict[int, Callable[[bytes], Iterator[Demand]]] = {
    RequestCode.HEART_BEAT: _of_heartbeat,
    RequestCode.LOCK_BATCH_MQ: _of_lock,
    RequestCode.UNLOCK_BATCH_MQ: _of_lock,
}


def _object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _entries(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
