"""An option of TransactionalConsumer, or a message of one of its topics, goes to another place than its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkback_consumers import push
from reconciler.clock import ManualClock
from reconciler.errors import InvalidValue
from reconciler.rocketmq.consumer.settings import PushSettings


class Taken:
    """What would have gone to the push consumer."""

    def __init__(self, group: str, **options: object) -> None:
        self.group = group
        self.options = options
        self.subscribed: dict[str, str] = {}
        self.listener: Any = None
        self.orderly: bool | None = None

    def subscribe(self, topic: str, expression: str) -> None:
        self.subscribed[topic] = expression

    def register_listener(self, listener: object, *, orderly: bool) -> None:
        self.listener, self.orderly = listener, orderly

    def start(self) -> None:
        self.options["started"] = True

    def shutdown(self) -> bool:
        return bool(self.options.pop("started"))


def handler(*topics: str, group: str = "billing") -> Any:
    return SimpleNamespace(
        group=group,
        topics=topics or None,
        require_open=lambda: None,
        listener=lambda messages: (topics, [one.topic for one in messages]),
    )


@pytest.fixture(autouse=True)
def _taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "PushConsumer", Taken)


def test_an_option_is_lost_on_its_way_to_the_client() -> None:
    clock, settings = ManualClock(), PushSettings()
    consumer: Any = push.TransactionalConsumer(
        handler("ORDERS"), name_servers="a:9876", settings=settings, clock=clock, orderly=True
    ).consumer
    assert (consumer.group, consumer.orderly) == ("billing", True)
    given = {"name_servers": "a:9876", "instance": None, "settings": settings, "clock": clock}
    assert consumer.options.items() >= given.items()
    shared: Any = object()
    other: Any = push.TransactionalConsumer(
        handler("ORDERS"), instance=shared, offset_commit_interval_seconds=0.25
    ).consumer
    assert (other.orderly, other.options["instance"]) == (False, shared)
    assert other.options["settings"] == PushSettings(offset_commit_interval_seconds=0.25)


def test_a_message_is_handled_by_the_handler_of_another_topic() -> None:
    orders, refunds = handler("ORDERS", "RETURNS"), handler("REFUNDS")
    with push.TransactionalConsumer(orders, refunds, subscriptions={"ORDERS": "paid", "REFUNDS": "*"}) as joined:
        consumer: Any = joined.consumer
        assert consumer.options["started"]
        assert consumer.subscribed == {"ORDERS": "paid", "REFUNDS": "*"}
        for topic, of in (("ORDERS", orders), ("REFUNDS", refunds)):
            assert consumer.listener([SimpleNamespace(topic=topic)]) == (of.topics, [topic])
    assert "started" not in consumer.options
    without: Any = push.TransactionalConsumer(orders, refunds).consumer
    assert without.subscribed == {"ORDERS": "*", "RETURNS": "*", "REFUNDS": "*"}


@pytest.mark.parametrize(
    ("handlers", "subscriptions", "field"),
    [
        ([], None, "handlers"),
        ([handler("ORDERS"), handler("REFUNDS", group="mail")], None, "handlers"),
        ([handler("ORDERS"), handler("ORDERS")], None, "subscriptions"),
        ([handler("ORDERS")], {"REFUNDS": "*"}, "subscriptions"),
        ([handler()], None, "subscriptions"),
    ],
)
def test_a_topic_that_two_handlers_take_or_none_is_found_at_the_first_message(
    handlers: list[Any], subscriptions: dict[str, str] | None, field: str
) -> None:
    with pytest.raises(InvalidValue, match=field):
        push.TransactionalConsumer(*handlers, name_servers="a:9876", subscriptions=subscriptions)
