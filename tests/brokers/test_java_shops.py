"""Shops of stock Java clients, on each release: of 400 transactions the scan names those that are stuck, and each
committed message has one bill, those of producers that died by us, those of living ones by their broker's question."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Service
from tests.brokers.addresses import REAL
from tests.brokers.java_service import CLIENTS, SECONDS, JavaService, Try, names
from tests.brokers.query_shop import make_orders, settings, with_effect_query
from tests.chaos.proxy import Proxy
from tests.polling import eventually
from tests.services.fixtures import SharedClusters
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import QUICK, RocketMQCluster, marks
from tests.services.topics import create_topic, topic_name

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: So many questions that nothing is given up while a test is under way.
ASKS_ON = {"transactionCheckMax": "1000"}
GIVES_UP = {"transactionCheckMax": "1"}
#: When a broker asks, ms: never while ENDs are under way, because an answer besides delivers once more.
NEVER, SOON = {"transactionTimeOut": "86400000"}, {"transactionTimeOut": "1000"}


def tries(kind: str, how: str, count: int) -> list[Try]:
    return [(f"{kind}-{number}", f"{kind}-{number}", how) for number in range(count)]


def first_tries(numbers: Iterable[int]) -> list[Try]:
    return [(f"first-{number}", f"twice-{number}", "abandoned") for number in numbers]


def second_tries(numbers: Iterable[int]) -> list[Try]:
    return [(f"second-{number}", f"twice-{number}", "paid") for number in numbers]


PAID, CANCELLED, FAILED = tries("paid", "paid", 320), tries("cancelled", "cancelled", 10), tries("failed", "failed", 10)
#: Their ENDs are lost on their way, or their process is killed before it sends them.
CUT_OFF, KILLED = tries("cut", "paid", 20), tries("dies", "dies", 20)
LIVING = tries("asked", "asked", 10)
#: The order of a try, of which alone the table of bills has the name.
ORDER_OF_A_BILL = "replace(replace(name, 'first-', 'twice-'), 'second-', 'twice-')"


class JavaShop:
    """Stock services around one broker, which producers reach through proxies where their ENDs are to be lost."""

    def __init__(self, cluster: RocketMQCluster, folder: Path, stack: ExitStack) -> None:
        self.cluster, self.folder, self._stack = cluster, folder, stack
        self.topic = create_topic(
            cluster.broker().port, topic_name("java_shop"), name_server_port=cluster.name_server.port
        )
        self.keys: dict[str, str] = {}
        make_orders(folder, ())
        with closing(sqlite3.connect(folder / "bills.db")) as bills, bills:
            bills.execute("PRAGMA journal_mode = WAL")  # who looks keeps nobody from writing
            bills.execute("CREATE TABLE bills (name TEXT)")
        self.biller = self.service("bill")

    def service(self, kind: str, name_servers: str | None = None) -> JavaService:
        version = CLIENTS[self.cluster.version]
        one = JavaService(kind, name_servers or self.cluster.name_servers, self.topic, self.folder, version=version)
        self._stack.callback(one.kill)
        return one

    def billed(self) -> Counter[str]:
        assert self.biller.process.poll() is None
        with closing(sqlite3.connect(self.folder / "bills.db")) as bills:
            return Counter(name for (name,) in bills.execute("SELECT name FROM bills"))

    def until_billed(self, wanted: set[str]) -> None:
        eventually(lambda: wanted <= self.billed().keys(), within_seconds=SECONDS, message="bills")

    def ends_on_their_way_are_lost(self) -> None:
        """The first producer: of all its last orders no END arrives, nor an answer to a question, and it is killed."""
        broker = Proxy(self.cluster.broker().port)
        ports = {self.cluster.broker().port: broker.port}
        name_server = Proxy(self.cluster.name_server.port, addresses=ports)
        for proxy in (broker, name_server):
            self._stack.callback(proxy.close)
        producer = self.service("sell", f"127.0.0.1:{name_server.port}")
        producer.sell([*first_tries(range(5)), *CANCELLED, *FAILED])
        producer.sell([*PAID, *second_tries(range(5))])
        self.until_billed(names(PAID) | names(second_tries(range(5))))
        self.cluster.broker().update_config(**SOON)
        broker.lose_end = 1.0
        producer.sell(CUT_OFF)
        self.keys |= producer.keys()
        eventually(
            lambda: names(CUT_OFF) <= {self.keys.get(key, "") for key in broker.lost_ends}, within_seconds=SECONDS
        )
        producer.kill()

    def a_process_dies_before_it_sends_them(self) -> None:
        self.cluster.broker().update_config(**NEVER)
        producer = self.service("sell")
        producer.sell(first_tries(range(5, 10)))
        producer.sell(second_tries(range(5, 10)))
        self.until_billed(names(second_tries(range(5, 10))))
        producer.sell(KILLED, until="committed")
        producer.kill()
        self.cluster.broker().update_config(**SOON)
        self.keys |= producer.keys()

    def stuck(self, *options: str) -> dict[str, set[str]]:
        """State -> tries, as `scan` has them; without those whose END came behind the broker's question."""
        arguments = ("--name-servers", self.cluster.name_servers, "--topic", self.topic, "--output", "json")
        ended = reconciler("scan", *arguments, "--older-than", "0", *options)
        assert ended.exit_code in (0, 1), ended.stdout + ended.stderr
        found: dict[str, set[str]] = {}
        for half in ended.document["halves"]:
            if half["state"] not in ("delivered", "ended", "given-up-delivered"):
                found.setdefault(half["state"], set()).add(self.keys[half["unique_key"]])
        return found

    def repairs(self) -> dict[str, tuple[str, int]]:
        """Try -> state and attempts."""
        with closing(sqlite3.connect(self.folder / "ledger.db")) as ledger:
            rows = ledger.execute("SELECT unique_key, state, attempts FROM reconciler_repair").fetchall()
        return {self.keys[key]: (state, attempts) for key, state, attempts in rows}

    def verdicts(self) -> dict[str, set[str]]:
        with closing(sqlite3.connect(self.folder / "ledger.db")) as ledger:
            rows = ledger.execute("SELECT unique_key, verdict FROM reconciler_candidate").fetchall()
        found: dict[str, set[str]] = {}
        for key, verdict in rows:
            found.setdefault(verdict, set()).add(self.keys[key])
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def cluster(request: pytest.FixtureRequest, shared_clusters: SharedClusters) -> Iterator[RocketMQCluster]:
    """The shared cluster of a version; its broker asks others' producers as before once the test is over."""
    shared = shared_clusters.get(request.param)
    shared.broker().update_config(**ASKS_ON, **NEVER)
    yield shared
    shared.broker().update_config(**{name: QUICK[name] for name in (*ASKS_ON, *NEVER)})


def of(version: str) -> ParameterSet:
    by_night = () if version == REAL else (pytest.mark.nightly,)
    return pytest.param(version, marks=[*marks(version), *by_night])


@pytest.mark.parametrize("cluster", [of(version) for version in CLIENTS if version != "4.2.0"], indirect=True)
@pytest.mark.parametrize(
    "over",
    ["DELIVERED", pytest.param("CONSUMED", marks=pytest.mark.nightly)],
    ids=["by the offset", "by an effect query"],
)
def test_of_400_transactions_each_committed_one_is_billed_once_and_no_other(
    cluster: RocketMQCluster,
    over: str,
    redis_server: RedisServer,
    tmp_path: Path,
    stack: ExitStack,
    services: list[Service],
) -> None:
    shop = JavaShop(cluster, tmp_path, stack)
    shop.ends_on_their_way_are_lost()
    given_up = names(CUT_OFF) | names(first_tries(range(5)))
    stuck = {"open": given_up}
    eventually(lambda: shop.stuck() == stuck, within_seconds=SECONDS, message="stuck ones")
    if cluster.version != "4.4.0":  # it keeps no list of what it has given up
        shop.cluster.broker().update_config(**GIVES_UP)
        eventually(lambda: shop.stuck() == {"given-up": given_up}, within_seconds=SECONDS, message="given up")
        shop.cluster.broker().update_config(**ASKS_ON)
        stuck = {"given-up": given_up}
    shop.a_process_dies_before_it_sends_them()
    stuck["open"] = stuck.get("open", set()) | names(KILLED) | names(first_tries(range(5, 10)))
    eventually(lambda: shop.stuck() == stuck, within_seconds=SECONDS, message="stuck ones")

    by_query = with_effect_query(tmp_path, shop.topic, number=ORDER_OF_A_BILL) if over == "CONSUMED" else ""
    config = settings(
        tmp_path,
        name_servers=shop.cluster.name_servers,
        topic=shop.topic,
        redis_url=redis_server.url,
        repairs=f'repairs.topics."{shop.topic}" = true',
        of_subscription=f"consumers_are_idempotent = true\n{by_query}",
    )
    accepted = reconciler("query", "accept", shop.topic, "--config", str(config), "--reason", "some are tried twice")
    assert accepted.exit_code == 0, accepted.stdout
    services.append(Service(tmp_path / "run.log", ["run", "--config", str(config)]))
    lost = names(CUT_OFF) | names(KILLED)
    delivered = names(PAID) | names(second_tries(range(10)))
    shop.until_billed(delivered | lost)
    assert shop.billed() == Counter(delivered | lost), "once each, and nothing else"
    living = shop.service("sell")
    living.sell(LIVING)
    shop.keys |= living.keys()
    shop.until_billed(names(LIVING))

    def is_settled() -> bool:
        assert services[0].process.poll() is None, services[0].output[-3000:]
        repairs, verdicts = shop.repairs(), shop.verdicts()
        assert {one: repairs[one] for one in lost if repairs[one][0] != "DONE"} == {}
        assert verdicts[over] == delivered | lost | names(LIVING), verdicts
        assert verdicts["REJECTED"] == names(CANCELLED) | names(FAILED), verdicts
        assert verdicts["UNKNOWN"] == names(first_tries(range(10))), verdicts
        return True

    eventually(is_settled, within_seconds=SECONDS)
    # An answer that comes late delivers once more, which is the living producer's affair.
    assert shop.billed().keys() == delivered | lost | names(LIVING), "nothing else"
    sent = {one: attempts for one, (_, attempts) in shop.repairs().items() if attempts}
    assert sent == dict.fromkeys(lost, 1), "none of those that living producers answered for"


@pytest.mark.parametrize("cluster", [of("4.2.0")], indirect=True)
def test_a_walk_names_exactly_those_that_are_stuck_where_brokers_keep_no_list_of_halves(
    cluster: RocketMQCluster, tmp_path: Path, stack: ExitStack
) -> None:
    shop = JavaShop(cluster, tmp_path, stack)
    shop.ends_on_their_way_are_lost()
    shop.a_process_dies_before_it_sends_them()
    stuck = names(CUT_OFF) | names(KILLED) | names(first_tries(range(10)))
    eventually(lambda: shop.stuck("--walk") == {"open": stuck}, within_seconds=SECONDS, message="stuck ones")
