"""Makes the replay worker of one group.

The worker gives handed-over messages to the group's handler, through the inbox.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay_worker import ReplayWorker
from reconciler.contract.secret import Secret
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.settings.schema import Settings, SubscriptionSettings
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.subscriptions import subscription_of


def load_handler(name: str, *, topic: str, group: str) -> Any:
    """Returns the handler with the name package.module:function. The handler may be decorated.

    Raises InvalidValue if the handler does not exist, or is decorated for another group or other topics.
    """
    handler = load_function(name)
    if isinstance(handler, TransactionalHandler):
        # A decorated handler works only for its own group. Rows of another group would wait for ever.
        if handler.group != group:
            raise InvalidValue("--group", group, f"the handler is decorated for group {handler.group!r}")
        if handler.topics is not None and topic not in handler.topics:
            raise InvalidValue("--topic", topic, f"the handler is decorated for {', '.join(sorted(handler.topics))}")
    return handler


def load_function(name: str) -> Any:
    """Returns the object with the name package.module:function. Raises InvalidValue if there is no such object."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # an installed command's sys.path has the command's folder instead
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


def build_replay_worker(connections: Connections, configured: SubscriptionSettings, handler: Any) -> ReplayWorker:
    """Makes a worker that calls the handler through the group's inbox. The worker is not started here.

    Asks the ledger at once the questions of the worker, so that a missing right or table shows early. Reads no other
    table, because the worker's login needs no right to one. Raises DatabaseAway.
    """
    topic, group = configured.topic, configured.group
    settings = connections.settings
    rows = HandOverRows(connections.engine(settings.ledger.url))
    rows.claimable(settings.environment, topic, scope=group, limit=1)
    rows.active(settings.environment)
    if isinstance(handler, TransactionalHandler):
        wrapped = handler
    else:
        inbox = _only_inbox(settings, configured)
        engine = connections.without_deadlines().engine(inbox)  # for the handler's own statements
        recorder = CommitRecorder.open(
            settings.redis.url,
            environment=settings.environment,
            group=group,
            topics=[topic],
            shards=settings.unique_key_topic.queues,
        )
        connections.close_at_end(recorder.close)
        wrapped = transactional_handler(engine, group=group, topics=topic, recorder=recorder)(handler)
    worker = ReplayWorker(
        wrapped,
        environment=settings.environment,
        topics=topic,
        ledger_url=settings.ledger.url,
        inbox_keep_days=configured.inbox_keep_days,
        signature_secret=settings.unique_key_topic.signature_key,
        clock=connections.clock,
    )
    connections.close_at_end(worker.close)
    connections.close_at_end(wrapped.open_apart())
    return worker


def _only_inbox(settings: Settings, configured: SubscriptionSettings) -> Secret:
    """Returns the inbox of a handler without a decorator.

    Raises ConfigurationError if the group has no inbox, or has several inboxes.
    """
    subscription = subscription_of(settings, configured)
    inboxes = effect_evidence(settings).inboxes_of(subscription)
    if not inboxes:
        raise ConfigurationError(f"subscription {subscription} has no inbox_url: a hand-over needs an inbox")
    if len(inboxes) > 1:
        raise ConfigurationError(
            f"subscription {subscription} has several inboxes and the handler is a plain function: decorate it with "
            "@transactional_handler(database=...), a function of the message"
        )
    return inboxes[0]
