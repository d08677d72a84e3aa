"""A group that pops, on a real broker: what is invisible counts as passed, so that the group keeps its name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.commands.renaming.group_rename import WantedRename, rename_group
from reconciler.errors import ChangedMeanwhile
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.wire.codes import pop_retry_topics
from reconciler.settings.file import load_settings
from reconciler.wiring.connections import Connections
from tests.brokers.popping import PoppingConsumer
from tests.brokers.popping_group import LONG, QUICK, SHORT
from tests.integration.test_group_rename import NEW, OLD, TOPIC, Shop
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import marks

pytestmark = marks("5.5.0")


#: The broker forgets after a second that a group popped; it looks every ten.
FORGETFUL = {"subscriptionExpiredTimeout": "1000"}


@pytest.fixture
def shop(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory, tmp_path: Path) -> Iterator[Shop]:
    """On a broker with the properties that a test gives."""
    broker = new_rocketmq_cluster("5.5.0", properties=QUICK | getattr(request, "param", {})).broker()
    made = Shop(broker, tmp_path)
    yield made
    made.client.close()


@pytest.fixture
def member(shop: Shop) -> Iterator[PoppingConsumer]:
    """Of the old name; no heartbeat tells a broker of it."""
    with patient_instance(shop.broker.name_servers) as instance:
        yield PoppingConsumer(
            instance=instance, address=shop.broker.address, broker_name=shop.broker_name, group=OLD, topic=TOPIC
        )


def hand_out(shop: Shop, member: PoppingConsumer) -> None:
    """One message, which nobody acknowledges: the offset is behind it, and no queue holds anything that the group has
    not passed."""
    shop.send(TOPIC, 1)
    assert eventually(lambda: member.pop(invisible_seconds=LONG), within_seconds=60)
    eventually(lambda: shop.offset(OLD) == 4, within_seconds=60)


def refusals(shop: Shop, capsys: pytest.CaptureFixture[str], *, pulls: bool) -> list[str]:
    return list(shop.rename(capsys, "--dry-run", pulls=pulls)[1]["refused"])


def test_what_either_name_pops_stands_in_the_way_whatever_a_person_says(
    shop: Shop, member: PoppingConsumer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy connects no member that a broker shows."""
    hand_out(shop, member)
    assert eventually(lambda: replace(member, group=NEW).pop(invisible_seconds=LONG), within_seconds=60)
    assert refusals(shop, capsys, pulls=True) == [
        f"{OLD} pops {TOPIC}: messages that were handed out may come again under the old name only",
        f"{NEW} has popped {TOPIC} in the last minutes, stop its members, and wait for ten",
    ]
    assert (shop.rename(capsys, "--yes")[0], shop.rows(NEW)) == (1, [0, 0])


@pytest.mark.nightly
def test_a_new_name_that_pops_while_rows_are_copied_gets_no_offsets(shop: Shop, member: PoppingConsumer) -> None:
    pages = itertools.count()

    def works(_seen: int, _of: int) -> None:
        if next(pages) == 1:
            assert eventually(lambda: replace(member, group=NEW).pop(invisible_seconds=LONG), within_seconds=60)

    wanted = WantedRename(old=OLD, new=NEW, by="anna", pulls=True, progress=works)
    with (
        closing(Connections(load_settings(shop.settings, {}))) as connections,
        pytest.raises(ChangedMeanwhile, match=f"{NEW} has popped {TOPIC}"),
    ):
        rename_group(connections, wanted, dry_run=False)


@pytest.mark.nightly
@pytest.mark.parametrize("shop", [FORGETFUL], indirect=True, ids=["forgetful"])
def test_once_no_sign_of_popping_is_left_a_person_decides_until_a_message_comes_again(
    shop: Shop, member: PoppingConsumer, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_out(shop, member)
    (why,) = eventually(
        lambda: found if "is not shown" in str(found := refusals(shop, capsys, pulls=False)) else None,
        within_seconds=60,
    )
    assert "--pulls" in why
    assert refusals(shop, capsys, pulls=True) == []
    shop.send(TOPIC, 1)
    assert member.pop(invisible_seconds=SHORT)
    # What comes again lies in its retry topic of POP, where it has an offset for good.
    in_vain, admin = set(pop_retry_topics(TOPIC, OLD)), Admin(shop.client)
    eventually(lambda: in_vain & set(admin.topics_of_group(shop.broker.address, OLD)), within_seconds=60)
    eventually(lambda: not any(admin.subscribes(shop.broker.address, OLD, name) for name in in_vain), within_seconds=60)
    assert f"{OLD} pops {TOPIC}" in str(refusals(shop, capsys, pulls=True))
