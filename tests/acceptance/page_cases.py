"""For each tutorial and how-to page, the test that runs it: a case makes what the page says that its reader has."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from checkback_consumers import transactional_handler
from reconciler.rocketmq.wire.message import Message
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.acceptance.framework_shop import FrameworkShop
from tests.acceptance.page_worlds import PageDeployment
from tests.acceptance.warm_commands import warm_command
from tests.brokers.jars import client_jars, jdbc_jars
from tests.page_blocks import DOCS
from tests.pages import Beginning, PostgresDatabase, SqliteDatabase, run_page, run_steps, shell_of, steps_here
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import SharedClusters
from tests.services.ports import free_port
from tests.services.requirements import auditor_tools_missing, downloaded, require
from tests.services.rocketmq import QUICK, RocketMQCluster
from tests.unit.testing.inner_pytest import run_python

ROOT = Path(__file__).parents[2]
#: Tests of this release run anyway.
REAL = "5.3.3"


class World:
    """Makes what the reader of a page has; all of it ends with the test."""

    def __init__(self, stack: ExitStack, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder = folder
        self._stack = stack
        self._request = request

    def deployment(self, **options: Any) -> PageDeployment:
        """On an embedded broker of its own."""
        broker: EmbeddedBroker = self._request.getfixturevalue("embedded_broker")
        made = PageDeployment(self.folder, name_servers=broker.name_servers, **options)
        return self._stack.enter_context(made)

    def repository(self, written: str, *, broker_port: int) -> Beginning:
        """A copy of this repository, where `make demo` has run; the folder that the page writes is another one."""
        copy = self.folder / "repository"
        programs = copy / ".venv" / "bin"
        programs.mkdir(parents=True)
        (copy / "docs").symlink_to(ROOT / "docs")
        for entry in Path(sys.prefix).iterdir():
            if entry.name != "bin":
                (copy / ".venv" / entry.name).symlink_to(entry)
        for program in Path(sys.executable).parent.iterdir():
            (programs / program.name).symlink_to(program)
        (programs / "reconciler").unlink()
        (programs / "reconciler").symlink_to(warm_command())
        here = {written: str(self.folder / "tutorial"), "9876": str(broker_port), "6379": str(free_port())}
        return Beginning(folder=copy, here=here)

    def real_cluster(self) -> RocketMQCluster:
        """One that tests of the worker share."""
        shared: SharedClusters = self._request.getfixturevalue("shared_clusters")
        return shared.get(REAL)

    def postgres_url(self) -> str:
        """A fresh database."""
        return str(self._request.getfixturevalue("postgres_url"))


Case = Callable[[str, World], None]


def shadow_mode(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.consume()
    deployed.place(1)
    deployed.place(2, lose=True)
    run_page(page, deployed.beginning())
    assert deployed.effects() == sorted(deployed.keys.values())


def new_group(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.consume()
    deployed.place(1)
    deployed.start("reconciler", "reconciler-sweep")
    deployed.group = "shipping"
    for login in ("owner", "inbox"):
        deployed.secret(f"shipping_{login}_url", f"sqlite:///{deployed.inbox}")

    def start() -> None:
        SqliteDatabase(deployed.inbox).execute("CREATE TABLE effects (unique_key TEXT, applied_at_ms INTEGER)", {})
        deployed.consume()

    run_page(page, deployed.beginning(the_service_starts=start, an_order_comes=lambda: deployed.place(2)))
    assert deployed.effects() == sorted(deployed.keys.values())


def other_shards(page: str, world: World) -> None:
    require(auditor_tools_missing())
    deployed = world.deployment()
    deployed.consume()
    deployed.place(1)
    deployed.start("reconciler", "reconciler-sweep")

    def begin_again() -> None:
        deployed.shards = 8
        deployed.consume()
        deployed.place(2)

    beginning = deployed.beginning(
        sending_services_stop=deployed.stop_sending,
        receiving_services_stop=deployed.stop_services,
        services_start_with_8_shards=begin_again,
    )
    run_page(page, beginning)
    assert deployed.effects() == sorted(deployed.keys.values())


def restored_ledger(page: str, world: World) -> None:
    deployed = world.deployment(ledger_url=world.postgres_url())
    deployed.consume()
    deployed.place(1)
    deployed.start("reconciler", "reconciler-sweep")
    deployed.secret("ledger_owner_url", deployed.ledger_url)

    def repaired() -> None:
        deployed.place(2, lose=True)
        eventually(lambda: deployed.effects() == sorted(deployed.keys.values()), within_seconds=90)

    run_page(page, deployed.beginning(a_message_is_repaired=repaired))
    assert set(deployed.copies().values()) == {1}
    assert deployed.effects() == sorted(deployed.keys.values())


def purged(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.secret("shipping_inbox_url", f"sqlite:///{deployed.inbox}")
    inbox, outbox = SqliteDatabase(deployed.inbox), SqliteDatabase(deployed.outbox)
    for key, at_ms in (("00" * 16, 1_600_000_000_000), ("01" * 16, 1_800_000_000_000)):
        values: dict[str, int | str] = {"key": key, "at_ms": at_ms}
        inbox.execute(
            "INSERT INTO reconciler_inbox (consumer_group, unique_key, topic, source, applied_at_ms) "
            "VALUES ('shipping', :key, 'ORDERS', 'consumer', :at_ms)",
            values,
        )
        outbox.execute(
            "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms, announced_at_ms) "
            "VALUES (:key, 'ORDERS', 'order-service', 'ANNOUNCED', :at_ms, :at_ms)",
            values,
        )
    kept = {
        f"reconciler:v1:{{production:ORDERS:{rest}"
        for rest in ("billing:0}:half", "billing}:meta", "shipping2:0}:half")
    }
    gone = {
        f"reconciler:v1:{{{rest}" for rest in ("production:ORDERS:shipping:3}:half", "production:ORDERS:shipping}:meta")
    }
    gone |= {"reconciler:v1:{staging:ORDERS:billing:0}:half", "reconciler:v1:{staging:use}:identity"}
    with redis.Redis.from_url(deployed.redis_url, decode_responses=True) as client:
        client.mset(dict.fromkeys(kept | gone, "1"))
        run_page(page, deployed.beginning())
        assert set(client.keys()) == kept
    for path, table in ((deployed.inbox, "reconciler_inbox"), (deployed.outbox, "reconciler_outbox")):
        assert deployed.rows(path, f"SELECT unique_key FROM {table}") == ["01" * 16]


def rotated_keys(page: str, world: World) -> None:
    deployed = world.deployment(has_marked_secrets=True)
    deployed.consume()
    deployed.place(1)
    with redis.Redis.from_url(deployed.redis_url) as client:
        client.execute_command("ACL", "SETUSER", "reconciler", "on", ">old-password", "~*", "&*", "+@all")
    deployed.secret("redis", f"redis://reconciler:old-password@127.0.0.1:{deployed.redis_port}/0\n")
    deployed.secret("alice", "a password of thirteen words or so\n")
    deployed.config.write_text(f'{deployed.config.read_text()}\n[web]\nusers_file = "{deployed.folder}/users.json"\n')
    assert deployed.command("web", "token", "add", "nightly-check", "--role", "viewer", "--days", "90").exit_code == 0
    database = PostgresDatabase(world.postgres_url())
    database.execute("DROP ROLE IF EXISTS reconciler_run", {})
    database.execute("CREATE ROLE reconciler_run LOGIN", {})
    deployed.start("reconciler", "reconciler-sweep")

    def is_read_again(times: int) -> bool:
        deployed.place(len(deployed.keys) + 1)
        return deployed.log("reconciler").count("unique_key_topic.signature_secret") >= times

    def sign_with_the_new_one() -> None:
        eventually(lambda: is_read_again(2), within_seconds=60)
        deployed.sign_with(deployed.file_of("signature_secret").read_text().split()[0])

    beginning = deployed.beginning(
        a_second_passes=lambda: eventually(lambda: is_read_again(1), within_seconds=60),
        senders_sign_with_the_new_one=sign_with_the_new_one,
        an_order_comes=lambda: deployed.place(len(deployed.keys) + 1),
    )
    beginning.databases["postgresql"] = database
    run_page(page, beginning)
    eventually(lambda: deployed.effects() == sorted(deployed.keys.values()), within_seconds=60)
    assert not deployed.rows(deployed.ledger, "SELECT reason FROM reconciler_quarantine")


def recovered(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.consume()
    deployed.place(1)
    deployed.secret("ledger_owner_url", deployed.ledger_url)
    deployed.start("reconciler", "reconciler-sweep")
    deployed.until_well()

    def lose_redis(*, memory: bool) -> None:
        deployed.do("kill", "redis-server")
        if memory:
            shutil.rmtree(deployed.redis_data)
            deployed.redis_data.mkdir()
            deployed.do("start", "redis-server")
        else:
            deployed.wait_for_outage()

    def repaired() -> None:
        deployed.place(2, lose=True)
        eventually(lambda: deployed.effects() == sorted(deployed.keys.values()), within_seconds=90)

    run_page(
        page,
        deployed.beginning(
            redis_is_away=lambda: lose_redis(memory=False),
            redis_lost_its_memory=lambda: lose_redis(memory=True),
            a_message_was_repaired=repaired,
            the_ledger_is_gone=deployed.ledger.unlink,
            all_is_down=lambda: deployed.do("stop", "reconciler", "reconciler-sweep", "redis-server"),
        ),
    )
    assert set(deployed.copies().values()) == {1}
    assert deployed.effects() == sorted(deployed.keys.values())


def upgraded(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.consume()
    deployed.place(1)
    for name, path in (("orders", deployed.outbox), ("billing", deployed.inbox), ("ledger", deployed.ledger)):
        deployed.secret(f"{name}_owner_url", f"sqlite:///{path}")
    deployed.start("reconciler", "reconciler-sweep")
    run_page(page, deployed.beginning())


def frameworks(page: str, world: World) -> None:
    deployed = world.deployment()
    shop = FrameworkShop(deployed, world.postgres_url())
    with shop:
        run_page(page, shop.beginning())
        shop.try_the_rest()


def on_asyncio(page: str, world: World) -> None:
    shop = FrameworkShop(world.deployment(), world.postgres_url())
    with shop:
        run_page(page, shop.on_asyncio())
        shop.try_asyncio()


def whole_service(page: str, world: World) -> None:
    """An application of docs/examples in this environment: its tests, its migration, and one order by its processes."""
    url = world.postgres_url().replace("+psycopg", "")
    (world.folder / "checkback-reconciler").symlink_to(ROOT)
    beginning = world.deployment(shards=16).beginning()
    beginning.folder = world.folder
    beginning.here = {**beginning.here, **ports_of_services(), "postgresql://127.0.0.1/orders": url}
    run_page(page, beginning)
    assert_billed(url, orders=1)


def ports_of_services() -> dict[str, str]:
    """As their pages write them -> those that are free."""
    return {written: str(free_port()) for written in ("8000", "9081", "9082", "9091")}


def assert_billed(url: str, *, orders: int, tables: tuple[str, str] = ("orders", "bills")) -> None:
    """Each order is billed once."""
    with psycopg.connect(url) as connection:
        placed, bills = (sorted(connection.execute(f"SELECT number FROM {table}").fetchall()) for table in tables)
    assert placed == bills
    assert len(bills) == orders


def tried(service: str, world: World, *, by_night: bool = False, here: Mapping[str, str] | None = None) -> None:
    """The page of trials, with a service's page in its second shell. By night the service has an environment with what
    its requirements name, and a wheel of this tree; else the packages of this environment. `here`: what stands in the
    place of other words of both pages."""
    url = world.postgres_url().replace("+psycopg", "")
    (world.folder / "checkback-reconciler").symlink_to(ROOT)
    first = world.repository("/tmp/try", broker_port=free_port(neighbours=(-2,)))
    first.here = {**(here or {}), **first.here, **ports_of_services(), "postgresql://127.0.0.1/orders": url}
    second = Beginning(folder=world.folder, here=first.here)
    steps = steps_here(service, second, by_night=by_night)
    end = next(place for place, (block, _) in enumerate(steps) if "kill $(jobs -p)" in block.text)
    with shell_of(second, by_night=by_night) as shell:
        first.shells = {"the second shell": shell}
        first.given = {
            "a_service_has_billed_an_order": lambda: run_steps(steps[:end], shell, second),
            "the_service_has_ended": lambda: run_steps(steps[end:], shell, second),
        }
        run_page("how-to/try-a-service.md", first)
    tables = ("shop_order", "shop_bill") if service == "how-to/django.md" else ("orders", "bills")
    assert_billed(url, orders=2, tables=tables)


def without_processes(page: str, world: World) -> None:
    """What the service does, by its tests with the kit: its processes run by night alone."""
    (world.folder / "checkback-reconciler").symlink_to(ROOT)
    run_page(page, Beginning(folder=world.folder))


def without_celery(page: str, world: World) -> None:
    """Celery, which would bring an older package than the locks have, is there by night alone."""
    without_processes(page, world)
    ended = run_python("-m", "pytest", "-q", "test_orders.py", folder=world.folder / "celery_shop")
    assert "5 passed" in ended.stdout, ended.stdout + ended.stderr


def console(page: str, world: World) -> None:
    deployed = world.deployment()
    deployed.secret("alice", "a password of thirteen words or so\n")
    run_page(page, deployed.beginning())


def history(page: str, world: World) -> None:
    run_page(page, world.deployment().beginning())


def notifications(page: str, world: World) -> None:
    deployed = world.deployment()
    for name in sorted(set(re.findall(r"/run/secrets/([\w-]+)", (DOCS / page).read_text(encoding="utf-8")))):
        deployed.secret(name, "https://hooks.example/robot" if name.endswith("-url") else "for-tests-only")
    run_page(page, deployed.beginning())


def other_languages(page: str, world: World) -> None:
    url = world.postgres_url()
    for tree in ("outbox", "inbox"):
        schema.upgrade(url, tree)
    here = {"9876": str(free_port(neighbours=(-2,)))}
    run_page(page, Beginning(folder=world.folder, here=here, databases={"postgresql": PostgresDatabase(url)}))


def _nothing(message: object, connection: object) -> None:
    """What your handler does."""


def receiving(page: str, world: World) -> None:
    stopped = threading.Event()
    stopped.set()
    url = f"sqlite:///{world.folder}/ledger.db"
    schema.upgrade(url, "ledger")
    database = open_engine(url)
    names: dict[str, Any] = {
        "database": database,
        "recorder": None,
        "engines": {},
        "ledger_url": url,
        "stop_event": stopped,
        "bill": transactional_handler(database, group="billing", topics="ORDERS")(_nothing),
    }
    run_page(page, Beginning(folder=world.folder, names=names))
    database.dispose()


def scanned(page: str, world: World) -> None:
    run_page(page, world.deployment().beginning())


def judged_by_a_query(page: str, world: World) -> None:
    deployed = world.deployment()

    def announce_alone() -> None:
        before, _, rest = deployed.config.read_text().partition("[[producers]]")
        deployed.config.write_text(f"{before}[[subscriptions]]{rest.partition('[[subscriptions]]')[2]}")

    run_page(page, deployed.beginning(services_without_an_outbox=announce_alone))


def moved_to_an_outbox(page: str, world: World) -> None:
    """Its steps are those of tests/acceptance/test_moving_service.py; here its settings are."""
    deployed = world.deployment()
    before, _, rest = deployed.config.read_text().partition("[[producers]]")
    others = "".join(re.findall(r"^\[(?!\[)[^[]*", rest, re.MULTILINE))

    def without_sections() -> None:
        deployed.config.write_text(before + others)

    run_page(page, deployed.beginning(no_section_yet=without_sections))


def security(page: str, world: World) -> None:
    require(auditor_tools_missing())
    deployed = world.deployment()
    deployed.secret("rocketmq", "for-tests-only\n")
    deployed.secret("orders_url", f"sqlite:///{deployed.outbox}\n")
    Authority(deployed.folder)

    database = open_engine(f"sqlite:///{deployed.inbox}")
    handle = transactional_handler(database, group="billing", topics="ORDERS")(_nothing)
    run_page(page, deployed.beginning(names={"handle": handle}))
    database.dispose()


def sending(page: str, world: World) -> None:
    deployed = world.deployment()
    database = open_engine(f"sqlite:///{deployed.outbox}")
    names = {"producer": deployed.producer(), "database": database, "message": Message(topic="ORDERS", body=b"7")}
    run_page(page, deployed.beginning(names=names))
    database.dispose()
    assert deployed.rows(deployed.outbox, "SELECT business_id FROM reconciler_outbox") == ["order-7"]


def own_tests(page: str, world: World) -> None:
    """What it writes is run by tests/unit/testing/test_documented_use.py."""
    run_page(page, Beginning(folder=world.folder))


#: A broker of the tests is in a hurry; this is how brokers come.
AS_BROKERS_COME = {"transactionCheckInterval": "60000", "transactionTimeOut": "6000", "transactionCheckMax": "15"}


def as_narrow_as_a_page(beginning: Beginning) -> Beginning:
    """Commands print records in place of tables that a page would cut at its edge."""
    beginning.variables = {**beginning.variables, "COLUMNS": "100"}
    return beginning


def real_broker(page: str, world: World) -> None:
    cluster = world.real_cluster()
    broker = cluster.broker()
    broker.update_config(**AS_BROKERS_COME)
    try:
        run_page(page, as_narrow_as_a_page(world.repository("/tmp/real-broker", broker_port=cluster.name_server.port)))
    finally:
        broker.update_config(**QUICK)
    assert not (world.folder / "tutorial").exists()


#: It asks ten times as often as brokers do, and gives nothing up before a slow machine comes to the end of the page.
ASKING_ON = {"transactionCheckInterval": "3000", "transactionTimeOut": "6000", "transactionCheckMax": "1000"}


def java_shop(page: str, world: World) -> None:
    cluster = world.real_cluster()
    jars = [downloaded(lambda: client_jars(REAL)), downloaded(jdbc_jars)]
    repository = world.repository("/tmp/java-shop", broker_port=cluster.name_server.port)
    folder = world.folder / "tutorial"
    folder.mkdir()
    variables = {
        "PATH": f"{repository.folder}/.venv/bin:{os.environ['PATH']}",
        "CLASSPATH": os.pathsep.join(f"{folder}/*" for folder in jars),
        "JDK_JAVA_OPTIONS": f"-Duser.home={folder} -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "OLDPWD": str(world.folder),
        "COLUMNS": "120",
    }
    #: Other tests have their own in the cluster.
    names = {"ORDERS": "SHOP", "order-service": "shop-orders", "billing": "shop-billing"}
    broker = cluster.broker()
    broker.update_config(**ASKING_ON)
    try:
        run_page(page, replace(repository, folder=folder, here={**repository.here, **names}, variables=variables))
    finally:
        broker.update_config(**QUICK)
    assert not folder.exists()


def first_loss(page: str, world: World) -> None:
    run_page(page, as_narrow_as_a_page(world.repository("/tmp/tutorial", broker_port=free_port(neighbours=(-2,)))))
    assert not (world.folder / "tutorial").exists()


def lake(page: str, world: World) -> None:
    folder = world.folder / "lake-audit"
    variables = {"SPARK_LOCAL_IP": "127.0.0.1"}
    run_page(page, Beginning(folder=world.folder, here={"/tmp/lake-audit": str(folder)}, variables=variables))
    assert len(list(folder.glob("tables/audit_runs/*.parquet"))) == 2


def place_for_trials(page: str, world: World) -> None:
    tried("how-to/django.md", world)
    assert not (world.folder / "tutorial").exists()


CASES: dict[str, Case] = {
    "how-to/add-a-group.md": new_group,
    "how-to/adopt-in-shadow-mode.md": shadow_mode,
    "how-to/asyncio.md": on_asyncio,
    "how-to/back-up-the-ledger.md": restored_ledger,
    "how-to/broker-keys.md": security,
    "how-to/celery.md": without_celery,
    "how-to/change-shards.md": other_shards,
    "how-to/console-other-machines.md": console,
    "how-to/console.md": console,
    "how-to/dead-mans-switch.md": notifications,
    "how-to/embedded-broker.md": security,
    "how-to/fastapi-threads.md": without_processes,
    "how-to/fastapi.md": whole_service,
    "how-to/flask.md": whole_service,
    "how-to/frameworks.md": frameworks,
    "how-to/from-a-query-to-an-outbox.md": moved_to_an_outbox,
    "how-to/hand-over.md": receiving,
    "how-to/history.md": history,
    "how-to/judge-by-a-query.md": judged_by_a_query,
    "how-to/notifications.md": notifications,
    "how-to/notify-a-webhook.md": notifications,
    "how-to/notify-by-mail.md": notifications,
    "how-to/other-languages-check.md": other_languages,
    "how-to/other-languages-receiving.md": other_languages,
    "how-to/other-languages.md": other_languages,
    "how-to/purge.md": purged,
    "how-to/receiving-several-databases.md": receiving,
    "how-to/receiving.md": receiving,
    "how-to/recover.md": recovered,
    "how-to/rotate-keys.md": rotated_keys,
    "how-to/scan.md": scanned,
    "how-to/sending.md": sending,
    "how-to/testing-a-handler.md": own_tests,
    "how-to/testing-asyncio.md": own_tests,
    "how-to/testing-tools.md": own_tests,
    "how-to/testing.md": own_tests,
    "how-to/tls.md": security,
    "how-to/try-a-service.md": place_for_trials,
    "how-to/upgrade.md": upgraded,
    "tutorial/data-engineer.md": lake,
    "tutorial/first-loss.md": first_loss,
    "tutorial/java-shop.md": java_shop,
    "tutorial/real-broker.md": real_broker,
}
