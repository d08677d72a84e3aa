"""Whose segments are whose: a living writer's are never touched, a dead one's never forgotten."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.history import spool as spool_module
from reconciler.history.batch import encode
from reconciler.history.sealer import read_segment
from reconciler.history.segment import MAGIC, Frame, SegmentWriter, frame_of, read_frames
from reconciler.history.spool import LOCK_NAME, Spool, SpoolFull, WriterFolder, adoptable
from tests.unit.history.house import House


def payloads(segment: Path) -> list[bytes]:
    return [piece.payload for piece in read_frames(segment.read_bytes()) if isinstance(piece, Frame)]


def test_a_living_writer_is_not_adopted_and_a_dead_one_is_once(tmp_path: Path) -> None:
    living = Spool(WriterFolder.create(tmp_path, "living"), size_bytes_max=1_000)
    dead = Spool(WriterFolder.create(tmp_path, "dead"), size_bytes_max=1_000)
    for spool in (living, dead):
        spool.append(b"row")
        spool.sync()
    dead._folder.leave()  # what the kernel does at its end; its segment is open
    [adopted] = adoptable(tmp_path)
    assert adopted.folder.name == "dead"
    assert [payloads(segment) for segment in adopted.segments()] == [[b"row"]]
    assert adoptable(tmp_path) == []
    adopted.leave()
    assert (tmp_path / "dead").exists(), "it still holds a segment"
    living.close()


def test_a_folder_that_is_being_made_is_nobodys_to_adopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = WriterFolder.take

    def take(folder: Path) -> WriterFolder | None:
        monkeypatch.setattr(WriterFolder, "take", real)
        seen.append(adoptable(tmp_path))  # another process looks just before the lock is taken
        return real(folder)

    monkeypatch.setattr(WriterFolder, "take", take)
    mine = WriterFolder.create(tmp_path, "mine")
    assert (seen, mine.folder, adoptable(tmp_path)) == ([[]], tmp_path / "mine", [])
    mine.leave()
    assert list(tmp_path.iterdir()) == []


def test_the_bound_holds_and_what_is_sealed_makes_room(tmp_path: Path) -> None:
    spool = Spool(WriterFolder.create(tmp_path, "w"), size_bytes_max=250)
    spool.append(b"a" * 100)
    spool.rotate()
    spool.append(b"b" * 100)
    with pytest.raises(SpoolFull, match="spool_max_mebibytes"):
        spool.append(b"c" * 100)
    [segment] = spool.closed()
    spool.done(segment)
    spool.append(b"c" * 100)
    spool.close()
    assert [payloads(segment) for segment in sorted((tmp_path / "w").glob("*.closed"))] == [[b"b" * 100, b"c" * 100]]


def test_what_is_in_the_spool_at_the_start_counts_for_the_bound(tmp_path: Path) -> None:
    folder = WriterFolder.create(tmp_path, "w")
    (folder.folder / "01A.closed").write_bytes(b"x" * 200)
    spool = Spool(folder, size_bytes_max=250)
    with pytest.raises(SpoolFull):
        spool.append(b"a" * 100)
    spool.close()


def test_a_long_segment_is_closed_by_itself(tmp_path: Path) -> None:
    spool = Spool(WriterFolder.create(tmp_path, "w"), size_bytes_max=10_000, segment_bytes_max=150)
    for _ in range(4):
        spool.append(b"a" * 100)
        spool.sync()
    assert len(spool.closed()) == 2
    spool.close()


def test_after_an_error_of_the_disk_nothing_is_written_behind_what_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(WriterFolder.create(tmp_path, "w"), size_bytes_max=10_000)
    spool.append(b"before")
    with monkeypatch.context() as patched:
        patched.setattr("os.fdatasync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            spool.sync()
        spool.rotate()
    spool.append(b"after")
    spool.close()
    assert [payloads(segment) for segment in sorted((tmp_path / "w").glob("*.closed"))] == [[b"before"], [b"after"]]


def test_a_segment_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.open").write_bytes(b"rows")
    with pytest.raises(FileExistsError):
        SegmentWriter(tmp_path / "a.open")


def dead_spool(folder: Path, writer: str, *, torn: bytes = b"") -> Path:
    """A writer's folder after kill -9: one record in its open segment, and what a write left that was not finished."""
    spool = Spool(WriterFolder.create(folder, writer), size_bytes_max=1_000)
    spool.append(encode([]))
    spool.append(b"row")
    spool.sync()
    [segment] = (folder / writer).glob("*.open")
    segment.write_bytes(segment.read_bytes() + torn)
    spool._folder.release()
    return segment


def open_files(folder: Path) -> list[str]:
    """Files of the folder that this process has open; what other tests left to the garbage collector does not count."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own is closed by now
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [file for file in found if file.startswith(str(folder))]


def test_a_lock_server_that_is_away_costs_no_descriptor_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for _ in range(5):
        with pytest.raises(OSError, match="No locks available"):
            WriterFolder.create(tmp_path, "mine")
    assert open_files(tmp_path) == []


def test_a_folder_that_went_away_while_it_was_taken_costs_no_descriptor_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: (tmp_path / LOCK_NAME).unlink())
    assert [WriterFolder.take(tmp_path) for _ in range(5)] == [None] * 5
    assert open_files(tmp_path) == []


def test_a_folder_that_could_not_get_its_name_is_made_by_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "rename", rename)
        with pytest.raises(OSError, match="No space left"):
            WriterFolder.create(tmp_path, "mine")
    mine = WriterFolder.create(tmp_path, "mine")
    assert mine.folder == tmp_path / "mine"
    mine.leave()


def test_an_adoption_that_failed_in_the_middle_is_done_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dead-1", "dead-2"):
        dead_spool(tmp_path, name)

    def sync_folder(folder: Path) -> None:
        if folder.name == "dead-2":
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as ill:
        ill.setattr(spool_module, "sync_folder", sync_folder)
        with pytest.raises(OSError, match="Input/output error"):
            adoptable(tmp_path)
    adopted = adoptable(tmp_path)
    assert [one.folder.name for one in adopted] == ["dead-1", "dead-2"]
    for one in adopted:
        one.release()


@pytest.mark.parametrize("length", [1, 9, 14])
def test_a_record_that_a_dead_writer_had_begun_is_no_damage(tmp_path: Path, length: int) -> None:
    whole = dead_spool(tmp_path, "dead", torn=frame_of(b"never promised")[:length])
    [adopted] = adoptable(tmp_path)
    [segment] = adopted.segments()
    assert segment.stem == whole.stem
    assert payloads(segment) == [b"", b"row"]
    assert segment.stat().st_size == len(frame_of(b"")) + len(frame_of(b"row"))
    adopted.release()


def test_a_torn_record_in_a_segment_that_was_closed_in_order_is_damage(tmp_path: Path) -> None:
    """One bit of its length makes the last record one that goes on behind the end."""
    spool = Spool(WriterFolder.create(tmp_path, "mine"), size_bytes_max=1_000)
    for _ in range(2):
        spool.append(b"")
    spool.sync()
    spool.rotate()
    [segment] = spool.closed()
    data = bytearray(segment.read_bytes())
    data[data.rfind(MAGIC) + 6] ^= 0x01
    segment.write_bytes(data)
    assert read_segment(segment).damage == ((None, None, len(frame_of(b""))),)
    spool.close()


def test_the_lock_of_a_folder_that_was_sealed_is_closed_a_second_time_and_with_it_another_file(tmp_path: Path) -> None:
    dead = House(tmp_path)
    dead.round(0)
    dead.recorder.run_pass()
    dead.dies()
    house = House(tmp_path, rounds=dead.rounds, writer="writer-2")
    house.maintenance.adopt(adoptable(house.spool_folder))
    house.maintenance.seal_all(None)
    house.maintenance.seal_all(None)
    assert (len(house.rows("round")), list(house.spool_folder.iterdir())) == (1, [])


def test_after_the_loss_of_all_folders_the_history_begins_anew_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(tmp_path)
    house.round()
    house.seal()
    shutil.rmtree(tmp_path / "history")
    shutil.rmtree(tmp_path / "spool")
    house.round()
    for _ in range(2):
        house.recorder.run_pass()
    house.seal()
    assert [row["generation"] for row in house.rows("round")] == [2], "what another process reads, without a damage"
    told = [record.getMessage() for record in caplog.records]
    assert told == ["history_failing", "history_works_again", "history_manifest_damaged"]


def test_a_folder_that_comes_back_is_written_where_it_ended(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round()
    house.seal()
    for name in ("history", "spool"):  # another file system in their place for a while
        (tmp_path / name).rename(tmp_path / f"away-{name}")
    house.round()
    for _ in range(2):
        house.recorder.run_pass()
    house.seal()
    for name in ("history", "spool"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / f"away-{name}").rename(tmp_path / name)
    house.round()
    for _ in range(2):
        house.recorder.run_pass()
    house.seal()
    assert [row["generation"] for row in house.rows("round")] == [1, 3]
