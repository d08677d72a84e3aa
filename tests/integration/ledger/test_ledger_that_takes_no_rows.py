"""A ledger that answers every question and takes no rows: nothing but the age of its newest round shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.commands.metrics import dependencies_of
from reconciler.commands.status.standstill import ROUNDS_LATE_SECONDS_MIN
from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway
from reconciler.policy.ports.rounds import RestingShard
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.schema import upgrade
from reconciler.sql.tables import round_row
from reconciler.wiring.connections import Connections
from tests.contract.ledger.rows import round_done, shard
from tests.engines import begun

EXAMPLE = Path(__file__).parents[3] / "config/reconciler.toml"
NOBODY = "127.0.0.1:1"

pytestmark = pytest.mark.sql("postgres")


@pytest.fixture
def connections(postgres_url: str) -> Iterator[Connections]:
    """Of `run`, to a ledger alone: nobody else answers."""
    upgrade(postgres_url, "ledger")
    variables = {
        "RECONCILER_LEDGER__URL": postgres_url,
        "RECONCILER_REDIS__URL": f"redis://{NOBODY}/0",
        "RECONCILER_ROCKETMQ__NAME_SERVERS": NOBODY,
    }
    with Connections.for_people(load_settings(EXAMPLE, variables)) as opened:
        yield opened


def ledger_of(connections: Connections) -> tuple[str | None, str | None]:
    """What /readyz of `run` says of the ledger and of its rounds. None: nothing is wrong."""
    found = dependencies_of(connections, "run")
    return found["ledger"], found["rounds"]


def first_round(connections: Connections) -> None:
    done = round_done(shard(connections.settings.environment, 0), 1, 1_000)
    connections.ledger.rounds.begin(done.shard.subscription, at_ms=1)
    connections.ledger.rounds.store(done)


def grow_older(url: str, seconds: float) -> None:
    """The stored rounds."""
    with begun(url) as connection:
        connection.execute(sa.update(round_row).values(stored_at_ms=round_row.c.stored_at_ms - round(seconds * 1_000)))


def take_no_rows(url: str) -> None:
    """Whoever connects from now on only reads."""
    engine = open_engine(url)
    name = sa.engine.make_url(url).database
    with engine.begin() as connection:
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    engine.dispose()


def test_readiness_names_rounds_that_nothing_stores_any_more(connections: Connections, postgres_url: str) -> None:
    first_round(connections)
    grow_older(postgres_url, ROUNDS_LATE_SECONDS_MIN)
    take_no_rows(postgres_url)
    with Connections.for_people(connections.settings) as later:
        with pytest.raises(DatabaseAway):
            first_round(later)
        ledger, rounds = ledger_of(later)
    assert ledger is None
    assert rounds is not None
    assert rounds.startswith("no round was written within 300 s: `turn_skipped` in the log of `run`")


def test_neither_young_rounds_nor_rests_nor_a_ledger_before_its_first_round_are_late(
    connections: Connections, postgres_url: str
) -> None:
    assert ledger_of(connections) == (None, None)
    first_round(connections)
    assert ledger_of(connections) == (None, None)
    grow_older(postgres_url, 2 * ROUNDS_LATE_SECONDS_MIN)
    of = Subscription(environment=connections.settings.environment, topic="ORDERS", group="billing")
    assert connections.ledger.rounds.keep_rest({of: [RestingShard(round_at_ms=1_000, offsets={})]}, seconds_ago=0.0)
    assert ledger_of(connections) == (None, None)
