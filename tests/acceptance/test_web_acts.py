"""Acts over HTTP, by a program with a token: what was lost takes effect; what was begun outlives the web process."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from jsonschema import Draft202012Validator

from reconciler.commands.acts.jobs import find_job
from reconciler.contract.tables import JobState
from reconciler.telling.ports.jobs import Job
from reconciler.web.acts.bodies import OPEN_BODY
from reconciler.web.acts.repairing import REPAIR
from reconciler.web.api.acts import description_of
from tests.acceptance.command import one_object
from tests.acceptance.deployment import Deployment, Service
from tests.acceptance.test_jobs import SETTINGS, connected, end_leases_of_jobs, slow_repairs
from tests.polling import eventually
from tests.services.ports import free_port

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]

LOST = 40


@pytest.fixture
def deployed(tmp_path: Path, services: tuple[str, str]) -> Iterator[Deployment]:
    redis_url, name_servers = services
    settings = f'{SETTINGS}\n[web]\nusers_file = "{tmp_path / "users.json"}"\n'
    with Deployment(
        tmp_path, redis_url=redis_url, name_servers=name_servers, settings=settings, has_marked_secrets=True
    ) as deployment:
        yield deployment


class Program:
    """A program with a token, and the web process that it asks."""

    def __init__(self, deployed: Deployment) -> None:
        made = deployed.command("web", "token", "add", "nightly", "--role", "operator", "--days", "1")
        assert made.exit_code == 0, made.stderr
        self._token = made.stdout.strip()
        self._port = free_port()
        self.process: Service = deployed.run("web", "--listen", f"127.0.0.1:{self._port}")
        eventually(self._is_there, within_seconds=60)

    def _is_there(self) -> bool:
        try:
            self.ask("GET", "/api/v1/nothing")
        except OSError:
            return False
        return True

    def would_repair(self, key: str) -> bool:
        """Whether a dry run finds that it is lost."""
        status, _, preview = self.ask("POST", "/api/v1/repairs", {"keys": [key], "dry_run": True})
        return (status, preview["keys"][0]["outcome"]) == (200, "planned")

    def ask(
        self, method: str, path: str, document: object = None, *, key: str = ""
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers by names in lower case, and document of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            headers |= {"Idempotency-Key": key or str(uuid4())} if method == "POST" else {}
            connection.request(method, path, json.dumps(document) if document is not None else None, headers)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, told, json.loads(answer.read())
        finally:
            connection.close()


def actions(deployed: Deployment) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one_object(deployed.command("list", "actions", "--limit", "500", "-o", "json"))[
        "actions"
    ]
    return found


def test_a_program_repairs_a_loss_once_however_often_it_asks(deployed: Deployment) -> None:
    (lost,) = deployed.commit(1, lose=True)
    deployed.consume()
    program = Program(deployed)
    eventually(lambda: program.would_repair(lost), within_seconds=60)
    assert not [row for row in actions(deployed) if row["by"] == "web:nightly"]

    wanted = {"keys": [lost], "reason": "INC-8"}
    status, told, first = program.ask("POST", "/api/v1/repairs", wanted, key="k1")
    assert (status, first["keys"][0]["outcome"], "idempotency-replayed" in told) == (200, "sent", False)
    status, told, again = program.ask("POST", "/api/v1/repairs", wanted, key="k1")
    assert (status, again, told["idempotency-replayed"]) == (200, first, "true")
    assert program.ask("POST", "/api/v1/repairs", {"keys": ["F" * 32]}, key="k1")[0] == 422
    Draft202012Validator(description_of(REPAIR).answer).validate(first)
    eventually(lambda: deployed.effects() == [lost], within_seconds=60)

    status, _, opened = program.ask("POST", f"/api/v1/messages/{lost}/body", {"reason": "caller asks"})
    Draft202012Validator(description_of(OPEN_BODY).answer).validate(opened)
    assert (status, opened["body"], opened["encoding"], opened["found_in"]) == (200, lost, "utf-8", "committed copy")
    rows = [
        (row["command"], row["unique_key"], row["detail"]) for row in actions(deployed) if row["by"] == "web:nightly"
    ]
    assert rows == [("body", lost, "caller asks"), ("repair", lost, "INC-8")]
    assert set(deployed.copies().values()) == {1}
    assert program.process.end() == 0, program.process.output[-2000:]


def test_a_bulk_repair_that_was_asked_for_over_http_ends_with_the_web_process(deployed: Deployment) -> None:
    lost = deployed.commit(LOST, lose=True)
    deployed.consume()
    program = Program(deployed)
    eventually(lambda: program.would_repair(lost[-1]), within_seconds=60)
    wanted = {"keys": lost, "topic": deployed.topic, "reason": "INC-9"}
    with connected(deployed) as connections:

        def job() -> Job:
            return find_job(connections, job_id)

        with slow_repairs(deployed):
            status, told, placed = program.ask("POST", "/api/v1/repairs", wanted, key="k2")
            job_id = placed["job"]["job_id"]
            assert (status, told["location"], placed["job"]["by"]) == (202, f"/api/v1/jobs/{job_id}", "web:nightly")
            eventually(lambda: job().done >= 3, within_seconds=60)
            program.process.end(signal.SIGKILL)
        left = job()
        assert left.state is JobState.RUNNING
        assert 3 <= left.done < LOST, "killed in the middle"
        end_leases_of_jobs(connections)
        deployed.run("run")
        ended = eventually(lambda: job() if job().ended_at_ms else None, within_seconds=120)
        assert (ended.state, ended.done, ended.total) == (JobState.DONE, LOST, LOST)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
    assert set(deployed.copies().values()) == {1}
    assert {row["by"] for row in actions(deployed) if row["command"] == "job"} == {"web:nightly"}
