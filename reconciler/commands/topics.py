"""`reconciler topics create`: creates topics and groups that the reconciler needs, on every master."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.commands.asking.brokers import READER_GROUPS, masters
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import unique_key_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic on one master."""

    topic: str
    broker: str
    queues: int


def create_topics(settings: Settings, *, business_queues: int | None = None) -> list[CreatedTopic]:
    """Creates unique-key topics with exactly the configured queues, the probe topic and our groups on every master.

    `business_queues`: also creates the configured business topics and consumer groups that a master lacks, with this
    number of queues. Existing topics and groups stay as they are. Raises BrokerUnavailable if a name server or a master
    is away. If one broker lacked a topic, announcements would be lost while all other brokers are away.
    """
    queues = settings.unique_key_topic.queues
    wanted = [*((name, queues) for name in unique_key_topics(settings)), (settings.rocketmq.probe_topic, 1)]
    created: list[CreatedTopic] = []
    with Connections.for_people(settings) as connections:
        admin = connections.admin
        for broker, address in masters(connections).items():
            # Brokers with autoCreateSubscriptionGroup=false refuse reads by an unknown group.
            for group in READER_GROUPS:
                admin.create_group(address, group)
            for topic, queues in wanted:
                admin.create_topic(address, topic, queues=queues)
                created.append(CreatedTopic(topic=topic, broker=broker, queues=queues))
            if business_queues is not None:
                missing = _create_business(connections, address, queues=business_queues)
                created += [CreatedTopic(topic=topic, broker=broker, queues=business_queues) for topic in missing]
    return created


def _create_business(connections: Connections, address: str, *, queues: int) -> list[str]:
    """Creates topics and groups of the settings that the master lacks. Returns the created topics."""
    admin, settings = connections.admin, connections.settings
    topics = dict.fromkeys(
        [s.topic for s in settings.subscriptions] + [t for p in settings.producers for t in p.topics]
    )
    known = admin.topics(address)
    missing = [topic for topic in topics if topic not in known]
    for topic in missing:
        admin.create_topic(address, topic, queues=queues)
    groups = set(admin.groups(address))
    for group in dict.fromkeys(s.group for s in settings.subscriptions):
        if group not in groups:
            admin.create_group(address, group)
    return missing
