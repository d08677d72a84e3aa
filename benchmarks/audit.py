"""The audit against DuckDB and plain Spark SQL: the same classes of the same files, in one run.

    python benchmarks/audit.py [--rows 1000000,10000000,50000000] [--turns 3] [--out FILE]

Engines stay up in processes of their own and are asked in turn, so that a noisy machine hurts all alike; what they
answer must be what the generator planted, the three engines' by count, the whole command's by key. The ratio of one
turn is the figure; the absolutes belong to the machine. An engine without a warm turn is compared by its cold one.
Processor seconds are told too: on a machine that others use they say more than the clock. Memory is the resident
memory of the engine's whole tree of processes. `whole` is `python -m reconciler.audit audit`, start and output
included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.audit_engine import ENGINES
from benchmarks.audit_processes import cpu_seconds, tree, watched
from benchmarks.audit_sql import Counts, expected_counts
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan

ROWS = "1000000,10000000,50000000"
#: Keys of each class in a million.
IN_A_MILLION = {
    "EFFECT_INCOMPLETE": 10, "EFFECT_WITHOUT_COMMIT": 10,
    "DOUBLE_EFFECT": 10, "REPAIR_DIFFERS": 10, "UNNECESSARY_REPAIR": 10,
    "NOT_ANNOUNCED_NOT_FOUND": 50, "UNACCOUNTED": 50, "LOST": 100, "QUARANTINED": 100, "REPAIRED": 1_000,
    "EFFECT_LATE": 500, "FILTERED": 10_000, "REJECTED": 1_000, "ROLLED_BACK": 2_000,
}  # fmt: skip
#: Classes whose keys findings.json lists.
LISTED = (
    "EFFECT_INCOMPLETE",
    "EFFECT_WITHOUT_COMMIT", "DOUBLE_EFFECT", "REPAIR_DIFFERS", "UNNECESSARY_REPAIR", "NOT_ANNOUNCED_NOT_FOUND",
    "UNACCOUNTED", "LOST", "QUARANTINED", "EFFECT_LATE",
)  # fmt: skip
GOALS = {"seconds_of_duckdb_max": 1.3, "times_faster_than_spark_sql_min": 5.0, "memory_gib_max_at_50_million": 4.0}


class Engine:
    """One engine's process; `runs` holds what every run took."""

    def __init__(self, name: str, folder: Path, *, cores: int, memory: str) -> None:
        self.name = name
        self.runs: list[dict[str, float]] = []
        script = Path(__file__).with_name("audit_engine.py")
        command = [sys.executable, str(script), name, str(folder), "--cores", str(cores), "--memory", memory]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, expected: Counts) -> dict[str, float]:
        """One turn; exits where the engine fails or counts other keys than were planted."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        before = cpu_seconds(tree(process.pid))
        with watched(process.pid) as peak:
            process.stdin.write("run\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} failed")
        answer = json.loads(line)
        counts = {(sid, name): keys for sid, name, keys in answer["counts"]}
        if counts != expected:
            wrong = {place: (counts.get(place), expected.get(place)) for place in counts.keys() | expected.keys()}
            raise SystemExit(f"{self.name} counted other keys (found, planted): {_unequal(wrong)}")
        return _run(answer["seconds"], cpu_seconds(tree(process.pid)) - before, peak.bytes)

    def stop(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _unequal(pairs: Mapping[tuple[int, str], tuple[int | None, int | None]]) -> dict[str, object]:
    return {f"{sid} {name}": pair for (sid, name), pair in sorted(pairs.items()) if pair[0] != pair[1]}


def _run(seconds: float, cpu: float, peak_bytes: int) -> dict[str, float]:
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_gib": round(peak_bytes / 2**30, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def whole_process(folder: Path, out: Path, cores: int) -> dict[str, float]:
    """The command as people run it."""
    command = [sys.executable, "-m", "reconciler.audit", "audit", "--evidence", str(folder), "--out", str(out)]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--master", f"local[{cores}]"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with watched(process.pid) as peak:
        process.wait()
        seconds = time.perf_counter() - started
    if process.returncode != 1:
        raise SystemExit(f"the command ended with {process.returncode} instead of 1")
    compare_keys(folder, out)
    return _run(seconds, peak.cpu_seconds, peak.bytes)


def compare_keys(folder: Path, out: Path) -> None:
    """Exits where findings.json lists other keys than were planted."""
    planted = json.loads((folder / "planted.json").read_bytes())
    expected = {(name, key) for name in LISTED for key in planted.get(name, [])}
    found = {(one["class"], one["key"]) for one in json.loads((out / "findings.json").read_bytes())}
    if found != expected:
        only_found, only_planted = sorted(found - expected)[:5], sorted(expected - found)[:5]
        raise SystemExit(f"found but not planted: {only_found}; planted but not found: {only_planted}")


def measure(rows: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All engines over one history."""
    accidents = {name: max(1, rows * count // 1_000_000) for name, count in IN_A_MILLION.items()}
    started = time.perf_counter()
    if not (folder / "planted.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        generate(Plan(rows=rows, seed=rows % 9_973, accidents=accidents), folder, workers=options.cores)
    made = time.perf_counter() - started
    expected = expected_counts(folder)
    names = [name for name in ENGINES if name != "spark-sql" or rows <= options.spark_sql_max]
    engines = [Engine(name, folder, cores=options.cores, memory=options.spark_sql_memory) for name in names]
    cold: dict[str, dict[str, float]] = {}
    try:
        for engine in engines:
            cold[engine.name] = engine.run(expected)
            _tell(rows, engine.name, "cold", cold[engine.name])
        for turn in range(options.turns):
            for engine in engines:
                if engine.name == "spark-sql" and turn >= options.spark_sql_turns:
                    continue
                engine.runs.append(engine.run(expected))
                _tell(rows, engine.name, "warm", engine.runs[-1])
    finally:
        for engine in engines:
            engine.stop()
    whole = []
    for number in range(options.whole_turns):
        with tempfile.TemporaryDirectory() as out:
            whole.append(whole_process(folder, Path(out) / str(number), options.cores))
        _tell(rows, "audit", "whole", whole[-1])
    warm = {engine.name: engine.runs for engine in engines}
    return {
        "rows": rows,
        "made_seconds": round(made, 1),
        "bytes": sum(path.stat().st_size for path in folder.rglob("*.parquet")),
        "ratios": _ratios(warm, cold),
        "peak_gib": {name: max(run["peak_gib"] for run in [cold[name], *warm[name]]) for name in warm},
        "cold": cold,
        "warm": warm,
        "whole": whole,
    }


def _tell(rows: int, name: str, kind: str, run: Mapping[str, float]) -> None:
    print(f"{rows:>11,} {name:<10}{kind:<6}{json.dumps(run)}", file=sys.stderr, flush=True)


def _ratios(warm: Mapping[str, list[dict[str, float]]], cold: Mapping[str, dict[str, float]]) -> dict[str, float]:
    """Medians of the ratios of each turn; None of them is a ratio of medians."""
    ratios: dict[str, float] = {}
    for unit in ("seconds", "cpu_seconds"):
        for name, turned in (("duckdb", False), ("spark-sql", True)):
            if name not in warm:
                continue
            kind = "" if warm[name] else "_cold"
            pairs = list(zip(warm["audit"], warm[name], strict=False)) or [(cold["audit"], cold[name])]
            found = statistics.median(run[unit] / other[unit] for run, other in pairs)
            key = f"{name}_over_audit_{unit}" if turned else f"audit_over_{name}_{unit}"
            ratios[key + kind] = round(1 / found if turned else found, 2)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS, help=f"with commas; {ROWS}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--spark-sql-turns", type=int, default=2, help="warm turns of plain Spark SQL")
    parser.add_argument("--spark-sql-max", type=int, default=50_000_000, help="no plain Spark SQL above so many rows")
    parser.add_argument("--spark-sql-memory", default="1g", help="Spark's default is 1g")
    parser.add_argument("--whole-turns", type=int, default=2)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, help="keeps the histories here, and takes those that are there")
    parser.add_argument("--out", type=Path, help="a file for the result")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for text in options.rows.split(","):
            folder = (options.data or Path(temporary)) / f"rows-{int(text)}"
            results.append(measure(int(text), folder, options))
            if options.data is None:
                shutil.rmtree(folder)
    report = {"benchmark": "P4 audit", "goals": GOALS, "cores": options.cores, "results": results}
    text = json.dumps(report, indent=1)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
