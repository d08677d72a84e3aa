"""The history's spool of frames against SQLite files in its place: rate, recovery after a kill -9, damage, a full disk.

SQLite holds one record a row (number, CRC-32, payload), synchronous=FULL, locking_mode=EXCLUSIVE, once with a WAL and
once with a rollback journal. Prints one JSON document; the ratios are the figure, the absolutes belong to the machine.
Each kind takes its turn in every repetition, so that a noisy machine hurts all alike.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.history.segment import Broken, Frame, read_frames
from reconciler.history.spool import Spool, WriterFolder, adoptable

SIZE_BYTES_MAX = 1 << 34
#: A round of a quiet shard; a round of 40,000 keys.
SMALL_BYTES, LARGE_BYTES = 600, 680_000
KINDS = ("frames", "sqlite-wal", "sqlite-journal")


class SqliteSpool:
    """The candidate: one file a writer."""

    def __init__(self, path: Path, *, journal: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("page_size=4096", "locking_mode=EXCLUSIVE", f"journal_mode={journal}", "synchronous=FULL"):
            self.db.execute(f"PRAGMA {pragma}").fetchall()
        self.db.execute("CREATE TABLE IF NOT EXISTS record (number INTEGER PRIMARY KEY, crc INTEGER, payload BLOB)")

    def append(self, payload: bytes) -> None:
        """One record."""
        if not self.db.in_transaction:
            self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("INSERT INTO record (crc, payload) VALUES (?, ?)", (zlib.crc32(payload), payload))

    def sync(self) -> None:
        """All of them durable."""
        if self.db.in_transaction:
            self.db.execute("COMMIT")

    def records(self) -> Iterator[bytes]:
        """Records whose CRC is right."""
        for _, crc, payload in self.db.execute("SELECT number, crc, payload FROM record ORDER BY number"):
            if zlib.crc32(payload) == crc:
                yield payload

    def drain(self) -> int:
        """Reads everything and deletes it."""
        taken = sum(1 for _ in self.records())
        self.db.execute("DELETE FROM record")
        return taken

    def close(self) -> None:
        """Closes the file."""
        self.db.close()


def open_spool(kind: str, folder: Path) -> Spool | SqliteSpool:
    """A writer's spool in the folder."""
    if kind == "frames":
        return Spool(WriterFolder.create(folder, "writer"), size_bytes_max=SIZE_BYTES_MAX)
    folder.mkdir(parents=True, exist_ok=True)
    return SqliteSpool(folder / "writer.db", journal="WAL" if kind == "sqlite-wal" else "TRUNCATE")


def drain(spool: Spool | SqliteSpool) -> int:
    """Reads everything and makes room; returns the records."""
    if isinstance(spool, SqliteSpool):
        return spool.drain()
    spool.rotate()
    taken = 0
    for segment in spool.closed():
        taken += sum(isinstance(piece, Frame) for piece in read_frames(segment.read_bytes()))
        spool.done(segment)
    return taken


def recovered(kind: str, folder: Path) -> int:
    """Whole records that the next process finds after the writer's death."""
    if kind != "frames":
        spool = open_spool(kind, folder)
        assert isinstance(spool, SqliteSpool)
        try:
            return sum(1 for _ in spool.records())
        finally:
            spool.close()
    found = 0
    for writer in adoptable(folder):
        for segment in writer.segments():
            found += sum(isinstance(piece, Frame) for piece in read_frames(segment.read_bytes()))
        writer.release()
    return found


def rates(kind: str, folder: Path, passes: int, records: int, payload: bytes) -> dict[str, float]:
    """Passes a second with one sync each, and records a second of the drain."""
    spool = open_spool(kind, folder)
    started = time.perf_counter()
    for _ in range(passes):
        for _ in range(records):
            spool.append(payload)
        spool.sync()
    appended = time.perf_counter() - started
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    started = time.perf_counter()
    taken = drain(spool)
    drained = time.perf_counter() - started
    if taken != passes * records:
        raise SystemExit(f"{kind}: {taken} records of {passes * records}")
    spool.close()
    return {
        "records_a_second": passes * records / appended,
        "ms_a_pass": appended / passes * 1000,
        "drained_a_second": taken / drained,
        "bytes_a_payload_byte": size_bytes / (passes * records * len(payload)),
    }


def write_until_killed(kind: str, folder: Path) -> None:
    """The child: tells after each sync how many records are durable."""
    spool, number = open_spool(kind, folder), 0
    while True:
        for _ in range(4):
            spool.append(number.to_bytes(4, "big") * 200)
            number += 1
        spool.sync()
        print(number, flush=True)


def promised_by_killed(kind: str, folder: Path, dice: random.Random) -> int:
    """Records that a writer had promised when it was killed at any time."""
    command = [sys.executable, "-m", "benchmarks.spool", "--child", kind, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        promised = int(child.stdout.readline())
        until = time.perf_counter() + dice.uniform(0.01, 0.3)
        while time.perf_counter() < until:
            promised = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
    return int(rest[-1]) if rest else promised


def flipped(kind: str, folder: Path, dice: random.Random) -> dict[str, int]:
    """One byte of a dead writer's largest file is flipped: promised records lost, and whether a reader can notice."""
    promised = promised_by_killed(kind, folder, dice)
    names = ("*.open",) if kind == "frames" else ("*.db", "*.db-wal")
    files = [path for name in names for path in folder.rglob(name)]
    target = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(target.read_bytes())
    data[dice.randrange(len(data))] ^= 0xFF
    target.write_bytes(data)
    if kind != "frames":
        return _flipped_sqlite(kind, folder, promised)
    pieces = list(read_frames(target.read_bytes()))
    found = sum(isinstance(piece, Frame) for piece in pieces)
    # A broken last frame passes for an unfinished write, and is cut off.
    is_noticed = any(isinstance(piece, Broken) and not piece.is_tail for piece in pieces)
    return {"lost": max(0, promised - found), "unnoticed": int(found < promised and not is_noticed)}


def _flipped_sqlite(kind: str, folder: Path, written: int) -> dict[str, int]:
    spool, found, last, is_noticed = None, 0, 0, False
    try:
        spool = open_spool(kind, folder)
        assert isinstance(spool, SqliteSpool)
        for number, crc, payload in spool.db.execute("SELECT number, crc, payload FROM record ORDER BY number"):
            is_noticed |= number != last + 1 or not isinstance(payload, bytes) or zlib.crc32(payload) != crc
            last = number
            found += isinstance(payload, bytes) and zlib.crc32(payload) == crc
    except sqlite3.DatabaseError:
        is_noticed = True
    finally:
        if spool is not None:
            spool.close()
    return {"lost": max(0, written - found), "unnoticed": int(found < written and not is_noticed)}


def flipped_at_rest(kind: str, folder: Path, dice: random.Random) -> dict[str, int]:
    """The same for a file that its writer closed in order: no journal lies beside it."""
    spool = open_spool(kind, folder)
    for number in range(400):
        spool.append(number.to_bytes(4, "big") * 200)
    spool.sync()
    if isinstance(spool, Spool):
        spool.rotate()
        [target] = spool.closed()
    else:
        target = folder / "writer.db"
    spool.close()
    data = bytearray(target.read_bytes())
    data[dice.randrange(len(data))] ^= 0xFF
    target.write_bytes(data)
    if kind != "frames":
        return _flipped_sqlite(kind, folder, 400)
    pieces = list(read_frames(target.read_bytes()))
    found = sum(isinstance(piece, Frame) for piece in pieces)
    return {"lost": 400 - found, "unnoticed": int(found < 400 and all(isinstance(piece, Frame) for piece in pieces))}


def full(kind: str, folder: Path) -> dict[str, object]:
    """A limit of the file's length stands for a full disk: what the caller is told, and whether it goes on after."""
    spool = open_spool(kind, folder)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    durable, error = 0, "none"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        for _ in range(10_000):
            spool.append(b"x" * 4_000)
            spool.sync()
            durable += 1
    except (OSError, sqlite3.Error) as caught:
        error = f"{type(caught).__name__}: {caught}"
        if isinstance(spool, Spool):
            spool.rotate()
        elif spool.db.in_transaction:
            spool.db.execute("ROLLBACK")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    spool.append(b"after")
    spool.sync()
    found = drain(spool)
    spool.close()
    return {"error": error, "lost": durable + 1 - found}


def _medians(turn: Callable[[str, Path], dict[str, float]], repetitions: int) -> dict[str, dict[str, float]]:
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(repetitions):
        for kind in KINDS:
            with _folder() as folder:
                runs[kind].append(turn(kind, Path(folder)))
    return {
        kind: {name: round(statistics.median(run[name] for run in of_kind), 3) for name in of_kind[0]}
        for kind, of_kind in runs.items()
    }


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="spool-")


def main() -> None:
    """Everything, in one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--accidents", type=int, default=60)
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        write_until_killed(options.child[0], Path(options.child[1]))
    result: dict[str, object] = {"sqlite": sqlite3.sqlite_version}
    shapes = {
        "one_record": (200, 1, SMALL_BYTES),
        "16_shards": (100, 16, SMALL_BYTES),
        "catch_up": (6, 16, LARGE_BYTES),
    }
    for name, (passes, records, size) in shapes.items():
        payload = random.Random(size).randbytes(size)

        def turn(kind: str, folder: Path, of: tuple[int, int, bytes] = (passes, records, payload)) -> dict[str, float]:
            return rates(kind, folder, *of)

        figures = _medians(turn, options.repetitions)
        of_frames = figures["frames"]["records_a_second"]
        ratio = {kind: round(figures[kind]["records_a_second"] / of_frames, 2) for kind in KINDS}
        result[name] = {**figures, "ratio_of_frames": ratio}
    for kind in KINDS:
        dice = random.Random(1)
        deaths, flips, rests = [], [], []
        for _ in range(options.accidents):
            with _folder() as folder:
                promised = promised_by_killed(kind, Path(folder), dice)
                deaths.append((promised, recovered(kind, Path(folder))))
            with _folder() as folder:
                flips.append(flipped(kind, Path(folder), dice))
            with _folder() as folder:
                rests.append(flipped_at_rest(kind, Path(folder), dice))
        with _folder() as folder:
            disk = full(kind, Path(folder))
        result[f"accidents {kind}"] = {
            "killed": options.accidents,
            "promised_and_lost": sum(max(0, promised - found) for promised, found in deaths),
            "byte_flipped_after_death": _flips(flips),
            "byte_flipped_at_rest": _flips(rests),
            "full": disk,
        }
    print(json.dumps(result, indent=1))


def _flips(flips: list[dict[str, int]]) -> dict[str, float]:
    unnoticed = [flip["lost"] for flip in flips if flip["unnoticed"]]
    return {
        "lost_median": statistics.median(flip["lost"] for flip in flips),
        "lost_most": max(flip["lost"] for flip in flips),
        "accidents_unnoticed": len(unnoticed),
        "lost_unnoticed_most": max(unnoticed, default=0),
    }


if __name__ == "__main__":
    main()
