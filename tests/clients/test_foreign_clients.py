"""Stock clients of other languages beside the whole product: their keys hold from the wire to the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest

from reconciler.contract.unique_key import is_digits, is_unique_key
from tests.brokers.addresses import REAL
from tests.clients.clients import GO, GRPC, JAVA, LIBROCKETMQ, Client
from tests.clients.foreign_client import ForeignClient
from tests.clients.shop import Shop
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import SharedClusters
from tests.services.rocketmq import marks
from tests.services.rocketmq_proxy import Proxy

pytestmark = [pytest.mark.nightly, pytest.mark.redis, pytest.mark.timeout(900)]

NewShop = Callable[..., Shop]
Test = Callable[..., None]
#: A broker of the line before, for clients that need no proxy.
OLDER = "4.9.7"


def each(clients: Sequence[Client]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", [pytest.param(client, id=client.name) for client in clients])


def on_the_real_broker(version: str) -> Callable[[Test], Test]:
    def marked(function: Test) -> Test:
        for mark in marks(version):
            function = mark(function)
        return function

    return marked


def send(service: ForeignClient, client: Client) -> str:
    """An ordinary message; returns its key, which looks as it should."""
    key = service.send("plain")
    assert re.fullmatch(client.key, key)
    assert (is_unique_key(key), is_digits(key)) == (True, client.has_digits)
    return key


def commit_and_roll_back(service: ForeignClient, shop: Shop) -> str:
    """One half each; returns the key of the committed one. Its effect means that the broker has both ENDs."""
    service.answer(service.half("rolled-back", mark=shop.mark), "rollback")
    committed = service.half("committed", mark=shop.mark)
    shop.commit_locally(committed)
    service.answer(committed, "commit")
    return committed


@pytest.mark.parametrize("rung", ["end", "republish"])
@each([GO, JAVA])
def test_what_it_commits_arrives_what_it_rolls_back_does_not_and_an_end_that_gets_lost_is_repaired_once(
    new_shop: NewShop, broker: EmbeddedBroker, client: Client, rung: str
) -> None:
    shop = new_shop(client, name_servers=broker.name_servers, subscription=f'repair_order = ["{rung}"]')
    service = shop.client()
    plain, committed = send(service, client), commit_and_roll_back(service, shop)
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


@pytest.mark.set_up(
    "a service with a stock client for Java, Go, Rust, Node or Python, over remoting or gRPC, halves included",
    "halves over gRPC in a topic of the type MIXED",
)
@pytest.mark.parametrize("rung", ["end", "republish"])
@each([GO, JAVA, *GRPC])
@on_the_real_broker(REAL)
def test_a_half_whose_service_is_killed_before_end_is_repaired_once_and_its_successor_receives_it(
    new_shop: NewShop, real_name_servers: str, request: pytest.FixtureRequest, client: Client, rung: str
) -> None:
    address = request.getfixturevalue("proxy").address if client.is_grpc else real_name_servers
    shop = new_shop(client, name_servers=real_name_servers, address=address, subscription=f'repair_order = ["{rung}"]')
    kill_between_commit_and_end(shop, client)


@each([GO, JAVA])
@on_the_real_broker(OLDER)
def test_so_is_one_on_an_older_broker(new_shop: NewShop, shared_clusters: SharedClusters, client: Client) -> None:
    shop = new_shop(client, name_servers=shared_clusters.get(OLDER).name_servers)
    kill_between_commit_and_end(shop, client)


def kill_between_commit_and_end(shop: Shop, client: Client) -> None:
    service = shop.client()
    plain, committed = send(service, client), commit_and_roll_back(service, shop)
    shop.has_effects(plain, committed)
    for body, key in (("plain", plain), ("committed", committed)):
        assert service.expect("received", body) == key
    lost = service.half("lost", mark=shop.mark)
    shop.commit_locally(lost)
    service.kill()
    shop.has_effects(plain, committed, lost)
    shop.is_settled(lost)
    assert shop.client().expect("received", "lost") == lost
    assert shop.deployed.copies() == dict.fromkeys((plain, committed, lost), 1)


@each([GO, JAVA])
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


@pytest.mark.set_up("halves over gRPC in a topic of the type MIXED")
@each(GRPC)
@on_the_real_broker(REAL)
def test_a_question_that_comes_through_a_proxy_is_answered_under_the_key(
    new_shop: NewShop, real_name_servers: str, proxy: Proxy, client: Client
) -> None:
    # A proxy passes questions on for topics of this type alone.
    shop = new_shop(client, name_servers=real_name_servers, address=proxy.address, message_type="TRANSACTION")
    service = shop.client()
    asked = service.half("asked", mark=shop.mark)
    service.answer(asked, "unknown", to_checks="commit")
    assert service.expect("check", "asked") == asked
    shop.commit_locally(asked)  # not before: it would have been repaired
    shop.has_effects(asked)
    shop.is_settled()


def test_a_key_that_a_go_service_sets_itself_is_that_of_its_half_and_of_the_repair(
    new_shop: NewShop, broker: EmbeddedBroker
) -> None:
    broker.configure({"fault.drop_checks": "-1"})
    shop = new_shop(GO, name_servers=broker.name_servers)
    service = shop.client()
    own = uuid4().hex.upper()
    assert service.half("lost", mark=shop.mark, key=own) == own
    shop.commit_locally(own)
    service.kill()
    shop.has_effects(own)
    shop.is_settled(own)


def test_what_librocketmq_sends_has_one_effect_under_its_key(new_shop: NewShop, broker: EmbeddedBroker) -> None:
    shop = new_shop(LIBROCKETMQ, name_servers=broker.name_servers)
    service = shop.client()
    plain = send(service, LIBROCKETMQ)
    shop.has_effects(plain)
    assert service.expect("received", "plain") == plain


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
