"""`reconciler topics create`: ours always, the business topics only when asked, existing ones untouched."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from reconciler.rocketmq.client.admin import Admin
from tests.acceptance.command import one_object, reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.services.patient_instance import patient_instance

pytestmark = [pytest.mark.acceptance, pytest.mark.redis]


@pytest.fixture
def deployed(new_deployment: DeploymentFactory) -> Deployment:
    """A deployment whose business topic exists with four queues."""
    return new_deployment()


def test_topics_can_be_created_again(deployed: Deployment) -> None:
    document = one_object(deployed.command("topics", "create", "--output", "json"))
    assert {(t["topic"], t["queues"]) for t in document["topics"]} == {
        (deployed.unique_key_topic, deployed.shards),
        (f"PROBE_{deployed.run_name}", 1),
    }


def test_a_business_topic_that_exists_keeps_its_queues(deployed: Deployment) -> None:
    document = one_object(
        deployed.command("topics", "create", "--business", "--business-queues", "9", "--output", "json")
    )
    assert deployed.topic not in {t["topic"] for t in document["topics"]}
    assert queues_of(deployed, deployed.topic) == 4


def test_business_topics_and_groups_are_made_where_they_are_missing(deployed: Deployment, tmp_path: Path) -> None:
    fresh, group = f"FRESH_{deployed.run_name}", f"fresh_{deployed.run_name}"
    text = deployed.config.read_text()
    old_group = tomllib.loads(text)["subscriptions"][0]["group"]
    config = tmp_path / "fresh.toml"
    config.write_text(text.replace(f'"{deployed.topic}"', f'"{fresh}"').replace(f'"{old_group}"', f'"{group}"'))
    arguments = ("topics", "create", "--output", "json", "--config", config)

    without = one_object(reconciler(*arguments))
    assert fresh not in {t["topic"] for t in without["topics"]}
    document = one_object(reconciler(*arguments, "--business", "--business-queues", "3"))

    assert (fresh, 3) in {(t["topic"], t["queues"]) for t in document["topics"]}
    assert queues_of(deployed, fresh) == 3
    with patient_instance(deployed.name_servers) as instance:
        assert all(group in Admin(instance.client).groups(a) for a in instance.cluster_addresses())


def queues_of(deployed: Deployment, topic: str) -> int:
    """Read queues of a topic on the one master."""
    with patient_instance(deployed.name_servers) as instance:
        (address,) = instance.cluster_addresses()
        return Admin(instance.client).topics(address)[topic]
