"""One foreign number of shards costs its subscription; the same one everywhere is another set of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from reconciler.contract.keyspace import meta_key
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.shards import count
from reconciler.shards.access import RedisClient
from reconciler.wiring import shard_numbers
from reconciler.wiring.connections import Connections
from reconciler.wiring.shard_numbers import ShardNumbers
from tests.contract.ledger.rows import round_done
from tests.services.redis_server import RedisServer
from tests.settings_file import settings_file

pytestmark = pytest.mark.redis

BILLING, SHIPPING = (Subscription(environment="test", topic="ORDERS", group=one) for one in ("billing", "shipping"))


@pytest.fixture
def connections(redis_server: RedisServer, tmp_path: Path) -> Iterator[Connections]:
    path = settings_file(
        tmp_path,
        "unique_key_topic.queues = 4",
        redis_url=redis_server.url,
        sections='[[subscriptions]]\ntopic = "ORDERS"\ngroup = "shipping"',
        has_ledger=True,
    )
    with Connections(load_settings(path, {})) as opened:
        yield opened


def write(connections: Connections, subscription: Subscription, shards: str) -> None:
    connections.redis.hset(meta_key(subscription), "shards", shards)


def have_rounds(connections: Connections, subscription: Subscription, shards: int) -> None:
    """Two turns with so many shards."""
    for generation in (1, 2):
        for number in range(shards):
            done = round_done(Shard(subscription=subscription, number=number), generation, 1_000 * generation)
            connections.ledger.rounds.store(done)


@pytest.mark.parametrize("foreign", ["8", "sixteen"])
def test_a_foreign_value_costs_its_subscription_until_it_is_mended(connections: Connections, foreign: str) -> None:
    numbers = ShardNumbers(connections)
    assert (numbers.keep(BILLING), numbers.keep(SHIPPING)) == (None, None)
    write(connections, SHIPPING, foreign)
    why = numbers.keep(SHIPPING)
    assert why is not None
    assert why.fields["key"] == meta_key(SHIPPING)
    assert numbers.problem(SHIPPING) == why
    assert (numbers.keep(BILLING), numbers.problem(BILLING)) == (None, None)
    numbers.require_one()
    write(connections, SHIPPING, "4")
    assert (numbers.keep(SHIPPING), numbers.problem(SHIPPING)) == (None, None)


@pytest.mark.parametrize("has_both", [True, False])
def test_the_same_other_number_everywhere_is_refused_and_nothing_is_written(
    connections: Connections, *, has_both: bool
) -> None:
    """Also where a section is new: its own number would make the settings look like right ones at the next start."""
    write(connections, BILLING, "8")
    if has_both:
        write(connections, SHIPPING, "8")
    numbers = ShardNumbers(connections)
    for subscription in (SHIPPING, BILLING):
        with pytest.raises(ConfigurationError, match="with 8 shards"):
            numbers.keep(subscription)
    with pytest.raises(ConfigurationError, match="with 8 shards"):
        numbers.require_one()
    assert connections.redis.hget(meta_key(SHIPPING), "shards") == (b"8" if has_both else None)


@pytest.mark.parametrize("shards", [2, 8])
def test_after_a_wipe_the_rounds_of_the_ledger_decide(connections: Connections, shards: int) -> None:
    have_rounds(connections, BILLING, shards)
    with pytest.raises(ConfigurationError, match=f"with {shards} shards"):
        ShardNumbers(connections).keep(BILLING)
    assert connections.redis.hget(meta_key(BILLING), "shards") is None
    write(connections, BILLING, "4")  # as docs/how-to/change-shards.md says
    assert ShardNumbers(connections).keep(BILLING) is None


def test_after_a_wipe_the_same_number_goes_on(connections: Connections) -> None:
    have_rounds(connections, BILLING, 4)
    assert ShardNumbers(connections).keep(BILLING) is None
    assert connections.redis.hget(meta_key(BILLING), "shards") == b"4"


def test_a_first_turn_that_was_cut_short_decides_nothing(connections: Connections) -> None:
    connections.ledger.rounds.store(round_done(Shard(subscription=BILLING, number=0), 1, 1_000))
    assert ShardNumbers(connections).keep(BILLING) is None


def test_at_a_first_start_all_numbers_are_asked_together_and_once_for_all(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    together = count.stored_shard_counts

    def counted(client: RedisClient, subscriptions: Sequence[Subscription]) -> Mapping[Subscription, str | None]:
        asked.append(len(subscriptions))
        return together(client, subscriptions)

    monkeypatch.setattr(shard_numbers, "stored_shard_counts", counted)
    monkeypatch.setattr(shard_numbers, "ALL_ASKED_SECONDS", 3_600.0)
    numbers = ShardNumbers(connections)
    assert (numbers.keep(BILLING), numbers.keep(SHIPPING)) == (None, None)
    assert asked == [2]
    write(connections, BILLING, "8")
    write(connections, SHIPPING, "8")
    with pytest.raises(ConfigurationError, match="with 8 shards"):
        numbers.keep(SHIPPING)
