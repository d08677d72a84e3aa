"""Announcements: right queue, right shape, nothing marked that no broker confirmed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from checkback_producers.announcer import FAILURES_MAXIMUM, AnnouncementRoute, Announcer
from checkback_producers.ports import AnnouncementMessage
from reconciler.contract.announcement import (
    BODY_BYTES_MAX,
    KEYS_MAX,
    AnnouncedKey,
    decode_announcement,
    decode_bare_key,
    is_signed,
)
from reconciler.contract.unique_key import shard_of
from reconciler.errors import BrokerRefused, InvalidValue, RequestTimeout
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, new_key


def keys_of(count: int, tag: str | None = "paid") -> list[AnnouncedKey]:
    return [AnnouncedKey(unique_key=new_key(), tag=tag, committed_at_ms=1_700_000_000_000) for _ in range(count)]


@dataclass
class OneQueueAway(MemoryAnnouncements):
    """No broker takes messages for one queue."""

    away: set[int] = field(default_factory=set)
    asked: int = 0

    def send_announcement(self, message: AnnouncementMessage) -> None:
        self.asked += 1
        if message.queue_id in self.away:
            raise RequestTimeout(f"queue {message.queue_id}")
        super().send_announcement(message)


def test_every_key_travels_once_on_the_queue_of_its_shard() -> None:
    sender = MemoryAnnouncements()
    keys = keys_of(1_700)
    announced = Announcer(sender, AnnouncementRoute(environment="test", queues=3)).announce(TOPIC, GROUP, keys)
    assert announced.error is None
    assert sorted(announced.unique_keys) == sorted(sender.keys) == sorted(key.unique_key for key in keys)
    for message in sender.sent:
        content = decode_announcement(message.body)
        assert {shard_of(key.unique_key, 3) for key in content.keys} == {message.queue_id}
        assert len(content.keys) <= KEYS_MAX
        assert (content.environment, content.topic, content.producer_group) == ("test", TOPIC, GROUP)
        assert message.tag == TOPIC


def test_long_tags_never_make_a_body_that_consumers_refuse() -> None:
    sender = MemoryAnnouncements()
    Announcer(sender, AnnouncementRoute(environment="test", queues=1)).announce(TOPIC, GROUP, keys_of(600, "é" * 160))
    assert all(len(message.body) <= BODY_BYTES_MAX for message in sender.sent)
    assert len(sender.keys) == 600


def test_keys_of_a_queue_that_is_away_are_not_confirmed_but_the_others_are() -> None:
    sender = OneQueueAway(away={1})
    keys = keys_of(40)
    announced = Announcer(sender, AnnouncementRoute(environment="test", queues=4)).announce(TOPIC, GROUP, keys)
    assert isinstance(announced.error, RequestTimeout)
    assert set(announced.unique_keys) == {key.unique_key for key in keys if shard_of(key.unique_key, 4) != 1}


def test_brokers_that_are_all_away_are_not_asked_for_every_queue() -> None:
    sender = OneQueueAway(away=set(range(16)))
    announced = Announcer(sender, AnnouncementRoute(environment="test")).announce(TOPIC, GROUP, keys_of(200))
    assert announced.unique_keys == ()
    assert sender.asked == FAILURES_MAXIMUM


def test_a_refusal_is_reported_not_raised() -> None:
    sender = MemoryAnnouncements(failure=BrokerRefused(16, "no permission"))
    announced = Announcer(sender, AnnouncementRoute(environment="test")).announce(TOPIC, GROUP, keys_of(1))
    assert isinstance(announced.error, BrokerRefused)


def test_signed_announcements_prove_their_body() -> None:
    sender = MemoryAnnouncements()
    route = AnnouncementRoute(environment="test", signature_secret=b"secret")
    Announcer(sender, route).announce(TOPIC, GROUP, keys_of(1))
    (message,) = sender.sent
    assert is_signed(message.body, message.properties["RECONCILER_SIGNATURE"], b"secret")
    assert "secret" not in repr(route)


def test_bare_keys_are_the_original_designs_form() -> None:
    sender = MemoryAnnouncements()
    keys = keys_of(3)
    route = AnnouncementRoute(environment="test", queues=2, bare_keys=True)
    announced = Announcer(sender, route).announce(TOPIC, GROUP, keys)
    assert sorted(decode_bare_key(message.body) for message in sender.sent) == sorted(announced.unique_keys)
    assert len(sender.sent) == 3


def test_a_business_topic_may_have_a_unique_key_topic_of_its_own() -> None:
    sender = MemoryAnnouncements()
    route = AnnouncementRoute(environment="test", topics={TOPIC: "ORDERS_UNIQUE_KEY"})
    announcer = Announcer(sender, route)
    announcer.announce(TOPIC, GROUP, keys_of(1))
    announcer.announce("REFUNDS", GROUP, keys_of(1))
    assert [message.unique_key_topic for message in sender.sent] == ["ORDERS_UNIQUE_KEY", "RECONCILER_UNIQUE_KEY"]


@pytest.mark.parametrize("values", [{"queues": 0}, {"queues": 1025}, {"environment": ""}])
def test_a_route_that_no_consumer_shares_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        AnnouncementRoute(**{"environment": "test", **values})  # type: ignore[arg-type]  # names are the fields'
