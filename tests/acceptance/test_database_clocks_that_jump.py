"""The clock of a real database jumps 40 days ahead under a running service, for one sweep and one round, and back.

Nothing is deleted for its age, nothing is repaired twice, and what was lost meanwhile is repaired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.retention import SqlRetention
from reconciler.sql import schema, tables
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.pools import close_engine
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment, Service
from tests.chaos.hosts import CLOCK_FILE, PRELOADED, build_clock, set_clock_file
from tests.polling import eventually
from tests.services import mariadb, postgres
from tests.services.requirements import require

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(900)]

DAYS_40_SECONDS = 40 * 86_400
HOURS_3_SECONDS = 3 * 3_600
#: Of an outbox that nobody else writes: both are kept for 30 days.
FINISHED = {"F" * 32: "SETTLED", "A" * 32: "ROLLED_BACK"}


@dataclass(frozen=True, slots=True)
class Stepped:
    """A server whose clock the test steps."""

    server: postgres.PostgresServer | mariadb.MariaDBServer

    def set_wrong(self, seconds: float) -> None:
        """By so many seconds."""
        set_clock_file(self.server.folder / "clock", seconds)


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=[pytest.mark.sql("mariadb"), pytest.mark.nightly]),
    ]
)
def stepped(request: pytest.FixtureRequest) -> Iterator[Stepped]:
    """Its clock is right at first."""
    is_postgres = request.param == "postgres"
    require(postgres.missing() if is_postgres else mariadb.missing())
    server = postgres.PostgresServer() if is_postgres else mariadb.MariaDBServer()
    library = build_clock(server.folder)
    require(None if library is not None else "no C compiler: apt-get install gcc libc6-dev")
    one = Stepped(server)
    one.set_wrong(0.0)
    server.environment |= {PRELOADED: str(library), CLOCK_FILE: str(server.folder / "clock")}
    with server:
        yield one


@contextmanager
def opened(url: str) -> Iterator[sa.Engine]:
    """An engine of the test."""
    engine = open_engine(url)
    yield engine
    close_engine(engine)


def finished_rows(engine: sa.Engine, group: str, topic: str) -> None:
    """A settled row and a tombstone, written now."""
    with writing(engine) as connection:
        at_ms = database_now_ms(connection)
        for key, state in FINISHED.items():
            times = {"created_at_ms": at_ms, "settled_at_ms": at_ms}
            row = {"unique_key": key, "topic": topic, "producer_group": group, "state": state, **times}
            connection.execute(sa.insert(tables.outbox).values(**row))


def primary_keys(engine: sa.Engine) -> dict[str, set[tuple[object, ...]]]:
    """What must not be deleted."""
    kept = (tables.outbox, tables.candidate, tables.repair, tables.broker, tables.round_row)
    with reading(engine) as connection:
        return {
            table.name: {tuple(row) for row in connection.execute(sa.select(*table.primary_key.columns))}
            for table in kept
        }


def states(engine: sa.Engine) -> tuple[Counter[str], Counter[str]]:
    """Repairs and verdicts by state."""
    with reading(engine) as connection:
        repairs = connection.execute(sa.select(tables.repair.c.state)).scalars()
        counted = Counter(repairs)
        return counted, Counter(connection.execute(sa.select(tables.candidate.c.verdict)).scalars())


def count(service: Service, event: str) -> int:
    return service.output.count(f'"{event}"')


def after_one(service: Service, event: str) -> None:
    """Returns when the service has begun and ended one from now on: the next but one has ended."""
    wanted = count(service, event) + 2
    eventually(lambda: count(service, event) >= wanted, within_seconds=120, message=event)


def test_40_days_ahead_for_one_sweep_and_one_round_delete_nothing_and_change_nothing_for_good(
    stepped: Stepped, new_deployment: DeploymentFactory
) -> None:
    url = stepped.server.create_database()
    deployed = new_deployment(ledger_url=url)
    schema.upgrade(url, "outbox")
    before = f'"sqlite:///{deployed.outbox}"'
    text = deployed.config.read_text()
    deployed.config.write_text(text.replace(f"outbox_url = {before}", f'outbox_url = [{before}, "{url}"]'))
    with opened(url) as engine:
        deployed.consume()
        producer = deployed.producer()
        run, sweep = deployed.run("run"), deployed.run("sweep")
        lost = deployed.commit(2, lose=True, producer=producer)
        rows = Deployment.rows(deployed.outbox, "SELECT producer_group || ' ' || topic FROM reconciler_outbox LIMIT 1")
        finished_rows(engine, *str(rows[0]).split(" "))
        eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
        eventually(lambda: states(engine)[0] == Counter(DONE=2), within_seconds=120, message="both are verified")
        kept = primary_keys(engine)
        assert len(kept[tables.outbox.name]) == len(FINISHED)
        stepped.set_wrong(DAYS_40_SECONDS)
        lost += deployed.commit(1, lose=True, producer=producer)
        after_one(run, "round_finished")
        after_one(sweep, "sweep_finished")
        old = SqlRetention(LedgerDatabase(engine), keep_days=30).delete_old(deployed.environment)
        assert (old.candidates, old.repairs, old.rounds, old.actions, old.has_more) == (0, 0, 0, 0, False)
        assert all(kept[name] <= found for name, found in primary_keys(engine).items())
        stepped.set_wrong(0.0)
        lost += deployed.commit(1, lose=True, producer=producer)
        eventually(lambda: deployed.effects() == sorted(lost), within_seconds=200, message="repaired in both times")
        eventually(lambda: states(engine)[0] == Counter(DONE=4), within_seconds=200, message="and verified")
        assert all(kept[name] <= found for name, found in primary_keys(engine).items())
        assert deployed.copies() == Counter(lost)
        eventually(lambda: states(engine)[1] == Counter(CONSUMED=4), within_seconds=120, message="and settled")
        assert run.end() == 0
        assert sweep.end() == 0


def test_repairs_that_wait_for_hours_for_the_brokers_clocks_are_no_calm(
    stepped: Stepped, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment(ledger_url=stepped.server.create_database())
    deployed.consume()
    deployed.run("run")
    producer = deployed.producer()
    stepped.set_wrong(HOURS_3_SECONDS)
    (lost,) = deployed.commit(1, lose=True, producer=producer)

    def summary() -> str:
        ended = deployed.command("status", "--rounds-within", "10", "-o", "json")
        return f"{ended.exit_code} {ended.document['summary']}"

    told = f"1 repairs of {deployed.topic} wait for a broker's clock, {lost} the oldest: "
    eventually(lambda: summary().startswith("3 ") and told in summary(), within_seconds=120, message="no calm")
    assert deployed.effects() == []
    stepped.set_wrong(0.0)
    eventually(lambda: deployed.effects() == [lost], within_seconds=120, message="repaired once the clock is right")
    eventually(lambda: summary().startswith("0 "), within_seconds=120, message="calm again")
