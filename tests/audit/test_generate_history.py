"""Generated histories: what a test of the audit rests on must itself obey the contract, and mean what it says."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.generate_history import OPTIONS
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import CLASSES, PREFIXES, Plan
from reconciler.contract.evidence_layout import EVIDENCE_TABLES, LEDGER_ROUND_EVIDENCE
from reconciler.contract.history_row import HISTORY_STREAMS, prefix_of
from reconciler.contract.manifest import digest_of
from reconciler.contract.unique_key import key_of, shard_of

ACCIDENTS = dict.fromkeys(OPTIONS, 9)
PLAN = Plan(
    rows=3_000, seed=11, accidents=ACCIDENTS, groups=2, shards=4, key_lengths=(16, 17, 28, 32, 16, 17, 28, 32, 33)
)
STREAMS = [stream.name for stream in HISTORY_STREAMS if stream.name not in ("gap", "reread")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated") / "one"
    generate(PLAN, folder)
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _read(folder: Path, place: str) -> pa.Table:
    paths = sorted((folder / place).rglob("*.parquet"))
    return pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])


def _rows(folder: Path, place: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _read(folder, place).to_pylist()
    return rows


def _entries(folder: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for path in sorted((folder / "history" / "manifest").rglob("*.json")):
        yield path.read_bytes(), json.loads(path.read_bytes())


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    listed: dict[str, dict[str, Any]] = {}
    for _, entry in _entries(folder):
        for file in entry["added"]:
            listed[file["path"]] = file
        for path in entry["removed"]:
            del listed[path]
    return listed


@pytest.mark.nightly
def test_a_failure_can_be_made_again_from_its_seed_on_a_machine_with_more_cores(tmp_path: Path, made: Path) -> None:
    generate(PLAN, tmp_path / "again", workers=2)
    assert _files(tmp_path / "again") == _files(made)


@pytest.mark.nightly
def test_another_seed_is_another_history(tmp_path: Path, made: Path) -> None:
    other = Plan(
        rows=3_000, seed=12, accidents=ACCIDENTS, groups=2, shards=4, key_lengths=(16, 17, 28, 32, 16, 17, 28, 32, 33)
    )
    generate(other, tmp_path / "other")
    assert set(_read(tmp_path / "other", "outbox")["key"].to_pylist()).isdisjoint(
        _read(made, "outbox")["key"].to_pylist()
    )


def test_every_evidence_file_is_announced_with_its_rows_and_digest(made: Path) -> None:
    announced = json.loads((made / "evidence.json").read_bytes())["files"]
    tables = [table.name for table in (*EVIDENCE_TABLES, LEDGER_ROUND_EVIDENCE)]
    found = {str(path.relative_to(made)) for name in tables for path in (made / name).rglob("*.parquet")}
    assert found == set(announced)
    for path, said in announced.items():
        data = (made / path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == said["sha256"]
        assert pq.read_metadata(made / path).num_rows == said["rows"]


@pytest.mark.parametrize("compacted", [True, False])
def test_the_manifest_chains_and_lists_what_is_there(tmp_path: Path, compacted: bool) -> None:
    generate(Plan(rows=500, seed=1, accidents={"LOST": 9}, compacted=compacted), tmp_path / "made")
    previous, live = "", _listed(tmp_path / "made")
    for data, entry in _entries(tmp_path / "made"):
        assert entry["previous"] == previous
        previous = digest_of(data)
    history = tmp_path / "made" / "history"
    assert set(live) == {str(path.relative_to(history)) for path in history.rglob("*.parquet")}
    for path, said in live.items():
        data = (history / path).read_bytes()
        at_ms = pq.read_table(history / path, partitioning=None)["at_ms"].to_pylist()
        assert (hashlib.sha256(data).hexdigest(), len(data), len(at_ms)) == (
            said["sha256"],
            said["size_bytes"],
            said["rows"],
        )
        assert (min(at_ms), max(at_ms)) == (said["first_ms"], said["last_ms"])


def test_compaction_loses_no_row_of_the_files_it_replaced(made: Path) -> None:
    sealed: Counter[str] = Counter()
    compacted: Counter[str] = Counter()
    for _, entry in _entries(made):
        for file in entry["added"]:
            (sealed if entry["action"] == "seal" else compacted)[file["stream"]] += file["rows"]
    assert sealed == compacted


@pytest.mark.parametrize("name", [*(table.name for table in EVIDENCE_TABLES), *(f"history/{name}" for name in STREAMS)])
def test_columns_are_those_of_the_contract(made: Path, name: str) -> None:
    tables = {table.name: table.columns for table in EVIDENCE_TABLES}
    streams = {f"history/{stream.name}": stream.columns for stream in HISTORY_STREAMS}
    columns = tables.get(name) or streams[name]
    kinds = {"key": "binary", "digest": "binary", "integer": "int32", "bigint": "int64"}
    schema = pq.read_schema(next((made / name).rglob("*.parquet")))
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        (column.name, kinds.get(column.kind, "string"), column.nullable) for column in columns
    ]


def test_keys_lie_in_their_prefix_and_shard_and_have_every_length_and_byte(made: Path) -> None:
    for path in (made / "outbox").rglob("*.parquet"):
        for key in pq.read_table(path, partitioning=None)["key"].to_pylist():
            assert path.parent.name == f"prefix={prefix_of(key):02d}"
    rows = _rows(made, "history/announced")
    assert all(row["shard"] == shard_of(key_of(row["key"]), PLAN.shards) for row in rows)
    keys = {row["key"] for row in rows}
    assert {len(key) for key in keys} == {16, 17, 28, 32, 33}
    assert {byte for key in keys for byte in key} == set(range(256))
    assert {key[-1] for key in keys} == set(range(256))


def test_some_keys_differ_in_a_zero_byte_at_the_end_only(made: Path) -> None:
    keys = set(_read(made, "outbox")["key"].to_pylist())
    assert sum(key + b"\0" in keys for key in keys) >= PREFIXES


def test_rounds_count_the_rows_that_lie_in_the_streams_of_ids(made: Path) -> None:
    place = ("topic", "consumer_group", "shard", "at_ms")

    def of(stream: str) -> Counter[tuple[Any, ...]]:
        rows = _rows(made, f"history/{stream}")
        return Counter(tuple(row[name] for name in place) for row in rows if row.get("reason", "MATCHED") == "MATCHED")

    counted = {stream: of(stream) for stream in ("announced", "consumed", "left")}
    for row in _rows(made, "history/round"):
        at = tuple(row[name] for name in place)
        found = [counted[stream].pop(at, 0) for stream in ("announced", "consumed", "left")]
        assert found == [row["announced"], row["consumed"], row["left_matched"]]
        assert row["announced"] == row["matched"] + row["pending_added"]
        assert row["pending_after"] == row["pending_before"] + row["pending_added"] - row["left_matched"]
        assert row["pending_before"] >= 0
    assert counted == {"announced": Counter(), "consumed": Counter(), "left": Counter()}


def test_snapshots_count_what_was_pending(made: Path) -> None:
    place = ("topic", "consumer_group", "shard", "at_ms")
    pending = Counter(tuple(row[name] for name in place) for row in _rows(made, "history/pending"))
    snapshots = _rows(made, "history/snapshot")
    assert {row["kind"] for row in snapshots} == {"DAY_END", "SHUTDOWN"}
    assert {tuple(row[name] for name in place): row["rows"] for row in snapshots if row["rows"]} == pending


def test_generations_of_a_shard_have_no_hole(made: Path) -> None:
    by_shard: dict[tuple[Any, ...], list[int]] = {}
    for row in _rows(made, "history/round"):
        name = (row["topic"], row["consumer_group"], row["shard"], row["epoch"])
        by_shard.setdefault(name, []).append(row["generation"])
    assert len(by_shard) == 4 * PLAN.shards
    for generations in by_shard.values():
        assert sorted(generations) == list(range(min(generations), min(generations) + len(generations)))


def test_every_accident_is_planted_as_often_as_asked_and_every_key_is_counted_once(made: Path) -> None:
    planted = json.loads((made / "planted.json").read_bytes())
    expected = json.loads((made / "expected.json").read_bytes())["subscriptions"]
    assert all(len(set(planted[name])) >= 9 for name in OPTIONS)
    assert len(set(planted["EFFECT_WITHOUT_COMMIT"])) == 9
    per_topic: Counter[str] = Counter()
    for asked in expected:
        assert set(asked["classes"]) == set(CLASSES)
        per_topic[asked["group"]] += sum(asked["classes"].values())
        for name, keys in asked["keys"].items():
            assert len(set(keys)) == asked["classes"][name]
            assert set(keys) <= set(planted[name])
    assert per_topic == {"billing-0": PLAN.rows, "billing-1": PLAN.rows}


@pytest.mark.nightly
def test_files_twice_hold_the_same_rows_in_another_order(tmp_path: Path) -> None:
    generate(Plan(rows=2_000, seed=5, accidents={"LOST": 20}, files_twice=True), tmp_path / "twice")
    for name in ("outbox", "history/announced"):
        folders = {path.parent for path in (tmp_path / "twice" / name).rglob("*.parquet")}
        for folder in folders:
            tables = [pq.read_table(path, partitioning=None).to_pylist() for path in sorted(folder.iterdir())]
            assert len(tables) == 2
            assert Counter(row["key"] for row in tables[0]) == Counter(row["key"] for row in tables[1])
        assert any(first["key"][0] != second["key"][0] for first, second in _pairs(folders))


def _pairs(folders: set[Path]) -> Iterator[tuple[dict[str, list[Any]], dict[str, list[Any]]]]:
    for folder in folders:
        first, second = (pq.read_table(path, partitioning=None).to_pydict() for path in sorted(folder.iterdir()))
        yield first, second


def test_more_accidents_than_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        generate(Plan(rows=10, seed=0, accidents={"LOST": 11}), tmp_path / "none")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(FileExistsError):
        generate(Plan(rows=10, seed=0), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
