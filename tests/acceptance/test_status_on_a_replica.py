"""An inbox_url that leads to a replica: no missing effect is known, nothing is repaired, and commands say so."""

from __future__ import annotations

import json

import pytest

from reconciler.sql import schema
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.marked_secrets import marked
from tests.polling import eventually
from tests.services.mariadb import MariaDBServer

NOT_PROVED = "not proved to be a primary"

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.sql("mariadb"), pytest.mark.slow]


def test_status_and_doctor_are_not_calm_while_an_inbox_is_read_from_a_replica(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    outbox = f"outbox of {deployed.producer_group}: a primary; no sweep on record: let `reconciler sweep` run"
    (line,) = json.loads(deployed.command("status", "--output", "json").stdout)["unproved"]
    assert line.startswith(outbox)
    # Read-only as a replica is; the login here may write all the same.
    with MariaDBServer(options={"read-only": "1"}, password=marked("mariadb")) as replica:
        url = replica.create_database()
        schema.upgrade(url, "inbox")
        file = deployed.file_of("inbox")
        file.write_text(url)
        settings = deployed.config.read_text()
        sqlite = f'inbox_url = "sqlite:///{deployed.inbox}"'
        assert sqlite in settings
        deployed.config.write_text(settings.replace(sqlite, f'inbox_url_file = "{file}"'))
        status = deployed.command("status", "--output", "json")
        inbox = f"inbox of {deployed.topic}/{deployed.group}"
        told = json.loads(status.stdout)
        assert status.exit_code == 3
        remedy = "point inbox_url at the primary"
        for line, begins in zip(told["unproved"], (outbox, f"{inbox}: {NOT_PROVED}: a replica: {remedy}"), strict=True):
            assert line.startswith(begins)
        assert any(line.startswith(f"{inbox}: {NOT_PROVED}") and "inbox_url" in line for line in told["late"])
        assert f"unproved: {inbox}: {NOT_PROVED}" in status.stderr
        doctor = deployed.command("doctor", "--output", "json")
        assert doctor.exit_code == 1
        assert f"role of {inbox}" in doctor.stdout
        deployed.run("run")
        # Nothing is sent: the effect of a lost message is not known to be missing.
        (lost,) = deployed.commit(1, lose=True)
        deployed.consume()
        eventually(
            lambda: deployed.command("list", "candidates", "--output", "json").stdout.count(lost), within_seconds=60
        )
        story = deployed.command("explain", lost, "--output", "json").stdout
        assert "UNKNOWN" in story
        assert NOT_PROVED in story
        assert deployed.effects() == []
