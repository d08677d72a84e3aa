"""The documented Redis users: each role works with its own, and would not without any one of its permissions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise

import pytest
import redis

from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_consumers.redis_inbox import RedisInbox
from reconciler.commands.safety import require_safe
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.least_rights import ANNOUNCER, BUSINESS, INBOX, RECONCILER, RedisUser
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import member_of
from reconciler.errors import ReconcilerError, RedisAway
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.rounds import NextRound
from reconciler.shards.access import RedisClient, open_client, translated_errors
from reconciler.shards.checks import Severity, check_redis
from reconciler.shards.client import open_redis
from reconciler.shards.count import keep_shard_count
from reconciler.shards.environment_uses import RedisEnvironmentUses
from reconciler.shards.key_places import places_of
from reconciler.shards.memory import RedisShardMemory
from reconciler.shards.round_capture import RedisRoundCapture
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.shards.sets import RedisCommitSets, RedisHalfSets
from reconciler.words import said
from tests.contract.ledger.rows import key
from tests.services.redis_server import RedisServer

pytestmark = pytest.mark.redis

ENVIRONMENT = "users"
OF = Subscription(environment=ENVIRONMENT, topic="ORDERS", group="billing")
SHARD = Shard(subscription=OF, number=0)
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=0)

RECORD = QueueRecord(queue_offset=1, stored_at_ms=1_700_000_000_000, commit_log_offset=200, unique_key=key(1))

Work = Callable[[str], None]


def consume(url: str) -> None:
    with closing(open_client(url, timeout_seconds=60)) as client:
        RedisCommitSets(client).record(OF, [key(1), key(2)], shards=1)


def keep_an_inbox(url: str) -> None:
    class BusinessFailed(Exception):
        pass

    def fail(_connection: object) -> None:
        raise BusinessFailed

    entry = InboxEntry(group="billing", unique_key=key(1), topic="ORDERS")
    with closing(open_client(url, timeout_seconds=60)) as client:
        inbox = RedisInbox(client, environment=ENVIRONMENT)
        with suppress(BusinessFailed):
            inbox.apply_once(entry, fail)
        assert inbox.apply_once(entry, lambda _connection: None) is InboxAnswer.NEW, "the failed one was given up"
        assert inbox.apply_once(entry, lambda _connection: None) is InboxAnswer.DUPLICATE


def announce(url: str) -> None:
    with closing(open_client(url, timeout_seconds=60)) as client, translated_errors():
        client.ping()
        sets = RedisHalfSets(client)
        assert sets.take_lease(SHARD, QUEUE, token="a", lease_seconds=9)
        assert sets.position(SHARD, QUEUE) is None
        some = [key(2), key(3), key(4)]
        assert sets.admit(
            SHARD,
            QUEUE,
            expected=None,
            following=2,
            unique_keys=some,
            apart=[key(4)],
            record=RECORD,
            trail=[RECORD],
        ).admitted
        assert sets.known_records(SHARD, QUEUE).trail == (RECORD,)
        assert sets._forbidden == frozenset()
        assert sets.size(SHARD) == 3
        sets.release_lease(SHARD, QUEUE, token="a")
        assert sets.take_lease(SHARD, QUEUE, token="b", lease_seconds=9)
        uses = RedisEnvironmentUses(client)
        assert uses.keep_identity(ENVIRONMENT) == uses.identity(ENVIRONMENT)
        uses.renew(ENVIRONMENT, frozenset({"broker-a"}), by="test")
        assert uses.current(ENVIRONMENT) is not None


def reconcile(url: str) -> None:
    with closing(open_redis(url, timeout_seconds=60)) as rounds:
        require_safe(check_redis(rounds.client, environment=ENVIRONMENT))
        keep_shard_count(rounds.client, OF, 1)
        leases = RedisRoundLeases(rounds.client)
        assert leases.take(SHARD, token="a", lease_seconds=9)
        assert leases.take(SHARD, token="a", lease_seconds=9)
        memory = RedisShardMemory(rounds, history_generations=2)
        epoch = memory.begin_epoch(SHARD)
        announce(url)
        consume(url)
        done = memory.take_round(SHARD, epoch=epoch)
        assert done is not None
        assert (done.counts.matched, done.counts.pending_after) == (1, 2)
        assert memory.take_round(SHARD, epoch="users:another") is None
        three_keys_come_and_go(rounds.client, memory, epoch)
        page = memory.due(SHARD, first_seen_until_ms=done.at_ms, limit=1)
        assert len(memory.due(SHARD, first_seen_until_ms=done.at_ms, limit=5, after=page[0])) == 1
        assert memory.pending_size(SHARD)[0] == 2
        assert places_of(rounds.client, SHARD, key(3), commit_generations=2).first_seen_ms == done.at_ms
        assert memory.apart(SHARD) == (0, [key(4)])
        assert memory.compared(SHARD, not_taken=[], going_on=[key(4)]) == 0
        assert memory.forget(SHARD, [key(3)]) == 1
        assert memory.state(SHARD).generation == 3
        captures = RedisRoundCapture(rounds)
        assert [len(one.announced) for one in captures.capture(SHARD, after=None).rounds] == [3, 0]
        assert sum(len(page) for page in captures.snapshot(SHARD).pages) == 1
        leases.release(SHARD, token="a")
        assert leases.take(SHARD, token="b", lease_seconds=9)


def three_keys_come_and_go(client: RedisClient, memory: RedisShardMemory, epoch: str) -> None:
    """Two rounds that change pending in the ways that the first round did not."""
    keys = [key(5), key(6), key(7)]
    sets = RedisHalfSets(client)
    assert sets.admit(SHARD, QUEUE, expected=2, following=5, unique_keys=keys).admitted
    came = memory.take_round(SHARD, epoch=epoch)
    assert came is not None
    RedisCommitSets(client).record(OF, keys, shards=1)
    following = NextRound(shard=SHARD, epoch=epoch, generation=came.generation, not_before_ms=came.at_ms + 1)
    went = memory.take_small_rounds([following])[SHARD]
    assert (came.counts.pending_added, went.counts.pending_matched, went.counts.pending_after) == (3, 3, 2)


ROLES = [(BUSINESS, consume), (INBOX, keep_an_inbox), (ANNOUNCER, announce), (RECONCILER, reconcile)]


@pytest.mark.parametrize(("role", "work"), ROLES, ids=[role.name for role, _ in ROLES])
def test_each_role_needs_every_permission_of_its_user_and_no_other(
    redis_server: RedisServer, role: RedisUser, work: Work
) -> None:
    url = redis_server.url.replace("://", f"://{role.name}:pw@")
    with redis.Redis.from_url(redis_server.url) as admin:

        def allow(*, environment: str = ENVIRONMENT, without: str | None = None) -> None:
            admin.flushall()
            admin.script_flush()
            rules = role.rules(environment=environment, password="pw", without=without)
            admin.execute_command("ACL", "SETUSER", role.name, "reset", *rules)

        allow()
        work(url)
        superfluous = []
        for command in role.commands:
            allow(without=command)
            try:
                work(url)
            except (ReconcilerError, AssertionError):
                continue
            superfluous.append(command)
        # INFO tells what is necessary; CONFIG GET adds advice (lazy freeing, snapshots).
        assert superfluous == (["config|get"] if role is RECONCILER else [])
        allow(environment="another")
        with pytest.raises(ReconcilerError):
            work(url)


def rights_of_0_2_0(role: RedisUser) -> list[str]:
    """The rules of a user of that release, which had no proofs."""
    shard = "reconciler:v1:{%s:*}:"
    keys = (*(shard + name for name in ("half", "offsets", "announcement_lease:*")), *role.keys[-2:])
    return replace(role, keys=keys).rules(environment=ENVIRONMENT, password="pw")


@pytest.mark.parametrize("may_set_apart", [True, False])
def test_an_announcer_with_the_rights_of_an_older_release_goes_on_and_says_so_once(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, may_set_apart: bool
) -> None:
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.flushall()
        rules = rights_of_0_2_0(ANNOUNCER) + (["~reconciler:v1:{users:*}:apart"] if may_set_apart else [])
        admin.execute_command("ACL", "SETUSER", ANNOUNCER.name, "reset", *rules)
        with closing(open_client(redis_server.url.replace("://", "://announcer:pw@"), timeout_seconds=60)) as client:
            sets = RedisHalfSets(client)
            for expected, following in pairwise((None, 2, 5, 9)):
                assert sets.known_records(SHARD, QUEUE).proof is None
                answer = sets.admit(
                    SHARD,
                    QUEUE,
                    expected=expected,
                    following=following or 0,
                    unique_keys=[key(1), key(2)],
                    apart=[key(2)],
                    record=RECORD,
                    trail=[RECORD],
                )
                assert answer.admitted
            assert sets.position(SHARD, QUEUE) == 9
            assert sets.size(SHARD) == 2
        assert admin.exists(ShardKeys(SHARD).proofs) == 0
        assert admin.scard(ShardKeys(SHARD).apart) == int(may_set_apart)
    told = [record.getMessage() for record in caplog.records if "right_missing" in record.getMessage()]
    assert sum("proofs" in text for text in told) == 1
    assert sum("apart" in text for text in told) == (0 if may_set_apart else 1)


def test_a_login_without_the_right_to_proofs_is_advised_and_not_refused(redis_server: RedisServer) -> None:
    shard = "reconciler:v1:{%s:*}:"
    names = [name for name in vars(ShardKeys) if isinstance(vars(ShardKeys)[name], property) and name != "root"]
    keys = [*(shard + f"{name}*" for name in names if name != "proofs"), "reconciler:v1:{%s:*}:meta"]
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.flushall()
        rules = replace(RECONCILER, keys=tuple(keys)).rules(environment=ENVIRONMENT, password="pw")
        admin.execute_command("ACL", "SETUSER", RECONCILER.name, "reset", *rules, "~*announcement_lease:*")
    with closing(open_redis(redis_server.url.replace("://", "://reconciler:pw@"), timeout_seconds=60)) as rounds:
        findings = check_redis(rounds.client, environment=ENVIRONMENT)
        require_safe(findings)
        (about,) = [one for one in findings if one.about == "permissions"]
        assert about.severity is Severity.ADVICE
        assert "HSET" in said(about.found)


@pytest.mark.parametrize(
    ("login", "rules", "remedy"),
    [
        ("someone:wrong@", ["~*", "+@all"], "correct user and password in its URL"),
        (":wrong@", ["~*", "+@all"], "correct user and password in its URL"),
        ("", ["~*", "+@all"], "put user and password into its URL"),
        ("someone:pw@", ["~*", "-@all", "+ping"], "grant it to the user: `reconciler rights redis` prints the line"),
        ("someone:pw@", ["~other", "+@all"], "grant it to the user: `reconciler rights redis` prints the line"),
    ],
)
def test_a_login_that_is_refused_is_told_what_to_correct(
    redis_server: RedisServer, login: str, rules: list[str], remedy: str
) -> None:
    with redis.Redis.from_url(redis_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "someone", "reset", "on", ">pw", *rules)
        admin.execute_command("ACL", "SETUSER", "default", ">of the server")
        try:
            with (
                closing(open_client(redis_server.url.replace("://", f"://{login}"), timeout_seconds=60)) as client,
                pytest.raises(RedisAway) as told,
                translated_errors(),
            ):
                client.set("reconciler:v1:{test:0}:half", "1")
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "nopass")
    assert told.value.remedy.startswith(remedy)


def test_a_number_that_the_user_may_not_choose_is_told_as_one(redis_server: RedisServer) -> None:
    """The lines of rights let a user choose another database than 0 only where the settings name one."""
    with redis.Redis.from_url(redis_server.url) as admin:
        rules = RECONCILER.rules(environment=ENVIRONMENT, password="pw")
        admin.execute_command("ACL", "SETUSER", RECONCILER.name, "reset", *rules)
    url = f"{redis_server.url.replace('://', '://reconciler:pw@')}?db=1"
    with closing(open_client(url, timeout_seconds=60)) as client, pytest.raises(RedisAway) as told, translated_errors():
        client.get("reconciler:v1:{test:0}:half")
    assert told.value.remedy.startswith("correct the number at the end of its URL, or grant it to the user")


def test_the_announcer_reaches_neither_pending_nor_commit_sets(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as admin:
        rules = ANNOUNCER.rules(environment=ENVIRONMENT, password="pw")
        admin.execute_command("ACL", "SETUSER", ANNOUNCER.name, *rules)
    with redis.Redis.from_url(redis_server.url.replace("://", "://announcer:pw@")) as client:
        for name in (ShardKeys(SHARD).pending, ShardKeys(SHARD).commit, ShardKeys(SHARD).epoch):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.sadd(name, member_of(key(1)))
