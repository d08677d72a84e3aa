"""Wiring of step 6, the announcement consumer, and of the replay worker."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay import ReplayWorker
from reconciler.announcing.consumer import AnnouncementConsumer, consumer_token
from reconciler.announcing.rules import AnnouncementRules
from reconciler.announcing.source import RemotingAnnouncementSource
from reconciler.announcing.step import AnnouncementStep
from reconciler.clock import Clock, SystemClock
from reconciler.commands.availability import ask_brokers, ask_ledger, ask_redis, require
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from reconciler.wiring.connections import Connections
from reconciler.wiring.scheduler import notify_systemd, serve_when_possible
from reconciler.wiring.subscriptions import find_subscription, subscription_of


def build_announcement_consumer(connections: Connections) -> AnnouncementConsumer:
    """One consumer for every subscription; not started."""
    settings = connections.settings
    source = RemotingAnnouncementSource(connections.rocketmq.client, connections.rocketmq.routes)
    half_sets = RedisHalfSets(connections.redis)
    token = consumer_token()
    steps = [
        AnnouncementStep(
            subscription_of(settings, configured),
            unique_key_topic=settings.unique_key_topic.name_for(configured.topic),
            shards=settings.unique_key_topic.queues,
            half_sets=half_sets,
            ledger=connections.ledger.announcements,
            source=source,
            rules=AnnouncementRules(
                environment=settings.environment,
                topic=configured.topic,
                bare_keys=settings.unique_key_topic.bare_keys,
                signature_secret=settings.unique_key_topic.signature_key,
                tags=configured.tag_set if has_outbox(settings, configured.topic) else None,
            ),
            token=token,
            clock=connections.clock,
            half_set_keys_max=settings.redis.half_set_keys_max,
            lease_seconds=settings.rounds.lease_seconds,
        )
        for configured in settings.subscriptions
    ]
    return AnnouncementConsumer(steps, source, clock=connections.clock)


def has_outbox(settings: Settings, topic: str) -> bool:
    """True if some outbox can tell the tag of a key of the topic."""
    return any(topic in p.topics and p.outbox_url is not None for p in settings.producers)


def run_announcements(settings: Settings, stop: threading.Event) -> None:
    """Announcement consumers until the stop; waits for dependencies that are away. Raises ConfigurationError."""
    clock = SystemClock()
    serve_when_possible(lambda: _announce(settings, stop, clock), stop=stop, clock=clock)


def _announce(settings: Settings, stop: threading.Event, clock: Clock) -> None:
    with Connections(settings, clock=clock) as connections:
        require(ask_redis(connections) | ask_ledger(connections) | ask_brokers(connections))
        _require_stored_shards(connections)
        consumer = build_announcement_consumer(connections)
        consumer.start()
        notify_systemd("READY=1")
        try:
            stop.wait()
        finally:
            notify_systemd("STOPPING=1")
            consumer.stop()


def _require_stored_shards(connections: Connections) -> None:
    """Raises InvalidValue if `reconciler run` wrote down another number of shards for a subscription."""
    settings, sets = connections.settings, RedisCommitSets(connections.redis)
    for configured in settings.subscriptions:
        subscription = subscription_of(settings, configured)
        stored = sets.stored_shards(subscription)
        if stored not in (None, settings.unique_key_topic.queues):
            expected = f"{subscription} runs with {stored} shards: put that number back, or drain as the docs say"
            raise InvalidValue("unique_key_topic.queues", settings.unique_key_topic.queues, expected)


def run_replay(settings: Settings, stop: threading.Event, *, handler: str, topic: str, group: str) -> None:
    """A replay worker of one group until the stop. `handler` is package.module:function, plain or decorated.

    Waits for dependencies that are away. Raises ConfigurationError, InvalidValue for a handler of another group.
    """
    configured = find_subscription(settings, topic, group)
    function = load_function(handler)
    if isinstance(function, TransactionalHandler):
        _require_same(function, topic=topic, group=group)
    clock = SystemClock()
    serve_when_possible(lambda: _replay(settings, configured, function, stop, clock), stop=stop, clock=clock)


def _require_same(handler: TransactionalHandler, *, topic: str, group: str) -> None:
    """A decorated handler keeps its own group: rows of another one would wait for ever."""
    if handler.group != group:
        raise InvalidValue("--group", group, f"the handler is decorated for group {handler.group!r}")
    if handler.topics is not None and topic not in handler.topics:
        raise InvalidValue("--topic", topic, f"the handler is decorated for {', '.join(sorted(handler.topics))}")


def _replay(
    settings: Settings, configured: SubscriptionSettings, function: Any, stop: threading.Event, clock: Clock
) -> None:
    topic, group = configured.topic, configured.group
    secret = settings.unique_key_topic.signature_secret
    with Connections(settings, clock=clock) as connections:
        # What the worker itself will ask: its login needs no other table.
        rows = HandOverRows(connections.engine(settings.ledger.url.get_secret_value()))
        rows.claimable(settings.environment, topic, scope=group, limit=1)
        rows.active(settings.environment)
        if isinstance(function, TransactionalHandler):
            wrapped = function
        else:
            engine = connections.engine(_only_inbox(configured))
            recorder = CommitRecorder.open(
                settings.redis.url.get_secret_value(),
                environment=settings.environment,
                group=group,
                topics=[topic],
                shards=settings.unique_key_topic.queues,
            )
            connections.close_at_end(recorder.close)
            wrapped = transactional_handler(engine, group=group, topics=topic, recorder=recorder)(function)
        worker = ReplayWorker(
            wrapped,
            environment=settings.environment,
            topics=topic,
            ledger_url=settings.ledger.url.get_secret_value(),
            inbox_keep_days=configured.inbox_keep_days,
            signature_secret=None if secret is None else secret.get_secret_value(),
            clock=connections.clock,
        )
        connections.close_at_end(worker.close)
        notify_systemd("READY=1")
        worker.run(stop)
        notify_systemd("STOPPING=1")


def _only_inbox(configured: SubscriptionSettings) -> str:
    """The inbox of a plain handler. Raises ConfigurationError where there is none, or nothing says which it is."""
    subscription = f"{configured.topic}/{configured.group}"
    if not configured.inbox_urls:
        raise ConfigurationError(f"subscription {subscription} has no inbox_url: a hand-over needs an inbox")
    if len(configured.inbox_urls) > 1:
        raise ConfigurationError(
            f"subscription {subscription} has several inboxes and the handler is a plain function: decorate it with "
            "@transactional_handler(database=...), a function of the message"
        )
    return configured.inbox_urls[0]


def load_function(name: str) -> Any:
    """The object behind package.module:function; raises InvalidValue if there is none."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # an installed command has its own folder there instead of the caller's
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValue("--handler", name, f"expected package.module:function ({error})") from error
    if not callable(found):
        raise InvalidValue("--handler", name, "is not callable")
    return found
