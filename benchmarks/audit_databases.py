"""The whole audit of a real PostgreSQL: outbox, inbox and ledger are read, then judged, beside psycopg and DuckDB.

    python -m benchmarks.audit_databases [--rows 100000] [--turns 3] [--out FILE]

A generated history of `rows` keys lies in a private PostgreSQL. The audit (`--engine here`) collects it and judges it.
Against it: psycopg's rows, a page at a time, into DuckDB, and one statement of audit_sql.py over them and the history's
files. Each run is a process of its own, and they take turns. All must count what was planted. Processor time is that of
the reading process; PostgreSQL's own is told apart. Prints one JSON document; it ends with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import sqlalchemy as sa

from benchmarks.audit import IN_A_MILLION
from benchmarks.audit_duckdb import DuckDbAudit
from benchmarks.audit_processes import cpu_seconds, tree
from benchmarks.audit_sql import Counts, expected_counts
from benchmarks.history_generation.generate import generate
from benchmarks.history_generation.plan import Plan
from benchmarks.load.figures import at_most, report
from benchmarks.load.postgres import ask, connect, tell
from reconciler.sql import tables
from tests.audit.audited_databases import Databases, quiet
from tests.services.postgres import PostgresServer

#: Of whole windows; below a million keys it is the files that cost.
COLLECT_US_A_ROW_MAX = 4.0
WHOLE_OVER_JUDGING_MAX = 5.0
#: Business effects are not counted here: they would be a third table of the same size.
WITHOUT = frozenset({"DOUBLE_EFFECT"})
TABLES = {"outbox": tables.outbox, "inbox": tables.inbox, "candidate": tables.candidate, "repair": tables.repair}
PAGE_ROWS = 10_000
#: Columns that the generated evidence has not, and a ledger's rows need.
_REST = {
    "candidate": {"environment": "'{environment}'", "shard": "0", "evidence": "'{{}}'", "attempts": "1"},
    "repair": {"environment": "'{environment}'"},
}


def fill(folder: Path, server: PostgresServer) -> Databases:
    """The folder's rows, each once, in databases of an outbox, an inbox and a ledger."""
    asked = json.loads((folder / "evidence.json").read_text())
    asked["subscriptions"] = [{**s, "effects": False} for s in asked["subscriptions"]]
    urls = {name: server.create_database(name) for name in ("outbox", "inbox", "ledger")}
    for name, table in TABLES.items():
        url = urls.get(name, urls["ledger"])
        _fill(folder, url, name, table, asked["environment"])
    engine = sa.create_engine(urls["ledger"])
    tables.round_row.create(engine)
    engine.dispose()
    return Databases(
        outbox_url=urls["outbox"],
        inbox_url=urls["inbox"],
        ledger_url=urls["ledger"],
        asked=asked,
        history=(folder / asked["history"]).resolve(),
    )


def _fill(folder: Path, url: str, name: str, table: sa.Table, environment: str) -> None:
    engine = sa.create_engine(url)
    table.create(engine)
    engine.dispose()
    files = f"read_parquet('{folder}/{name}/**/*.parquet', hive_partitioning = false)"
    have = [row[0] for row in duckdb.execute(f"DESCRIBE SELECT * FROM {files}").fetchall() if row[0] != "key"]
    rest = {column: text.format(environment=environment) for column, text in _REST.get(name, {}).items()}
    if "next_at_ms" in table.c:
        rest["next_at_ms"] = "0"
    kinds = {column: "'\\x' || hex(content_digest)" if column == "content_digest" else column for column in have}
    values = [*kinds.values(), *rest.values()]
    order = ", ".join(column.name for column in table.primary_key if column.name not in ("unique_key", "environment"))
    query = (
        f"SELECT DISTINCT ON (key{order and ', ' + order}) hex(key), {', '.join(values)} FROM {files} "
        f"ORDER BY {'created_at_ms' if 'created_at_ms' in have else 'key'}"
    )
    columns = ", ".join(["unique_key", *kinds, *rest])
    rows = folder / f"{name}.csv"
    duckdb.execute(f"COPY ({query}) TO '{rows}' (FORMAT csv, HEADER false)")
    copied = f"COPY {table.name} ({columns}) FROM STDIN (FORMAT csv)".encode()
    with rows.open("rb") as file, connect(url) as connection, connection.cursor().copy(copied) as copy:
        while piece := file.read(1 << 20):
            copy.write(piece)
    rows.unlink()
    tell(url, f"ANALYZE {table.name}")


def audit(databases: Databases, folder: Path) -> dict[str, Any]:
    """Collects and judges."""
    from reconciler.audit.collect.collecting import collect
    from reconciler.audit.engines.engine import one_by_one
    from reconciler.audit.engines.job import judge_here

    request = databases.request()
    request = replace(request, sources=replace(request.sources, effects={}))
    request = replace(request, subscriptions=tuple(replace(s, effects=False) for s in request.subscriptions))
    figures: dict[str, Any] = {}
    with _timed("collect", figures):
        collect(request, folder, one_by_one, quiet)
    figures["collect_peak_mib"] = peak_mib()
    document = json.loads((folder / "evidence.json").read_text())
    figures["rows"] = sum(file["rows"] for file in document["files"].values())
    figures["files"] = len(document["files"])
    with _timed("judge", figures):
        judged = judge_here(folder)
    if judged.no_answer is not None:
        raise SystemExit(f"no answer: {judged.no_answer}")
    figures["counts"] = [
        [sid, name, keys] for sid, one in enumerate(judged.subscriptions) for name, keys in one.classes.items() if keys
    ]
    return figures


def by_duckdb(databases: Databases, folder: Path) -> dict[str, Any]:
    """The same rows by psycopg, a page at a time, and DuckDB's statement over them."""
    from reconciler.audit.collect.columns import schema_of
    from reconciler.contract.evidence_layout import EVIDENCE_TABLES

    request = databases.request()
    figures: dict[str, Any] = {}
    urls = {"outbox": databases.outbox_url, "inbox": databases.inbox_url}
    starts = {"outbox": ("created_at_ms", request.written_since_ms), "inbox": ("applied_at_ms", request.since_ms)}
    with _timed("whole", figures):
        opened = DuckDbAudit(folder, threads=1)
        figures["rows"] = 0
        for layout in EVIDENCE_TABLES:
            schema = schema_of(layout)
            opened.replace(layout.name, schema.empty_table())
            if layout.name not in TABLES:
                continue
            names = ", ".join("unique_key" if c.name == "key" else c.name for c in layout.columns)
            statement = f"SELECT {names} FROM {TABLES[layout.name].name}"
            if layout.name in starts:
                statement += " WHERE {} >= {}".format(*starts[layout.name])
            for page in _pages(urls.get(layout.name, databases.ledger_url), statement):
                figures["rows"] += len(page)
                columns = list(zip(*page, strict=True))
                columns[0] = tuple(map(bytes.fromhex, columns[0]))
                arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
                opened.insert(layout.name, pa.Table.from_arrays(arrays, schema=schema))
        counts = opened.count()
    figures["peak_mib"] = peak_mib()
    figures["counts"] = [[sid, name, keys] for (sid, name), keys in sorted(counts.items())]
    return figures


def _pages(url: str, statement: str) -> Iterator[Sequence[tuple[Any, ...]]]:
    with connect(url) as connection, psycopg.ServerCursor(connection, "rows") as cursor:
        cursor.execute(statement.encode())
        while page := cursor.fetchmany(PAGE_ROWS):
            yield page


@contextmanager
def _timed(name: str, figures: dict[str, Any]) -> Iterator[None]:
    """Adds the block's seconds by the clock and of this process' processor time."""
    seconds, cpu = time.perf_counter(), time.process_time()
    yield
    figures[f"{name}_seconds"] = round(time.perf_counter() - seconds, 2)
    figures[f"{name}_cpu_seconds"] = round(time.process_time() - cpu, 2)


def peak_mib() -> int:
    """Of this programme: getrusage's has that of the process before exec, too."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) // 1024


WAYS = {"audit": audit, "duckdb": by_duckdb}


def turn(way: str, job: Path, postgres: int, expected: Counts) -> dict[str, Any]:
    """One run in a process of its own; exits where it counts other keys than were planted."""
    before = cpu_seconds(tree(postgres))
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.audit_databases", "--run", way, "--job", str(job)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = json.loads(ran.stdout)
    counts = {(sid, name): keys for sid, name, keys in figures.pop("counts")}
    if counts != expected:
        raise SystemExit(f"{way} counted {counts}, not {expected}")
    figures["postgres_cpu_seconds"] = round(cpu_seconds(tree(postgres)) - before, 2)
    print(f"{way:<8}{json.dumps(figures)}", file=sys.stderr, flush=True)
    return figures


def ratios(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Medians over the turns."""

    def median(of: Sequence[float]) -> float:
        return round(statistics.median(of), 2)

    wholes = [one["collect_cpu_seconds"] + one["judge_cpu_seconds"] for one in runs["audit"]]
    return {
        "collect_cpu_us_a_row": median([1e6 * one["collect_cpu_seconds"] / one["rows"] for one in runs["audit"]]),
        "whole_over_judging_cpu": median(
            [whole / one["judge_cpu_seconds"] for whole, one in zip(wholes, runs["audit"], strict=True)]
        ),
        "audit_over_duckdb_cpu": median(
            [whole / one["whole_cpu_seconds"] for whole, one in zip(wholes, runs["duckdb"], strict=True)]
        ),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All turns over one history."""
    rows = options.rows
    accidents = {name: max(1, rows * n // 1_000_000) for name, n in IN_A_MILLION.items() if name not in WITHOUT}
    with tempfile.TemporaryDirectory() as temporary, PostgresServer() as server:
        folder = Path(temporary) / "generated"
        generate(Plan(rows=rows, seed=rows % 9_973, accidents=accidents), folder, workers=2)
        databases = fill(folder, server)
        job = Path(temporary) / "job.json"
        job.write_text(
            json.dumps(
                {
                    "folder": str(folder),
                    "outbox_url": databases.outbox_url,
                    "inbox_url": databases.inbox_url,
                    "ledger_url": databases.ledger_url,
                    "asked": databases.asked,
                    "history": str(databases.history),
                }
            )
        )
        expected = expected_counts(folder)
        postgres = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for way in WAYS:  # files and tables are in the cache, and hint bits are set
            turn(way, job, postgres, expected)
        for _ in range(options.turns):
            for way, of in runs.items():
                of.append(turn(way, job, postgres, expected))
        ((size,),) = ask(databases.outbox_url, "SELECT pg_database_size(current_database())")
    return {"rows": rows, "outbox_bytes": size, "ratios": ratios(runs), "runs": runs}


def run(way: str, job: Path) -> None:
    """One run in this process."""
    document = json.loads(job.read_text())
    folder = Path(document.pop("folder"))
    databases = Databases(**{**document, "history": Path(document["history"])})
    with tempfile.TemporaryDirectory() as out:
        print(json.dumps(WAYS[way](databases, folder if way == "duckdb" else Path(out))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="a file for the result")
    parser.add_argument("--run", choices=tuple(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run, options.job)
        return 0
    figures = measure(options)
    found = figures["ratios"]
    goals = [
        at_most("processor microseconds to collect a row", found["collect_cpu_us_a_row"], COLLECT_US_A_ROW_MAX),
        at_most("processor time over that of judging", found["whole_over_judging_cpu"], WHOLE_OVER_JUDGING_MAX),
    ]
    return report("audit of databases", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
