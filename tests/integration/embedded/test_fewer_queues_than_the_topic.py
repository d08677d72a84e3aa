"""An old settings file has fewer queues than the unique-key topic: nobody is told to make the topic smaller."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.commands.doctor.brokers import CREATE_TOPICS, KEEP_QUEUES, check_topics
from reconciler.contract.facts import Code
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections

EXAMPLE = Path("config/reconciler.toml")


@pytest.mark.parametrize(("configured", "remedy"), [(2, KEEP_QUEUES), (8, CREATE_TOPICS)])
def test_the_remedy_for_another_number_of_queues(configured: int, remedy: Code) -> None:
    with EmbeddedBroker() as broker, RemotingClient() as client:
        Admin(client).create_topic(broker.address, "KEYS", queues=4)
        variables = {
            "RECONCILER_ROCKETMQ__NAME_SERVERS": broker.name_servers,
            "RECONCILER_ROCKETMQ__REQUEST_TIMEOUT_SECONDS": "20",
            "RECONCILER_UNIQUE_KEY_TOPIC__NAME": "KEYS",
            "RECONCILER_UNIQUE_KEY_TOPIC__QUEUES": str(configured),
        }
        with Connections(load_settings(EXAMPLE, variables)) as connections:
            told = next(iter(check_topics(connections)))
    assert told.level == "fail"
    assert told.remedy is not None
    assert told.remedy.code is remedy
