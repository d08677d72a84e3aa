"""Questions of commands to name servers and brokers that ask for no evidence."""

from __future__ import annotations

from reconciler.announcing.source import PULL_GROUP
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import BrokerUnavailable, ReconcilerError, known_remedy
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.wiring.connections import Connections

BROKER = Code("wiring.broker", name=Field.NAME)

BROKER_REMEDY = "start RocketMQ, or correct rocketmq.name_servers"
#: Consumer groups under which the reconciler reads. Brokers with autoCreateSubscriptionGroup=false lack these.
READER_GROUPS = (PULL_GROUP, SCAN_GROUP)
#: Our groups, and groups of the brokers' tools. These groups only read, and their offsets mean nothing.
OWN_GROUPS = ("RECONCILER_", "TOOLS_CONSUMER", "CID_RMQ_SYS_")


def broker_fact(name: str) -> Fact:
    """Returns the broker as a fact."""
    return BROKER(name=name)


def groups_reading(connections: Connections, topic: str) -> list[str] | None:
    """Returns the groups that any master knows to read the topic: by an offset, or by a connected member.

    None: a master did not answer. A broadcasting group stores no offset, so only connected members show this group.
    """
    found: set[str] = set()
    try:
        for address in masters(connections).values():
            found.update(connections.admin.groups_of_topic(address, topic, asks_each=True))
    except ReconcilerError:
        return None
    return sorted(group for group in found if not group.startswith(OWN_GROUPS))


def masters(connections: Connections) -> dict[str, str]:
    """Returns broker -> address of the broker's master.

    Raises BrokerUnavailable with a remedy if no name server answers, if none knows a broker, or if a broker has no
    master.
    """
    try:
        brokers = connections.rocketmq.routes.brokers()
    except BrokerUnavailable as error:
        if known_remedy(error):
            raise
        raise BrokerUnavailable(str(error), remedy=BROKER_REMEDY) from error
    if not brokers:
        raise BrokerUnavailable(
            "no broker is registered at the name servers",
            remedy="start one with their addresses (namesrvAddr), or correct rocketmq.name_servers",
        )
    found: dict[str, str] = {}
    for name, addresses in sorted(brokers.items()):
        if addresses.master is None:
            raise BrokerUnavailable(f"broker {name} has no master", remedy="start it, and try again")
        found[name] = addresses.master
    return found


def brokers_known_to(connections: Connections, name_server: str) -> list[str]:
    """Returns the names of the brokers that are registered at one name server. Raises what the request raises."""
    return sorted(NameServers(name_server, connections.rocketmq.client).brokers())
