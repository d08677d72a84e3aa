"""The original design's outage procedure: 20 seconds without Redis under load, once with its data and once empty."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import SystemClock
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment, Service
from tests.polling import eventually
from tests.services.redis_server import RedisServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

AWAY_SECONDS = 20.0


class Missed:
    """Keys that the recorder told it could not record; called on its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: set[str] = set()

    def __call__(self, _topic: str, unique_keys: Sequence[str]) -> None:
        with self._lock:
            self._keys.update(unique_keys)

    def keys(self) -> set[str]:
        """So far."""
        with self._lock:
            return set(self._keys)


def only_outage(deployed: Deployment) -> dict[str, Any]:
    """The one row of reconciler_outage, as the ledger has it; the command shows the same."""
    with closing(sqlite3.connect(deployed.ledger)) as db:
        db.row_factory = sqlite3.Row
        (row,) = db.execute("SELECT * FROM reconciler_outage").fetchall()
    listed = deployed.command("list", "outages", "--output", "json")
    assert listed.exit_code == 0, listed.stderr
    (shown,) = listed.document["outages"]
    assert all(shown[name] == row[name] for name in ("started_at_ms", "scanned", "closed_at_ms", "reason"))
    return {**row, "scan_position": json.loads(row["scan_position"])}


def applied(inbox: Path, group: str, since_ms: int, until_ms: int) -> list[str]:
    """Keys of the inbox rows of a time, both ends included."""
    return Deployment.rows(
        inbox,
        f"SELECT unique_key FROM reconciler_inbox WHERE consumer_group = '{group}'"
        f" AND applied_at_ms BETWEEN {since_ms} AND {until_ms}",
    )


@pytest.mark.promise("G5")
@pytest.mark.parametrize(
    "empty", [pytest.param(False, id="with its data", marks=pytest.mark.nightly), pytest.param(True, id="empty")]
)
def test_redis_away_for_20_seconds_under_load_loses_nothing(
    empty: bool, new_deployment: DeploymentFactory, redis_server: RedisServer
) -> None:
    deployed = new_deployment()
    missed, clock = Missed(), SystemClock()
    service = deployed.run("run")
    deployed.run("sweep")
    deployed.consume(on_missed=missed)
    producer = deployed.producer()
    eventually(
        lambda: deployed.rows(deployed.ledger, "SELECT count(DISTINCT shard) FROM reconciler_round") == [SHARDS],
        within_seconds=60,
    )
    with deployed.load(producer) as load:
        eventually(lambda: len(deployed.effects()) >= 30, within_seconds=60)
        before = set(load.committed)
        redis_server.stop()
        lost_before = len(load.lost)
        clock.sleep(AWAY_SECONDS)
        # A loaded machine commits fewer in that time.
        eventually(
            lambda: len(load.lost) >= lost_before + 5 and len(missed.keys() & set(load.committed) - before) >= 50,
            within_seconds=60,
            message="enough was lost, and missed by the recorder, while Redis was away",
        )
        lost_during = load.lost[lost_before:]
        during = set(load.committed) - before
        if empty:
            redis_server.erase()
        redis_server.start()
        eventually(
            lambda: deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_outage WHERE closed_at_ms IS NOT NULL"),
            within_seconds=60,
            message="the outage is closed",
        )
    assert load.failed == []
    assert len(lost_during) >= 5
    eventually(lambda: deployed.effects() == sorted(load.committed), within_seconds=60, message="every effect, once")
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)

    # No repair but of what was lost, and no copy but the one that was needed.
    assert set(deployed.repairs()) == set(load.lost)
    assert deployed.copies() == Counter(load.committed)

    outage = only_outage(deployed)
    since_ms = outage["started_at_ms"] - 60_000
    (until_ms,) = outage["scan_position"]["until_ms"].values()
    scanned = applied(deployed.inbox, deployed.group, since_ms, until_ms)
    assert outage["scanned"] == len(scanned)
    assert len(missed.keys() & during) >= 50, "the outage was no outage for the recorder"
    assert missed.keys() <= set(scanned)

    assert_steps_in_order(service, restarted_empty=empty)
    assert service.end() == 0


def assert_steps_in_order(service: Service, *, restarted_empty: bool) -> None:
    """Row opened, announcements suspended, scan, announcements resume, rounds resume and close the row."""
    lines = service.records
    events = [str(line["event"]) for line in lines]
    opened, scanned, closed = (events.index(name) for name in ("outage_opened", "outage_scanned", "outage_closed"))
    assert opened < scanned < closed
    assert [events.count(name) for name in ("outage_opened", "outage_scanned", "outage_closed")] == [1, 1, 1]
    sentences = [(n, str(line["message"])) for n, line in enumerate(lines) if line["event"] == "announcement_event"]
    told = [(n, *sentence.partition(": ")[::2]) for n, sentence in sentences]
    told = [(n, queue, word) for n, queue, word in told if word.startswith(("SUSPENDED", "RESUMED"))]
    assert len({queue for _, queue, _ in told}) == SHARDS
    # A starved machine may suspend and resume a queue once more, before or after.
    for one in {queue for _, queue, _ in told}:
        before = [word for n, queue, word in told if queue == one and n < scanned]
        after = [word for n, queue, word in told if queue == one and scanned < n < closed]
        assert before[-1].startswith("SUSPENDED")
        assert after[0].startswith("RESUMED")
    rounds = [n for n, event in enumerate(events) if event == "round_finished"]
    assert not [n for n in rounds if opened < n < closed]
    assert min(rounds) < opened
    assert max(rounds) > closed
    assert lines[opened]["reason"] == "AWAY"
    if restarted_empty:
        assert lines[scanned]["scanned"] > 0
