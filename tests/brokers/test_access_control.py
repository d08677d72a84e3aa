"""Real brokers with access control: every role runs with exactly its rights, and what is refused is named."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import examine
from reconciler.commands.status.reading import read_status
from reconciler.errors import ReconcilerError
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.services.rocketmq import marks
from tests.services.rocketmq_users import create_users, is_acl, secured_cluster
from tests.services.secured_roles import (
    ROLES,
    SECRET,
    RefusalLog,
    SecuredRoles,
    rights_of,
    settings_of,
    user_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: One right of every kind that a role loses, by role; what the embedded broker shows for each right is shown once here.
LOST = {
    "announcing service": ("PUB", "topic", "RECONCILER_UNIQUE_KEY"),
    "run": ("SUB", "topic", "RMQ_SYS_TRANS_HALF_TOPIC"),
    "consuming service": ("SUB", "group", "billing-group"),
    "doctor": ("SUB", "topic", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"),
}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("4.9.7", marks=marks("4.9.7")),
        pytest.param("5.3.3", marks=[*marks("5.3.3"), pytest.mark.nightly]),
        pytest.param("5.4.0", marks=[*marks("5.4.0"), pytest.mark.nightly]),
        pytest.param("5.5.0", marks=marks("5.5.0")),
    ],
)
def test_every_role_runs_with_exactly_its_rights_and_names_one_that_is_lost(version: str, tmp_path: Path) -> None:
    users = {user_of(role): rights_of(role, is_acl=is_acl(version)) for role in ROLES}
    lacking = {
        f"{user_of(role)}-lacking": [right for right in users[user_of(role)] if right != lost]
        for role, lost in LOST.items()
    }
    schema.upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    with secured_cluster(version, users | lacking, secret=SECRET) as cluster:
        create_users(cluster, users | lacking, secret=SECRET)
        with RefusalLog() as told:
            roles = SecuredRoles(cluster.name_servers, tmp_path)
            for step in roles.steps().values():
                step()
            with Connections(settings_of("doctor", cluster.name_servers, tmp_path)) as connections:
                doctor = [one.as_row() for one in examine(connections)]
        assert not told.lines
        of_brokers = [f for f in doctor if f.check.startswith(("broker", "rights", "topic", "group ", "name server"))]
        assert of_brokers
        assert not [finding for finding in of_brokers if finding.level == "fail"]
        for role, (action, kind, name) in LOST.items():
            if role == "doctor" and version < "5.4":
                continue  # it needs this right from 5.4 on
            with RefusalLog() as told:
                poorer = SecuredRoles(
                    cluster.name_servers, tmp_path, is_refused=lambda: bool(told.lines), user_suffix="-lacking"
                )
                with suppress(AssertionError, ReconcilerError):
                    poorer.steps()[role]()
            assert any(f"lacks {action}" in line and f" on {kind} {name};" in line for line in told.lines), told.lines
        settings = settings_of("run", cluster.name_servers, tmp_path, user_suffix="-lacking")
        with Connections(settings) as connections:
            status = read_status(connections)
        assert status.exit_code == 3
        assert any(
            "rights at brokers" in line and "RMQ_SYS_TRANS_HALF_TOPIC" in line for line in map(said, status.away)
        )
