"""How long the server takes for each page and list of the console, over a ledger of ten million verdicts in PostgreSQL.

    python -m benchmarks.console [--candidates 10000000] [--requests 20] [--out FILE]

PostgreSQL (durable settings, 512 MB of buffers), Redis, the embedded broker and `reconciler web` as processes; one
client with one connection asks one after the other. A verdict keeps what its witnesses answered. Beside the verdicts
there are the repairs of a sixteenth of them, the rounds of three days, and 100 000 rows each of jobs, actions and
refused announcements. Every route that looks is asked, but files and what came of an act; then searches, and the
overview with the chart of each length. At last nobody asks for longer than any answer is kept, and the overview is
asked for again: so it is for a person who opens it. The limit is 150 ms for the 95th percentile of each address, and
for the overview that is read anew, by the clock of the client. The first answer of the process is told beside it: it
opens the connections.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.load.figures import at_most, equal, percentile, report
from benchmarks.load.job import Job
from benchmarks.load.postgres import ask, connect
from benchmarks.load.world import Timing, World, until
from reconciler.commands.activity import WIDTHS_MINUTES
from reconciler.contract import answers, reasons
from reconciler.contract.facts import Fact
from reconciler.contract.stored_facts import REASON, with_texts
from reconciler.instrumentation.metrics.reading import FRESH_INTERVALS_MAX
from reconciler.policy.evidence import Lookup, Presence, WitnessAnswer
from reconciler.web.routes import ROUTES
from reconciler.web.services import ACTIVITY_SECONDS, STATUS_SECONDS
from reconciler.words import said
from tests.services.ports import free_port

LIMIT_MS = 150.0
SHARDS = 16
ROUND_SECONDS = 5
ROUND_HOURS = 72
#: Rows of jobs, actions and refused announcements, each.
OTHER_ROWS = 100_000
#: Searches that an index has not, of few rows and of none, and deep pages.
SEARCHES = (
    *("/losses?loss=all", "/losses?loss=no", "/losses?state=OPEN", "/losses?state=QUARANTINED&loss=all"),
    *(
        "/losses?verdict=UNKNOWN",
        "/losses?verdict=UNKNOWN&loss=all",
        "/losses?topic=OTHER",
        "/losses?topic=OTHER&loss=all",
    ),
    *("/losses?age=older-24", "/losses?age=older-24&loss=all", "/losses?age=older-24&verdict=PARKED&loss=all"),
    *("/repairs?state=OPEN", "/repairs?state=FAILED", "/repairs?topic=OTHER", "/repairs?age=older-24"),
    *("/rounds?topic=OTHER", "/rounds?age=older-24", "/actions?by=bob", "/actions?age=older-1&by=bob"),
    *("/api/v1/candidates?limit=1000", "/api/v1/repairs?limit=1000", "/api/v1/rounds?limit=1000"),
)
#: Routes whose time is that of brokers, databases and Redis that are asked meanwhile, and not of the ledger.
ASKS_OTHERS = frozenset({"doctor", "health", "message", "readyz", "metrics"})


def fill(url: str, job: Job, candidates: int) -> None:
    """Rows as a service of three days leaves them, the newest one second old."""
    now_ms = int(time.time() * 1_000)
    step = max(1, ROUND_HOURS * 3_600_000 // candidates)
    names = {
        "environment": job.environment, "topic": job.topic, "consumer": job.consumer_group, "now": now_ms,
        "candidates": candidates, "step": step, "shards": SHARDS, "prefix": f"7F000001{job.run}", "others": OTHER_ROWS,
        "generations": ROUND_HOURS * 3_600 // ROUND_SECONDS, "round": ROUND_SECONDS * 1_000,
        "consumed": evidence_of_consumed(now_ms), "lost": evidence_of_loss(),
    }  # fmt: skip
    with connect(url) as connection:
        for statement in _ROWS:
            connection.execute(statement.encode(), names)
        connection.commit()
        connection.autocommit = True
        connection.execute(b"VACUUM ANALYZE")


def evidence_of_consumed(at_ms: int) -> str:
    """What a key keeps whose inbox had it."""
    return _kept(
        reasons.CONSUMED(),
        inbox={_INBOX: (Presence.FOUND, answers.EFFECT(source="billing-7", at_ms=at_ms))},
        outbox=_OUTBOX,
    )


def evidence_of_loss() -> str:
    """What a key keeps whose END_TRANSACTION was lost."""
    return _kept(
        reasons.HALF_FOUND(),
        inbox={_INBOX: (Presence.ABSENT, answers.NO_ROW())},
        outbox=_OUTBOX,
        committed_copies={broker: (Presence.ABSENT, answers.NO_HIT()) for broker in ("broker-a", "broker-b")},
        half_copies={"broker-a": (Presence.FOUND, answers.RECORDS(number=1))},
    )


def _kept(reason: Fact, **asked: Mapping[str, tuple[Presence, Fact]]) -> str:
    found: dict[str, object] = {REASON: reason}
    for question, answered in asked.items():
        each = tuple(
            WitnessAnswer(witness=name, presence=presence, detail=detail)
            for name, (presence, detail) in answered.items()
        )
        lookup: Lookup[object] = Lookup(presence=each[0].presence, answers=each)
        found[question] = {"presence": str(lookup.presence), "detail": lookup.reason}
    return json.dumps(with_texts(found | {"outbox_state": "ANNOUNCED"}, said), separators=(",", ":"))


_INBOX = "inbox postgresql://db.example/billing"
_OUTBOX = {"outbox of shop": (Presence.FOUND, answers.OUTBOX_ROW(state="ANNOUNCED"))}
#: One in 100 was a loss and is settled, one in 30 000 is open, one in 10 000 is given up.
_ROWS = (
    """
    INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state, verdict,
        loss_verdict, evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms)
    SELECT %(environment)s, %(topic)s, %(consumer)s, %(prefix)s || lpad(upper(to_hex(n)), 16, '0'), n %% %(shards)s,
        CASE WHEN n %% 30000 = 7 THEN 'OPEN' WHEN n %% 10000 = 9 THEN 'QUARANTINED' ELSE 'SETTLED' END,
        CASE WHEN n %% 30000 = 7 THEN 'LOST_CONFIRM' WHEN n %% 10000 = 9 THEN 'QUARANTINED' ELSE 'CONSUMED' END,
        CASE WHEN n %% 30000 = 7 OR n %% 100 = 3 THEN 'LOST_CONFIRM' WHEN n %% 10000 = 9 THEN 'EXPIRED' END,
        CASE WHEN n %% 30000 = 7 OR n %% 100 = 3 THEN %(lost)s ELSE %(consumed)s END,
        1, at_ms, at_ms + 1000, at_ms + 1000
    FROM (
        SELECT n, %(now)s - (%(candidates)s - n) * %(step)s AS at_ms FROM generate_series(1, %(candidates)s) n
    ) numbers
    """,
    """
    INSERT INTO reconciler_repair (environment, topic, scope, unique_key, state, rung, attempts, next_at_ms, answer,
        created_at_ms, first_sent_at_ms, sent_at_ms, done_at_ms)
    SELECT environment, topic, '*', unique_key, CASE state WHEN 'OPEN' THEN 'OPEN' ELSE 'DONE' END, 'end', 1,
        first_seen_ms, 'sent', first_seen_ms, first_seen_ms, first_seen_ms + 900,
        CASE state WHEN 'OPEN' THEN NULL ELSE first_seen_ms + 1000 END
    FROM reconciler_candidate WHERE loss_verdict = 'LOST_CONFIRM' OR shard = 5
    """,
    """
    INSERT INTO reconciler_round (environment, topic, consumer_group, shard, epoch, generation, at_ms, offsets,
        announced, matched, pending_before, pending_added, pending_matched, pending_after, void, stored_at_ms)
    SELECT %(environment)s, %(topic)s, %(consumer)s, shard, 'e', n, at_ms, '{}', 300, 290, 10, 10, 10, 10, 0, at_ms
    FROM generate_series(0, %(shards)s - 1) shard,
        (
            SELECT n, %(now)s - (%(generations)s - n) * %(round)s AS at_ms FROM generate_series(1, %(generations)s) n
        ) numbers
    """,
    """
    INSERT INTO reconciler_operator_action (action_id, environment, by, command, topic, detail, started_at_ms,
        ended_at_ms, result)
    SELECT md5(n::text), %(environment)s, 'alice', 'repair', %(topic)s, '', %(now)s - n * 1000,
        %(now)s - n * 1000, 'done'
    FROM generate_series(1, %(others)s) n
    """,
    """
    INSERT INTO reconciler_quarantine (environment, unique_key_topic, broker, queue_id, queue_offset, reason, detail,
        body, seen_at_ms)
    SELECT %(environment)s, 'RECONCILER_UNIQUE_KEY', 'broker-a', n %% 16, n, 'MALFORMED', 'no JSON', '\\x00',
        %(now)s - n * 1000
    FROM generate_series(1, %(others)s) n
    """,
    """
    INSERT INTO reconciler_job (job_id, environment, kind, request, by, state, attempts, work, done, total, counts,
        lines, created_at_ms, started_at_ms, ended_at_ms)
    SELECT lpad(n::text, 32, '0'), %(environment)s, 'REPAIR', '{}', 'alice', 'DONE', 1, '[]', 0, 0, '{}', '[]',
        %(now)s - n * 1000, %(now)s - n * 1000, %(now)s - n * 1000
    FROM generate_series(1, %(others)s) n
    """,
)


def paths(job: Job) -> Iterator[tuple[str, str]]:
    """(name, path) of every route that looks and whose places can be filled."""
    parts = {"name": job.key(7), "job_id": f"{1:032}"}
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = route.path
        for part, value in parts.items():
            path = path.replace("{" + part + "}", value)
        if "{" not in path:
            yield f"{route.surface} {route.name}", path


class Client:
    """One connection. Used by one thread."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path: str) -> tuple[int, float, bytes]:
        """Status, milliseconds, body."""
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        return answer.status, (time.perf_counter() - began) * 1_000, body


def figures_of(client: Client, path: str, requests: int) -> dict[str, Any]:
    """The first answer, which nothing was read for before, and the percentiles of the others."""
    status, first_ms, body = client.ask(path)
    waits = sorted(client.ask(path)[1] for _ in range(requests))
    return {
        "path": path,
        "status": status,
        "bytes": len(body),
        "first_ms": round(first_ms, 1),
        "p50_ms": round(percentile(waits, 50), 1),
        "p95_ms": round(percentile(waits, 95), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with World(postgres=True) as world:
        assert world.postgres is not None
        ledger = world.postgres.create_database("ledger")
        job = Job(folder=str(world.folder), name_servers=world.name_servers, redis_url=world.redis.url, run=world.run)
        job = replace(job, shards=SHARDS, inbox_url=f"sqlite:///{world.folder / 'inbox.db'}")
        world.configure(job, Timing(), ledger_url=ledger)
        began = time.monotonic()
        fill(ledger, job, options.candidates)
        filled_seconds = time.monotonic() - began
        port = free_port()
        world.reconciler("web", "--listen", f"127.0.0.1:{port}")
        until(lambda: "web_listening" in world.log("web").read_text(), within_seconds=60, what="reconciler web")
        client = Client(port)
        overviews = [f"/?hours={hours}" for hours in WIDTHS_MINUTES]
        asked = [*paths(job), *((path, path) for path in (*SEARCHES, f"/losses?name={job.key(7)}", *overviews))]
        seen = {name: figures_of(client, path, options.requests) for name, path in asked}
        anew = {}
        time.sleep(FRESH_INTERVALS_MAX * (ACTIVITY_SECONDS - STATUS_SECONDS))
        for path in overviews:
            time.sleep(FRESH_INTERVALS_MAX * STATUS_SECONDS + 5.0)
            anew[path] = round(Client(port).ask(path)[1], 1)  # the server has closed the idle connection
        goals = [
            at_most(f"{name}: p95, ms", one["p95_ms"], LIMIT_MS)
            for name, one in seen.items()
            if name.partition(" ")[2] not in ASKS_OTHERS
        ]
        goals += [at_most(f"{path} read anew, ms", took_ms, LIMIT_MS) for path, took_ms in anew.items()]
        goals.append(equal("routes that fail", [name for name, one in seen.items() if one["status"] >= 500], []))
        sizes = "SELECT pg_table_size('reconciler_candidate'), pg_indexes_size('reconciler_candidate')"
        ((table_bytes, index_bytes),) = ask(ledger, sizes)
        figures = {
            "candidates": options.candidates,
            "table_bytes": table_bytes,
            "index_bytes": index_bytes,
            "filled_seconds": round(filled_seconds),
            "routes": seen,
            "anew_ms": anew,
        }
        return report("console", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
