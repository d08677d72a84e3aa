"""Compaction keeps the set of rows; retention takes whole days and says so; nothing is deleted under a reader."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from reconciler.audit.history.chain import read_chain
from reconciler.contract.history_row import HISTORY_STREAMS
from reconciler.contract.manifest import HistoryFile, manifest_folder
from reconciler.contract.schema import Table
from reconciler.errors import MalformedInput
from reconciler.history.chain import ManifestChain
from reconciler.history.compaction import SMALL_BYTES_MAX, Compactor, plan_merges
from reconciler.history.positions import HistoryPositions
from reconciler.history.retention import IDLE_MS_MAX, ORPHAN_MS, READERS_MS, DeletedFiles, Retention
from reconciler.history.tables import DAY_MS, partitions, schema_of, sorted_once
from tests.unit.history.house import ENVIRONMENT, START_MS, House, some_keys

DAY_SECONDS = 86_400


def filled(folder: Path, *, seals: int = 10) -> House:
    """One key a seal, always the same one."""
    house = House(folder, shards=1)
    for _ in range(seals):
        house.round(0, announced=[b"same prefix, always"[:16]])
        house.seal()
    return house


def one_of_each(rows: list[dict[str, object]]) -> set[tuple[tuple[str, object], ...]]:
    return {tuple(sorted(row.items())) for row in rows}


def test_a_folder_with_many_files_is_merged_and_keeps_its_rows(tmp_path: Path) -> None:
    house = filled(tmp_path)
    before = {stream: one_of_each(house.rows(stream)) for stream in ("announced", "round")}
    house.maintenance.compact()
    files = [f for f in house.chain.files().values() if f.stream == "announced"]
    assert (len(files), files[0].rows) == (1, 10)
    assert {stream: one_of_each(house.rows(stream)) for stream in before} == before
    sequence = house.chain.sequence
    house.maintenance.compact()
    assert house.chain.sequence == sequence, "nothing to do, nothing written"


@pytest.mark.parametrize("stream", HISTORY_STREAMS, ids=lambda stream: stream.name)
def test_the_same_rows_make_the_same_files_in_whatever_order_they_come(stream: Table) -> None:
    values: dict[str, list[Any]] = {
        "key": [b"a", b"b"],
        "text": ["a", "b"],
        "name": ["a", "b"],
        "integer": [1, 2],
        "bigint": [1, 2],
    }
    rows = [{column.name: values[column.kind][0] for column in stream.columns}]
    for column in stream.columns:
        if column.name in {"topic", "consumer_group", "scope", "shard", "at_ms", "generation", "key"}:
            rows.append({**rows[0], column.name: values[column.kind][1]})
    there, back = (pa.Table.from_pylist(rows[::step], schema_of(stream.name)) for step in (1, -1))
    assert sorted_once(there) == sorted_once(back)
    assert list(partitions(stream, there)) == list(partitions(stream, back))


def test_files_of_a_stream_that_a_newer_release_writes_are_left_alone_and_the_others_are_merged(tmp_path: Path) -> None:
    house = filled(tmp_path, seals=3)
    known = [f for f in house.chain.files().values() if f.stream == "announced"]
    unknown = [replace(f, stream="teleport", path=f.path.replace("announced", "teleport")) for f in known]
    for one, like in zip(unknown, known, strict=True):
        (house.root / one.path).parent.mkdir(parents=True, exist_ok=True)
        (house.root / one.path).write_bytes((house.root / like.path).read_bytes())
    house.chain.append("seal", added=unknown)
    house.clock.advance(DAY_SECONDS)
    house.maintenance.compact()
    left = [f.stream for f in house.chain.files().values()]
    assert (left.count("announced"), left.count("teleport")) == (1, 3)


def test_few_files_of_a_day_that_goes_on_stay_and_become_one_when_it_is_over(tmp_path: Path) -> None:
    house = filled(tmp_path, seals=3)
    house.maintenance.compact()
    assert len([f for f in house.chain.files().values() if f.stream == "announced"]) == 3
    house.clock.advance(DAY_SECONDS)
    house.maintenance.compact()
    assert len([f for f in house.chain.files().values() if f.stream == "announced"]) == 1
    assert len(house.rows("announced")) == 3


def test_small_files_of_a_finished_hour_become_one_and_large_ones_stay(tmp_path: Path) -> None:
    house = filled(tmp_path, seals=3)
    house.clock.advance(3_600 - 3)  # 22:13:20, and three rounds
    house.maintenance.compact()
    assert [f.rows for f in house.chain.files().values() if f.stream == "announced"] == [3]
    house.round(0, announced=[b"same prefix, always"[:16]])
    house.seal()
    house.maintenance.compact()
    assert sorted(f.rows for f in house.chain.files().values() if f.stream == "announced") == [1, 3]
    (small,) = (f for f in house.chain.files().values() if f.rows == 1 and f.stream == "announced")
    large = replace(small, path=f"{small.path}.large", size_bytes=SMALL_BYTES_MAX)
    assert not list(plan_merges([small, large], over_before="", hour_began_ms=small.last_ms + 1, files_max=8))


def test_rows_that_were_written_twice_become_one(tmp_path: Path) -> None:
    house = filled(tmp_path, seals=2)
    again = House(tmp_path, rounds=house.rounds, writer="writer-2", shards=1)
    again.recorder._read_positions = lambda: HistoryPositions(marks={})
    again.seal()
    assert len(house.rows("announced")) == 4
    house.clock.advance(DAY_SECONDS)
    house.maintenance.compact()
    assert [row["generation"] for row in house.rows("announced")] == [1, 2]


def test_merged_files_stay_for_readers_that_have_begun(tmp_path: Path) -> None:
    house = filled(tmp_path)
    old = set(house.chain.files())
    house.maintenance.compact()
    house.maintenance.retain()
    assert all((house.root / path).exists() for path in old)
    house.clock.advance((READERS_MS - 1) / 1000)
    house.maintenance.retain()
    assert all((house.root / path).exists() for path in old)
    house.clock.advance(0.001)
    house.maintenance.retain()
    assert not any((house.root / path).exists() for path in old - set(house.chain.files()))
    assert all((house.root / path).exists() for path in house.chain.files())


def test_files_that_no_entry_names_are_deleted_after_a_day_only(tmp_path: Path) -> None:
    house = filled(tmp_path, seals=1)
    [file] = [f for f in house.chain.files().values() if f.stream == "announced"]
    orphan = (house.root / file.path).with_name("01ORPHAN.parquet")
    half = (house.root / file.path).with_name(".tmp-01HALF.parquet")
    for path in (orphan, half):
        path.write_bytes(b"PAR1")
        os.utime(path, (START_MS / 1000, START_MS / 1000))
    house.maintenance.retain()
    assert (orphan.exists(), half.exists()) == (True, True)
    house.clock.advance(READERS_MS / 1000)
    house.maintenance.retain()
    assert (orphan.exists(), half.exists()) == (True, False)
    house.clock.advance(ORPHAN_MS / 1000)
    house.maintenance.retain()
    assert not orphan.exists()
    assert len(house.rows("announced")) == 1


def test_days_that_are_too_old_are_retired_with_their_date_told(tmp_path: Path) -> None:
    house = House(tmp_path, keep_days=10, shards=1)
    house.round(0, announced=some_keys(3))
    house.seal()
    house.clock.advance(8 * DAY_SECONDS)
    for _ in range(2):  # a service that stands still retires nothing
        house.clock.advance(DAY_SECONDS)
        house.round(0)
        house.seal()
    house.maintenance.retain()
    assert len(house.rows("announced")) == 3, "kept for ten days"
    house.clock.advance(DAY_SECONDS)
    house.round(0, announced=some_keys(2, seed=1))
    house.seal()
    house.maintenance.retain()
    assert (house.rows("announced"), house.chain.kept_from) == (
        [row for row in house.rows("announced") if row["generation"] == 4],
        "2023-11-15",
    )
    house.clock.advance(READERS_MS / 1000)
    house.maintenance.retain()
    assert not list(house.root.glob("*/*/date=2023-11-14"))
    entries = sorted((house.root / manifest_folder(ENVIRONMENT)).glob("*.json"))
    assert [json.loads(path.read_bytes())["action"] for path in entries] == ["seal"] * 4 + ["retire"]


def test_a_clock_that_was_years_ahead_for_a_moment_retires_and_deletes_nothing(tmp_path: Path) -> None:
    """Of the host, or of Redis beside it, too: then rounds of a day stand there that never was."""
    house = House(tmp_path, keep_days=10, shards=1)
    for n in range(3):
        house.round(0, announced=some_keys(1, seed=n))
        house.seal()
        house.clock.advance(DAY_SECONDS)
    at_work = house.root / f"announced/environment={ENVIRONMENT}/date=2023-11-14/prefix=01/x.parquet"
    at_work.parent.mkdir(parents=True, exist_ok=True)
    at_work.write_bytes(b"PAR1")
    os.utime(at_work, (house.clock.now_ms() / 1000,) * 2)
    house.clock.step_wall(16 * 365 * DAY_SECONDS)
    house.round(0)
    house.seal()
    house.maintenance.retain()
    house.clock.step_wall(-16 * 365 * DAY_SECONDS)
    assert (len(house.rows("announced")), house.chain.kept_from, at_work.exists()) == (3, None, True)


def test_an_entry_of_a_clock_that_was_ahead_says_no_more_than_what_it_removed(tmp_path: Path) -> None:
    house = House(tmp_path, shards=1)
    house.round(0, announced=some_keys(3))
    house.seal()
    gone = list(house.chain.files())
    house.chain.append("retire", removed=gone, kept_from="2039-12-31")
    assert house.chain.kept_from == "2023-11-15"
    assert read_chain(LocalFileSystem(), str(house.root), ENVIRONMENT).kept_from == "2023-11-15"


def test_a_service_that_was_idle_for_two_months_deletes_what_another_writer_is_at_work_on(tmp_path: Path) -> None:
    """Its clock may be wrong; a millisecond earlier it is believed."""
    house = filled(tmp_path, seals=1)
    orphan = (house.root / min(house.chain.files())).with_name("01ORPHAN.parquet")
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (START_MS / 1000, START_MS / 1000))
    idle_from_ms = (START_MS // DAY_MS + 1) * DAY_MS + IDLE_MS_MAX  # the end of the last day with rounds
    retention = Retention(house.store, house.chain, keep_days=30)
    assert retention.clean(now_ms=idle_from_ms + 1) == DeletedFiles(removed=0, orphans=0)
    assert orphan.exists()
    assert retention.clean(now_ms=idle_from_ms) == DeletedFiles(removed=0, orphans=1)


@pytest.mark.parametrize("whose", ["ours", "another writer's", "nobody's"])
def test_an_entry_whose_link_was_answered_twice_is_ours_and_its_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """link(2), BUGS: over NFS the request is sent again, and the second answer is EEXIST."""
    house = filled(tmp_path)
    before = one_of_each(house.rows("announced"))
    real, left = os.link, [True]

    def link(source: Path, target: Path) -> None:
        if left.pop():
            left.append(False)
            if whose == "ours":
                real(source, target)
            elif whose == "another writer's":
                other = ManifestChain(house.root, ENVIRONMENT, writer="other", clock=house.clock)
                monkeypatch.undo()
                other.append("seal")
                monkeypatch.setattr(os, "link", link)
            raise FileExistsError(errno.EEXIST, "File exists", str(target))
        left.append(False)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    house.maintenance.compact()
    monkeypatch.undo()
    assert one_of_each(house.rows("announced")) == before
    assert [path for path in house.chain.files() if not (house.root / path).exists()] == []


def test_two_compactions_of_one_folder_do_not_double_its_rows(tmp_path: Path) -> None:
    house = filled(tmp_path)
    other = ManifestChain(house.root, ENVIRONMENT, writer="writer-2", clock=house.clock)
    other.refresh()
    merges = list(plan_merges(other.files().values(), over_before="2030-01-01", hour_began_ms=0, files_max=8))
    house.maintenance.compact()
    assert Compactor(house.store, other).merge(merges) == 0
    assert len(house.rows("announced")) == 10
    listed = set(house.chain.files()) | set(house.chain.removed())
    assert {p.relative_to(house.root).as_posix() for p in house.root.rglob("*.parquet")} == listed


def test_an_altered_file_is_never_compacted_into_a_good_one(tmp_path: Path) -> None:
    house = filled(tmp_path)
    file = next(f for f in house.chain.files().values() if f.stream == "announced")
    data = bytearray((house.root / file.path).read_bytes())
    data[10] ^= 1
    (house.root / file.path).write_bytes(data)
    house.maintenance.compact()
    assert file.path in house.chain.files(), "it stays to be found by the audit"
    assert len([f for f in house.chain.files().values() if f.stream == "round"]) == 1, "other folders are merged"
    with pytest.raises(MalformedInput, match="altered"):
        house.store.read(file)


sizes = st.lists(st.integers(1, 10_000), max_size=40)


@given(sizes=sizes, files_max=st.integers(2, 10), over=st.sampled_from(["day", "hour", ""]))
def test_merging_ends_and_leaves_few_files(sizes: list[int], files_max: int, over: str) -> None:
    files = {f"{n:03d}": size for n, size in enumerate(sizes)}
    written = sum(sizes)
    for _ in range(60):
        found = [
            HistoryFile(
                path=path,
                stream="gate",
                date="2024-01-01",
                prefix=None,
                rows=1,
                size_bytes=size,
                sha256="",
                first_ms=0,
                last_ms=0,
            )
            for path, size in files.items()
        ]
        over_before = "2024-01-02" if over == "day" else "2024-01-01"
        began_ms = 1 if over == "hour" else 0
        merges = list(plan_merges(found, over_before=over_before, hour_began_ms=began_ms, files_max=files_max))
        if not merges:
            break
        for merge in merges:
            merged = sum(files.pop(f.path) for f in merge.files)
            files[f"{len(files):03d}-{merged}-{len(merge.files)}"] = merged
    else:
        raise AssertionError("it never ends")
    assert sum(files.values()) == written
    assert len(files) <= (1 if over and sizes else files_max)


def test_a_large_file_is_not_written_again_with_every_seal() -> None:
    big, small = 1_000_000, 100
    found = [
        HistoryFile(
            path=f"{n}",
            stream="gate",
            date="2024-01-01",
            prefix=None,
            rows=1,
            size_bytes=big if n == 0 else small,
            sha256="",
            first_ms=0,
            last_ms=0,
        )
        for n in range(10)
    ]
    [merge] = plan_merges(found, over_before="2024-01-01", hour_began_ms=0, files_max=8)
    assert [f.size_bytes for f in merge.files] == [small] * 9
