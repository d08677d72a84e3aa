"""Finds out whether a group *pops*: from 5.0 on, a broker may hand out messages one by one (POP_MESSAGE, code 200050).

A popped message is invisible until it is acknowledged (200051) or its time is over (200053 changes that time): then the
broker puts a copy into a retry topic of topic and group. The group's offset passes a message as soon as it is handed
out (PopMessageProcessor and PopBufferMergeService; seen on 5.1.4, 5.3.3 and 5.4.0), so an offset that has passed a copy
says nothing about its acknowledgement. Invisible messages are noted in memory, in rmq_sys_wheel_timer and in the
cluster's revive topic, which no request can search by a message's key.

No request asks directly whether a group pops. A broker shows it by any of four signs. (1) A connected member says so
(CONSUME_POP). (2) The request mode was set for topic and group (mqadmin setConsumeMode), or is the broker's default.
(3) The group subscribes to its POP retry topic, which each POP_MESSAGE leaves behind for some minutes. (4) The group
has an offset in such a topic, from the first message on that was handed out in vain.

A group pulls if all its connected members use the remoting protocol, and none of these signs exists. A proxy in cluster
mode registers no members (code 206). A proxy in the broker's own process (local mode) registers gRPC consumers as
CONSUME_ACTIVELY or CONSUME_PASSIVELY (ClientActivity.buildConsumeType; seen on 5.3.3 and 5.4.0).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.evidence.broker_configs import BrokerConfigs
from reconciler.policy.evidence import ConsumeMode
from reconciler.rocketmq.client.admin import Admin, ClientConnection
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.routes import Routes
from reconciler.rocketmq.wire.codes import MQVersion, pop_retry_topics

#: For so long it is remembered what brokers show about a group.
_REMEMBER_SECONDS = 5.0
#: A group that moves from gRPC to remoting soon shows no sign of popping; but messages that were handed to it may be
#: invisible for this long, and its old members may acknowledge them (ProxyConfig.maxInvisibleTimeMills of 5.x).
POPPED_SECONDS = 12 * 3600.0
#: Signs of one broker that decide for all brokers, the strongest first.
_BY_WEIGHT = (ConsumeMode.POP, ConsumeMode.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSigns:
    """What brokers show about how one group consumes one topic."""

    consume_mode: ConsumeMode
    #: POP retry topics in which the group has an offset on some broker, by name.
    retry_topics: tuple[str, ...] = ()


class PopGroups:
    """Asks every master of a topic. Thread-safe; its only state is a memory of what brokers showed, entry by entry."""

    def __init__(
        self, admin: Admin, routes: Routes, families: Families, configs: BrokerConfigs, *, clock: Clock
    ) -> None:
        self._admin = admin
        self._routes = routes
        self._families = families
        self._configs = configs
        self._clock = clock
        self._known: dict[Subscription, tuple[PopSigns, float]] = {}
        #: When a broker last showed that the group pops.
        self._popped_at: dict[Subscription, float] = {}

    def signs(self, subscription: Subscription) -> PopSigns:
        """Returns POP if one broker shows it, PULL if every broker does; a broker before 5.0 shows PULL by its version.

        Returns POP also within POPPED_SECONDS of a sign that this process has seen, although every broker shows PULL
        now.
        """
        now = self._clock.monotonic_seconds()
        known = self._known.get(subscription)
        if known is None or now - known[1] >= _REMEMBER_SECONDS:
            self._known[subscription] = known = (self._remembered(subscription, self._ask(subscription), now), now)
        return known[0]

    def _remembered(self, subscription: Subscription, signs: PopSigns, now: float) -> PopSigns:
        if signs.consume_mode is ConsumeMode.POP:
            self._popped_at[subscription] = now
        popped_at = self._popped_at.get(subscription)
        if signs.consume_mode is ConsumeMode.PULL and popped_at is not None and now - popped_at < POPPED_SECONDS:
            return replace(signs, consume_mode=ConsumeMode.POP)
        return signs

    def _ask(self, subscription: Subscription) -> PopSigns:
        try:
            addresses = [place.master for place in self._routes.whereabouts(subscription.topic)]
        except ReconcilerError:
            return PopSigns(consume_mode=ConsumeMode.UNKNOWN)
        return _together([self._of_broker(address, subscription) for address in addresses])

    def _of_broker(self, address: str | None, subscription: Subscription) -> PopSigns:
        topic, group = subscription.topic, subscription.group
        unknown = PopSigns(consume_mode=ConsumeMode.UNKNOWN)
        if address is None:
            return unknown
        try:
            if not self._families.facts(address).has_pop:
                return PopSigns(consume_mode=ConsumeMode.PULL)
            retry_topics = tuple(
                sorted(set(self._admin.topics_of_group(address, group)) & set(pop_retry_topics(topic, group)))
            )
        except ReconcilerError:
            return unknown
        if retry_topics:
            return PopSigns(consume_mode=ConsumeMode.POP, retry_topics=retry_topics)
        try:
            return PopSigns(consume_mode=self._shown(address, subscription))
        except ReconcilerError:
            return unknown

    def _shown(self, address: str, subscription: Subscription) -> ConsumeMode:
        admin, topic, group = self._admin, subscription.topic, subscription.group
        members = admin.group_members(address, group)
        if members is not None and members.consume_type == "CONSUME_POP":
            return ConsumeMode.POP
        mode = admin.request_mode(address, group, topic) or self._configs.of(address).get("defaultMessageRequestMode")
        if mode == "POP" or self.has_popped(address, subscription):
            return ConsumeMode.POP
        if members is None or not all(map(_speaks_remoting, members.connections)):
            return ConsumeMode.UNKNOWN
        return ConsumeMode.PULL

    def has_popped(self, address: str, subscription: Subscription) -> bool:
        """Returns True if the group popped the topic on this broker in the last minutes. Raises what Admin raises."""
        if not self._families.facts(address).has_pop:
            return False  # brokers up to 4.9.0 never answer a request that they do not know
        first, second = pop_retry_topics(subscription.topic, subscription.group)
        is_second = self._configs.of(address).get("enableRetryTopicV2") == "true"
        return self._admin.subscribes(address, subscription.group, second if is_second else first)


def _speaks_remoting(member: ClientConnection) -> bool:
    """Returns False if the member may be a gRPC client, to which a proxy in the broker's process gave the broker's own
    version.

    Ids of Java's remoting clients begin with an address (ClientConfig.buildMQClientId). Ids of gRPC clients begin with
    the name of a host, and have three or more @ in most languages.
    """
    if member.version < MQVersion.V5_0_0 - 1:
        return True
    host, _, rest = member.client_id.partition("@")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return rest.count("@") <= 1


def _together(signs: Sequence[PopSigns]) -> PopSigns:
    kinds = {one.consume_mode for one in signs}
    retry_topics = {topic for one in signs for topic in one.retry_topics}
    consume_mode = next((kind for kind in _BY_WEIGHT if kind in kinds), ConsumeMode.PULL)
    return PopSigns(consume_mode=consume_mode, retry_topics=tuple(sorted(retry_topics)))
