"""Stock clients of other languages beside the whole product: their keys hold from the wire to the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from reconciler.contract.unique_key import is_digits, is_unique_key
from tests.clients.clients import REMOTING, Client
from tests.clients.shop import Shop
from tests.services.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.nightly, pytest.mark.redis, pytest.mark.timeout(900)]

NewShop = Callable[..., Shop]
GO = REMOTING[0]
EACH = pytest.mark.parametrize("client", [pytest.param(client, id=client.name) for client in REMOTING])


@EACH
@pytest.mark.parametrize("rung", ["end", "republish"])
def test_what_it_commits_arrives_what_it_rolls_back_does_not_and_what_it_loses_is_repaired_once(
    new_shop: NewShop, broker: EmbeddedBroker, client: Client, rung: str
) -> None:
    shop = new_shop(client, name_servers=broker.name_servers, subscription=f'repair_order = ["{rung}"]')
    service = shop.client()
    plain = service.send("plain")
    assert re.fullmatch(client.key, plain)
    assert (is_unique_key(plain), is_digits(plain)) == (True, client.has_digits)
    committed = service.half("committed", mark=shop.mark)
    shop.commit_locally(committed)
    service.answer(committed, "commit")
    service.answer(service.half("rolled-back", mark=shop.mark), "rollback")
    shop.has_effects(plain, committed)
    broker.configure({"fault.drop_ends": "1", "fault.drop_checks": "-1"})
    lost = service.half("lost", mark=shop.mark)
    shop.commit_locally(lost)
    service.answer(lost, "commit")
    shop.has_effects(plain, committed, lost)
    shop.is_settled(lost)
    service.expect("received", "lost")
    assert service.received() == {plain: "plain", committed: "committed", lost: "lost"}
    assert shop.deployed.copies() == dict.fromkeys((plain, committed, lost), 1)


@EACH
def test_a_question_of_the_broker_is_answered_by_it_and_after_its_death_by_the_plug_in_of_its_group(
    new_shop: NewShop, broker: EmbeddedBroker, client: Client
) -> None:
    shop = new_shop(client, name_servers=broker.name_servers)
    service = shop.client()
    asked = service.half("asked", mark=shop.mark)
    shop.commit_locally(asked)
    service.answer(asked, "unknown", to_checks="commit")
    assert service.expect("check", "asked") == asked
    shop.has_effects(asked)
    inherited = service.half("inherited", mark=shop.mark)
    shop.commit_locally(inherited)
    service.kill()
    shop.deployed.producer()
    shop.has_effects(asked, inherited)
    shop.is_settled()


def test_what_go_sends_again_under_its_key_after_a_lost_answer_has_one_effect(
    new_shop: NewShop, broker: EmbeddedBroker
) -> None:
    broker.configure({"fault.drop_checks": "-1"})  # the halves whose answers were lost stay open
    shop = new_shop(GO, name_servers=broker.name_servers)
    service = shop.client()
    broker.configure({"fault.lose_send_replies": "1"})
    plain = service.send("plain")
    broker.configure({"fault.lose_send_replies": "1"})
    committed = service.half("committed", mark=shop.mark)
    shop.commit_locally(committed)
    service.answer(committed, "commit")
    broker.configure({"fault.lose_send_replies": "1"})
    lost = service.half("lost", mark=shop.mark)
    broker.configure({"fault.drop_ends": "1"})
    shop.commit_locally(lost)
    service.answer(lost, "commit")
    shop.has_effects(plain, committed, lost)
    shop.is_settled(lost)
    assert shop.deployed.copies() == {plain: 2, committed: 1, lost: 1}
    shop.has_effects(plain, committed, lost)
