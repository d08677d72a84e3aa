"""The demo: whole processes, losses on purpose, repairs. Every number is recomputed from the databases it leaves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import reconciler
from tests.ended import Ended
from tests.services.fixtures import SharedClusters
from tests.services.rocketmq import marks

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900), pytest.mark.slow]

COUNTS = (
    "committed",
    "rolled_back",
    "lost",
    "delivered_before",
    "healed_by_broker",
    "found",
    "repaired",
    "delivered_after",
    "double_effects",
    "unnecessary_repairs",
    "rolled_back_delivered",
)


def demo(*, messages: int, lose: int, seed: int, keep: Path, arguments: tuple[str, ...] = ()) -> Ended:
    numbers = ("--messages", str(messages), "--lose", str(lose), "--seed", str(seed))
    return reconciler("demo", *numbers, "--keep", keep, "--output", "json", "--no-audit", *arguments)


def keys(folder: Path, database: str, sql: str) -> list[str]:
    with closing(sqlite3.connect(folder / database)) as db:
        return [row[0] for row in db.execute(sql)]


def recomputed(folder: Path) -> dict[str, int]:
    """The same numbers by set arithmetic: shares no SQL and no code with the demo."""
    committed = set(keys(folder, "orders.db", "SELECT unique_key FROM reconciler_outbox WHERE state <> 'ROLLED_BACK'"))
    with closing(sqlite3.connect(folder / "truth.db")) as db:
        attempts = dict(db.execute("SELECT key, fate FROM attempts").fetchall())
        ended_ms = db.execute("SELECT at_ms FROM marks WHERE name = 'load_ended'").fetchone()[0]
    copies = keys(folder, "truth.db", "SELECT key FROM copies")
    early = set(keys(folder, "reference.db", f"SELECT key FROM effects WHERE applied_at_ms <= {ended_ms}"))
    effects = {group: keys(folder, f"{group}.db", "SELECT key FROM effects") for group in ("reference", "lagging")}
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        sent = db.execute("SELECT unique_key, rung FROM reconciler_repair WHERE attempts > 0").fetchall()
        found = {
            row[0] for row in db.execute("SELECT unique_key FROM reconciler_candidate WHERE loss_verdict IS NOT NULL")
        }
    handed_over = {key for key, rung in sent if rung == "hand-over"}
    sent_again = {key for key, _ in sent} - handed_over
    lost = committed - early
    taken = set(effects["reference"])
    rolled_back = {key for key, fate in attempts.items() if fate == "roll-back"}
    everything = effects["reference"] + effects["lagging"]
    return {
        "committed": len(committed),
        "rolled_back": len(rolled_back),
        "lost": len(lost),
        "delivered_before": len(committed) - len(lost),
        "healed_by_broker": len((lost & taken) - sent_again - handed_over),
        "found": len(found),
        "repaired": len(lost & taken & (sent_again | handed_over)),
        "delivered_after": len(committed & taken & set(effects["lagging"])),
        "double_effects": len(everything) - len(taken) - len(set(effects["lagging"])),
        "unnecessary_repairs": sum(copies.count(key) - 1 for key in sent_again if key in copies)
        + len(handed_over & set(copies)),
        "rolled_back_delivered": len(rolled_back & set(everything)),
    }


def require_promise(result: dict[str, Any], *, messages: int, lose: int) -> None:
    assert result["committed"] == result["delivered_after"] == messages
    assert result["rolled_back"] == max(1, messages // 20)
    assert result["lost"] == result["found"] == lose
    assert result["repaired"] + result["healed_by_broker"] == lose
    assert result["healed_by_broker"] == 0
    assert result["delivered_before"] == messages - lose
    assert [result[n] for n in ("double_effects", "unnecessary_repairs", "rolled_back_delivered")] == [0, 0, 0]
    assert isinstance(result["seconds"], int)


@pytest.mark.promise("G1", "L2")
@pytest.mark.parametrize(
    ("messages", "lose", "seed", "killed_min"),
    [
        pytest.param(1, 1, 7, 0, marks=pytest.mark.nightly, id="nothing else"),
        pytest.param(40, 40, 2, 0, marks=pytest.mark.nightly, id="everything"),
        pytest.param(100, 5, 12, 1, id="a few of many"),
    ],
)
def test_every_lost_message_takes_effect_once_and_lagging_ones_are_not_repaired(
    messages: int, lose: int, seed: int, killed_min: int, tmp_path: Path
) -> None:
    """Although consumers are killed between effect and acknowledgement."""
    folder = tmp_path / "demo"
    ended = demo(messages=messages, lose=lose, seed=seed, keep=folder)
    assert ended.exit_code == 0, ended.stderr
    require_promise(ended.document, messages=messages, lose=lose)
    assert ended.stderr.count("the first loss is proved: ") == 1
    assert {name: ended.document[name] for name in COUNTS} == recomputed(folder)
    repaired = keys(folder, "ledger.db", "SELECT DISTINCT unique_key FROM reconciler_repair ORDER BY 1")
    found = "SELECT DISTINCT unique_key FROM reconciler_candidate WHERE loss_verdict IS NOT NULL ORDER BY 1"
    assert repaired == keys(folder, "ledger.db", found)
    assert len(repaired) == lose
    assert len(keys(folder, "truth.db", "SELECT name FROM marks WHERE name LIKE 'killed after %'")) >= killed_min


@pytest.mark.nightly
def test_losses_stay_lost_without_repairs(tmp_path: Path) -> None:
    ended = demo(messages=40, lose=8, seed=5, keep=tmp_path / "demo", arguments=("--repair", "off"))
    assert ended.exit_code == 1, ended.stderr
    assert ended.document["lost"] == ended.document["found"] == 8
    assert ended.document["repaired"] == ended.document["healed_by_broker"] == 0
    assert ended.document["delivered_after"] == 32


@pytest.mark.parametrize("arguments", [("--lose", "0"), ("--lose", "2", "--messages", "1"), ("--messages", "100001")])
def test_impossible_numbers_are_refused_before_anything_starts(arguments: tuple[str, ...]) -> None:
    ended = reconciler("demo", *arguments, timeout_seconds=30)
    assert ended.exit_code == 2
    assert "choose" in ended.stderr


@pytest.mark.promise("L1")
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "messages", "lose"),
    [
        *(pytest.param(version, 80, 8, marks=marks(version)) for version in ("3.2.6", "4.2.0", "4.9.7")),
        pytest.param("5.3.3", 300, 20, marks=marks("5.3.3")),
    ],
)
@pytest.mark.redis
def test_real_brokers_get_their_lost_messages_back(
    version: str, messages: int, lose: int, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    arguments = ("--namesrv", shared_clusters.get(version).name_servers)
    ended = demo(messages=messages, lose=lose, seed=8, keep=tmp_path / "demo", arguments=arguments)
    assert ended.exit_code == 0, ended.stderr
    require_promise(ended.document, messages=messages, lose=lose)


@pytest.mark.parametrize("rung", ["republish", "hand-over"])  # END is what the ladder above uses
@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=marks("5.3.3"))])
def test_each_rung_of_the_ladder_repairs_alone_on_a_real_broker(
    rung: str, version: str, shared_clusters: SharedClusters, tmp_path: Path
) -> None:
    arguments = ("--namesrv", shared_clusters.get(version).name_servers, "--repair", rung)
    ended = demo(messages=60, lose=8, seed=9, keep=tmp_path / "demo", arguments=arguments)
    assert ended.exit_code == 0, ended.stderr
    require_promise(ended.document, messages=60, lose=8)
    rungs = keys(tmp_path / "demo", "ledger.db", "SELECT DISTINCT rung FROM reconciler_repair WHERE attempts > 0")
    assert rungs == [rung]
    assert {name: ended.document[name] for name in COUNTS} == recomputed(tmp_path / "demo")
