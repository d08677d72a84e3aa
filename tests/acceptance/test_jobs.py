"""Long actions as jobs: a process that dies in the middle costs time, and no message is sent twice."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.commands.acts.jobs import find_job, place_rebuild, place_repair
from reconciler.contract.tables import JobState
from reconciler.settings.file import load_settings
from reconciler.sql.tables import job as job_table
from reconciler.telling.ports.jobs import Job
from reconciler.wiring.connections import Connections
from tests.acceptance.command import one_object
from tests.acceptance.deployment import Deployment, Service
from tests.polling import eventually
from tests.services.embedded_broker import configure

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

LOST = 60
#: The claim on the key that was in hand runs out soon.
SETTINGS = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
[repairs]
check_back_wait_seconds = 0
claim_lease_seconds = 10
"""


@contextmanager
def slow_repairs(deployed: Deployment) -> Iterator[None]:
    """Whoever works on a job of dozens of keys is in the middle of it for half a minute."""
    configure(deployed.name_servers, {"fault.delay_ends": "0.5"})
    try:
        yield
    finally:
        configure(deployed.name_servers, {"fault.delay_ends": "0"})


def end_leases_of_jobs(connections: Connections) -> None:
    """As half a minute after the death of their owners."""
    with connections.ledger.database.writing() as connection:
        connection.execute(sa.update(job_table).values(lease_until_ms=1))


@contextmanager
def connected(deployed: Deployment) -> Iterator[Connections]:
    with Connections(load_settings(deployed.config, {})) as connections:
        yield connections


def job_process(deployed: Deployment) -> Service:
    log = deployed.folder / f"jobs-{len(deployed.services)}.log"
    arguments = ["-m", "tests.acceptance.job_process", str(deployed.config)]
    service = Service(log, arguments, program=sys.executable)
    deployed.services.append(service)
    return service


def proved_losses(deployed: Deployment, count: int) -> list[str]:
    """Keys whose loss is in the ledger and whose repair was held; nothing holds them any more, and no round runs."""
    assert deployed.command("hold", deployed.topic).exit_code == 0
    lost = deployed.commit(count, lose=True)

    def all_are_held() -> bool:
        deployed.command("once", "--wait", "8")
        return len(deployed.repairs()) == count

    eventually(all_are_held, within_seconds=120)
    assert deployed.command("resume", deployed.topic).exit_code == 0
    return lost


@pytest.fixture
def with_short_claims(tmp_path: Path, services: tuple[str, str]) -> Iterator[Deployment]:
    redis_url, name_servers = services
    with Deployment(
        tmp_path, redis_url=redis_url, name_servers=name_servers, settings=SETTINGS, has_marked_secrets=True
    ) as deployment:
        yield deployment


def test_a_bulk_repair_ends_with_the_process_that_was_killed_in_it_or_sends_a_message_twice(
    with_short_claims: Deployment,
) -> None:
    deployed = with_short_claims
    lost = proved_losses(deployed, LOST)
    deployed.consume()
    with connected(deployed) as connections:
        placed = place_repair(connections, lost, topic=None, group=None, reason="INC-7", by="anna")

        def job() -> Job:
            return find_job(connections, placed.job_id)

        with slow_repairs(deployed):
            first = job_process(deployed)
            eventually(lambda: job().done >= 5, within_seconds=60)
            first.end(signal.SIGKILL)
        left = job()
        assert (left.state, left.ended_at_ms) == (JobState.RUNNING, None)
        assert 5 <= left.done < LOST, "killed in the middle"
        end_leases_of_jobs(connections)
        second = job_process(deployed)
        ended = eventually(lambda: job() if job().ended_at_ms else None, within_seconds=120)
        second.end(signal.SIGKILL)
        assert (ended.state, ended.done, ended.total, ended.error) == (JobState.DONE, LOST, LOST, None), second.output

        # One key may have been in the hands of the killed process: its claim runs out, and rounds end its repair.
        assert sum(ended.counts.values()) == LOST
        assert ended.counts.get("sent", 0) + ended.counts.get("done", 0) >= LOST - 1
        assert {line["outcome"] for line in ended.lines} <= {"taken", "waits"}
    actions = one_object(deployed.command("list", "actions", "--limit", "500", "-o", "json"))["actions"]
    by_job = [row for row in actions if row["detail"] == f"job {placed.job_id}, INC-7"]
    assert {row["unique_key"] for row in by_job} == set(lost)
    assert len(by_job) <= LOST + 1, "the key in hand is on record twice, and no other"
    assert {(row["by"], row["command"]) for row in by_job} == {("anna", "repair")}
    deployed.run("run")
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
    assert set(deployed.copies().values()) == {1}


def test_run_does_jobs_and_the_command_line_shows_them(deployed: Deployment) -> None:
    deployed.consume()
    delivered = deployed.commit(3)
    eventually(lambda: deployed.effects() == sorted(delivered), within_seconds=60)
    nobodys = "F" * 32
    with connected(deployed) as connections:
        rebuild = place_rebuild(connections, since_ms=0, reason="drill", by="anna")
        repair = place_repair(connections, [nobodys], topic=deployed.topic, group=None, reason="", by="ben")
        cancelled = place_repair(connections, [], topic=None, group=None, reason="", by="ben")
    assert deployed.command("jobs", "cancel", cancelled.job_id).exit_code == 0
    service = deployed.run("run")

    def states() -> dict[str, str]:
        jobs = one_object(deployed.command("jobs", "list", "-o", "json"))["jobs"]
        return {job["job_id"]: job["state"] for job in jobs}

    expected = {rebuild.job_id: "DONE", repair.job_id: "DONE", cancelled.job_id: "CANCELLED"}
    eventually(lambda: states() == expected, within_seconds=90)
    shown = one_object(deployed.command("jobs", "show", rebuild.job_id, "-o", "json"))["job"]
    assert (shown["done"], shown["by"], shown["request"]) == (3, "anna", {"since_ms": 0, "reason": "drill"})
    ended = one_object(deployed.command("jobs", "show", repair.job_id, "-o", "json"), code=4)["job"]
    assert (ended["counts"], ended["total"]) == ({"unheard": 1}, 1)
    assert [(line["unique_key"], line["topic"]) for line in ended["lines"]] == [(nobodys, deployed.topic)]
    assert nobodys in deployed.command("jobs", "show", repair.job_id).stdout
    assert deployed.command("jobs", "cancel", repair.job_id).exit_code == 4
    assert deployed.command("jobs", "show", "no-such-job").exit_code == 2
    assert service.end() == 0, service.output[-2000:]
