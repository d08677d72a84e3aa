"""`reconciler sweep` as it is wired: every outbox of a list is swept, by every inbox of a list."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import sqlalchemy as sa

from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.settings.file import load_settings
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import open_engine, reading
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import inbox, inbox_metadata, outbox, outbox_metadata
from reconciler.wiring.connections import Connections
from reconciler.wiring.sweep import build_sweeper
from tests.engines import disposed
from tests.services.patient_instance import patient_client

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
QUEUES = 16
TWO_HOURS_MS = 7_200_000


def shard_at(path: Path, numbers: tuple[int, int, int], *, applied: tuple[int, ...]) -> str:
    """A database of the service with a NEW and two ANNOUNCED rows, and the inbox rows of these keys."""
    engine = open_engine(f"sqlite:///{path}")
    outbox_metadata.create_all(engine)
    inbox_metadata.create_all(engine)
    ensure_identity(engine)
    with reading(engine) as connection:
        at_ms = database_now_ms(connection) - TWO_HOURS_MS
    with engine.begin() as connection:
        for number, state in zip(numbers, ("NEW", "ANNOUNCED", "ANNOUNCED"), strict=True):
            row = {"unique_key": f"{number:032X}", "topic": "ORDERS", "producer_group": "shop", "state": state}
            announced_ms = None if state == "NEW" else at_ms
            connection.execute(sa.insert(outbox).values(**row, created_at_ms=at_ms, announced_at_ms=announced_ms))
        for number in applied:
            row = {"unique_key": f"{number:032X}", "topic": "ORDERS", "consumer_group": "billing", "source": "consumer"}
            connection.execute(sa.insert(inbox).values(**row, applied_at_ms=at_ms))
    engine.dispose()
    return f"sqlite:///{path}"


def states(url: str) -> list[str]:
    with disposed(open_engine(url)) as engine, reading(engine) as connection:
        return [str(state) for state in connection.scalars(sa.select(outbox.c.state).order_by(outbox.c.unique_key))]


def test_every_database_of_the_lists_is_swept_and_asked(tmp_path: Path) -> None:
    # Key 5 belongs to the second outbox and took effect in the first database.
    urls = [
        shard_at(tmp_path / "a.db", (1, 2, 3), applied=(2, 5)),
        shard_at(tmp_path / "b.db", (4, 5, 6), applied=()),
    ]
    producers = [{"group": "shop", "topics": ["ORDERS"], "outbox_url": urls}]
    subscriptions = [{"topic": "ORDERS", "group": "billing", "inbox_url": urls}]
    with EmbeddedBroker() as broker:
        client = patient_client()
        Admin(client).create_topic(broker.address, "RECONCILER_UNIQUE_KEY", queues=QUEUES)
        client.close()
        environ = {
            "RECONCILER_ROCKETMQ__NAME_SERVERS": broker.address,
            "RECONCILER_PRODUCERS": json.dumps(producers),
            "RECONCILER_SUBSCRIPTIONS": json.dumps(subscriptions),
        }
        with Connections(load_settings(EXAMPLE, environ)) as connections:
            report = build_sweeper(connections, stop=threading.Event()).sweep_once()
    assert (report.announced, report.settled, report.unsettled, report.problems) == (2, 2, 2, ())
    assert states(urls[0]) == ["ANNOUNCED", "SETTLED", "ANNOUNCED"]
    assert states(urls[1]) == ["ANNOUNCED", "SETTLED", "ANNOUNCED"]
