"""Every Redis key, built in one place.

``K = reconciler:v1:{<environment>:<topic>:<group>:<shard>}``. The braces are the Cluster hash tag. So all keys of a
shard live in one slot, and one script may touch them.

| key | type | holds | written by | read by |
|---|---|---|---|---|
| K:half | SET | announced keys that no round has taken yet | announcement consumer | round, explain |
| K:apart | SET | announced keys whose announced tag the group does not take, until they are compared with the outbox; each is in K:half or K:pending too | announcement consumer | round |
| K:commit | SET | consumed keys since the last round | recorder of the consumer, outage scan | round, explain |
| K:commit:1..h | SET | consumed keys of the last h rounds | round | round, history, explain |
| K:new | SET | scratch inside the round's script, never seen outside | round | round |
| K:matched | ZSET | scratch inside the round's script, never seen outside | round | round |
| K:half:1..x | SET | announced keys that the last x rounds took; only where history is written | round | history |
| K:matched:1..x | ZSET | keys that left pending by a match in the last x rounds -> first seen; likewise | round | history |
| K:taken | HASH | generation -> "<ms of Redis TIME> <announced> <consumed> <matched>" of the last 64 rounds; likewise | round | history |
| K:pending | ZSET | unmatched key -> first seen, ms of Redis TIME | round | gate, list, status, explain |
| K:generation | STRING | number of rounds that ran: the fence | round | round |
| K:covered | HASH | ms of Redis TIME of a round -> queue, offset, queue ...: the offsets that the round covered, of at most 64 rounds; proofs and these ms -> queue, proof, queue ...: the proofs of the offsets; last -> number and time of the last round | round | round |
| K:offsets | HASH | "<broker>/<queue>" -> next offset of the unique-key topic; "<broker>/half/<shard>" -> next offset of the broker's half queue, from which the shard takes its keys | announcement consumer | both |
| K:proofs | HASH | "<broker>/<queue>" -> the offset that is read next, then queue offset, store time, commit-log offset and unique key of the last record that was seen before it; "<broker>/<queue>/trail" -> earlier records, a line each: one a minute for an hour, one an hour for 96 hours | announcement consumer | both |
| K:epoch | STRING | "<environment>:<random>"; gone means Redis lost its memory | round | all |
| K:round_lease | STRING | token of the reconciler that runs the rounds, a blank, a number that each renewal changes; expires | round | round |
| K:announcement_lease:<broker> | STRING | token of the announcement consumer of a queue, a blank, a number as above; expires | announcement consumer | same |
| reconciler:v1:{<environment>:<topic>:<group>}:meta | HASH | shards: their number | round | recorder, round |
| reconciler:v1:{<environment>:use}:brokers | STRING | three lines: random text, the process that wrote it last, JSON list of the brokers that it knows and of its Redis; expires | run, once, announcements | same, doctor, status |
| reconciler:v1:{<environment>:use}:identity | STRING | random text that identifies this Redis | run, once, announcements | same, doctor, status |
| reconciler:v1:{<environment>:use}:sharers | HASH | token of a process that shares the subscriptions -> ms of Redis TIME until which the process counts as a sharer, the length of this time in ms, digest of the subscriptions' names; expires | run | run |
| reconciler:inbox:v1:{<environment>:<group>:<unique key, or business:<business id>>} | HASH | state, digest, key, topic of one applied message, expires | RedisInbox (weaker, optional) | same |

The *half set* (K:half) has the keys that were announced and must arrive. The *commit set* (K:commit) has the keys that
were consumed. If a round finds a key in the half set alone, the key is *pending* until it is matched or settled. The
*generation* counts the rounds of a shard and is their fence. An *epoch* is one life of Redis' memory.

Only the leases, the use of the environment, its sharers and the inbox have a time to live.

A member stands for one unique key. For a key of 32 to 64 upper-case hexadecimal digits, with an even number of digits,
the member is the bytes that the digits spell: the key
`7F00000100002A9F12AB34CD56EF0001` is the 16 bytes `7F 00 00 01 00 00 2A 9F 12 AB 34 CD 56 EF 00 01` (Java:
`HexFormat.of().parseHex(key)`; Python: `bytes.fromhex(key)`), and in redis-cli
`SADD "reconciler:v1:{prod:orders:billing:3}:commit" "\\x7f\\x00\\x00\\x01\\x00\\x00\\x2a\\x9f\\x12\\xab\\x34\\xcd\\x56\\xef\\x00\\x01"`.
For every other key the member is a zero byte and the ASCII text, with zero bytes behind it up to 33 bytes (Python:
`(b"\\0" + key.encode()).ljust(33, b"\\0")`). The member of the key `0A000001A1B2000000003c5de2a0000b` of a Go client is
`00`, then the 32 characters. The member of a key of 20 characters is `00`, then the 20 characters, then twelve times
`00`. The 32 bytes of the text alone match nothing, and `reconciler status` names such members. The shard is the CRC-32
of the *text*, modulo the number of shards.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import InvalidValue

PREFIX = "reconciler:v1:"
INBOX_PREFIX = "reconciler:inbox:v1:"

#: Consumed keys stay for this many further rounds, so that a late announcement still finds its match.
COMMIT_GENERATIONS_DEFAULT = 2

#: Maximum number of rounds whose sets are kept for the history.
HISTORY_GENERATIONS_MAX = 4
#: Number of rounds whose times are kept for the history.
TIMES_KEPT = 64
#: The time of rounds may be ahead of Redis' clock by this much. If a round's time is further ahead, Redis' clock dates
#: the keys.
AHEAD_MS_MAX = 1_000
#: Maximum number of entries of K:covered that are kept for the floor. Above this number, the entry that leaves the
#: smallest gap for its age is deleted.
COVERED_ROUNDS_MAX = 64

#: The end of a half queue's name.
_HALF_QUEUE = "/half"

#: Maximum number of members of K:apart. Further keys are not set apart. A verdict finds out the tag of each further
#: key.
APART_KEYS_MAX = 250_000

#: Number of queues of the unique-key topic on every master. Every subscription on the topic has as many shards.
SHARDS_DEFAULT = 16
SHARDS_MAX = 1024


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys of one shard. All keys of a shard are in one Cluster slot."""

    shard: Shard

    @property
    def root(self) -> str:
        """The common beginning of all keys of the shard."""
        s = self.shard.subscription
        return f"{PREFIX}{{{s.environment}:{s.topic}:{s.group}:{self.shard.number}}}"

    @property
    def half(self) -> str:
        """Announced keys."""
        return f"{self.root}:half"

    def half_generation(self, number: int) -> str:
        """Announced keys that an earlier round took. Number 1 is the youngest round."""
        return f"{self.root}:half:{number}"

    @property
    def apart(self) -> str:
        """Announced keys whose announced tag the group does not take."""
        return f"{self.root}:apart"

    @property
    def commit(self) -> str:
        """Consumed keys."""
        return f"{self.root}:commit"

    def commit_generation(self, number: int) -> str:
        """Consumed keys of an earlier round. Number 1 is the youngest round."""
        return f"{self.root}:commit:{number}"

    @property
    def new(self) -> str:
        """Scratch of the round."""
        return f"{self.root}:new"

    @property
    def matched(self) -> str:
        """Scratch of the round."""
        return f"{self.root}:matched"

    def matched_generation(self, number: int) -> str:
        """Keys that left pending by a match in an earlier round. Number 1 is the youngest round."""
        return f"{self.root}:matched:{number}"

    @property
    def taken(self) -> str:
        """The times of the last rounds."""
        return f"{self.root}:taken"

    @property
    def covered(self) -> str:
        """Announcement offsets that the last rounds covered."""
        return f"{self.root}:covered"

    @property
    def pending(self) -> str:
        """Unmatched keys, each with the time when a round first saw the key."""
        return f"{self.root}:pending"

    @property
    def generation(self) -> str:
        """The fence."""
        return f"{self.root}:generation"

    @property
    def offsets(self) -> str:
        """Positions of the announcement consumer."""
        return f"{self.root}:offsets"

    @property
    def proofs(self) -> str:
        """The records that prove that a queue is still the queue that was read."""
        return f"{self.root}:proofs"

    @property
    def epoch(self) -> str:
        """The marker of Redis' memory."""
        return f"{self.root}:epoch"

    @property
    def round_lease(self) -> str:
        """The right to run the rounds. This right saves work and proves nothing."""
        return f"{self.root}:round_lease"

    def announcement_lease(self, broker: str) -> str:
        """The right to consume the shard's queue on one broker. This right saves work and proves nothing."""
        return f"{self.root}:announcement_lease:{broker}"


def meta_key(subscription: Subscription) -> str:
    """Returns the key of the hash with a subscription's number of shards."""
    return f"{PREFIX}{{{subscription.environment}:{subscription.topic}:{subscription.group}}}:meta"


def keys_of(environment: str) -> str:
    """Returns the pattern of every key of an environment for SCAN. Inboxes in Redis do not match this pattern."""
    return f"{PREFIX}{{{environment}:*"


def use_key(environment: str) -> str:
    """Returns the key of the cluster for which the environment is used."""
    return f"{PREFIX}{{{environment}:use}}:brokers"


def identity_key(environment: str) -> str:
    """Returns the key whose text identifies this Redis."""
    return f"{PREFIX}{{{environment}:use}}:identity"


def sharers_key(environment: str) -> str:
    """Returns the key of the processes that share the environment's subscriptions."""
    return f"{PREFIX}{{{environment}:use}}:sharers"


def inbox_key(environment: str, group: str, *, unique_key: str, business_id: str | None = None) -> str:
    """Returns the key that marks one message in a Redis inbox. With a business id, the key marks the whole business
    transaction."""
    identity = unique_key if business_id is None else f"business:{business_id}"
    return f"{INBOX_PREFIX}{{{environment}:{group}:{identity}}}"


def half_queue(broker: str) -> str:
    """Returns the name under which the half queue of a broker is read. A half queue holds halves of all topics and
    shards. So each shard has its own position in the half queue, with the shard's number in place of a queue number."""
    return f"{broker}{_HALF_QUEUE}"


def broker_of(name: str) -> str:
    """Returns the broker of an announcement queue or of a half queue."""
    return name.removesuffix(_HALF_QUEUE)


def is_half_queue(name: str) -> bool:
    """Returns True for the name of a half queue."""
    return name.endswith(_HALF_QUEUE)


def offsets_field(broker: str, queue_id: int) -> str:
    """Returns the field of K:offsets for one queue of the unique-key topic."""
    return f"{broker}/{queue_id}"


def trail_field(broker: str, queue_id: int) -> str:
    """Returns the field of K:proofs for the earlier records of one queue. No queue's name has this ending."""
    return f"{offsets_field(broker, queue_id)}/trail"


def require_history_generations(number: int, *, commit_generations: int) -> None:
    """Raises InvalidValue if the number is higher than the number of commit sets that rounds keep, because the history
    reads the consumed keys of a round from these sets."""
    if not 0 <= number <= min(HISTORY_GENERATIONS_MAX, commit_generations):
        raise InvalidValue(
            "history_generations",
            str(number),
            f"0 to {HISTORY_GENERATIONS_MAX}, and no more than commit_generations ({commit_generations})",
        )
