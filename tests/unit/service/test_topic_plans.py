"""Settings become plans: one a topic, with every group that END and republish reach."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconciler.contract.tables import Rung
from reconciler.errors import InvalidValue
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.replay_worker import load_function
from reconciler.wiring.rounds import topic_plans
from reconciler.wiring.subscriptions import find_subscription
from reconciler.wiring.sweep import announcement_route

TOML = """
environment = "test"
[rocketmq]
name_servers = "127.0.0.1:9876"
[unique_key_topic]
name = "KEYS"
queues = 4
topics = { ORDERS = "ORDER_KEYS" }
[redis]
url = "redis://127.0.0.1:6379/0"
[ledger]
url = "sqlite:////tmp/ledger.db"

[rounds]
skew_margin_seconds = 2

[[producers]]
group = "orders"
topics = ["ORDERS", "REFUNDS"]
outbox_url = "sqlite:////tmp/orders.db"
[[producers]]
group = "shop"
topics = ["ORDERS"]
[[producers]]
group = "legacy"
topics = ["EVENTS"]

[[subscriptions]]
topic = "ORDERS"
group = "billing"
tags = "paid || cancelled"
grace_period_seconds = 7
repair_order = ["republish", "hand-over"]
[[subscriptions]]
topic = "REFUNDS"
group = "billing"
[[subscriptions]]
topic = "ORDERS"
group = "shipping"
grace_period_seconds = 9
repair_order = ["republish", "hand-over"]
[[subscriptions]]
topic = "EVENTS"
group = "audit"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "reconciler.toml"
    path.write_text(TOML)
    return load_settings(path, {})


def test_topic_has_one_plan_with_all_its_groups(settings: Settings) -> None:
    orders, refunds, events = topic_plans(settings)
    assert [plan.topic for plan in (orders, refunds, events)] == ["ORDERS", "REFUNDS", "EVENTS"]
    billing, shipping = orders.subscriptions
    assert (billing.group, shipping.group) == ("billing", "shipping")
    assert orders.environment == "test"
    assert orders.shards == 4
    assert orders.repair_order == (Rung.REPUBLISH, Rung.HAND_OVER)
    assert orders.evidence.producer_groups == {"orders", "shop"}
    assert orders.grace_period_seconds == 9
    assert billing.grace_period_seconds == 7
    assert billing.tags == frozenset({"paid", "cancelled"})
    assert shipping.tags is None
    assert refunds.repair_order == (Rung.END, Rung.REPUBLISH, Rung.HAND_OVER)


def test_announcement_is_trusted_only_where_no_producer_of_the_topic_has_an_outbox(settings: Settings) -> None:
    trusts = {plan.topic: plan.evidence.trusts_announcements for plan in topic_plans(settings)}
    assert trusts == {"ORDERS": False, "REFUNDS": False, "EVENTS": True}


def test_unknown_group_is_a_usage_error(settings: Settings) -> None:
    assert find_subscription(settings, "REFUNDS", "billing").topic == "REFUNDS"
    with pytest.raises(InvalidValue, match=r"no \[\[subscriptions\]\] section"):
        find_subscription(settings, "REFUNDS", "shipping")


def test_announcements_travel_on_the_topic_of_their_business_topic(settings: Settings) -> None:
    route = announcement_route(settings)
    assert (route.environment, route.unique_key_topic, route.queues) == ("test", "KEYS", 4)
    assert route.topics == {"ORDERS": "ORDER_KEYS"}
    assert route.signature_secret is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("no_such_package.module:handle", "No module named"),
        ("reconciler.errors:nothing", "no attribute"),
        ("reconciler.errors", "package.module:function"),
        (":handle", "package.module:function"),
        ("reconciler.errors:__doc__", "is not callable"),
    ],
)
def test_handler_that_cannot_be_loaded_is_a_usage_error(name: str, part: str) -> None:
    with pytest.raises(InvalidValue, match="--handler") as caught:
        load_function(name)
    assert part in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_handler_is_found_in_the_folder_that_the_command_is_called_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handlers_of_a_shop.py").write_text("def apply(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_function("handlers_of_a_shop:apply").__name__ == "apply"


def test_handler_may_be_an_attribute_of_an_attribute() -> None:
    assert load_function("pathlib:Path.cwd") == Path.cwd
