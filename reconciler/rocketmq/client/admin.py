"""Topics, groups, configuration and connections of brokers (AdminBrokerProcessor, ClientManageProcessor)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.codes import AUTO_CREATE_TOPIC, Permission, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import check_topic
from reconciler.rocketmq.wire.tolerant_json import JsonKey, JsonValue, parse_object

READ_AND_WRITE = int(Permission.READ | Permission.WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """A client that is connected to a broker under a group."""

    client_id: str
    client_address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """The connected members of a consumer group at a broker. The tuple has at least one connection."""

    #: The newest member's way to consume: CONSUME_PASSIVELY, CONSUME_ACTIVELY or CONSUME_POP.
    consume_type: str
    connections: tuple[ClientConnection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """What a consumer group takes of a topic (SubscriptionData)."""

    #: The expressionType: TAG or SQL92. Version 3.2.6 knows tags only.
    kind: str
    #: The subString: "a || b", "*", or the SQL92 expression.
    expression: str

    @property
    def is_sql92(self) -> bool:
        """True if brokers evaluate the expression over properties. False if the group takes tags."""
        return self.kind == "SQL92"


class Admin:
    """Asks one broker (or name server) at a time, by address. Thread-safe, without state.

    Every call can raise BrokerUnavailable, RequestTimeout, BrokerBusy, BrokerRefused or ProtocolViolation.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    def create_topic(
        self, address: str, topic: str, *, queues: int, permission: int = READ_AND_WRITE, attributes: str = ""
    ) -> None:
        """Creates the topic with exactly this number of queues on this master, or changes the number.

        Brokers from 5.0 on understand `attributes`, for example "+message.type=TRANSACTION". The name servers have the
        route a moment later.
        """
        fields = {
            "topic": check_topic(topic),
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(permission),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        if attributes:
            fields["attributes"] = attributes
        self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    def delete_topic(self, address: str, topic: str) -> None:
        """Deletes the topic on this broker."""
        self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    def create_group(self, address: str, group: str, *, retry_maximum: int = 16, retry_queues: int = 1) -> None:
        """Creates the consumer group on this master, or changes it (SubscriptionGroupConfig)."""
        config = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": retry_queues,
            "retryMaxTimes": retry_maximum,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(config).encode())

    def broker_config(self, address: str) -> dict[str, str]:
        """Returns all properties of the broker's configuration (GET_BROKER_CONFIG: a Java properties text)."""
        return _java_properties(self._ask(address, RequestCode.GET_BROKER_CONFIG, {}).body)

    def runtime_info(self, address: str) -> dict[str, str]:
        """Returns the broker's report on its present state, such as dispatchBehindBytes and brokerVersionDesc."""
        table = parse_object(self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, {}).body).get("table")
        return {str(name): str(value) for name, value in table.items()} if isinstance(table, dict) else {}

    def producer_connections(self, address: str, group: str) -> list[ClientConnection]:
        """Returns the group's producers that this broker could ask about a half. The list is empty only if the broker
        answers with code 1 and the remark that the group does "not exist" (AdminBrokerProcessor). Other errors with
        code 1 are raised, such as a refusal by ACL."""
        fields = {"producerGroup": group}
        answer = self._client.request(address, Command(code=RequestCode.GET_PRODUCER_CONNECTION_LIST, fields=fields))
        if answer.code == ResponseCode.SYSTEM_ERROR and "not exist" in (answer.remark or ""):
            return []
        return list(_connections(parse_object(require_success(answer, "GET_PRODUCER_CONNECTION_LIST").body)))

    def consumer_connections(self, address: str, group: str) -> list[ClientConnection]:
        """Returns the connected members of the consumer group at this broker. The list is empty if no member is
        connected."""
        members = self.group_members(address, group)
        return [] if members is None else list(members.connections)

    def group_filter(self, address: str, group: str, topic: str) -> GroupFilter | None:
        """Returns the group's filter for the topic, which members send to this broker with their heartbeats.

        Returns None if no connected member subscribes to the topic. A pull consumer need not subscribe.
        """
        found = self._connected(address, group)
        table = found.get("subscriptionTable")
        data = table.get(topic) if isinstance(table, dict) else None
        if not isinstance(data, dict):
            return None
        return GroupFilter(
            kind=str(data.get("expressionType") or "TAG"), expression=str(data.get("subString") or EVERY_TAG)
        )

    def group_members(self, address: str, group: str) -> GroupMembers | None:
        """Returns the connected members of the consumer group at this broker. Returns None if no member is
        connected."""
        found = self._connected(address, group)
        connections = _connections(found)
        if not connections:
            return None
        return GroupMembers(consume_type=str(found.get("consumeType")), connections=connections)

    def subscribes(self, address: str, group: str, topic: str) -> bool:
        """Returns True if this broker has a subscription of the group to the topic (5.0 and newer).

        The subscription is a connected member's, or came with a request of a client without heartbeats. The broker
        forgets a client's subscription after subscriptionExpiredTimeout, by default ten minutes
        (ConsumerManager.compensateSubscribeData).
        """
        fields = {"group": group, "topic": topic}
        body = self._ask(address, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, fields).body
        return isinstance(parse_object(body).get("subscriptionData"), dict)

    def topics_of_group(self, address: str, group: str) -> list[str]:
        """Returns the topics for which this broker has an offset of the group
        (AdminBrokerProcessor.queryTopicsByConsumer)."""
        body = self._ask(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group}).body
        found = parse_object(body).get("topicList")
        return sorted(map(str, found)) if isinstance(found, list) else []

    def request_mode(self, address: str, group: str, topic: str) -> str | None:
        """Returns POP or PULL, as set for the group's clients and the topic (MessageRequestModeManager; 5.0 and newer).

        Returns None if no mode was set. The broker then uses its defaultMessageRequestMode.
        """
        found: JsonValue = parse_object(self._ask(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}).body)
        for name in ("messageRequestModeMap", topic, group):
            found = found.get(name) if isinstance(found, dict) else None
        mode = found.get("mode") if isinstance(found, dict) else None
        return mode if isinstance(mode, str) else None

    def groups(self, address: str) -> list[str]:
        """Returns the names of all consumer groups for which this broker has a configuration."""
        body = self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}).body
        table = parse_object(body).get("subscriptionGroupTable")
        return sorted(str(name) for name in table) if isinstance(table, dict) else []

    def groups_of_topic(self, address: str, topic: str, *, asks_each: bool = False) -> list[str]:
        """Returns the consumer groups that have an offset in the topic, or a connected member that subscribes to the
        topic (AdminBrokerProcessor.queryTopicConsumeByWho). Groups that consume by broadcasting are included.

        Version 5.3.3 returns the topic's name in place of the groups with connected members
        (ConsumerManager.topicGroupTable). With `asks_each`, such a broker is then asked for the members of every group.
        """
        body = self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}).body
        found = parse_object(body).get("groupList")
        named = set(map(str, found)) if isinstance(found, list) else set()
        if topic in named and asks_each:
            named.update(group for group in self.groups(address) if self.group_filter(address, group, topic))
        return sorted(named - {topic})

    def topics(self, address: str) -> dict[str, int]:
        """Returns every topic of this broker with the number of its read queues."""
        table = parse_object(self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG, {}).body).get("topicConfigTable")
        if not isinstance(table, dict):
            return {}
        return {str(name): _read_queues(config) for name, config in table.items()}

    def resume_check(self, address: str, topic: str, offset_message_id: str) -> None:
        """Puts a given-up half back with its count of checks at 0, so that the producer is asked again (4.5.2 and
        newer).

        The caller must check that the record belongs to the topic, because the broker does not.
        """
        fields = {"topic": topic, "msgId": offset_message_id}
        self._ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)

    def _connected(self, address: str, group: str) -> dict[JsonKey, JsonValue]:
        """Returns the JSON answer about the members of a consumer group. Empty only if the broker answers with code 206
        (CONSUMER_NOT_ONLINE), which every release uses for a group without members (AdminBrokerProcessor). Code 1 is an
        error, such as a refusal by ACL up to 5.2."""
        fields = {"consumerGroup": group}
        answer = self._client.request(address, Command(code=RequestCode.GET_CONSUMER_CONNECTION_LIST, fields=fields))
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return {}
        return parse_object(require_success(answer, "GET_CONSUMER_CONNECTION_LIST").body)

    def _ask(self, address: str, code: RequestCode, fields: Mapping[str, str], body: bytes = b"") -> Command:
        answer = self._client.request(address, Command(code=code, fields=fields, body=body))
        return require_success(answer, f"{code.name} at {address}")


def _connections(found: Mapping[JsonKey, JsonValue]) -> tuple[ClientConnection, ...]:
    members = found.get("connectionSet")
    if not isinstance(members, list):
        return ()
    return tuple(_connection(member) for member in members if isinstance(member, dict))


def _connection(member: dict[JsonKey, JsonValue]) -> ClientConnection:
    version = member.get("version")
    return ClientConnection(
        client_id=str(member.get("clientId", "")),
        client_address=str(member.get("clientAddr", "")),
        language=str(member.get("language", "")),
        version=version if isinstance(version, int) else 0,
    )


def _read_queues(config: JsonValue) -> int:
    queues = config.get("readQueueNums") if isinstance(config, dict) else None
    return queues if isinstance(queues, int) else 0


def _java_properties(body: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in body.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found[name.strip()] = value.strip()
    return found
