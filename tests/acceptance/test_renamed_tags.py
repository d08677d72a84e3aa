"""A group gets another name and its right tags at once: what the wrong ones have settled is judged again, since the new
name reads every announcement that the brokers keep."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.test_changed_tags import run_both, states
from tests.acceptance.test_renamed_group import refusals, rename
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(300),
]  # fmt: skip


def test_lost_message_that_wrong_tags_settled_under_the_old_name_is_repaired_under_the_new_one(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    run_both(deployed, tags="refund")
    member, producer = deployed.consume(), deployed.producer()
    arrived = deployed.commit(3, producer=producer)
    (lost,) = deployed.commit(1, lose=True, producer=producer)
    eventually(lambda: states(deployed) == {"SETTLED"}, within_seconds=60)
    eventually(lambda: deployed.effects() == sorted(arrived), within_seconds=60)
    member.shutdown()
    for service in deployed.services:
        assert service.end() == 0
    new = f"{deployed.group}-2"
    eventually(lambda: refusals(deployed, new) == [], within_seconds=60)
    assert rename(deployed, new, "--yes")[0] == 0
    deployed.take_group(new)
    run_both(deployed, tags=None)
    deployed.consume()
    eventually(lambda: deployed.repairs() == {lost: "DONE"}, within_seconds=60)
    eventually(lambda: states(deployed) == {"SETTLED"}, within_seconds=60)
    assert deployed.effects() == sorted([*arrived, lost])
    assert set(deployed.copies().values()) == {1}
