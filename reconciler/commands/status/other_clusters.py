"""What status says about another cluster that is run with the environment of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from reconciler.commands.environment import ask_environment
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import InvalidValue, RedisAway
from reconciler.wiring.connections import Connections

OTHER_CLUSTER = Code("status.other-cluster", why=Field.TEXT)


def other_clusters(connections: Connections) -> Iterator[Fact]:
    """One line a place where it is: what is there may be of the other cluster. Raises DatabaseAway."""
    for ask in ask_environment(connections).values():
        with suppress(RedisAway):  # `away` has it
            try:
                ask()
            except InvalidValue as error:
                yield OTHER_CLUSTER(why=str(error))
