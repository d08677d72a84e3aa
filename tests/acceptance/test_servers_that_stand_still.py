"""A server stands still under a running reconciler, the kernel answers for it, and it goes on later.

Nobody but its own keys waits, and what was given up meanwhile is executed once at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from reconciler.sql import schema
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.postgres import PostgresServer, missing
from tests.services.redis_server import RedisServer
from tests.services.requirements import require

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.sql("postgres"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

VARIABLES = {"RECONCILER_ROUNDS__STATEMENT_SECONDS": "2"}


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    require(missing())
    with PostgresServer() as server:
        yield server


def add_outbox(deployed: Deployment, url: str) -> None:
    """A second outbox of the producer group."""
    schema.upgrade(url, "outbox")
    before = f'"sqlite:///{deployed.outbox}"'
    text = deployed.config.read_text()
    deployed.config.write_text(text.replace(f"outbox_url = {before}", f'outbox_url = [{before}, "{url}"]'))


def test_losses_of_a_healthy_outbox_are_repaired_while_its_sibling_stands_still(
    postgres: PostgresServer, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment()
    add_outbox(deployed, postgres.create_database())
    deployed.consume()
    producer = deployed.producer()
    run = deployed.run("run", variables=VARIABLES)
    sweep = deployed.run("sweep", variables=VARIABLES)
    lost = deployed.commit(2, lose=True, producer=producer)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=90, message="both answer: repaired")
    postgres.freeze()
    lost += deployed.commit(2, lose=True, producer=producer)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=90, message="one stands still: repaired")
    eventually(
        lambda: (
            Deployment.rows(deployed.outbox, "SELECT count(*) FROM reconciler_outbox WHERE state = 'SETTLED'") == [4]
        ),
        within_seconds=90,
        message="the sweeps of the healthy outbox go on",
    )
    status = deployed.command("status", "--output", "json")
    assert status.exit_code == 3, "what the outbox has is not accounted for"
    assert "(2 of 2)" in status.stdout
    doctor = deployed.command("doctor", "--output", "json")
    assert doctor.exit_code == 1
    assert "(2 of 2)" in doctor.stdout
    postgres.thaw()
    lost += deployed.commit(1, lose=True, producer=producer)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=90)
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    assert deployed.copies() == Counter(lost)
    assert run.end() == 0
    assert sweep.end() == 0


@pytest.mark.parametrize("server", ["ledger", "redis", "broker"])
def test_nothing_that_was_given_up_is_executed_twice_when_a_server_goes_on(
    server: str,
    postgres: PostgresServer,
    new_deployment: DeploymentFactory,
    redis_server: RedisServer,
    embedded_broker: EmbeddedBroker,
) -> None:
    deployed = new_deployment(ledger_url=postgres.create_database() if server == "ledger" else None)
    servers: dict[str, PostgresServer | RedisServer | EmbeddedBroker] = {
        "ledger": postgres,
        "redis": redis_server,
        "broker": embedded_broker,
    }
    standing = servers[server]
    deployed.consume()
    producer = deployed.producer()
    lost = deployed.commit(60, lose=True, producer=producer)
    run = deployed.run("run", variables=VARIABLES)
    deployed.run("sweep", variables=VARIABLES)
    eventually(lambda: len(deployed.effects()) > 0, within_seconds=90, message="repairs are under way")
    standing.freeze()
    eventually(lambda: "turn_skipped" in run.output or "outage_opened" in run.output or "no answer" in run.output,
               within_seconds=90, message=f"{server} is missed")  # fmt: skip
    standing.thaw()
    lost += deployed.commit(2, lose=True, producer=producer)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=180, message="every effect, once")
    assert deployed.copies() == Counter(lost)
    assert run.end() == 0
