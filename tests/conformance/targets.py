"""The brokers that the suite runs against, chosen by BROKER in the environment.

BROKER=embedded | all | a version of tests/services/rocketmq.py, or several with commas. Without it: every family of the
embedded broker and the one of the test kit, and the real brokers of `BY_DEFAULT` (skipped where Java is missing), those
of `BY_NIGHT` in `make test-nightly`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.families import DEFAULT_FAMILY, FAMILIES
from reconciler.rocketmq.wire.broker_facts import BrokerFacts, facts_of
from reconciler.rocketmq.wire.codes import MQVersion
from tests.services.rocketmq import VERSIONS, marks
from tests.services.topics import create_topic, topic_name

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

BY_DEFAULT = ("4.9.7", "5.5.0")
BY_NIGHT = ("3.2.6", "4.2.0", "5.3.3", "5.4.0")
#: The embedded broker as services' tests have it: in their process, by their clock, and without topics made by sending.
KIT = "kit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One running broker with its name server and what to expect of it."""

    name: str
    name_servers: str
    #: host:port of the only broker.
    broker: str
    broker_name: str
    #: What the product's table says of this release; the tests are the probes that show whether it is true.
    expect: BrokerFacts

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
        return [*_parameters(["embedded", *BY_DEFAULT]), *_parameters(BY_NIGHT, pytest.mark.nightly)]
    if wanted == ["all"]:
        wanted = ["embedded", *VERSIONS]
    unknown = set(wanted) - {"embedded", *VERSIONS}
    if unknown:
        raise pytest.UsageError(f"BROKER={','.join(sorted(unknown))}: embedded, all, {', '.join(VERSIONS)}")
    return _parameters(wanted)


def _parameters(names: Iterable[str], *more: pytest.MarkDecorator) -> list[ParameterSet]:
    parameters = []
    for name in names:
        if name == "embedded":
            for family in FAMILIES:
                group = pytest.mark.xdist_group(f"embedded-{family}")
                parameters.append(pytest.param(f"embedded-{family}", marks=group))
            parameters.append(pytest.param(KIT, marks=pytest.mark.xdist_group(KIT)))
        else:
            parameters.append(pytest.param(name, marks=[*marks(name), *more]))
    return parameters


def expectation(name: str) -> BrokerFacts:
    """What the table says of a parameter's release."""
    family = DEFAULT_FAMILY if name == KIT else name.removeprefix("embedded-")
    release = FAMILIES[family].release if family in FAMILIES and not name[0].isdigit() else name
    return facts_of(MQVersion.of_release(release))
