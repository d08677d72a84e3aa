"""Large messages whose copies do not fit into a frame together, which ends the connection: the newest ones are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.halves.half_topic import DeliveredCopies, MasterQueues, ReadingRate, half_copy
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from tests.services.patient_instance import patient_instance
from tests.unit.embedded.check_back_stage import Stage, stage
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.test_halves_that_announce import BROKER, key

COMMIT = 8
LARGE = b"x" * 3_900_000


@pytest.fixture
def play() -> Iterator[Stage]:
    with stage("4.9", check_interval_seconds=10_000.0) as made:
        made.round()  # makes the half topic
        yield made


@pytest.fixture
def instance(play: Stage) -> Iterator[ClientInstance]:
    with patient_instance(play.broker.address) as made:
        Admin(made.client).create_topic(play.broker.address, TOPIC, queues=4)
        yield made


def queues_of(play: Stage, instance: ClientInstance) -> MasterQueues:
    return MasterQueues(instance.client, BROKER, play.broker.address, pace=ReadingRate(play.clock, 1e9))


def test_the_newest_copies_of_a_large_half_are_found(play: Stage, instance: ClientInstance) -> None:
    for _ in range(5):  # stands for one half that was put back
        play.half(key(1), body=LARGE)
    assert queues_of(play, instance).half_offsets(key(1)) == {2, 3, 4}


def test_a_large_message_is_delivered_whatever_fits_into_a_frame(play: Stage, instance: ClientInstance) -> None:
    for _ in range(5):
        play.end(play.half(key(1), body=LARGE, KEYS="7"), COMMIT)
    play.half(key(2), KEYS="7", TAGS="other")
    halves = list(queues_of(play, instance).records(HALF_TOPIC, 4, 6))
    copies = [half_copy(half, timeout_seconds=6.0, keys={TOPIC: "KEYS"}) for half in halves]
    delivered = DeliveredCopies(
        instance.client, {BROKER: play.broker.address}, pace=ReadingRate(play.clock, 1e9)
    )  # fmt: skip
    large, other = (copy.identity for copy in copies)
    assert delivered.of(copies) == {large: True, other: False}
    # Of the five of its key three fit, and none of these has the other tag: more of them might.
    assert delivered.others_of(copies) == {large: True, other: None}
    assert delivered.failures == {}
