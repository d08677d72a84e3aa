"""kill -9 of a writing process at every step, two processes on one history, a disk that is full for a while."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.history.chain import ManifestChain
from tests.forks import fork_server
from tests.integration.history.writer_process import key_of_round, write_rounds
from tests.polling import PATIENCE
from tests.unit.history.house import ENVIRONMENT, START_MS, House, rows_of_history

ROOT = Path(__file__).parents[3]
KILLED = -9
STEPS = [
    ("SegmentWriter.append", (1, 3)),
    ("SegmentWriter.sync", (1, 4)),
    ("WriterFolder.close_open_ones", (2, 3)),
    ("HistoryStore.publish", (1, 2, 4)),
    ("ManifestChain.link", (1, 2, 4)),
    ("Spool.done", (1, 2)),
    ("Compactor.merge", (1, 2)),
]


@dataclass(frozen=True, slots=True)
class Writer:
    """A started process; what it sends stays in its pipe when it is killed."""

    process: ForkServerProcess
    durable: Connection

    def end(self) -> int:
        """Waits; the last round that the process knew to be durable, 0 without one."""
        last = 0
        with self.durable, suppress(EOFError):
            while self.durable.poll(PATIENCE * 120):
                last = self.durable.recv()
        self.process.join(PATIENCE * 120)
        return last


def start(folder: Path, writer: str, *, where: str = "", nth: int = 0, rounds: int = 13) -> Writer:
    context = fork_server()
    received, durable = context.Pipe(duplex=False)
    with durable:  # its copy here: the last one closed is the end of what is sent
        process = context.Process(target=write_rounds, args=(folder, writer, where, nth, rounds, durable))
        process.start()
    return Writer(process, received)


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.nightly), "after"])
@pytest.mark.parametrize(("step", "calls"), STEPS)
def test_a_kill_at_any_step_loses_nothing_and_shows_no_half(
    step: str, calls: tuple[int, ...], when: str, tmp_path: Path
) -> None:
    for nth in calls:
        folder = tmp_path / str(nth)
        dead = start(folder, "dead", where=f"{step} {when}", nth=nth)
        known = dead.end()
        assert dead.process.exitcode == KILLED
        if (folder / "history" / "manifest").exists():
            rows_of_history(folder / "history", "announced")  # every listed file is whole

        house = House(folder, writer="next", shards=1, clock=ManualClock(START_MS + 100_000))
        house.seal()
        times = Counter(house.keys("announced"))
        wanted = {key_of_round("dead", number) for number in range(1, known + 1)}
        assert wanted <= times.keys() <= wanted | {key_of_round("dead", known + 1)}
        assert set(times.values()) <= {1}
        assert house.rows("gap") == []
        listed = {folder / "history" / path for path in (*house.chain.files(), *house.chain.removed())}
        whole = {p for p in (folder / "history").rglob("*.parquet") if not p.name.startswith(".tmp-")}
        compacted = {p for p in whole - listed if p.stat().st_size}
        assert not compacted or step in {"HistoryStore.publish", "ManifestChain.link"}, "orphans only of a compaction"
        assert not list((folder / "spool").glob("dead*")), "the dead writer's folder is gone"


def test_two_processes_write_one_history_at_once(tmp_path: Path) -> None:
    writers = [start(tmp_path, f"writer-{n}", rounds=18) for n in range(2)]
    for one in writers:
        assert one.end() == 18
        assert one.process.exitcode == 0
    house = House(tmp_path, writer="last", clock=ManualClock(START_MS + 100_000))
    house.seal()
    times = Counter(house.keys("announced"))
    wanted = {key_of_round(f"writer-{n}", number) for n in range(2) for number in range(1, 19)}
    assert times.keys() == wanted
    chain = ManifestChain(tmp_path / "history", ENVIRONMENT, writer="reader", clock=ManualClock())
    chain.refresh()
    assert chain.problems == []
    named = {path.read_text().split('"writer":"')[1].split('"')[0] for path in tmp_path.rglob("0*.json")}
    assert {"writer-0", "writer-1"} <= named


_FULL = """
import resource, sys
from pathlib import Path
from tests.unit.history.house import House, some_keys
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
house = House(Path(sys.argv[1]), shards=1, event_rows_max=50)
house.rounds.kept = 4
house.round(0, announced=some_keys(1))
house.recorder.run_pass()
resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
for n in range(1, 10):
    house.round(0, announced=some_keys(20, seed=n))
    house.recorder.run_pass()
    house.recorder.rotate()
    house.maintenance.run_turn(house.recorder.spool)
assert "File too large" in house.recorder.spool_health.problem, house.recorder.spool_health.problem
assert house.maintenance.health.problem is not None
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
house.clock.advance(120)
house.seal()
house.maintenance.run_turn(house.recorder.spool)
assert house.recorder.spool_health.problem is house.maintenance.health.problem is None
"""


def test_a_disk_that_is_full_for_a_while_loses_only_what_is_told_as_a_gap(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FULL, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    generations = {row["generation"] for row in rows_of_history(tmp_path / "history", "round")}
    gaps = rows_of_history(tmp_path / "history", "gap")
    told = {g for gap in gaps for g in range(gap["first_generation"], gap["last_generation"] + 1)}
    assert told, "there was more than could be kept"
    assert generations == set(range(1, 11)) - told
