"""From the spool into Parquet: small, whole or not there, once, with any writer and after any stop."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.clock import ManualClock
from reconciler.contract.history_row import HISTORY_STREAMS, prefix_of
from reconciler.contract.manifest import HistoryFile, ManifestEntry
from reconciler.errors import MalformedInput
from reconciler.history.chain import ManifestChain
from reconciler.history.sealer import Sealer, SealResult, SegmentRows
from reconciler.history.segment import MAGIC
from reconciler.history.store import HistoryStore
from reconciler.history.tables import schema_of
from tests.unit.history.house import ENVIRONMENT, House, some_keys


def test_an_id_takes_no_more_than_20_bytes(tmp_path: Path) -> None:
    house = House(tmp_path)
    for n in range(10):
        house.round(0, announced=some_keys(6_000, seed=n))
        house.round(1, announced=some_keys(6_000, seed=100 + n))
        house.recorder.run_pass()
    house.seal()
    files = [f for f in house.chain.files().values() if f.stream == "announced"]
    ids, size_bytes = sum(f.rows for f in files), sum(f.size_bytes for f in files)
    assert (ids, len(files)) == (120_000, 64)
    assert 16 <= size_bytes / ids <= 20, size_bytes / ids


def test_every_folder_in_which_a_name_was_given_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure takes names away that were not written: a file of the manifest would be missing."""
    house, synced = House(tmp_path), set()

    def fsync(number: int) -> None:
        synced.add(Path(f"/proc/self/fd/{number}").readlink())

    monkeypatch.setattr("os.fsync", fsync)
    house.round(0, announced=some_keys(30), consumed=some_keys(10), left=some_keys(4))
    house.seal()
    named = {path.parent for path in house.root.rglob("*") if path.is_file() or any(path.iterdir())}
    assert len(named) > 10
    assert named <= synced


def test_files_lie_where_the_contract_says_and_hold_what_it_says(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0, announced=some_keys(30), consumed=some_keys(10), left=some_keys(4))
    house.seal()
    for file in house.chain.files().values():
        at = house.root / file.path
        table = pq.ParquetFile(at).read()
        assert table.schema.remove_metadata() == schema_of(file.stream).remove_metadata()
        prefix = "" if file.prefix is None else f"/prefix={file.prefix:02d}"
        folder = f"{file.stream}/environment={ENVIRONMENT}/date=2023-11-14{prefix}"
        assert file.path.rpartition("/")[0] == folder
        if file.prefix is not None:
            assert {prefix_of(key) for key in table["key"].to_pylist()} == {file.prefix}
        assert (file.first_ms, file.last_ms) == (min(table["at_ms"].to_pylist()), max(table["at_ms"].to_pylist()))


def test_every_stream_of_the_contract_has_a_schema_that_parquet_keeps(tmp_path: Path) -> None:
    for stream in HISTORY_STREAMS:
        assert schema_of(stream.name).names == [column.name for column in stream.columns]
        pq.write_table(schema_of(stream.name).empty_table(), tmp_path / "a.parquet", store_schema=False)
        assert pq.read_schema(tmp_path / "a.parquet").equals(schema_of(stream.name))


def test_rows_around_midnight_lie_in_their_own_days(tmp_path: Path) -> None:
    clock = ManualClock(1_704_067_199_000 - 1_000)  # 2023-12-31 23:59:58 UTC
    house = House(tmp_path, clock=clock)
    for n in range(3):
        house.round(0, announced=some_keys(1, seed=n))
        house.recorder.run_pass()
    house.seal()
    dates = sorted(f.date for f in house.chain.files().values() if f.stream == "announced")
    assert dates == ["2023-12-31", "2024-01-01", "2024-01-01"] or dates == ["2023-12-31", "2023-12-31", "2024-01-01"]


class Killed(BaseException):
    """The process ends here."""


def dying(point: str) -> tuple[type[Sealer], type[HistoryStore]]:
    class DyingSealer(Sealer):
        def write(self, name: str, rows: SegmentRows) -> list[HistoryFile]:
            files = super().write(name, rows)
            if point == "before the entry":
                raise Killed
            return files

    class DyingStore(HistoryStore):
        published = 0

        def publish(self, temporary: Path, target: Path) -> None:
            if point == "before a file has its name" and self.published == 3:
                raise Killed
            super().publish(temporary, target)
            self.published += 1
            if point == "after some files" and self.published == 4:
                raise Killed

    return DyingSealer, DyingStore


@pytest.mark.parametrize("point", ["before a file has its name", "after some files", "before the entry"])
def test_a_crash_in_the_middle_of_sealing_shows_no_half_and_loses_nothing(tmp_path: Path, point: str) -> None:
    sealer, store = dying(point)
    dead = House(tmp_path, sealer=sealer, store=store)
    dead.round(0, announced=some_keys(8), consumed=some_keys(4, seed=1))
    with pytest.raises(Killed):
        dead.seal()
    assert dead.rows("announced") == []
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    house.seal()
    assert house.keys("announced") == sorted(some_keys(8))
    assert house.keys("consumed") == sorted(some_keys(4, seed=1))
    listed = {house.root / path for path in house.chain.files()}
    assert {p for p in house.root.rglob("*.parquet") if ".tmp-" not in p.name} == listed, "written again, not beside"


def test_a_crash_after_the_entry_does_not_double_a_row(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0, announced=some_keys(8))
    dead.recorder.run_pass()
    dead.recorder.rotate()
    assert dead.recorder.spool is not None
    [segment] = dead.recorder.spool.closed()
    dead.maintenance._sealer.seal(segment)
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    house.seal()
    assert house.keys("announced") == sorted(some_keys(8))
    assert not segment.exists()


def test_damage_in_the_spool_is_told_as_a_gap_between_the_rows_around_it(tmp_path: Path) -> None:
    house = House(tmp_path)
    dones = []
    for n in range(3):
        dones.append(house.round(0, announced=some_keys(10, seed=n)))
        house.recorder.run_pass()
    house.recorder.rotate()
    assert house.recorder.spool is not None
    [segment] = house.recorder.spool.closed()
    data = bytearray(segment.read_bytes())
    second = data.find(MAGIC, data.find(MAGIC) + 1)
    data[second + 40] ^= 0x20
    segment.write_bytes(data)
    house.seal()
    gaps = house.rows("gap")
    assert {(g["from_ms"], g["at_ms"]) for g in gaps} == {(dones[0].at_ms, dones[2].at_ms)}
    assert {"round", "left", "verdict", "repair"} <= {g["stream"] for g in gaps}
    assert [row["generation"] for row in house.rows("round")] == [1, 3]


def test_an_unwritable_history_keeps_rows_in_the_spool_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    house.round(0, announced=some_keys(10))
    house.recorder.run_pass()
    house.recorder.rotate()

    def refused(self: HistoryStore, *args: object) -> HistoryFile:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(HistoryStore, "write", refused)
        house.maintenance.run_turn(house.recorder.spool)
        assert "Permission denied" in (house.maintenance.health.problem or "")
    house.maintenance.run_turn(house.recorder.spool)
    assert house.rows("announced") == [], "not before the pause is over"
    house.round(0, announced=some_keys(10, seed=1))
    house.recorder.run_pass()
    house.recorder.rotate()
    house.clock.advance(2)
    house.maintenance.run_turn(house.recorder.spool)
    assert house.maintenance.health.problem is None
    assert len(house.rows("announced")) == 20


def test_a_segment_of_a_dead_writer_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    unreadable: set[str] = set()
    tries: list[str] = []

    class OnABadDisk(Sealer):
        def seal(self, segment: Path) -> SealResult:
            tries.append(segment.stem)
            if segment.stem in unreadable:
                raise OSError(5, "Input/output error")
            return super().seal(segment)

    dead = House(tmp_path)
    for number in range(3):
        dead.round(0, announced=some_keys(1, seed=number))
        dead.recorder.run_pass()
        dead.recorder.rotate()
    unreadable |= {path.stem for path in dead.spool_folder.rglob("*.closed")}
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2", sealer=OnABadDisk)
    house.round(0, announced=some_keys(1, seed=3))
    house.recorder.run_pass()
    house.recorder.rotate()
    house.maintenance.run_turn(house.recorder.spool)
    assert len(tries) == 2, "two that fail are enough: the history itself may be away"
    unreadable.remove(max(unreadable))
    unreadable.remove(min(unreadable))
    house.clock.advance(2)
    house.maintenance.run_turn(house.recorder.spool)
    assert "Input/output" in (house.maintenance.health.problem or "")
    assert house.keys("announced") == sorted(some_keys(1, seed=number)[0] for number in (0, 2, 3))
    unreadable.clear()
    house.clock.advance(3)
    house.maintenance.run_turn(house.recorder.spool)
    assert house.maintenance.health.problem is None
    assert len(house.keys("announced")) == 4
    assert [path.name for path in house.spool_folder.iterdir()] == ["writer-2"]


def test_two_writers_at_once_never_take_one_number(tmp_path: Path) -> None:
    chains = [ManifestChain(tmp_path, ENVIRONMENT, writer=f"w{n}", clock=ManualClock()) for n in range(4)]

    def append(chain: ManifestChain) -> None:
        for _ in range(25):
            assert chain.append("seal")

    threads = [threading.Thread(target=append, args=(chain,)) for chain in chains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    reader = ManifestChain(tmp_path, ENVIRONMENT, writer="reader", clock=ManualClock())
    reader.refresh()
    assert (reader.sequence, reader.problems) == (100, [])
    assert not list(tmp_path.rglob(".tmp-*"))


def a_file(path: str) -> HistoryFile:
    return HistoryFile(
        path=path,
        stream="gate",
        date="2024-01-01",
        prefix=None,
        rows=1,
        size_bytes=1,
        sha256="0",
        first_ms=1,
        last_ms=1,
    )


@pytest.mark.parametrize("accident", ["missing", "altered", "doubled", "swapped"])
def test_a_manifest_that_was_tampered_with_is_told_and_still_written_to(tmp_path: Path, accident: str) -> None:
    chain = ManifestChain(tmp_path, ENVIRONMENT, writer="w", clock=ManualClock())
    for n in range(5):
        chain.append("seal", added=[a_file(f"gate/{n}.parquet")])
    folder = tmp_path / "manifest" / f"environment={ENVIRONMENT}"
    second, third = folder / "000000000002.json", folder / "000000000003.json"
    match accident:
        case "missing":
            second.unlink()
        case "altered":
            second.write_bytes(second.read_bytes().replace(b'"rows":1', b'"rows":2'))
        case "doubled":
            second.write_bytes(third.read_bytes())
        case "swapped":
            held = second.read_bytes()
            second.write_bytes(third.read_bytes())
            third.write_bytes(held)
    again = ManifestChain(tmp_path, ENVIRONMENT, writer="w", clock=ManualClock())
    again.refresh()
    assert again.problems
    assert again.append("seal")
    assert again.sequence == 6
    assert (folder / "000000000006.json").exists(), "a hole is never filled"


def test_fields_of_a_newer_writer_survive_the_reading(tmp_path: Path) -> None:
    chain = ManifestChain(tmp_path, ENVIRONMENT, writer="w", clock=ManualClock())
    chain.append("seal", segment="01ABC")
    entry = ManifestEntry(
        environment=ENVIRONMENT,
        sequence=2,
        previous=chain._digest,
        action="seal",
        writer="newer",
        written_at_ms=1,
        extra={"colour": "blue"},
    )
    assert chain.link(entry)
    chain.refresh()
    assert (chain.sequence, chain.problems, chain.has_segment("01ABC")) == (2, [], True)


def test_parquet_of_another_form_is_refused(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0, announced=some_keys(10))
    house.seal()
    file = next(f for f in house.chain.files().values() if f.stream == "announced")
    pq.write_table(pa.table({"a": [1]}), house.root / file.path)
    with pytest.raises(MalformedInput, match="altered"):
        house.store.read(file)
