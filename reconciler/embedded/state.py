"""The state of a broker without its messages, such as topics, groups, offsets, the progress of delay levels, and the
key-value configuration.

One method makes every change, and also writes the change to the log. Only the broker's loop uses this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reconciler.embedded.families import Family
from reconciler.embedded.log_file import LogFolder
from reconciler.embedded.settings import BrokerSettings
from reconciler.rocketmq.wire.codes import (
    AUTO_CREATE_TOPIC,
    CHECK_GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    MQVersion,
)

READ, WRITE, INHERIT = 4, 2, 1  # PermName


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicConfig:
    """The number of a topic's queues, and its permissions (TopicConfig)."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    permission: int = READ | WRITE
    flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """The fields of SubscriptionGroupConfig that this broker uses."""

    name: str
    consume_enabled: bool = True
    broadcast_enabled: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    raw: dict[str, Any] = field(default_factory=dict)


class BrokerState:
    """The state of one broker, as tables."""

    def __init__(self, *, family: Family, settings: BrokerSettings, log: LogFolder | None) -> None:
        self._settings = settings
        self._log = log
        self.topics: dict[str, TopicConfig] = {}
        self.groups: dict[str, GroupConfig] = {}
        self.offsets: dict[tuple[str, str], dict[int, int]] = {}
        #: Topic -> group -> members of SetMessageRequestModeRequestBody.
        self.request_modes: dict[str, dict[str, dict[str, Any]]] = {}
        self.delay_offsets: dict[int, int] = {}
        self.kv: dict[str, dict[str, str]] = {}
        self.topics_version = 0
        for topic in self._system_topics(family):
            self.topics[topic.name] = topic

    def _system_topics(self, family: Family) -> list[TopicConfig]:
        """Makes the topics of TopicConfigManager's constructor."""
        settings = self._settings
        topics = [
            TopicConfig(name="SELF_TEST_TOPIC", read_queues=1, write_queues=1),
            TopicConfig(name="BenchmarkTest", read_queues=1024, write_queues=1024),
            TopicConfig(name="OFFSET_MOVED_EVENT", read_queues=1, write_queues=1),
            TopicConfig(name=settings.cluster_name, read_queues=16, write_queues=16, permission=7),
            TopicConfig(name=settings.broker_name, read_queues=1, write_queues=1, permission=7),
        ]
        if settings.auto_create_topic:
            count = settings.default_queue_count
            topics.append(TopicConfig(name=AUTO_CREATE_TOPIC, read_queues=count, write_queues=count, permission=7))
        if family.version >= MQVersion.V4_9_0:  # 4.6.1 lacks it, 4.9.7 has it
            topics.append(TopicConfig(name=SCHEDULE_TOPIC, read_queues=18, write_queues=18))
        if family.registers_half_topics_at_start:
            topics += [TopicConfig(name=name, read_queues=1, write_queues=1) for name in (HALF_TOPIC, OP_TOPIC)]
        return topics

    # -- changes -----------------------------------------------------------------------------------
    def put_topic(self, topic: TopicConfig) -> None:
        """Creates or changes a topic."""
        if self.topics.get(topic.name) != topic:
            self._change({"t": "topic", "v": asdict(topic)})

    def delete_topic(self, name: str) -> None:
        """Removes a topic. The caller drops its queues."""
        self._change({"t": "no_topic", "n": name})

    def put_group(self, group: GroupConfig) -> None:
        """Creates or changes a subscription group."""
        if self.groups.get(group.name) != group:
            self._change({"t": "group", "v": asdict(group)})

    def delete_group(self, name: str) -> None:
        """Removes a subscription group and its offsets."""
        self._change({"t": "no_group", "n": name})

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Stores a consumer group's offset."""
        if self.offset_of(group, topic, queue_id) != offset:
            self._change({"t": "offset", "g": group, "n": topic, "q": queue_id, "v": offset})

    def put_request_mode(self, topic: str, group: str, body: Mapping[str, Any]) -> None:
        """Sets the way in which the group's clients must ask for messages of the topic (MessageRequestModeManager)."""
        self._change({"t": "mode", "n": topic, "g": group, "v": dict(body)})

    def put_delay_offset(self, level: int, offset: int) -> None:
        """Stores the offset up to which the schedule queue of a delay level was delivered."""
        self._change({"t": "delay", "q": level, "v": offset})

    def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        """Sets a key-value entry of the name server. The value None deletes the entry."""
        self._change({"t": "kv", "n": namespace, "k": key, "v": value})

    def _change(self, change: dict[str, Any]) -> None:
        if self._log is not None:
            self._log.append_state(change)
        self.apply(change)

    def apply(self, change: Mapping[str, Any]) -> str | None:
        """Applies one change of state. Recovery uses this method, too. Returns the name of a topic that the change
        deletes."""
        kind = change["t"]
        if kind == "offset":
            self.offsets.setdefault((change["g"], change["n"]), {})[change["q"]] = change["v"]
        elif kind == "topic":
            self.topics[change["v"]["name"]] = TopicConfig(**change["v"])
            self.topics_version += 1
        elif kind == "no_topic":
            self.topics.pop(change["n"], None)
            self.topics_version += 1
            return str(change["n"])
        elif kind == "group":
            self.groups[change["v"]["name"]] = GroupConfig(**change["v"])
        elif kind == "no_group":
            self.groups.pop(change["n"], None)
            for key in [key for key in self.offsets if key[0] == change["n"]]:
                del self.offsets[key]
        elif kind == "mode":
            self.request_modes.setdefault(change["n"], {})[change["g"]] = change["v"]
        elif kind == "delay":
            self.delay_offsets[change["q"]] = change["v"]
        elif kind == "kv":
            entries = self.kv.setdefault(change["n"], {})
            if change["v"] is None:
                entries.pop(change["k"], None)
            else:
                entries[change["k"]] = change["v"]
        return None

    # -- reading -----------------------------------------------------------------------------------
    def offset_of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a group's committed offset. Returns None if the group has no offset in the queue."""
        return self.offsets.get((group, topic), {}).get(queue_id)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Returns the names of groups with a committed offset in the topic, sorted."""
        return sorted(group for group, named in self.offsets if named == topic)

    def topics_of_group(self, group: str) -> list[str]:
        """Returns the names of topics with a committed offset of the group, sorted."""
        return sorted(topic for named, topic in self.offsets if named == group)

    def group(self, name: str) -> GroupConfig | None:
        """Returns the group. Makes a missing group if the settings allow that (SubscriptionGroupManager)."""
        found = self.groups.get(name)
        if found is None and (self._settings.auto_create_group or name == CHECK_GROUP):
            self.put_group(GroupConfig(name=name))
            found = self.groups[name]
        return found

    def topic_for_send(self, name: str, template: str, queue_count: int) -> TopicConfig | None:
        """Returns the topic. Makes an unknown topic from a template topic whose permission allows that
        (createTopicInSendMessageMethod)."""
        found = self.topics.get(name)
        if found is not None:
            return found
        model = self.topics.get(template)
        if model is not None and model.permission & INHERIT:
            count = max(0, min(model.write_queues, queue_count))
            made = TopicConfig(name=name, read_queues=count, write_queues=count, permission=model.permission & ~INHERIT)
        elif name.startswith(RETRY_TOPIC_PREFIX):
            made = TopicConfig(name=name, read_queues=1, write_queues=1)
        else:
            return None
        self.put_topic(made)
        return made

    def ensure_topic(self, name: str, *, queues: int = 1, permission: int = READ | WRITE) -> TopicConfig:
        """Returns the topic. Makes a missing topic from the arguments (createTopicInSendMessageBackMethod)."""
        if name not in self.topics:
            self.put_topic(TopicConfig(name=name, read_queues=queues, write_queues=queues, permission=permission))
        return self.topics[name]

    # -- snapshot ----------------------------------------------------------------------------------
    def snapshot(self) -> dict[str, Any]:
        """Returns all state, for the beginning of a log segment."""
        return {
            "topics": [asdict(topic) for topic in self.topics.values()],
            "groups": [asdict(group) for group in self.groups.values()],
            "offsets": [
                [group, topic, queue_id, offset]
                for (group, topic), queues in self.offsets.items()
                for queue_id, offset in queues.items()
            ],
            "delay": list(self.delay_offsets.items()),
            "kv": self.kv,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Replaces all state by a snapshot. Recovery calls this method."""
        self.topics.update({topic["name"]: TopicConfig(**topic) for topic in snapshot["topics"]})
        self.groups = {group["name"]: GroupConfig(**group) for group in snapshot["groups"]}
        self.offsets = {}
        for group, topic, queue_id, offset in snapshot["offsets"]:
            self.offsets.setdefault((group, topic), {})[queue_id] = offset
        self.delay_offsets = dict(snapshot["delay"])
        self.kv = {namespace: dict(entries) for namespace, entries in snapshot["kv"].items()}
