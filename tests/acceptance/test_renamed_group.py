"""A group gets another name by the command: nothing happens twice, nothing is missed, and all is well afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]


def rename(deployed: Deployment, new: str, *options: str) -> tuple[int, dict[str, Any]]:
    ended = deployed.command("group", "rename", deployed.group, new, *options, "--output", "json")
    assert ended.stdout, ended.stderr
    return ended.exit_code, json.loads(ended.stdout)


def test_the_effects_of_a_renamed_group_happen_once_and_none_is_called_unapplied(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    service = deployed.run("run")
    member, producer = deployed.consume(), deployed.producer()
    old = deployed.commit(20, producer=producer)
    eventually(lambda: deployed.effects() == sorted(old), within_seconds=60)
    new = f"{deployed.group}-2"
    code, report = rename(deployed, new, "--yes")
    assert code == 1
    assert "members are connected" in str(report["refused"])
    member.shutdown()
    eventually(lambda: rename(deployed, new, "--dry-run")[0] == 0, within_seconds=60)
    assert service.end() == 0
    (waiting,) = deployed.commit(1, producer=producer)
    code, report = rename(deployed, new, "--yes")
    assert (code, "--leave-waiting" in str(report["refused"])) == (1, True)
    code, report = rename(deployed, new, "--yes", "--leave-waiting")
    assert (code, report["done"]) == (0, True)
    (inbox,) = report["inboxes"]
    assert inbox["copied"] == len(old)
    assert sum(one["offset"] for one in report["offsets"]) == len(old)

    deployed.config.write_text(deployed.config.read_text().replace(f'"{deployed.group}"', f'"{new}"'))
    deployed.group = new
    deployed.run("run")
    deployed.run("sweep")
    deployed.consume()
    later = deployed.commit(2, producer=producer)
    (lost,) = deployed.commit(1, lose=True, producer=producer)
    every = sorted([*old, waiting, *later, lost])
    eventually(lambda: deployed.effects() == every, within_seconds=90)

    def calm() -> bool:
        ended = deployed.command("status")
        return ended.exit_code == 0 and "All is well" in ended.stdout

    eventually(calm, within_seconds=90)
    assert deployed.effects() == every
    assert "DELIVERED_NOT_APPLIED" not in deployed.verdicts().values()
