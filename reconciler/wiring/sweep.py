"""Makes the producer plug-in's sweeper for every outbox of the settings, and the answers to check-backs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.check_answer import StandIn
from checkback_producers.outbox import SqlOutbox, settled_tags_in
from checkback_producers.remoting import RemotingAnnouncements, RemotingHalves
from checkback_producers.sweeper import OutboxSource, Sweeper, SweepReport
from reconciler.contract.secret import SecretText
from reconciler.errors import DatabaseAway
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import EvidenceDatabase, outbox_databases
from reconciler.wiring.evidence import inbox_evidence
from reconciler.wiring.subscriptions import subscription_of
from reconciler.wiring.workers import workers_of

logger = logging.getLogger(__name__)

#: The report of a sweep that had nothing to do.
NOTHING_SWEPT = SweepReport()
#: Maximum number of outboxes that are swept in parallel.
OUTBOXES_AT_ONCE_MAX = 16
#: The producer group that sends announcements. This group sends no halves, so brokers never check back with it.
SWEEPER_GROUP = "reconciler-sweeper"


def announcement_route(settings: Settings) -> AnnouncementRoute:
    """Returns the settings for sending announcements."""
    return AnnouncementRoute(
        environment=settings.environment,
        unique_key_topic=settings.unique_key_topic.name,
        queues=settings.unique_key_topic.queues,
        topics=settings.unique_key_topic.topics,
        signature_secret=settings.unique_key_topic.signature_key,
        bare_keys=settings.unique_key_topic.bare_keys,
    )


def build_sweeper(connections: Connections, *, stop: threading.Event) -> Sweeper:
    """Makes a sweeper of all outboxes.

    From then on this process also answers check-backs of groups with `answer_checks`. Raises DatabaseAway if all
    outboxes are away, and ConfigurationError for missing tables.
    """
    outboxes = open_outboxes(connections)
    _answer_checks(connections, outboxes)
    return _build(connections, outboxes, stop)


def open_outboxes(connections: Connections) -> dict[SecretText, SqlOutbox]:
    """Opens one outbox for each URL. An outbox that is away stops no other outbox, and is swept once it answers.

    Raises DatabaseAway if all outboxes are away, and ConfigurationError for missing tables.
    """
    opened: dict[SecretText, SqlOutbox] = {}
    away: list[DatabaseAway] = []
    for database in outbox_databases(connections.settings):
        if database.url not in opened:
            outbox = SqlOutbox(database.url, statement_seconds=connections.settings.rounds.statement_seconds)
            connections.close_at_end(outbox.close)
            try:
                outbox.identity()
            except DatabaseAway as error:
                away.append(error)
                logger.warning("outbox_away", extra={"group": database.owner, "detail": str(error)})
            opened[database.url] = outbox
    if away and len(away) == len(opened):
        raise away[0]
    return opened


def _build(connections: Connections, outboxes: dict[SecretText, SqlOutbox], stop: threading.Event) -> Sweeper:
    settings = connections.settings
    sweep = settings.sweep
    workers = workers_of(min(len(outboxes), OUTBOXES_AT_ONCE_MAX))
    connections.close_at_end(workers.close)
    return Sweeper(
        [
            OutboxSource(producer_group=database.owner, outbox=outboxes[database.url])
            for database in outbox_databases(settings)
        ],
        announcer=Announcer(RemotingAnnouncements(SWEEPER_GROUP, connections.rocketmq), announcement_route(settings)),
        subscriptions=[
            SweptSubscription(subscription=subscription_of(settings, s), tags=s.tag_set) for s in settings.subscriptions
        ],
        inboxes=inbox_evidence(connections),
        rules=SweepRules(
            sweep_after_seconds=sweep.sweep_after_seconds,
            settle_after_seconds=sweep.settle_after_seconds,
            announce_again_after_seconds=sweep.announce_again_after_seconds,
            keep_seconds=sweep.keep_days * 86_400.0,
            retention_seconds=settings.rounds.retention_seconds,
        ),
        is_stopping=stop.is_set,
        workers=workers,
    )


def _answer_checks(connections: Connections, outboxes: dict[SecretText, SqlOutbox]) -> None:
    """Joins the producer groups with `answer_checks`, so that brokers also ask this process about their halves."""
    producers = connections.settings.producers
    for group in dict.fromkeys(p.group for p in producers if p.answer_checks):
        of_group = [outboxes[d.url] for d in outbox_databases(connections.settings) if d.owner == group]
        stand_in = StandIn(of_group, clock=connections.clock)
        halves = RemotingHalves(group, connections.rocketmq)
        halves.start(stand_in.answer)
        connections.close_at_end(halves.shutdown)


def settled_tags(
    connections: Connections, database: EvidenceDatabase
) -> Mapping[tuple[str, str], frozenset[str] | None]:
    """Returns (topic, consumer group) -> the tags by which rows of the producer group were settled. None: all tags.

    A subscription whose tags no sweep has stored is left out. Raises DatabaseAway.
    """
    found = settled_tags_in(connections.engine(database.url, read_only=True), database.owner)
    return {place: kept.tags for place, kept in found.items()}
