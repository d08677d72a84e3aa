"""The brokers that the suite runs against, chosen by BROKER in the environment.

BROKER=embedded | 3.2.6 | 4.2.0 | 4.4.0 | 4.9.7 | 5.1.4 | 5.3.3 | 5.4.0 | all, or several with commas. Without it:
every family of the embedded broker, and the real brokers of `BY_DEFAULT` (skipped where Java is missing).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.conformance.expectations import BY_FAMILY, BY_VERSION, Expectation
from tests.services.embedded_broker import FAMILIES
from tests.services.rocketmq import VERSIONS, marks
from tests.services.topics import create_topic, topic_name

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

BY_DEFAULT = ("3.2.6", "4.2.0", "4.9.7", "5.3.3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One running broker with its name server and what to expect of it."""

    name: str
    name_servers: str
    #: host:port of the only broker.
    broker: str
    broker_name: str
    expect: Expectation
    is_embedded: bool

    def new_topic(self, prefix: str, *, queues: int = 4) -> str:
        """A fresh topic, routed."""
        return self.create(topic_name(prefix), queues=queues)

    def create(self, topic: str, *, queues: int) -> str:
        """Creates this topic (again), without the client under test; routed when it returns."""
        return create_topic(
            int(self.broker.rpartition(":")[2]),
            topic,
            queues=queues,
            name_server_port=int(self.name_servers.rpartition(":")[2]),
        )


def chosen() -> list[ParameterSet]:
    """Parameters of the suite: `embedded-<family>` and `<version>`."""
    wanted = [word.strip() for word in os.environ.get("BROKER", "").split(",") if word.strip()]
    if not wanted:
        wanted = ["embedded", *BY_DEFAULT]
    elif wanted == ["all"]:
        wanted = ["embedded", *VERSIONS]
    unknown = set(wanted) - {"embedded", *VERSIONS}
    if unknown:
        raise pytest.UsageError(f"BROKER={','.join(sorted(unknown))}: embedded, all, {', '.join(VERSIONS)}")
    parameters = []
    for name in wanted:
        if name == "embedded":
            for family in FAMILIES:
                group = pytest.mark.xdist_group(f"embedded-{family}")
                parameters.append(pytest.param(f"embedded-{family}", marks=group))
        else:
            parameters.append(pytest.param(name, marks=marks(name)))
    return parameters


def expectation(name: str) -> Expectation:
    """What to expect of a parameter."""
    if name.startswith("embedded-"):
        return BY_FAMILY[name.removeprefix("embedded-")]
    return BY_VERSION[name]
