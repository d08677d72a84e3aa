"""What is away, unsafe or missing has its exit code and its remedy; services wait for it, commands do not."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from reconciler.commands.asking.availability import REDIS_REMEDY
from reconciler.errors import TopicNotFound
from reconciler.rocketmq.client.admin import Admin
from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment, Service
from tests.ended import Ended
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import marks

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]

NOBODYS_KEY = "F" * 32


def codes(deployed: Deployment, *commands: tuple[str, ...]) -> dict[str, int]:
    return {" ".join(command[:1]): deployed.command(*command).exit_code for command in commands}


def failed(ended: Ended) -> dict[str, dict[str, str]]:
    """Failed checks of doctor by name."""
    assert ended.exit_code == 1, ended.stdout + ended.stderr
    return {f["check"]: f for f in ended.document["findings"] if f["level"] == "fail"}


def rounds(deployed: Deployment) -> int:
    return len(deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_round"))


def has_waited(service: Service) -> bool:
    """It has said that a dependency is away."""
    return "start_waits" in service.output


# ----------------------------------------------------------------- away


def test_redis_that_is_away_is_3_for_commands_and_a_wait_for_the_service(
    new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    deployed = new_deployment()
    with redis.Redis.from_url(redis_server.url) as client:  # it answers, and refuses every write
        client.config_set("maxmemory", "1")
        full = deployed.command("status")
        assert (full.exit_code, "away: redis: it is full" in full.stdout) == (3, True), full.stdout
        client.config_set("maxmemory", "0")
    redis_server.stop()
    assert codes(deployed, ("once",), ("repair", NOBODYS_KEY), ("rebuild", "--since", "2020-01-01")) == {
        "once": 3,
        "repair": 3,
        "rebuild": 3,
    }
    status = deployed.command("status", "--output", "json")
    assert status.exit_code == 3
    assert status.document["subscriptions"][0]["pending"] is None
    assert "redis" in status.document["away"][0]
    assert "away: redis" in status.stderr
    # These ask the ledger only.
    assert codes(deployed, ("list",), ("hold", deployed.topic), ("resume", deployed.topic)) == {
        "list": 0,
        "hold": 0,
        "resume": 0,
    }
    checks = failed(deployed.command("doctor", "-o", "json"))
    assert checks["redis"]["remedy"] == REDIS_REMEDY

    services = [deployed.run("run"), deployed.run("announcements")]
    for service in services:
        eventually(partial(has_waited, service), within_seconds=60)
    redis_server.start()
    eventually(lambda: rounds(deployed) > 0, within_seconds=60)
    assert [service.end() for service in services] == [0, 0]


def test_broker_that_is_away_is_3_for_commands_and_a_wait_for_the_services(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    deployed = new_deployment()
    embedded_broker.stop()
    assert codes(
        deployed, ("once",), ("explain", NOBODYS_KEY), ("repair", NOBODYS_KEY), ("topics", "create"), ("list",)
    ) == {"once": 3, "explain": 3, "repair": 3, "topics": 3, "list": 0}
    status = deployed.command("status", "--output", "json")
    assert status.exit_code == 3
    assert status.document["subscriptions"][0]["pending"] == 0
    checks = failed(deployed.command("doctor", "-o", "json"))
    (name_server,) = [check for check in checks if check.startswith("name server")]
    assert checks[name_server]["remedy"] == "start it, or correct rocketmq.name_servers"

    services = [deployed.run("run"), deployed.run("sweep")]
    # A sweeper without unannounced rows needs no broker yet, and has nothing to say.
    eventually(lambda: "refused" in services[0].output, within_seconds=60)
    embedded_broker.start()
    with patient_instance(embedded_broker.name_servers) as instance:
        for address in instance.cluster_addresses():
            Admin(instance.client).create_topic(address, deployed.topic, queues=4)
    assert deployed.command("topics", "create").exit_code == 0
    deployed.consume()
    keys = deployed.commit(2, lose=True)
    eventually(lambda: deployed.effects() == sorted(keys), within_seconds=90)
    assert [service.end() for service in services] == [0, 0]


def test_status_is_not_calm_while_a_service_s_database_is_away(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    away = f"postgresql://reconciler@127.0.0.1:{free_port()}/billing"
    for variable, who in {
        "RECONCILER_SUBSCRIPTIONS__0__INBOX_URL": "inbox of",
        "RECONCILER_PRODUCERS__0__OUTBOX_URL": "outbox of",
    }.items():
        status = reconciler("status", "--config", deployed.config, environment={variable: away})
        assert (status.exit_code, f"away: {who}" in status.stdout) == (3, True), status.stdout + status.stderr


def test_ledger_that_is_away_is_3(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    environment = {"RECONCILER_LEDGER__URL": f"postgresql://reconciler@127.0.0.1:{free_port()}/ledger"}

    def code(*arguments: str) -> int:
        return reconciler(*arguments, "--config", deployed.config, environment=environment).exit_code

    commands: list[tuple[str, ...]] = [
        ("status",),
        ("list",),
        ("once",),
        ("explain", NOBODYS_KEY),
        ("hold", deployed.topic),
    ]
    assert {command[0]: code(*command) for command in commands} == {command[0]: 3 for command in commands}
    replay = ("replay", "--handler", "builtins:print", "--topic", deployed.topic, "--group", deployed.group)
    text = deployed.config.read_text()
    assert f"sqlite:///{deployed.ledger}" in text
    away_url = environment["RECONCILER_LEDGER__URL"]
    deployed.config.write_text(text.replace(f"sqlite:///{deployed.ledger}", away_url))
    for service in (deployed.run("announcements"), deployed.run(*replay)):
        eventually(partial(has_waited, service), within_seconds=60)
        assert service.end() == 0
    assert code("doctor") == 1
    assert code("db", "upgrade", "ledger") == 3
    away = reconciler("db", "upgrade", "ledger", "--url", environment["RECONCILER_LEDGER__URL"])
    assert away.exit_code == 3


# ----------------------------------------------------------------- unsafe, missing


def test_doctor_names_each_missing_part_with_its_remedy(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    deployed = new_deployment()
    embedded_broker.configure({"rejectTransactionMessage": "true", "autoCreateSubscriptionGroup": "false"})
    empty = {name: tmp_path / f"{name}.db" for name in ("ledger", "outbox", "inbox")}
    for path in empty.values():
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE something_else (id INTEGER)")
    environment = {
        "RECONCILER_LEDGER__URL": f"sqlite:///{empty['ledger']}",
        "RECONCILER_PRODUCERS__0__OUTBOX_URL": f"sqlite:///{empty['outbox']}",
        "RECONCILER_SUBSCRIPTIONS__0__INBOX_URL": f"sqlite:///{empty['inbox']}",
        "RECONCILER_UNIQUE_KEY_TOPIC__QUEUES": "5",
        "RECONCILER_ROCKETMQ__PROBE_TOPIC": "NOT_THERE",
    }

    def run(*arguments: str) -> Ended:
        return reconciler(*arguments, "--config", deployed.config, environment=environment)

    checks = failed(run("doctor", "--output", "json"))
    wrong_queues = checks[f"topic {deployed.unique_key_topic}"]
    assert "expected 5" in wrong_queues["found"]
    assert wrong_queues["remedy"] == "run reconciler topics create"
    assert checks["topic NOT_THERE"]["found"] == "does not exist"
    assert "rejectTransactionMessage=true" in checks["broker embedded"]["found"]
    for name, tree in (
        ("ledger", "ledger"),
        (f"outbox of {deployed.producer_group}", "outbox"),
        (f"inbox of {deployed.topic}/{deployed.group}", "inbox"),
    ):
        assert checks[name]["found"] == "tables are missing"
        assert f"run reconciler db upgrade {tree}" in checks[name]["remedy"]
    # A ledger without tables is a matter of configuration, not of waiting.
    for command in (("status",), ("once",), ("run",), ("hold", deployed.topic)):
        ended = run(*command)
        assert ended.exit_code == 2
        assert "run reconciler db upgrade" in ended.stderr


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=marks("5.3.3"))])
def test_doctor_names_settings_of_a_real_broker_that_cannot_work(
    version: str, new_rocketmq_cluster: ClusterFactory, new_deployment: DeploymentFactory
) -> None:
    cluster = new_rocketmq_cluster(
        version, properties={"messageIndexEnable": "false", "rejectTransactionMessage": "true"}
    )
    deployed = new_deployment(name_servers=cluster.name_servers)
    eventually(lambda: route_is_known(deployed), within_seconds=60)
    ended = deployed.command("doctor", "--output", "json")
    assert ended.exit_code == 1
    findings: list[dict[str, Any]] = ended.document["findings"]
    failed = [f for f in findings if f["level"] == "fail"]
    (index,) = [f for f in failed if f["check"].startswith("index of ")]
    assert "no loss can be proved" in index["remedy"], "and what follows is seen, too"
    assert {f["found"]: f["remedy"] for f in failed if f is not index} == {
        "messageIndexEnable=false": "set it to true: nothing can be looked up",
        "rejectTransactionMessage=true": "set it to false: every half message is refused",
    }
    (broker,) = [f for f in findings if f["check"].startswith("broker ") and f["level"] == "ok"]
    assert "family 5.1+" in broker["found"]


def route_is_known(deployed: Deployment) -> bool:
    with patient_instance(deployed.name_servers) as instance:
        try:
            return bool(instance.routes.refresh(deployed.unique_key_topic).readable_queues)
        except TopicNotFound:
            return False


# ----------------------------------------------------------------- stopping


def test_ctrl_c_ends_a_command_with_130(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.command("hold", deployed.topic)
    deployed.consume()
    deployed.commit(1, lose=True)
    service = deployed.run("once", "--wait", "120")
    eventually(lambda: deployed.verdicts() != {}, within_seconds=60)
    assert service.end(signal.SIGINT) == 130
