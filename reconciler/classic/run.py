"""Wiring of the original algorithm: reconciler run with rounds.mode = "classic"."""

from __future__ import annotations

import logging
import threading

from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.classic.announcements import GroupOffsetAnnouncements
from reconciler.classic.round import ClassicRound
from reconciler.classic.sets import RedisClassicSets, open_classic_client
from reconciler.clock import Clock
from reconciler.contract.subscription import Subscription
from reconciler.evidence.lookup import Lookups
from reconciler.policy.environment import RENEW_SECONDS
from reconciler.policy.evidence import StoredMessage
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.environment import enter_environment, environment_guard
from reconciler.wiring.scheduler import Tick, TickRunner
from reconciler.wiring.subscriptions import subscription_of

logger = logging.getLogger(__name__)

#: The original's consumer is pushed to; this is how late an announcement may be here.
ANNOUNCEMENTS_SECONDS = 0.5

_WARNING = (
    "rounds.mode = classic runs the original algorithm for comparison: it loses the messages of a crash between EXEC "
    "and hand-over, of a lost answer, of a producer that dies before announcing, and of a Redis that forgets "
    "(docs/explanation/stories.md); use mode = full for anything that matters"
)
_BLIND = (
    "brokers from 4.3 on keep halves in a topic of their own: viewMessage under the real topic finds none, so classic "
    "repairs no lost message here and only hands over what is late"
)


def build_classic_round(connections: Connections) -> ClassicRound:
    """The original's job over this deployment's topics, sets and ledger."""
    settings, instance = connections.settings, connections.rocketmq
    client = open_classic_client(settings.redis.url)
    connections.close_at_end(client.close)

    def hand_over(subscription: Subscription, message: StoredMessage) -> None:
        """One row for `reconciler replay`, whose inbox dedupes; an existing row is left as it is."""
        connections.ledger.hand_overs.insert(subscription.environment, message, groups=[subscription.group])

    configured = {subscription_of(settings, s): s for s in settings.subscriptions}
    return ClassicRound(
        announcements=GroupOffsetAnnouncements(
            RemotingAnnouncementSource(instance.client, instance.routes),
            routes=instance.routes,
            offsets=instance.offsets,
            unique_key_topics={
                subscription: settings.unique_key_topic.name_for(s.topic) for subscription, s in configured.items()
            },
            rules={
                subscription: AnnouncementRules(
                    environment=settings.environment,
                    topic=s.topic,
                    bare_keys=settings.unique_key_topic.bare_keys,
                    signature_secret=settings.unique_key_topic.signature_key,
                )
                for subscription, s in configured.items()
            },
        ),
        sets=RedisClassicSets(client),
        view_message=Lookups(instance.client, instance.routes, instance.families).find,
        hand_over=hand_over,
    )


def blind_brokers(instance: ClientInstance) -> dict[str, str]:
    """Address -> family of every master whose halves viewMessage cannot see. Raises BrokerUnavailable."""
    facts = {address: instance.families.facts(address) for address in sorted(instance.cluster_addresses())}
    return {address: str(found.family) for address, found in facts.items() if found.has_half_topic}


def serve_classic(settings: Settings, stop: threading.Event, clock: Clock) -> None:
    """Announcements and differences until the stop. Raises TransientError if a server is away at the start."""
    with Connections(settings, clock=clock) as connections:
        logger.warning("classic_mode", extra={"detail": _WARNING})
        for address, family in blind_brokers(connections.rocketmq).items():
            logger.warning("classic_mode_is_blind", extra={"broker": address, "family": family, "detail": _BLIND})
        guard = environment_guard(connections)
        if not enter_environment(connections, guard, stop=stop):
            return
        classic = build_classic_round(connections)
        subscriptions = [subscription_of(settings, s) for s in settings.subscriptions]

        def consume() -> None:
            for subscription in subscriptions:
                classic.consume_announcements(subscription)

        def difference() -> None:
            for subscription in subscriptions:
                report = classic.run(subscription)
                counts = {
                    "missing": report.missing,
                    "replayed": report.handed_over,
                    "not_found": len(report.not_found),
                    "refused": len(report.refused),
                }
                level = logging.INFO if any(counts.values()) else logging.DEBUG
                about = {"topic": subscription.topic, "group": subscription.group, **counts}
                logger.log(level, "classic_round", extra=about)

        ticks = [
            Tick(name="environment", interval_seconds=RENEW_SECONDS, run=guard.look),
            Tick(name="classic announcements", interval_seconds=ANNOUNCEMENTS_SECONDS, run=consume),
            Tick(name="classic rounds", interval_seconds=settings.rounds.interval_seconds, run=difference),
        ]
        TickRunner(ticks, stop=stop, clock=clock).run()
