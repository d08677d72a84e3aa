"""One engine of the audit's benchmark in a process of its own: a line "run" on standard input makes it count once.

    python benchmarks/audit_engine.py duckdb|spark-sql|audit DIR [--cores 2] [--memory 1g]

Answers one JSON line a run: seconds, and the keys by subscription and class. The session stays, so that all runs but
the first are warm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from benchmarks.audit_sql import Counts

ENGINES = ("duckdb", "audit", "spark-sql")


def duckdb_run(folder: Path, cores: int, _memory: str) -> Callable[[], Counts]:
    from benchmarks.audit_duckdb import DuckDbAudit

    return DuckDbAudit(folder, threads=cores).count


def spark_sql_run(folder: Path, cores: int, memory: str) -> Callable[[], Counts]:
    from benchmarks.audit_spark_sql import count, plain_session, register_views

    session = plain_session(Path(tempfile.gettempdir()), cores=cores, driver_memory=memory)
    register_views(session, folder)
    return lambda: count(session, folder)


def audit_run(folder: Path, cores: int, _memory: str) -> Callable[[], Counts]:
    from reconciler.audit.engines.job import judge_on_spark
    from reconciler.audit.engines.spark_session import open_session

    session = open_session(f"local[{cores}]")

    def run() -> Counts:
        judged = judge_on_spark(folder, session)
        if judged.no_answer is not None:
            raise SystemExit(f"no answer: {judged.no_answer}")
        return {
            (sid, name): keys
            for sid, one in enumerate(judged.subscriptions)
            for name, keys in one.classes.items()
            if keys
        }

    return run


RUNS = {"duckdb": duckdb_run, "audit": audit_run, "spark-sql": spark_sql_run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="1g", help="of the JVM, for spark-sql")
    options = parser.parse_args()
    run = RUNS[options.engine](options.folder, options.cores, options.memory)
    for line in sys.stdin:
        if line.strip() != "run":
            break
        started = time.perf_counter()
        counts = run()
        seconds = time.perf_counter() - started
        answer = {"seconds": seconds, "counts": [[sid, name, keys] for (sid, name), keys in sorted(counts.items())]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
