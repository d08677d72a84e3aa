"""What `reconciler rights brokers` prints, run by mqadmin: every role does its work with it on a real broker."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from reconciler.commands.rights import CLUSTER, PASSWORD, role_of, statements_of
from reconciler.contract.broker_rights import NEW_GROUP
from reconciler.sql import schema
from tests.brokers.jars import broker_jars
from tests.services.rocketmq import CLUSTER_NAME, RocketMQCluster, marks
from tests.services.rocketmq_users import ADMIN, is_acl, secured_cluster
from tests.services.secured_roles import RENAMED_GROUP, ROLES, SECRET, RefusalLog, SecuredRoles, settings_of, user_of

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]


def mqadmin(cluster: RocketMQCluster, line: str, home: Path) -> None:
    """Runs the line as a person would, with the keys of the administrator."""
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "logback_tools.xml").write_text("<configuration/>")
    (conf / "tools.yml").write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.current_secret_key()}\n")
    name, *arguments = shlex.split(line)
    assert name == "mqadmin"
    java = ["java", f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-cp", f"{broker_jars(cluster.version)}/*"]
    done = subprocess.run(
        [*java, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "ROCKETMQ_HOME": str(home)},
    )  # fmt: skip
    assert "success" in done.stdout, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("version", [pytest.param(version, marks=marks(version)) for version in ("4.9.7", "5.5.0")])
def test_every_role_does_its_work_with_the_lines_that_are_printed_for_it(version: str, tmp_path: Path) -> None:
    schema.upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    with secured_cluster(version, {}, secret=SECRET) as cluster:
        settings = settings_of("run", cluster.name_servers, tmp_path)
        for role in ROLES:
            (found,) = statements_of(
                settings, "brokers", [role_of(role)], login=user_of(role), has_plain_acl=is_acl(version)
            )
            for line in found.statements:
                filled = line.replace(CLUSTER, CLUSTER_NAME).replace(PASSWORD, SECRET)
                mqadmin(cluster, filled.replace(NEW_GROUP, RENAMED_GROUP), tmp_path)
        with RefusalLog() as told:
            for step in SecuredRoles(cluster.name_servers, tmp_path).steps().values():
                step()
        assert not told.lines
