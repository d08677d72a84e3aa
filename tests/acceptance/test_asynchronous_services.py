"""The whole path of services on asyncio: ENDs get lost, processes are killed, each rung repairs, the audit is clean."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.asynchronous_shop import CONFIG_VARIABLE, is_lost
from tests.acceptance.audited import LATE_SECONDS, audited
from tests.acceptance.deployment import Deployment, Service
from tests.polling import eventually
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import marks

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
RUNGS = ("end", "republish", "hand-over")
EMBEDDED = "embedded"


class Shop:
    """The two services of a deployment, and the product's own processes."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed
        self._stack = ExitStack()

    def service(self, act: str, *number: int) -> subprocess.Popen[bytes]:
        """One of them, which is killed at the end."""
        log = self._stack.enter_context((self.deployed.folder / f"{act}.log").open("ab"))
        words = [sys.executable, "-m", "tests.acceptance.asynchronous_shop", act, str(self.deployed.config)]
        started = subprocess.Popen(
            [*words, *map(str, number)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
        )
        self._stack.callback(started.wait)
        self._stack.callback(started.kill)
        return started

    def run(self, rung: str) -> list[Service]:
        """What finds and repairs, by this rung alone."""
        config = self.deployed.config
        lines = [line for line in config.read_text().splitlines() if not line.startswith("repair_order")]
        lines.insert(lines.index("[[subscriptions]]") + 1, f'repair_order = ["{rung}"]')
        config.write_text("\n".join(lines))
        started = [self.deployed.run("run"), self.deployed.run("sweep")]
        if rung == "hand-over":
            handler = ("--handler", f"{__package__}.asynchronous_shop:bill")
            where = ("--topic", self.deployed.topic, "--group", self.deployed.group)
            started.append(self.deployed.run("replay", *handler, *where, variables={CONFIG_VARIABLE: str(config)}))
        return started

    def orders(self) -> list[str]:
        """Keys that were committed."""
        return self.deployed.select(self.deployed.outbox_url, "SELECT unique_key FROM orders ORDER BY unique_key")

    def repairs(self) -> dict[str, tuple[str, str]]:
        """Key -> rung and state of its repair."""
        sql = "SELECT unique_key || ' ' || rung || ' ' || state FROM reconciler_repair"
        found = (row.split() for row in self.deployed.select(self.deployed.ledger_url, sql))
        return {key: (rung, state) for key, rung, state in found}

    def waits_for(self, orders: int) -> None:
        """Until so many are committed."""
        eventually(lambda: len(self.orders()) >= orders, within_seconds=120, message=f"{orders} orders")

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer) -> Iterator[Shop]:
    """On a fresh database for both services, at an embedded or a real broker."""
    database, broker = request.param
    url = request.getfixturevalue(f"{database}_server").create_database()
    if broker == EMBEDDED:
        name_servers = request.getfixturevalue("embedded_broker").name_servers
    else:
        name_servers = request.getfixturevalue("shared_clusters").get(broker).name_servers
    with Deployment(
        tmp_path / "deployed",
        redis_url=redis_server.url,
        name_servers=name_servers,
        subscription=f"late_after_seconds = {LATE_SECONDS}",
        outbox_url=url,
        inbox_url=url,
    ) as deployed:
        made = Shop(deployed)
        yield made
        made.close()


def way(database: str, broker: str, orders: int, *more: pytest.MarkDecorator) -> ParameterSet:
    """The smallest one is CI's."""
    needed = [pytest.mark.sql(database), *(marks(broker) if broker != EMBEDDED else ()), *more]
    return pytest.param((database, broker), orders, marks=needed, id=f"{database}-{broker}-{orders}")


@pytest.mark.parametrize(
    ("shop", "orders"),
    [
        way("postgres", EMBEDDED, 90),
        *(
            way(database, broker, 1_000, pytest.mark.nightly)
            for database in ("postgres", "mariadb")
            for broker in (EMBEDDED, "5.3.3")
        ),
    ],
    indirect=["shop"],
)
def test_nothing_is_lost_or_doubled_though_ends_get_lost_and_every_process_is_killed(shop: Shop, orders: int) -> None:
    receiver = shop.service("receive")
    for number, rung in enumerate(RUNGS):
        receiver = repaired_by(rung, shop, receiver, until=orders * (number + 1) // len(RUNGS))
    committed = shop.orders()
    assert len(committed) >= orders
    assert audited(shop.deployed)["classes"]["REPAIRED"] == len(shop.repairs())


def repaired_by(rung: str, shop: Shop, receiver: subprocess.Popen[bytes], *, until: int) -> subprocess.Popen[bytes]:
    """Commits until there are so many; meanwhile each process is killed once. Returns the receiver that lives."""
    before = shop.orders()
    more = until - len(before)
    run, *others = shop.run(rung)
    sender = shop.service("send", more)
    shop.waits_for(len(before) + more // 3)
    run.end(signal.SIGKILL)
    run = shop.deployed.run("run")
    shop.waits_for(len(before) + more * 2 // 3)
    for killed in (sender, receiver):
        killed.kill()
        assert killed.wait(60) == -signal.SIGKILL
    receiver = shop.service("receive")
    sender = shop.service("send", until - len(shop.orders()))
    assert sender.wait(300) == 0
    committed = shop.orders()
    eventually(lambda: shop.deployed.effects() == committed, within_seconds=240, message=f"repairs by {rung}")
    of_rung = set(committed) - set(before)
    lost = {key for key in of_rung if is_lost(key)}
    assert lost

    def is_repaired() -> bool:
        """What the killed sender left may have needed a repair, or a check-back has told it."""
        found = {key: found for key, found in shop.repairs().items() if key in of_rung}
        return lost <= found.keys() and set(found.values()) == {(rung, "DONE")}

    eventually(is_repaired, within_seconds=120, message=f"repairs by {rung} are done")
    assert [service.end() for service in (run, *others)] == [0] * (1 + len(others))
    return receiver
