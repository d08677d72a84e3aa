"""Checks whether brokers allow us to read what rounds read. A harmless request to every master tries each right.

Rights to write (announcements, probes, republishing) are not tried, because that would write a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from reconciler.announcing.source import PULL_GROUP
from reconciler.commands.asking.brokers import masters
from reconciler.commands.together import side_by_side
from reconciler.errors import AccessRefused, BrokerUnavailable, Lacking, ReconcilerError
from reconciler.evidence.lookup import query_messages
from reconciler.evidence.pop_groups import PopGroups
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.halves.half_topic import TOOLS_GROUP
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.codes import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    dead_letter_topic,
    retry_topic,
)
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import pop_groups
from reconciler.wiring.subscriptions import subscription_of, unique_key_topics

#: Maximum number of refusals that one line shows.
RIGHTS_SHOWN_MAX = 5
#: No message has this key.
_KEY = "RECONCILER_RIGHTS"


def refusals(connections: Connections) -> list[AccessRefused]:
    """Returns one error for each missing right, from the first master that refuses this right.

    Returns nothing if no masters are known.
    """
    found: dict[str, AccessRefused] = {}
    try:
        addresses = masters(connections)
    except ReconcilerError:
        return []  # other checks give the reason
    signs = connections.shared(pop_groups)
    for broker, address in addresses.items():
        questions = _questions(connections, signs, broker, address)
        refused = [_refusal(next(questions))]
        if not _is_of_login(refused[0]):
            subscriptions = (subscription_of(connections.settings, s) for s in connections.settings.subscriptions)
            side_by_side(signs.signs, subscriptions)  # the signs are remembered for the questions that follow
            refused += side_by_side(_refusal, questions)
        for error in refused:
            if error is not None and _is_of_login(error):
                return [error]
            if error is not None:
                found.setdefault(error.right, error)
    return list(found.values())


def _refusal(ask: Callable[[], object]) -> AccessRefused | None:
    """Returns the refusal, if the broker refuses the right.

    Returns None if the right exists. Returns None, too, for an unknown topic or a broker that is away. Other checks
    report these.
    """
    try:
        ask()
    except AccessRefused as error:
        return error
    except ReconcilerError:
        return None
    return None


def _is_of_login(error: AccessRefused | None) -> bool:
    """Returns True if the cause of the refusal is the login. All other rights would be refused for the same cause."""
    return error is not None and error.lacking is not Lacking.RIGHT


def ask_rights(connections: Connections) -> dict[str, Callable[[], object]]:
    """Returns the question whether brokers allow us to read what rounds read, for who_is_away."""

    def ask() -> None:
        found = refusals(connections)
        if found:
            shown = [str(error) for error in found[:RIGHTS_SHOWN_MAX]]
            more = len(found) - len(shown)
            raise BrokerUnavailable("; ".join([*shown, *([f"and {more} more: run reconciler doctor"] if more else [])]))

    return {"rights at brokers": ask}


def _questions(connections: Connections, signs: PopGroups, broker: str, address: str) -> Iterator[Callable[[], object]]:
    settings, client, admin = connections.settings, connections.rocketmq.client, connections.admin
    offsets = connections.rocketmq.offsets

    def look_up(topic: str) -> Callable[[], object]:
        return partial(query_messages, client, address, topic, _KEY, maximum=1, by_unique_key=True)

    def read(topic: str, group: str) -> Callable[[], object]:
        queue = MessageQueue(topic=topic, broker_name=broker, queue_id=0)

        def pull_at_end() -> object:
            # At any other offset some brokers write an OffsetMovedEvent (PullMessageProcessor).
            end = offsets.maximum(address, queue)
            return pull(client, address, PullRequest(queue=queue, offset=end, group=group, maximum=1))

        return pull_at_end

    for topic, group in _announced_in(settings):
        yield read(topic, group)
    yield look_up(settings.rocketmq.probe_topic)
    with suppress(ReconcilerError):
        facts = connections.rocketmq.families.facts(address)
        if facts.has_half_topic:
            yield look_up(HALF_TOPIC)
            yield look_up(DISCARD_TOPIC)
        if facts.may_keep_halves_in_rocksdb:
            yield look_up(ROCKSDB_HALF_TOPIC)
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        yield look_up(topic)
    for topic in dict.fromkeys(s.topic for s in settings.subscriptions):
        yield look_up(topic)
        yield read(topic, SCAN_GROUP)
    for s in settings.subscriptions:
        yield look_up(retry_topic(s.group))
        yield look_up(dead_letter_topic(s.group))
        queue = MessageQueue(topic=s.topic, broker_name=broker, queue_id=0)
        yield partial(offsets.of_group, address, queue, s.group)
        yield partial(admin.group_filter, address, s.group, s.topic)
        subscription = subscription_of(settings, s)
        yield partial(signs.has_popped, address, subscription)
        for retry in signs.signs(subscription).retry_topics:
            yield look_up(retry)
            yield partial(offsets.maximum, address, MessageQueue(topic=retry, broker_name=broker, queue_id=0))
    for producer in settings.producers:
        yield partial(admin.producer_connections, address, producer.group)


def _announced_in(settings: Settings) -> list[tuple[str, str]]:
    """Returns (topic, consumer group) for each topic that contains announcements. The group reads the topic."""
    halves = [(HALF_TOPIC, TOOLS_GROUP)] if any(s.reads_halves for s in settings.subscriptions) else []
    return [*((topic, PULL_GROUP) for topic in unique_key_topics(settings)), *halves]
