"""The test kit: each accident is made up for by the product, and is seen where the product does not make up for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkback_consumers import (
    ConsumedMessage,
    PushSettings,
    TransactionalConsumer,
    effect,
    transactional_handler,
)
from checkback_consumers.inbox import InboxAnswer
from checkback_producers import Message, open_producer
from checkback_producers.check_answer import CheckAnswerer
from checkback_producers.errors import PermanentError, RolledBackAlready
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import Outcome
from checkback_producers.sweeper import Sweeper, SweepReport
from reconciler.errors import InvalidValue, UsageError
from reconciler.policy.inquiry import delivery
from reconciler.policy.outage import OutageRecovery
from reconciler.policy.repairing.case import RepairReport
from reconciler.policy.repairing.repair import Repairer
from reconciler.sql.engines import open_engine
from reconciler.sql.witness_database import DatabaseRole
from reconciler.testing.kit import Checkback
from tests.polling import eventually
from tests.unit.testing.shop import Shop


@pytest.fixture
def shop(checkback_kit: Checkback) -> Shop:
    return Shop(checkback_kit)


def lost_end(shop: Shop) -> None:
    shop.kit.lose_next_end()
    shop.place(7)
    settled = shop.kit.settle()
    assert settled.repairs == {}, "the producer's answer to the check-back was enough"
    shop.kit.assert_every_commit_took_effect()
    assert shop.bills() == [7]


def dead_producer(shop: Shop) -> None:
    shop.kit.kill_producer_before_end()
    shop.place(7)
    settled = shop.kit.settle()
    shop.kit.assert_every_commit_took_effect()
    assert settled.is_at_rest
    assert settled.repairs == {"end": 1}
    assert settled.verdicts["LOST_CONFIRM"] == 1
    assert shop.bills() == [7]


def group_away(shop: Shop) -> None:
    shop.kit.stop_group("billing")
    shop.place(7)
    settled = shop.kit.settle()
    assert not settled.is_at_rest
    assert set(settled.verdicts) == {"LAGGING"}, "a group that is away has lost nothing"
    shop.kit.start_group("billing")
    assert shop.kit.settle().is_at_rest
    shop.kit.assert_every_commit_took_effect()
    assert shop.bills() == [7]


def redelivery(shop: Shop) -> None:
    shop.place(7)
    shop.kit.settle()
    shop.kit.redeliver("billing")
    shop.kit.settle()
    assert shop.bills() == [7]
    assert (shop.kit.counts("billing")["applied"], shop.kit.counts("billing")["duplicates"]) == (1, 1)


def forgetful_redis(shop: Shop) -> None:
    shop.kit.kill_producer_before_end()
    shop.place(7)
    shop.kit.advance(15)
    shop.kit.turn()
    shop.kit.forget_redis()
    shop.kit.settle()
    shop.kit.assert_every_commit_took_effect()
    assert shop.bills() == [7]


def held_replica(shop: Shop) -> None:
    shop.kit.hold_replica("order-service")
    shop.kit.kill_producer_before_end()
    shop.place(7)
    settled = shop.kit.settle()
    assert "REJECTED" not in settled.verdicts
    assert settled.verdicts["UNKNOWN"]
    shop.kit.release_replica()
    shop.kit.settle()
    shop.kit.assert_every_commit_took_effect()


def clock_of_the_service_set_forward(shop: Shop) -> None:
    """The broker's question meets a half that looks old, before its transaction has written anything."""
    with pytest.raises(RolledBackAlready):
        _place_slowly(shop)
    shop.kit.step_clock("service", -3600)
    shop.place(7)
    shop.kit.settle()
    shop.kit.assert_every_commit_took_effect()
    assert shop.bills() == [7]


def _place_slowly(shop: Shop) -> None:
    message = Message(topic="ORDERS", body=b"{}")
    with shop.producer.transaction(message) as tx:
        shop.kit.step_clock("service", 3600)
        shop.kit.advance(10)
        eventually(lambda: shop.kit.faults.counts["end"] == 1, within_seconds=60)
        with shop.kit.database.begin() as connection:
            tx.record(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accident:
    happens: Callable[[Shop], None]
    #: What makes up for it, and what is there in its place.
    owner: Any
    name: str
    without: Any


ACCIDENTS = [
    Accident(happens=lost_end, owner=CheckAnswerer, name="answer", without=lambda _self, _half: Outcome.UNKNOWN),
    Accident(happens=dead_producer, owner=Repairer, name="run", without=lambda *_, **__: RepairReport()),
    Accident(happens=dead_producer, owner=Sweeper, name="announce_new", without=lambda *_: SweepReport()),
    Accident(happens=group_away, owner=delivery, name="has_passed", without=lambda *_: True),
    Accident(happens=redelivery, owner=effect, name="enter_inbox", without=lambda *_: InboxAnswer.NEW),
    Accident(happens=forgetful_redis, owner=OutageRecovery, name="run", without=lambda *_, **__: None),
    Accident(happens=held_replica, owner=DatabaseRole, name="proves_absence", without=lambda *_: True),
    Accident(
        happens=clock_of_the_service_set_forward, owner=SqlOutbox, name="insert_tombstone", without=lambda *_: True
    ),
]


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda a: f"{a.happens.__name__}-{a.name}")
def test_accident_is_made_up_for_and_is_seen_where_it_is_not(
    accident: Accident, checkback_kit: Checkback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accident.happens(Shop(checkback_kit))
    monkeypatch.setattr(accident.owner, accident.name, accident.without)
    kit = Checkback(f"sqlite:///{tmp_path / 'without.db'}", folder=tmp_path)
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            accident.happens(Shop(kit))
    finally:
        kit.close()


@pytest.mark.parametrize(
    ("happens", "step"),
    [
        (
            lambda shop: shop.kit.kill_producer_before_end(),  # one that lives announces at any moment
            "END_TRANSACTION did not reach the broker; nobody has announced the key",
        ),
        (
            lambda shop: shop.kit.stop_group("billing"),
            "its copy waits in the topic, and no consumer of the group is there",
        ),
    ],
)
def test_failure_names_key_business_id_and_step(
    happens: Callable[[Shop], None], step: str, checkback_kit: Checkback
) -> None:
    shop = Shop(checkback_kit)
    happens(shop)
    key = shop.place(7)
    with pytest.raises(AssertionError) as failure:
        checkback_kit.assert_every_commit_took_effect()
    assert f"ORDERS {key} (order-7) has had no effect in billing: {step}" in str(failure.value)


def test_each_service_may_have_a_database_of_its_own_and_a_group_the_tags_that_it_takes(
    checkback_kit: Checkback, tmp_path: Path
) -> None:
    kit, inbox_url = checkback_kit, f"sqlite:///{tmp_path / 'billing.db'}"
    kit.sends("order-service", "ORDERS")
    kit.receives("billing", "ORDERS", tags=["paid"], url=inbox_url)
    billed: list[bytes] = []
    engine = open_engine(inbox_url)

    @transactional_handler(engine, group="billing", topics="ORDERS")
    def bill(message: ConsumedMessage, _connection: object) -> None:
        billed.append(message.body)

    kit.run(
        "billing",
        lambda: TransactionalConsumer(bill, name_servers=kit.name_servers, subscriptions={"ORDERS": "paid"}),
    )
    producer = kit.producer("order-service")
    for tag in ("paid", "open"):
        kit.lose_next_end()
        with (
            producer.transaction(Message(topic="ORDERS", tags=tag, body=tag.encode())) as tx,
            kit.database.begin() as connection,
        ):
            tx.record(connection)
    assert kit.settle().is_at_rest
    kit.assert_every_commit_took_effect()
    assert billed == [b"paid"]
    engine.dispose()


def test_group_that_the_kit_does_not_run_is_waited_for_and_cannot_be_stopped_by_it(checkback_kit: Checkback) -> None:
    kit = checkback_kit
    kit.sends("order-service", "ORDERS")
    kit.receives("billing", "ORDERS")
    handler = transactional_handler(kit.database, group="billing", topics="ORDERS")(lambda _message, _connection: None)
    soon = PushSettings(offset_commit_interval_seconds=0.05)
    with TransactionalConsumer(handler, name_servers=kit.name_servers, settings=soon):
        producer = kit.producer("order-service")
        with producer.transaction(Message(topic="ORDERS", body=b"{}")) as tx, kit.database.begin() as connection:
            tx.record(connection)
        assert kit.settle().is_at_rest
        kit.assert_every_commit_took_effect()
        with pytest.raises(UsageError, match=r"was not started by run\('billing'"):
            kit.stop_group("billing")


@pytest.mark.parametrize(
    ("calls", "what"),
    [
        (lambda kit: kit.messages("BILLS"), r"no topic BILLS was made: sends\(group, 'BILLS'\)"),
        (lambda kit: kit.send("ORDER", b"7"), r"no topic ORDER was made: is it ORDERS\?"),
        (lambda kit: kit.redeliver("billing"), r"billing has had no message that could come again: settle\(\) first"),
        (lambda kit: kit.step_clock("Broker", 5), "host = 'Broker': one of broker, database"),
        (lambda kit: kit.revive_producer("orders"), r"no producer group orders was named: sends\('orders'"),
        (lambda kit: kit.run("billing", lambda: None), r"billing has its consumer: run\('billing', ...\)"),
    ],
)
def test_name_that_would_make_a_test_pass_in_vain_is_refused(
    calls: Callable[[Checkback], object], what: str, shop: Shop
) -> None:
    assert shop.kit.messages("%DLQ%billing") == []
    with pytest.raises((UsageError, InvalidValue), match=what):
        calls(shop.kit)


def test_message_to_a_topic_that_nobody_made_is_refused(checkback_kit: Checkback) -> None:
    checkback_kit.sends("order-service", "ORDERS")
    producer = checkback_kit.producer("order-service")
    with pytest.raises(PermanentError, match="OTHERS"), producer.transaction(Message(topic="OTHERS", body=b"{}")):
        pass


def test_service_that_receives_one_topic_and_sends_on_another_is_tested_without_those_beside_it(
    checkback_kit: Checkback,
) -> None:
    kit = checkback_kit
    kit.receives("shipping", "ORDERS")
    kit.sends("shipping-service", "SHIPMENTS")
    producer = kit.producer("shipping-service")
    todo: list[bytes] = []
    handler = transactional_handler(kit.database, group="shipping", topics="ORDERS")(
        lambda message, _connection: todo.append(message.body)
    )
    kit.run("shipping", lambda: TransactionalConsumer(handler, name_servers=kit.name_servers))
    kit.send("ORDERS", b"7", business_id="order-7", tags="paid")
    kit.settle()
    assert todo == [b"7"]
    kit.kill_producer_before_end()
    with (
        producer.transaction(Message(topic="SHIPMENTS", body=b"of 7"), business_id="shipment-7") as tx,
        kit.database.begin() as connection,
    ):
        tx.record(connection)
    assert not kit.settle().is_at_rest
    with pytest.raises(
        AssertionError, match=r"SHIPMENTS \w+ \(shipment-7\) has not reached its topic: .* name a group"
    ):
        kit.assert_every_commit_took_effect()
    kit.revive_producer("shipping-service")
    assert kit.broker.call(lambda broker: "shipping-service" in broker.clients.producers), "it can be asked at once"
    assert kit.settle().is_at_rest
    assert [message.body for message in kit.messages("SHIPMENTS")] == [b"of 7"]


def test_service_that_only_sends_needs_no_handler_for_its_messages_to_arrive(checkback_kit: Checkback) -> None:
    kit = checkback_kit
    kit.sends("order-service", "ORDERS")
    kit.stand_in("ORDERS")
    producers = [
        kit.producer("order-service"),
        open_producer(
            group="order-service", environment=kit.environment, instance=kit.instance, outbox_url=str(kit.database.url)
        ),
    ]
    with producers[1]:
        for producer in producers:
            kit.lose_next_end()
            with (
                producer.transaction(Message(topic="ORDERS", body=b"{}")) as tx,
                kit.database.begin() as connection,
            ):
                tx.record(connection)
        assert kit.settle().is_at_rest
    kit.assert_every_commit_took_effect()
    assert kit.counts("stand-in")["applied"] == 2


@pytest.mark.parametrize("knob", ["lose_next_end", "kill_producer_before_end"])
def test_accident_that_never_struck_is_named_at_the_end_of_its_test(knob: str, checkback_kit: Checkback) -> None:
    getattr(checkback_kit, knob)()
    with pytest.raises(AssertionError, match=rf"{knob}\(\) struck nothing: no END came afterwards"):
        checkback_kit.assert_every_accident_struck()
    checkback_kit.sends("order-service", "ORDERS")
    checkback_kit.send("ORDERS", b"7")
