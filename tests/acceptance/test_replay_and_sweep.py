"""The two services beside `run`: the sweeper for producers that died, replay workers for handed-over messages."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]


def states(deployed: Deployment) -> dict[str, str]:
    """Outbox rows: key -> state."""
    with closing(sqlite3.connect(deployed.outbox)) as db:
        return dict(db.execute("SELECT unique_key, state FROM reconciler_outbox").fetchall())


# ----------------------------------------------------------------- sweep

_DIES_AFTER_COMMIT = """
import os, signal, sys
import sqlalchemy as sa
from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.remoting import open_producer
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
group, environment, name_servers, outbox, unique_key_topic, queues, topic = sys.argv[1:]
url = f"sqlite:///{outbox}"
producer = open_producer(
    group=group, environment=environment, name_servers=name_servers, outbox_url=url,
    announcements=AnnouncementRoute(environment=environment, unique_key_topic=unique_key_topic, queues=int(queues)),
).start()
with producer.transaction(Message(topic=topic, body=b"order")) as tx:
    with open_engine(url).begin() as connection:
        tx.record(connection)
        connection.execute(sa.text("INSERT INTO orders VALUES (:key)"), {"key": tx.unique_key})
    print(tx.unique_key, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def commit_and_die(deployed: Deployment) -> str:
    """A producer that is killed between its commit and END: neither END nor announcement are ever sent."""
    arguments = (
        *(deployed.producer_group, deployed.environment, deployed.name_servers, str(deployed.outbox)),
        *(deployed.unique_key_topic, str(SHARDS), deployed.topic),
    )
    killed = subprocess.run(
        [sys.executable, "-c", _DIES_AFTER_COMMIT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    return killed.stdout.strip()


def test_killed_producers_message_is_announced_repaired_and_settled_only_by_the_inbox(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    assert deployed.command("hold", deployed.topic).exit_code == 0
    service = deployed.run("run")
    key = commit_and_die(deployed)
    assert states(deployed) == {key: "NEW"}
    sweeper = deployed.run("sweep")
    eventually(lambda: states(deployed) == {key: "ANNOUNCED"}, within_seconds=60)
    eventually(lambda: deployed.verdicts() == {key: "LOST_CONFIRM"}, within_seconds=60)
    # Old enough to be settled, but no inbox has it.
    eventually(lambda: '"unsettled": 1' in sweeper.output, within_seconds=60)
    assert states(deployed) == {key: "ANNOUNCED"}

    deployed.consume()
    assert deployed.command("resume", deployed.topic).exit_code == 0
    eventually(lambda: deployed.effects() == [key], within_seconds=60)
    eventually(lambda: states(deployed) == {key: "SETTLED"}, within_seconds=60)
    assert [service.end(), sweeper.end()] == [0, 0]


def test_without_answer_checks_nobody_answers_for_a_dead_group(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    embedded_broker.configure({"transactionCheckMax": "1", "transactionCheckInterval": "1000"})
    deployed = new_deployment()
    deployed.consume()
    key = commit_and_die(deployed)
    sweeper = deployed.run("sweep")
    eventually(lambda: states(deployed) == {key: "ANNOUNCED"}, within_seconds=60)  # it is at work
    eventually(
        lambda: any(
            "parked" in event["what"] for event in deployed.command("explain", key, "-o", "json").document["events"]
        ),
        within_seconds=60,
    )
    assert deployed.effects() == []
    assert sweeper.end() == 0


# ----------------------------------------------------------------- replay

_HANDLERS = """
import os, pathlib, sqlalchemy as sa

CALLS = pathlib.Path(os.environ["HANDLER_CALLS"])

def bill(message, connection):
    with CALLS.open("a") as calls:
        calls.write(message.unique_key + "\\n")
    earlier = CALLS.read_text().split().count(message.unique_key)
    if message.unique_key == os.environ["FAILS_THREE_TIMES"] and earlier <= 3:
        raise RuntimeError(f"the bank is closed ({earlier})")
    connection.execute(
        sa.text("INSERT INTO effects VALUES (:key, 0)"), {"key": message.unique_key}
    )
"""


def hand_over_only(deployed: Deployment) -> Deployment:
    text = deployed.config.read_text()
    deployed.config.write_text(text.replace("inbox_url", 'repair_order = ["hand-over"]\ninbox_url'))
    return deployed


def test_two_replay_workers_apply_each_handed_over_message_once_also_after_failures(
    new_deployment: DeploymentFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = hand_over_only(new_deployment())
    (tmp_path / "shop_handlers.py").write_text(textwrap.dedent(_HANDLERS))
    calls = tmp_path / "calls.txt"
    # The consumers are alive and never get these messages: their commits never became visible.
    deployed.consume()
    lost = deployed.commit(6, lose=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HANDLER_CALLS", str(calls))
    monkeypatch.setenv("FAILS_THREE_TIMES", lost[0])
    arguments = ("--handler", "shop_handlers:bill", "--topic", deployed.topic, "--group", deployed.group)
    workers = [deployed.run("replay", *arguments) for _ in range(2)]
    service = deployed.run("run")
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=90)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    called = calls.read_text().split()
    assert {key: called.count(key) for key in lost} == {key: 4 if key == lost[0] else 1 for key in lost}
    rows = deployed.rows(deployed.ledger, "SELECT state FROM reconciler_repair WHERE scope <> '*'")
    assert rows == ["DONE"] * 6
    sources = deployed.rows(deployed.inbox, "SELECT DISTINCT source FROM reconciler_inbox")
    assert sources == ["hand-over"]
    story = deployed.command("explain", lost[0], "--output", "json").document
    assert any(f"repair verified for {deployed.group}" in event["what"] for event in story["events"])
    eventually(lambda: all(worker.takes_signals for worker in workers), within_seconds=60)
    assert [service.end(), workers[0].end(), workers[1].end(signal.SIGINT)] == [0, 0, 130]
