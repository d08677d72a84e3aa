"""Sends many small commands about different shards at once, in one pipeline per node.

The pipeline of RedisCluster is not used: it fails for all nodes together, and repeats commands by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from reconciler.shards.access import RedisClient

T = TypeVar("T")

#: Maximum number of commands in one pipeline. Other clients wait for all of them: some 15 ms for scripts, less than 1
#: ms for HGET.
PIPELINE_COMMANDS_MAX = 1_000

#: The key that decides the node, and the command with all its arguments.
KeyedCommand = tuple[str, Sequence[Any]]


def by_node(client: RedisClient, items: Iterable[T], key_of: Callable[[T], str]) -> Iterable[tuple[Redis, list[T]]]:
    """Returns a client for each node, with the items whose keys the node serves. Items without a node are left out."""
    if not isinstance(client, RedisCluster):
        return [(client, list(items))]
    nodes: dict[str, tuple[Redis, list[T]]] = {}
    for item in items:
        with suppress(RedisClusterException):  # no node serves the item's slot
            node: Any = client.get_node_from_key(key_of(item))  # type: ignore[no-untyped-call]  # redis-py has no annotation
            _, of_node = nodes.setdefault(node.name, (client.get_redis_connection(node), []))
            of_node.append(item)
    return nodes.values()


def answers_of(client: RedisClient, commands: Sequence[KeyedCommand]) -> list[Any]:
    """Returns the answer to each command, or its exception. If a node is away, the answers of other nodes are
    returned."""
    answers: list[Any] = [RedisClusterException("nobody serves its slot")] * len(commands)
    for node, numbers in by_node(client, range(len(commands)), lambda number: commands[number][0]):
        for first in range(0, len(numbers), PIPELINE_COMMANDS_MAX):
            some = numbers[first : first + PIPELINE_COMMANDS_MAX]
            try:
                with node.pipeline(transaction=False) as pipeline:
                    for number in some:
                        pipeline.execute_command(*commands[number][1])  # type: ignore[no-untyped-call]  # redis-py has no annotation
                    found = pipeline.execute(raise_on_error=False)
            except (RedisError, OSError) as error:  # further pages are not sent: each would wait for the time-out again
                for number in numbers[first:]:
                    answers[number] = error
                break
            for number, answer in zip(some, found, strict=True):
                answers[number] = answer
    return answers
