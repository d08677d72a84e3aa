"""Whether an effect query can be trusted, seen at real databases: tried on messages that the group has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.secret import secret_text
from reconciler.policy.commit_query_dry_run import QueryAspect
from reconciler.policy.evidence import StoredMessage
from reconciler.wiring.effect_queries import ConfiguredEffectQuery, dry_run_of_effects
from tests.integration.policy.test_commit_queries import Shop, rows, shop_in
from tests.integration.policy.test_effects_proved_by_queries import EFFECTS, effect_query, with_bills
from tests.unit.policy.fake_broker import FakeBroker

#: Messages that the group has passed.
PASSED = 30


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    """Bills b0 ... are billed."""
    with shop_in(new_database_url()) as made:
        with_bills(made)
        made.write(rows("bills", (f"('b{number}', 'BILLED')" for number in range(PASSED))))
        yield made


def passed(number: int = PASSED, begin: str = "b") -> dict[str, StoredMessage]:
    broker = FakeBroker(ManualClock())
    bodies = {f"U-{begin}{one}": f'{{"number": "{begin}{one}"}}'.encode() for one in range(number)}
    return {key: replace(broker.send_half(key), topic="ORDERS", body=body) for key, body in bodies.items()}


def found(
    shop: Shop, delivered: dict[str, StoredMessage], sql: str = EFFECTS, *, url: str = ""
) -> dict[str, tuple[str, str]]:
    one = ConfiguredEffectQuery(effect_query(sql), secret_text(url or shop.reader_url))
    tried = dry_run_of_effects(one, delivered, clock=ManualClock())
    return {told.aspect.value: (told.fitness.value, told.found.code.name.removeprefix("query.")) for told in tried}


def test_a_sound_query_is_trusted(shop: Shop) -> None:
    told = found(shop, passed())
    of_commits = {"answer", "transactions", "keys", "committed-halves", "rolled-back-halves"}
    assert set(told) == {aspect.value for aspect in QueryAspect} - of_commits
    assert told["delivered-messages"] == ("fit", "effects-found")
    assert told["plan"] == ("fit", "plan-fits")
    assert told["role"] == ("fit", "is-primary")
    assert told["trust"][0] in ("fit", "noted")


def test_more_than_one_in_a_hundred_without_an_effect_is_for_a_person(shop: Shop) -> None:
    shop.write("UPDATE bills SET status = 'NEW' WHERE number = 'b7'")
    told = found(shop, passed())
    assert (told["delivered-messages"], told["trust"]) == (
        ("doubtful", "effects-missed"),
        ("doubtful", "person-accepts"),
    )


def test_few_messages_are_for_a_person(shop: Shop) -> None:
    assert found(shop, passed(19))["delivered-messages"] == ("doubtful", "effects-too-few")
    assert found(shop, {})["delivered-messages"] == ("doubtful", "effects-too-few")


@pytest.mark.parametrize(
    "sql",
    [
        EFFECTS.replace("status", "number"),
        EFFECTS.replace("SELECT number", "SELECT status"),
        EFFECTS.replace("bills", "gone"),
    ],
)
def test_a_query_that_finds_no_effect_cannot_be_accepted(shop: Shop, sql: str) -> None:
    assert found(shop, passed(), sql)["trust"] == ("unfit", "not-trusted")


def test_a_key_of_something_else_cannot_be_accepted(shop: Shop) -> None:
    assert found(shop, passed(begin="customer-"))["trust"] == ("unfit", "not-trusted")


def test_a_login_that_can_write_is_told(shop: Shop) -> None:
    told = found(shop, passed(), url=shop.owner.url.render_as_string(hide_password=False))
    assert told["login"] == (("noted", "no-logins") if shop.kind == "sqlite" else ("unfit", "may-write"))
