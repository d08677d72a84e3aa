"""Half sets and commit sets in Redis; the adapters of ports.HalfSets and ports.CommitSets.

The offset of the announcement consumer is stored beside the announced keys, and one atomic step changes both. If Redis
loses writes, it loses keys and offset together, and the consumer reads from the older offset by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import filterfalse
from typing import Any
from zlib import crc32

import redis
from redis import exceptions
from redis.cluster import RedisCluster

from reconciler.clock import Clock
from reconciler.contract.keyspace import APART_KEYS_MAX, ShardKeys, meta_key, offsets_field, trail_field
from reconciler.contract.queue_proof import QueueProof, QueueRecord, read_proof, read_trail, trail_text
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import member_of
from reconciler.errors import MalformedInput
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue, KnownRecords, QueuePlace
from reconciler.shards.access import RedisClient, translated_errors
from reconciler.shards.lease_values import LeaseValues
from reconciler.shards.pipelines import answers_of
from reconciler.shards.script import RedisScript
from reconciler.shards.values import text_of

_log = logging.getLogger(__name__)

#: Maximum number of members of one SADD. Such a command delays Redis' other clients by about 1 ms.
MEMBERS_MAX = 2_000

#: The usual number of members in one command of a big batch, and the most keys that are packed before they are sent.
STREAM_MEMBERS = 1_000
STREAM_KEYS_MAX = 8_192
#: Bytes of the classic unique key. gRPC clients and IPv6 hosts make longer keys.
MEMBER_BYTES = 16

_NONE = b"none"
#: Errors for a silent node, and for a cluster that lacks a node.
_NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.RedisClusterException, OSError)
_REFUSALS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)

_ADMIT = RedisScript("reconciler.shards", "admit.lua")
_TAKE_LEASE = RedisScript("reconciler.shards", "take_lease.lua")
_RELEASE_LEASE = RedisScript("reconciler.shards", "release_lease.lua")


class RedisHalfSets:
    """Announced keys and offsets in Redis. Shared by threads.

    Commands: EVALSHA, SCRIPT LOAD, HGET and SCARD. Inside scripts: HGET, HSET, SADD, SCARD, GET, SET and UNLINK.
    """

    def __init__(self, client: RedisClient, *, clock: Clock | None = None) -> None:
        self._client = client
        self._leases = LeaseValues(clock)
        #: Which of "apart" (K:apart) and "proofs" (K:proofs) this login may not use. A login made for an older release
        #: lacks these rights.
        self._forbidden: frozenset[str] = frozenset()

    @property
    def is_spread(self) -> bool:
        """True for a cluster."""
        return isinstance(self._client, RedisCluster)

    def position(self, shard: Shard, queue: AnnouncementQueue) -> int | None:
        """Returns the stored next offset; None: no offset is stored."""
        with translated_errors():
            stored: Any = self._client.hget(ShardKeys(shard).offsets, offsets_field(queue.broker, queue.queue_id))
        return _offset(stored)

    def positions(self, places: Sequence[QueuePlace]) -> Mapping[QueuePlace, int | None]:
        """Sends one HGET for each place, in pipelines."""
        commands = [
            (name, ("HGET", name, offsets_field(queue.broker, queue.queue_id)))
            for name, queue in ((ShardKeys(shard).offsets, queue) for shard, queue in places)
        ]
        found: dict[QueuePlace, int | None] = {}
        for place, answer in zip(places, answers_of(self._client, commands), strict=True):
            with suppress(MalformedInput):
                if not isinstance(answer, Exception):
                    found[place] = _offset(answer)
        return found

    def known_records(self, shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        """Sends two HGET. A damaged value counts as missing."""
        if "proofs" in self._forbidden:
            return KnownRecords()
        keys = ShardKeys(shard)
        with translated_errors():
            try:
                proof: Any = self._client.hget(keys.proofs, offsets_field(queue.broker, queue.queue_id))
                trail: Any = self._client.hget(keys.proofs, trail_field(queue.broker, queue.queue_id))
            except exceptions.NoPermissionError:
                self._forbid(frozenset({"proofs"}), keys)
                return KnownRecords()
        return KnownRecords(proof=read_proof(text_of(proof or "")), trail=read_trail(text_of(trail or "")))

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        record: QueueRecord | None = None,
        trail: Sequence[QueueRecord] | None = None,
    ) -> Admission:
        """Runs one script: compares the offset, adds the keys, stores the proof, moves the offset.

        If the login may not use K:apart, the keys of `apart` get ordinary verdicts. Without the right to K:proofs, no
        proof is stored, and only this process knows the last record that it read.
        """
        keys = ShardKeys(shard)
        members: list[bytes] = [
            *map(member_of, apart),
            *map(member_of, filterfalse(frozenset(apart).__contains__, unique_keys)),
        ]

        def run(more: frozenset[str]) -> Any:
            names = [keys.half, keys.offsets, *(getattr(keys, one) for one in ("apart", "proofs") if one in more)]
            proof = QueueProof(following=following, record=record) if record is not None and "proofs" in more else None
            arguments: list[str | int | bytes] = [
                offsets_field(queue.broker, queue.queue_id),
                _NONE if expected is None else expected,
                following,
                len(apart) if "apart" in more else 0,
                APART_KEYS_MAX,
                "" if proof is None else proof.text,
                trail_field(queue.broker, queue.queue_id),
                "" if proof is None else trail_text(trail or ()),
                *members,
            ]
            return _ADMIT.run(self._client, names, arguments)

        wanted = {one for one, is_wanted in (("apart", apart), ("proofs", record is not None)) if is_wanted}
        with translated_errors():
            answer = self._as_permitted(run, frozenset(wanted) - self._forbidden, keys)
        return Admission(admitted=int(answer[0]) == 1, offset=_offset(answer[1]))

    def _as_permitted(self, run: Callable[[frozenset[str]], Any], wanted: frozenset[str], keys: ShardKeys) -> Any:
        """Runs the script with the wanted keys that this login may use. Redis refuses a script with a forbidden key
        before it runs, so another try repeats nothing."""
        for more in (wanted, *(wanted - {one} for one in sorted(wanted, reverse=True))):
            if not more:
                break
            try:
                answer = run(more)
            except exceptions.NoPermissionError:
                continue
            self._forbid(wanted - more, keys)
            return answer
        answer = run(frozenset())
        self._forbid(wanted, keys)
        return answer

    def _forbid(self, which: frozenset[str], keys: ShardKeys) -> None:
        self._forbidden |= which
        for one in sorted(which):
            _log.warning("right_missing: this login may not touch %s: see docs/reference/rights.md", getattr(keys, one))

    def size(self, shard: Shard) -> int:
        """Sends SCARD for the half set."""
        with translated_errors():
            size: Any = self._client.scard(ShardKeys(shard).half)
        return int(size)

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease. False: another token holds it."""
        key = ShardKeys(shard).announcement_lease(queue.broker)
        mine = (token, int(lease_seconds * 1000), self._leases.renewed(token))
        with translated_errors():
            holder: Any = _TAKE_LEASE.run(self._client, [key], [*mine, ""])
            if holder != 1 and self._leases.is_over(key, holder, lease_seconds=lease_seconds):
                holder = _TAKE_LEASE.run(self._client, [key], [*mine, holder])
            return bool(holder == 1)

    def renew_leases(self, places: Sequence[QueuePlace], *, token: str, lease_seconds: float) -> Set[QueuePlace]:
        """Runs the script of `take_lease` for each place, in pipelines. Returns the places whose lease was surely
        renewed: none if Redis does not know the script."""
        milliseconds = int(lease_seconds * 1000)
        commands = [
            (key, ("EVALSHA", _TAKE_LEASE.sha, 1, key, token, milliseconds, self._leases.renewed(token), ""))
            for key in (ShardKeys(shard).announcement_lease(queue.broker) for shard, queue in places)
        ]
        holders = answers_of(self._client, commands)
        return {place for place, holder in zip(places, holders, strict=True) if holder == 1}

    def release_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str) -> None:
        """Gives the lease back if the token holds it."""
        key = ShardKeys(shard).announcement_lease(queue.broker)
        with translated_errors():
            _RELEASE_LEASE.run(self._client, [key], [token])


class RedisCommitSets:
    """Consumed keys in Redis. Shared by threads. Commands: SADD, never in a MULTI, and HGET on the meta hash if the
    login may use it."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Sends one SADD per shard for each MEMBERS_MAX keys, all together. Raises the first refusal after all commands
        were tried."""
        names = [ShardKeys(Shard(subscription=subscription, number=number)).commit for number in range(shards)]
        with translated_errors():
            if isinstance(self._client, redis.Redis):
                self._record_streamed(self._client, names, unique_keys)
                return
            added = [(names[number], members) for number, members in _members_by_shard(unique_keys, shards)]
            try:
                _add_in_cluster(self._client, added)
            except _NO_ANSWER:
                _add_node_by_node(self._client, added)
                raise

    def _record_streamed(self, client: redis.Redis, names: Sequence[str], unique_keys: Sequence[str]) -> None:
        # The server runs the first commands while the next ones are packed. pipeline() packs everything before it sends
        # anything, and takes nearly twice as long.
        connection: Any = client.connection_pool.get_connection()
        refused: exceptions.ResponseError | None = None
        try:
            sent = 0
            chunk = min(STREAM_KEYS_MAX, STREAM_MEMBERS * len(names))
            for first in range(0, len(unique_keys), chunk):
                packed = [
                    _pack_sadd(names[number], members)
                    for number, members in _members_by_shard(unique_keys[first : first + chunk], len(names))
                ]
                connection.send_packed_command(packed)
                sent += len(packed)
            for _ in range(sent):
                try:
                    connection.read_response()
                except exceptions.ResponseError as error:
                    refused = refused or error
        except BaseException:
            connection.disconnect()  # late answers must not reach the next command of this connection
            raise
        finally:
            client.connection_pool.release(connection)
        if refused is not None:
            raise refused

    def stored_shards(self, subscription: Subscription) -> int | None:
        """Returns the number of shards that `reconciler run` stored. None: no number is stored, or this login may not
        read it. `run` reports a text that is no number."""
        with translated_errors():
            try:
                stored: Any = self._client.hget(meta_key(subscription), "shards")
            except exceptions.NoPermissionError:
                return None
        try:
            return _offset(stored)
        except MalformedInput:
            return None


def _add_in_cluster(cluster: Any, added: Iterable[tuple[str, Sequence[bytes]]]) -> None:
    with cluster.pipeline(transaction=False) as pipeline:
        for name, members in added:
            pipeline.sadd(name, *members)
        pipeline.execute()


def _add_node_by_node(cluster: Any, added: Iterable[tuple[str, Sequence[bytes]]]) -> None:
    """Sends the commands of each node alone, because redis-py sends nothing at all if one node refuses a connection.
    Ignores refusals: the caller raises the first one."""
    of_node: dict[str, list[tuple[str, Sequence[bytes]]]] = {}
    for name, members in added:
        with suppress(*_REFUSALS):  # no node serves the slot
            of_node.setdefault(cluster.get_node_from_key(name).name, []).append((name, members))
    for its in of_node.values():
        with suppress(*_REFUSALS):
            _add_in_cluster(cluster, its)


def _members_by_shard(unique_keys: Iterable[str], shards: int) -> Iterator[tuple[int, list[bytes]]]:
    # This repeats contract.unique_key.shard_of inline, because it runs for every consumed message.
    buckets: list[list[bytes]] = [[] for _ in range(shards)]
    for key in unique_keys:
        buckets[crc32(key.encode("ascii")) % shards].append(member_of(key))
    for number, members in enumerate(buckets):
        for first in range(0, len(members), MEMBERS_MAX):
            yield number, members[first : first + MEMBERS_MAX]


def _pack_sadd(name: str, members: Sequence[bytes]) -> bytes:
    """Returns the command in the form of Redis' protocol. join() is four times as fast as packing each argument."""
    key = name.encode()
    head = b"*%d\r\n$4\r\nSADD\r\n$%d\r\n%s\r\n" % (2 + len(members), len(key), key)
    if all(len(member) == MEMBER_BYTES for member in members):
        return head + b"$16\r\n" + b"\r\n$16\r\n".join(members) + b"\r\n"
    return head + b"".join([b"$%d\r\n%s\r\n" % (len(member), member) for member in members])


def _offset(stored: bytes | str | int | None) -> int | None:
    if stored is None or stored in {_NONE, "none"}:
        return None
    try:
        return int(stored)
    except ValueError as error:
        raise MalformedInput(f"{stored!r:.40} in Redis is no number") from error
