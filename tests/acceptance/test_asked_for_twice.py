"""Two ask for the same message: a person or a second deployment beside `run` and `sweep`. The effect stays one."""

from __future__ import annotations

import copy
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.sql import schema
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.acceptance.marked_secrets import redis_options, with_login
from tests.polling import eventually
from tests.services.fixtures import RedisFactory
from tests.services.patient_instance import patient_instance

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

#: Where brokers put halves about which they have asked often enough.
PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"


@contextmanager
def administrator(deployed: Deployment) -> Iterator[tuple[Admin, Offsets, str, str]]:
    """Administration and offsets, the broker's name and address."""
    with patient_instance(deployed.name_servers) as instance:
        ((name, address),) = instance.routes.masters(deployed.topic).items()
        yield Admin(instance.client), Offsets(instance.client), name, address


def parked(deployed: Deployment) -> dict[str, str]:
    """Unique key -> offset message id of its parked half."""
    with patient_instance(deployed.name_servers) as instance:
        ((name, address),) = instance.routes.masters(deployed.topic).items()
        queue = MessageQueue(topic=PARKED, broker_name=name, queue_id=0)
        found: dict[str, str] = {}
        offset, end = 0, Offsets(instance.client).maximum(address, queue)
        while offset < end:
            page = pull(instance.client, address, PullRequest(queue=queue, offset=offset, group="parked"))
            found |= {record.unique_key or "": record.offset_message_id for record in page.records}
            offset = max(offset + 1, page.next_offset)
        return found


def has_consumed_all(deployed: Deployment) -> bool:
    """Whether the group has acknowledged every copy that its topic holds."""
    with administrator(deployed) as (_, offsets, name, address):
        queues = [MessageQueue(topic=deployed.topic, broker_name=name, queue_id=number) for number in range(4)]
        return all(
            offsets.maximum(address, queue) == max(0, offsets.of_group(address, queue, deployed.group) or 0)
            for queue in queues
        )


def test_halves_that_a_person_has_asked_about_again_have_one_effect_beside_run_and_sweep(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RESUME_CHECK_HALF_MESSAGE (323): the producer answers COMMIT while `run` sends END, and after it."""
    answered: set[str] = set()
    pass_on = deployed._pass

    def watched(address: str, command: Command) -> Command | None:
        passed = pass_on(address, command)
        if passed is not None and command.code == RequestCode.END_TRANSACTION:
            answered.add(command.fields.get("msgId", ""))
        return passed

    monkeypatch.setattr(deployed, "_pass", watched)
    deployed.consume()
    producer = deployed.producer()
    keys = deployed.commit(6, lose=True, producer=producer)
    found = eventually(lambda: parked(deployed) if parked(deployed).keys() >= set(keys) else None, within_seconds=60)
    deployed._dropped.clear()  # from now on the producer answers
    services = [deployed.run("run"), deployed.run("sweep")]
    eventually(lambda: deployed.repairs(), within_seconds=60, message="run is at work on them")
    with administrator(deployed) as (admin, _, _, address):
        for key in keys:  # whose END comes first is open, and where it is that of `run` nobody is asked
            admin.resume_check(address, PARKED, found[key])
        eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
        for key in keys:  # `run` has done with them: now the producer is asked
            admin.resume_check(address, PARKED, found[key])
    eventually(lambda: answered >= set(keys), within_seconds=60, message="the producer was asked about each once more")
    eventually(lambda: min(deployed.copies().values()) > 1, within_seconds=60, message="both ways bring copies")
    eventually(lambda: has_consumed_all(deployed), within_seconds=60)
    assert set(deployed.repairs().values()) == {"DONE"}
    assert deployed.copies().keys() == set(keys)
    assert deployed.effects() == sorted(keys)
    assert [service.end() for service in services] == [0, 0]


def shadow_of(deployed: Deployment, redis_url: str) -> Deployment:
    """The same settings with a ledger and a Redis of its own, and repairs switched off."""
    shadow = copy.copy(deployed)
    shadow.folder = deployed.folder / "shadow"
    shadow.folder.mkdir()
    shadow.config = shadow.folder / "reconciler.toml"
    deployed.file_of("second_redis").write_text(redis_url)
    text = deployed.config.read_text().replace(str(deployed.ledger), str(shadow.ledger))
    text = text.replace(str(deployed.file_of("redis")), str(deployed.file_of("second_redis")))
    shadow.config.write_text(text.replace("[repairs]\n", "[repairs]\nenabled = false\n"))
    schema.upgrade(f"sqlite:///{shadow.ledger}", "ledger")
    return shadow


@pytest.mark.nightly
def test_a_second_deployment_in_shadow_mode_finds_the_same_and_sends_nothing(
    new_deployment: DeploymentFactory, new_redis_server: RedisFactory
) -> None:
    deployed = new_deployment()
    second = new_redis_server(options=redis_options(deployed.folder))
    shadow = shadow_of(deployed, with_login(second.url))
    assert deployed.command("hold", deployed.topic).exit_code == 0
    services = [deployed.run("run"), deployed.run("sweep"), shadow.run("run")]
    producer = deployed.producer()
    deployed.consume()
    arriving, lost = deployed.commit(5, producer=producer), deployed.commit(3, lose=True, producer=producer)
    eventually(lambda: shadow.repairs() == dict.fromkeys(lost, "OPEN"), within_seconds=60)
    eventually(lambda: deployed.repairs() == dict.fromkeys(lost, "OPEN"), within_seconds=60)

    assert deployed.command("resume", deployed.topic).exit_code == 0
    eventually(lambda: set(deployed.repairs().values()) == {"DONE"}, within_seconds=60)
    eventually(lambda: has_consumed_all(deployed), within_seconds=60)
    assert deployed.effects() == sorted([*arriving, *lost])
    assert deployed.copies() == Counter([*arriving, *lost])
    with closing(sqlite3.connect(shadow.ledger)) as db:
        assert db.execute("SELECT sum(attempts) FROM reconciler_repair").fetchone() == (0,)
    assert [service.end() for service in services] == [0, 0, 0]
