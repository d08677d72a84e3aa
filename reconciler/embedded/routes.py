"""The tables of the name server, with the topics of each broker (RouteInfoManager). Only the loop uses this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.embedded.families import Family
from reconciler.embedded.state import TopicConfig

STANDARD_JSON_VERSION = 401  # V4_9_4


@dataclass(slots=True)
class RegisteredBroker:
    """A registered broker, with its addresses by broker id and its topics."""

    name: str
    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    owner: object = None  # the connection that keeps it registered; None for the broker of this process


class RouteTable:
    """Routes and cluster information, in the name server's JSON."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.brokers: dict[str, RegisteredBroker] = {}

    def register(self, broker: RegisteredBroker, *, broker_id: int, address: str) -> None:
        """Registers a broker (REGISTER_BROKER). A known broker gets another address or new topics."""
        known = self.brokers.get(broker.name)
        if known is not None:
            broker.addresses = {**known.addresses, **broker.addresses}
            if broker_id != 0:
                broker.topics = known.topics
        broker.addresses[broker_id] = address
        self.brokers[broker.name] = broker

    def unregister(self, name: str, broker_id: int) -> None:
        """Removes one address of a broker (UNREGISTER_BROKER)."""
        broker = self.brokers.get(name)
        if broker is None:
            return
        broker.addresses.pop(broker_id, None)
        if not broker.addresses:
            del self.brokers[name]

    def drop_owner(self, owner: object) -> None:
        """Forgets the brokers of a lost connection (onChannelDestroy)."""
        for name in [name for name, broker in self.brokers.items() if broker.owner is owner]:
            del self.brokers[name]

    def topic_names(self) -> list[str]:
        """Returns the names of all topics (GET_ALL_TOPIC_LIST_FROM_NAMESERVER)."""
        return sorted({topic for broker in self.brokers.values() for topic in broker.topics})

    def route(self, topic: str, *, standard: bool, order: str | None) -> bytes | None:
        """Returns TopicRouteData as JSON. Returns None for an unknown topic. With ``standard``, broker ids are
        quoted."""
        holders = [broker for broker in self.brokers.values() if topic in broker.topics]
        if not holders:
            return None
        queues: list[dict[str, Any]] = []
        for broker in holders:
            config = broker.topics[topic]
            queues.append(
                {
                    "brokerName": broker.name,
                    "perm": config.permission,
                    "readQueueNums": config.read_queues,
                    self._family.topic_flag_name: config.flag,
                    "writeQueueNums": config.write_queues,
                }
            )
        brokers = ",".join(self._broker_json(broker, standard=standard) for broker in holders)
        conf = f',"orderTopicConf":{json.dumps(order)}' if order else ""
        body = f'{{"brokerDatas":[{brokers}],"filterServerTable":{{}}{conf},"queueDatas":{_compact(queues)}}}'
        return body.encode()

    def cluster_info(self) -> bytes:
        """Returns ClusterInfo as JSON. Integer keys of its maps have no quotes, in every version."""
        table = ",".join(
            f"{json.dumps(broker.name)}:{self._broker_json(broker, standard=False)}" for broker in self.brokers.values()
        )
        clusters: dict[str, list[str]] = {}
        for broker in self.brokers.values():
            clusters.setdefault(broker.cluster, []).append(broker.name)
        return f'{{"brokerAddrTable":{{{table}}},"clusterAddrTable":{_compact(clusters)}}}'.encode()

    def _broker_json(self, broker: RegisteredBroker, *, standard: bool) -> str:
        quote = '"' if standard else ""
        addresses = ",".join(
            f"{quote}{broker_id}{quote}:{json.dumps(address)}"
            for broker_id, address in sorted(broker.addresses.items())
        )
        text = f'{{"brokerAddrs":{{{addresses}}},"brokerName":{json.dumps(broker.name)}'
        if self._family.names_cluster_in_routes:
            text += f',"cluster":{json.dumps(broker.cluster)}'
        if self._family.acting_master_in_routes:
            text += ',"enableActingMaster":false'
        return text + "}"

    def speaks_standard_json(self, version: int, *, accepts: bool) -> bool:
        """Returns True if the answer must have quoted keys. From 4.9.4 on, new clients get them, and clients that ask
        for them (ClientRequestProcessor)."""
        return self._family.standard_json and (version >= STANDARD_JSON_VERSION or accepts)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
