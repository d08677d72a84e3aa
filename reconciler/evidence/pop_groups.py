"""Finds out whether a group *pops*. From 5.0 on, a broker may hand out messages one by one (POP_MESSAGE, code 200050).

A popped message is invisible until a member acknowledges it (code 200051), or its time is over (code 200053 changes the
time). After this time, the broker puts a copy into a retry topic of topic and group. The group's offset passes a
message as soon as the broker hands it out (PopMessageProcessor and PopBufferMergeService; seen on 5.1.4, 5.3.3 and
5.4.0). So an offset beyond a copy proves no acknowledgement. The broker notes invisible messages in memory, in
rmq_sys_wheel_timer and in the cluster's revive topic. No request can search these places by a message's key.

No request asks directly whether a group pops. A broker shows popping by any of four signs:
- A connected member has the type CONSUME_POP.
- The request mode POP was set for topic and group (mqadmin setConsumeMode), or is the broker's default.
- The group subscribes to its POP retry topic. Each POP_MESSAGE leaves this subscription for some minutes.
- The group has an offset in such a topic, once a message was handed out in vain.

A group pulls if all its connected members use the remoting protocol, and no sign exists. A proxy in cluster mode
registers no members (code 206). A proxy in the broker's own process (local mode) registers gRPC consumers as
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

#: The signs of a group are remembered for this time.
_REMEMBER_SECONDS = 5.0
#: A group that moves from gRPC to remoting soon shows no sign of popping. Messages that the group popped before may be
#: invisible for this time, and old members may acknowledge them (ProxyConfig.maxInvisibleTimeMills of 5.x).
POPPED_SECONDS = 12 * 3600.0
#: Modes that decide for all brokers if one broker shows them, the strongest first.
_BY_WEIGHT = (ConsumeMode.POP, ConsumeMode.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSigns:
    """The signs of all brokers about one group and topic."""

    consume_mode: ConsumeMode
    #: The POP retry topics in which the group has an offset on some broker, sorted.
    retry_topics: tuple[str, ...] = ()


class PopGroups:
    """Asks every master of a topic for signs of popping. Thread-safe: each remembered entry is replaced as a whole."""

    def __init__(
        self, admin: Admin, routes: Routes, families: Families, configs: BrokerConfigs, *, clock: Clock
    ) -> None:
        self._admin = admin
        self._routes = routes
        self._families = families
        self._configs = configs
        self._clock = clock
        self._known: dict[Subscription, tuple[PopSigns, float]] = {}
        #: When a broker last showed that the group pops, in monotonic seconds.
        self._popped_at: dict[Subscription, float] = {}

    def signs(self, subscription: Subscription) -> PopSigns:
        """Returns POP if one broker shows POP, and PULL if every broker shows PULL. A broker before 5.0 shows PULL by
        its version.

        Returns POP instead of PULL for POPPED_SECONDS after this process last saw a sign of popping.
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
        """Returns True if the group popped the topic on this broker in the last minutes. Raises the errors of Admin."""
        if not self._families.facts(address).has_pop:
            return False  # brokers up to 4.9.0 never answer a request that they do not know
        first, second = pop_retry_topics(subscription.topic, subscription.group)
        is_second = self._configs.of(address).get("enableRetryTopicV2") == "true"
        return self._admin.subscribes(address, subscription.group, second if is_second else first)


def _speaks_remoting(member: ClientConnection) -> bool:
    """Returns False if the member may be a gRPC client. A proxy in the broker's process registers gRPC clients with the
    broker's own version.

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
