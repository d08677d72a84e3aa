"""Values that another program wrote into a shard's keys: the round goes on, or that one shard says why it does not."""

from __future__ import annotations

from functools import partial

import pytest

from reconciler.commands.status.damage import misshapen_members
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard
from reconciler.contract.unique_key import key_of, member_of
from reconciler.errors import InvariantViolation
from reconciler.policy.commit_evidence import CommitEvidence, CommitSource
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.shards.commit_samples import SAMPLE_MEMBERS, sample_commit_sets
from reconciler.words import said
from tests.contract.ledger.rows import key, shard
from tests.contract.ledger.shards import InRedis

pytestmark = pytest.mark.redis


@pytest.mark.parametrize(
    ("queue", "offset"),
    [("broker\na/3", "7"), ("broker/x\n5\ny/3", "7"), ("broker\x00/3", "7"), ("broker-b/3", "soon"), ("\xff", "")],
)
def test_a_queue_that_nobody_can_read_costs_its_own_floor_only(
    direct: InRedis, of: Shard, queue: str, offset: str
) -> None:
    keys = ShardKeys(of)
    epoch = direct.memory.begin_epoch(of)
    direct.announce(of, [key(1)], following=5)
    direct.client.hset(keys.offsets, queue, offset)
    for generation in (1, 2, 3):
        direct.consume(of, [key(1)])
        done = direct.memory.take_round(of, epoch=epoch)
        assert done is not None
        assert done.generation == generation
        assert done.floor["broker-a/3"] == 5
        assert "\n" not in "".join(done.floor)
        assert set(done.floor) <= {"broker-a/3", queue}


def test_lines_of_an_older_release_that_nobody_can_read_are_no_floor(direct: InRedis, of: Shard) -> None:
    epoch = direct.memory.begin_epoch(of)
    direct.announce(of, [key(1)], following=5)
    direct.client.hset(ShardKeys(of).covered, "1", "broker\na/3\n7")
    done = direct.memory.take_round(of, epoch=epoch)
    assert done is not None
    assert direct.memory.take_round(of, epoch=epoch) is not None


@pytest.mark.parametrize("score", ["inf", "-inf", "1e300", "-5"])
def test_a_time_that_no_clock_tells_stops_no_round(direct: InRedis, of: Shard, score: str) -> None:
    epoch = direct.memory.begin_epoch(of)
    direct.client.zadd(ShardKeys(of).pending, {member_of(key(1)): score})
    at_ms = 0
    for _ in range(2):
        direct.announce(of, [key(2)], following=5)
        done = direct.memory.take_round(of, epoch=epoch)
        assert done is not None
        at_ms = done.at_ms
        size, _oldest = direct.memory.pending_size(of)
        assert size == 2
    due = direct.memory.due(of, first_seen_until_ms=at_ms, limit=10)
    assert {pending.unique_key for pending in due} == {key(1), key(2)}


@pytest.mark.parametrize("generation", ["soon", " 1", "01", "+1", "", "-1", "9223372036854775807", "9" * 5_000])
def test_a_generation_that_is_none_stops_its_shard_and_says_so(direct: InRedis, of: Shard, generation: str) -> None:
    direct.client.set(ShardKeys(of).generation, generation)
    epoch = direct.memory.begin_epoch(of)
    with pytest.raises(InvariantViolation, match="generation"):
        direct.memory.take_round(of, epoch=epoch)
    other = shard(of.subscription.environment, 1)
    assert direct.memory.take_round(other, epoch=direct.memory.begin_epoch(other)) is not None


def test_a_key_of_another_type_is_told_as_when_its_shard_is_read_alone(direct: InRedis, of: Shard) -> None:
    sound, keys = shard(of.subscription.environment, 1), ShardKeys(of)
    for one in (keys.half, keys.pending, keys.new, keys.matched, keys.offsets, keys.taken, keys.epoch):
        wrong = direct.client.hset if one == keys.epoch else direct.client.set
        assert wrong(one, *(("field", "a text") if one == keys.epoch else ("a text",)))
        assert direct.memory.readings([of, sound]).keys() == {sound}, one
        with pytest.raises(InvariantViolation, match="expected a"):
            direct.memory.state(of)
        direct.client.delete(one)
    assert direct.memory.readings([of, sound]).keys() == {of, sound}


@pytest.mark.parametrize("member", [b"", b"\x01", b"x" * 200])
def test_a_member_of_odd_length_is_read_like_every_other(direct: InRedis, of: Shard, member: bytes) -> None:
    epoch = direct.memory.begin_epoch(of)
    direct.client.sadd(ShardKeys(of).half, member, member_of(key(1)))
    done = direct.memory.take_round(of, epoch=epoch)
    assert done is not None
    due = direct.memory.due(of, first_seen_until_ms=done.at_ms, limit=10)
    assert {pending.unique_key for pending in due} == {key(1), key_of(member)}
    assert direct.memory.forget(of, [key_of(member)]) == 1


def plan(of: Shard, shards: int) -> TopicPlan:
    billing = SubscriptionPlan(subscription=of.subscription, tags=None, grace_period_seconds=10.0)
    return TopicPlan(
        environment=of.subscription.environment,
        topic=of.subscription.topic,
        subscriptions=(billing,),
        evidence=CommitEvidence(
            (CommitSource(producer_group="PG", topics=frozenset({of.subscription.topic}), url="sqlite://"),)
        ),
        shards=shards,
    )


def misshapen(direct: InRedis, of: Shard, *, shards: int) -> list[str]:
    """What `status` says of the commit sets of the shard's subscription."""
    sample = partial(sample_commit_sets, direct.client, shards=shards, commit_generations=2)
    return [said(line) for line in misshapen_members(plan(of, shards), sample)]


def test_the_text_of_a_key_in_a_commit_set_is_named(direct: InRedis, of: Shard) -> None:
    direct.client.sadd(ShardKeys(of).commit, *(key(number) for number in range(50)))
    (line,) = misshapen(direct, of, shards=4)
    assert str(of.subscription) in line
    assert "the text of a key: 32 characters" in line
    assert "in shard 0 '" in line


def test_members_of_another_length_are_named_and_true_members_are_not(direct: InRedis, of: Shard) -> None:
    direct.client.sadd(ShardKeys(of).commit_generation(2), *(member_of(key(number)) for number in range(50)))
    direct.client.sadd(ShardKeys(of).commit, bytes(32))
    assert misshapen(direct, of, shards=4) == []
    direct.client.sadd(ShardKeys(of).commit, b"short")
    (line,) = misshapen(direct, of, shards=4)
    assert "5 bytes; expected 16 to 32" in line


@pytest.mark.parametrize("shards", [1, 16, 400])
def test_the_sample_is_bounded(direct: InRedis, of: Shard, shards: int) -> None:
    for number in range(shards):
        one = Shard(subscription=of.subscription, number=number)
        direct.client.sadd(ShardKeys(one).commit, *(member_of(key(member)) for member in range(300)))
    sample = sample_commit_sets(direct.client, of.subscription, shards=shards, commit_generations=2)
    assert 1 <= len(list(sample)) <= SAMPLE_MEMBERS


def test_a_key_of_a_wrong_type_takes_status_nothing(direct: InRedis, of: Shard) -> None:
    direct.client.set(ShardKeys(of).commit, "x")
    assert misshapen(direct, of, shards=1) == []
