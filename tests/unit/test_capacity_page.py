"""The page of capacity: what its calculator reckons follows from what was measured, and its commands exist."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from benchmarks import sweep

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/capacity.md").read_text(encoding="utf-8")
SERVICES = (20, 200, 1_000)
SECONDS_A_DAY = 86_400
SHARDS = 16


def measured(name: str) -> dict[str, Any]:
    """The figures that a benchmark has left."""
    figures: dict[str, Any] = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    return figures


def row(name: str) -> list[float]:
    """The figures of a line of the calculator, one for each number of services."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name}")]
    return [float(cell.replace(" ", "")) for cell in line.split("|")[2:5]]


def agrees(shown: list[float], reckoned: list[float]) -> bool:
    """Each figure of the page is the reckoned one, to its last digit but one."""
    return all(abs(one - other) <= 0.06 * other for one, other in zip(shown, reckoned, strict=True))


def test_processors_are_those_of_twenty_services_as_many_times_as_there_are_more() -> None:
    (figures,) = [one for one in measured("load-many-ids")["runs"] if one["subscriptions"] == SERVICES[0]]
    for name, process in (("`run`, cores", "run"), ("Redis, cores", "redis"), ("PostgreSQL of the ledger", "postgres")):
        once = figures["cores_by_process"][process]
        assert agrees(row(name)[1:], [once * services / SERVICES[0] for services in SERVICES[1:]]), name


def test_processor_of_a_round_is_what_rest_and_ids_leave_of_it() -> None:
    (figures,) = [one for one in measured("load-many-ids")["runs"] if one["subscriptions"] == SERVICES[0]]
    ids = figures["ids_a_second_a_subscription"] * SERVICES[0]
    rounds = figures["rows_a_minute_a_subscription"] * SERVICES[0] / 60
    of_an_id = measured("load-ids")["cores_by_process"]["run"] / measured("load-ids")["announced_per_second"]
    left = figures["cores_by_process"]["run"] - 0.001 * SERVICES[0] - of_an_id * ids
    assert f"Each round of a shard takes {left / rounds * 1_000:.1f} ms of `run`" in PAGE
    assert f"takes {of_an_id * 1_000:.2f} ms of `run`" in PAGE
    assert f"r: {rounds / ids:.1f} per message" in PAGE


def test_sweep_stays_within_the_limit_of_its_benchmark() -> None:
    limit = sweep.CORES_MAX / 200
    assert agrees(row("`sweep` at rest")[1:], [limit * services for services in SERVICES[1:]])


def test_rows_and_disk_follow_from_messages() -> None:
    messages = [services * SECONDS_A_DAY for services in SERVICES]
    assert agrees(row("messages per day, million"), [count / 1e6 for count in messages])
    rows = [1.4 * count for count in messages]
    assert agrees(row("rows of rounds per day"), [count / 1e6 for count in rows])
    assert agrees(row("disk of these rows"), [count * 406 / 1e9 for count in rows])
    assert agrees(row("history, GB per day"), [count * 2 * 16.2 / 1e9 for count in messages])
    assert agrees(
        row("half messages in place of announcements: `reconciler_half`"), [count * 0.2 / 1e6 for count in messages]
    )
    costs = measured("message-costs")
    row_bytes = costs["producer"]["row_bytes"] + costs["consumer"]["row_bytes"]
    assert agrees(row("outboxes and inboxes together"), [count * row_bytes / 1e9 for count in messages])


def test_redis_follows_from_the_keys_that_wait() -> None:
    waiting_bytes = measured("load-lag")["redis_bytes_an_id_lagging"]
    assert agrees(row("Redis, MiB more"), [services * 3_600 * waiting_bytes / 2**20 for services in SERVICES])
    assert agrees(row("Redis, MiB |"), [12 + 0.07 * services for services in SERVICES])


def test_connections_and_requests_follow_from_processes() -> None:
    runs = row("`run`, processes")
    assert runs == [math.ceil(cores / 0.7) for cores in row("`run`, cores")]
    assert row("connections to each database") == [15 * (count + 1) + 20 * 2 for count in runs]
    assert row("pulls of `run`") == [SHARDS * count for count in runs]
    block = measured("message-costs")["producer"]["block"]
    requests = block["SEND_MESSAGE_V2"] + block["END_TRANSACTION"]
    assert agrees(row("requests of the services"), [requests * services for services in SERVICES])


def test_every_command_on_the_page_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", PAGE)) <= targets
    modules = re.findall(r"`python -m benchmarks\.(\w+)`", PAGE)
    assert modules
    assert [name for name in modules if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []
