"""Topics for tests, made over the wire without the client under test."""

from __future__ import annotations

import itertools
import os
import re

from tests.polling import eventually
from tests.services.remoting_probe import RemotingProbe, route_names

UPDATE_AND_CREATE_TOPIC = 17
_NUMBERS = itertools.count(1)


def topic_name(prefix: str) -> str:
    """A name that no other test uses."""
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", prefix)
    return f"{cleaned}_{os.getpid()}_{next(_NUMBERS)}"


def create_topic(broker_port: int, topic: str, *, queues: int = 4, name_server_port: int | None = None) -> str:
    """Creates the topic on one broker; with a name server, returns when it is routed."""
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    with RemotingProbe(broker_port, timeout_seconds=60) as probe:
        reply = probe.ask(UPDATE_AND_CREATE_TOPIC, fields)
    assert reply.code == 0, f"creating {topic}: {reply.code} {reply.remark}"
    if name_server_port is not None:
        eventually(lambda: route_names(name_server_port, topic), within_seconds=60, message=f"route of {topic}")
    return topic
