"""Progress of consumer groups in the queues of a test's broker. These functions run in the broker's loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.embedded.services import BrokerServices
from reconciler.rocketmq.wire.codes import retry_topic


def members_of(broker: BrokerServices, group: str) -> int:
    """Counts the connected consumers of the group."""
    found = broker.clients.consumers.get(group)
    return 0 if found is None else len(found.members)


def written_queues(broker: BrokerServices, topic: str) -> set[int]:
    """Returns the numbers of the topic's queues that hold a message."""
    return {number for name, number, queue in broker.store.queues if name == topic and queue.max_offset}


def progress(
    broker: BrokerServices, group: str, topics: Sequence[str], done: Mapping[tuple[str, int], int | None]
) -> tuple[bool, bool]:
    """Returns two values, (stored, done). A value is True if the group has passed all messages of its queues and its
    retry topic. `stored` goes by the broker's offsets, and `done` goes by the offsets in the argument `done`. Both
    values are True for a group without members."""
    is_stored = is_done = True
    for topic in (*topics, retry_topic(group)) if members_of(broker, group) else ():
        config = broker.state.topics.get(topic)
        for number in range(config.read_queues if config is not None else 0):
            held = broker.store.queues.queue(topic, number).max_offset
            stored, passed = broker.state.offset_of(group, topic, number), done.get((topic, number))
            is_stored = is_stored and stored is not None and stored >= held
            is_done = is_done and passed is not None and passed >= held
    return is_stored, is_done


def set_back(broker: BrokerServices, group: str, topics: Iterable[str]) -> bool:
    """Sets the group's offsets to the first message of each topic. Returns False if the group has had no message."""
    has_had = False
    for topic in topics:
        for number in range(broker.state.topics[topic].read_queues):
            has_had = has_had or bool(broker.state.offset_of(group, topic, number))
            broker.state.commit_offset(group, topic, number, 0)
    return has_had
