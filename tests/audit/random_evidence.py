"""Random evidence with every kind of accident in it, from a seed: facts of one key meet often, on every edge."""

from __future__ import annotations

import random

from reconciler.audit.history.check import DAY_MS
from reconciler.contract.history_row import PREFIXES, prefix_of
from reconciler.contract.unique_key import member_of
from tests.audit.small_evidence import (
    AS_OF_MS,
    END_MS,
    GRACE_MS,
    LATE_MS,
    SKEW_MS,
    START_MS,
    STREAMS,
    Row,
    SmallEvidence,
    subscription,
)

TOPICS, GROUPS = ("ORDERS", "RETURNS"), ("billing", "mail")
#: Around every edge that the window or a rule has.
COMMITS = (START_MS - 1, START_MS, START_MS + 1000, START_MS + 1000, START_MS + 1000, END_MS - 1, END_MS)
#: Counted long after they were written: those that nobody has seen, and one that is seen a day late, or later still.
LATE_COMMITS = (START_MS - 2 * LATE_MS, END_MS - 2 * LATE_MS, START_MS + 1000 - DAY_MS)
TIMES = (
    *COMMITS,
    START_MS + 1000 + LATE_MS,
    START_MS + 1001 + LATE_MS,
    START_MS + 1000 + LATE_MS + SKEW_MS,
    START_MS + 1001 + LATE_MS + SKEW_MS,
    AS_OF_MS - 1000,
    AS_OF_MS,
)
DIGESTS = (None, b"\x00" * 32, b"\x00" * 31 + b"\x01", b"\xff" * 32)
#: Prefixes that an example's keys fall into, neighbours. Prefixes are judged one by one and each has files of its own:
#: with few of them keys meet more often, and nearly all of the time goes into judging instead of opening files.
PREFIXES_USED = 8
#: How likely a key has rows of a table.
SHARES = {
    "outbox": 0.85,
    "inbox": 0.5,
    "effects": 0.5,
    "candidate": 0.25,
    "repair": 0.4,
    "announced": 0.6,
    "consumed": 0.35,
    "left": 0.2,
    "pending": 0.3,
}


def random_evidence(seed: int, keys: int = 60, *, may_lack_history: bool = True) -> SmallEvidence:
    """The same seed gives the same evidence."""
    chance = random.Random(seed)
    asked = [
        subscription(
            topic,
            group,
            tags=chance.choice([None, None, ["paid"], ["audit", "paid"]]),
            grace_period_seconds=chance.choice([0.0, GRACE_MS / 1000, (AS_OF_MS - START_MS - 1000) / 1000]),
            producer_groups=chance.choice([["shop"], ["shop"], ["other", "shop"]]),
            effects=chance.random() < 0.7,
        )
        for topic in TOPICS
        for group in GROUPS
        if (topic, group) == (TOPICS[0], GROUPS[0]) or chance.random() < 0.5
    ]
    evidence = SmallEvidence(subscriptions=asked, shards=2, ledger=chance.random() < 0.85)
    first = chance.randrange(PREFIXES - PREFIXES_USED + 1)
    for _ in range(keys):
        key = _key(chance)
        while prefix_of(key) not in range(first, first + PREFIXES_USED):
            key = _key(chance)
        for table, share in SHARES.items():
            if chance.random() < share:
                # A second row repeats the first or contradicts it.
                for _ in range(chance.choice([1, 1, 1, 2])):
                    evidence.add(table, key, **_row(table, chance))
    for _ in range(chance.randrange(8)):
        evidence.add("snapshot", **_of_round(chance))
    if may_lack_history and chance.random() < 0.15:
        evidence.has_history = False
        for stream in STREAMS:
            evidence.rows[stream].clear()
    return evidence


def _key(chance: random.Random) -> bytes:
    """A member of either shape (contract/unique_key.py)."""
    key = chance.randbytes(chance.choice([16, 16, 17, 28, 32]))
    if chance.random() < 0.3:
        text = key.hex() if chance.random() < 0.7 else "".join(chance.choices("_-09AZaz", k=chance.randrange(16, 65)))
        return member_of(text)
    return key[:-2] + b"\x00\x00" if chance.random() < 0.2 else key


def _row(table: str, chance: random.Random) -> Row:
    time = chance.choice(TIMES)
    group = {"topic": _mostly(chance, TOPICS), "consumer_group": _mostly(chance, GROUPS)}
    if table == "outbox":
        return {
            "topic": group["topic"],
            "producer_group": chance.choice(["shop", "other"]),
            "tag": chance.choice([None, "", "paid", "paid", "audit"]),
            "state": chance.choice(["NEW", "ANNOUNCED", "SETTLED", "SETTLED", "ROLLED_BACK"]),
            "created_at_ms": chance.choice(COMMITS + LATE_COMMITS),
            "content_digest": chance.choice(DIGESTS),
        }
    if table == "repair":
        return {
            "topic": group["topic"],
            "scope": chance.choice(["*", "*", *GROUPS]),
            "attempts": chance.choice([0, 1, 1, 2]),
            "created_at_ms": time,
            "sent_at_ms": chance.choice([None, *TIMES]),
            "first_sent_at_ms": chance.choice([None, None, chance.choice(TIMES)]),
        }
    if table == "inbox":
        source = chance.choice(["consumer", "hand-over"])
        incomplete = chance.choice([None] * 9 + ["4711"])
        return {
            **group, "applied_at_ms": time, "content_digest": chance.choice(DIGESTS), "source": source,
            "incomplete": incomplete,
        }  # fmt: skip
    if table == "effects":
        return {**group, "effects": chance.choice([0, 1, 1, 1, 1, 2])}
    if table == "candidate":
        state = chance.choice(["OPEN", "SETTLED", "QUARANTINED"])
        verdict = chance.choice(["CONSUMED", "LOST_CONFIRM", "DEAD_LETTERED", "QUARANTINED"])
        return {
            **group, "state": state, "verdict": verdict, "first_seen_ms": time, "updated_at_ms": chance.choice(TIMES)
        }  # fmt: skip
    if table == "left":
        return {**group, "at_ms": time, "reason": chance.choice(["MATCHED", "SETTLED", "QUARANTINED"])}
    if table == "pending":
        return {**group, "at_ms": time, "shard": chance.randrange(2)}
    return {**_of_round(chance), **group, "at_ms": time}


def _of_round(chance: random.Random) -> Row:
    return {
        "topic": _mostly(chance, TOPICS),
        "consumer_group": _mostly(chance, GROUPS),
        "shard": chance.randrange(2),
        "epoch": chance.choice(["e1", "e2"]),
        "generation": chance.randrange(1, 4),
        "at_ms": chance.choice(TIMES),
    }


def _mostly(chance: random.Random, names: tuple[str, str]) -> str:
    return names[0] if chance.random() < 0.75 else names[1]


def plain_evidence(seed: int, keys: int = 60) -> SmallEvidence:
    """Random evidence without contradictions in it, where one SQL statement can be expected to say the same."""
    evidence = random_evidence(seed, keys, may_lack_history=False)
    evidence.ledger = True
    for asked in evidence.subscriptions:
        asked["effects"] = True
    committed = {row["key"] for row in evidence.rows["outbox"]}
    for table, rows in evidence.rows.items():
        seen = set()
        kept = []
        for row in rows:
            _make_plain(row)
            place = (row.get("key"), row.get("consumer_group"), row.get("scope"), row.get("at_ms"))
            needs_commit = table in {"effects", "repair"} and row["key"] not in committed
            if place not in seen and not needs_commit:
                seen.add(place)
                kept.append(row)
        evidence.rows[table] = kept
    if not evidence.rows["snapshot"]:
        evidence.add("snapshot", generation=AS_OF_MS // 1000)
    return evidence


def _make_plain(row: Row) -> None:
    """A key has one topic and shard, and a round's generation grows with its time."""
    if "key" in row:
        row["topic"] = TOPICS[prefix_of(row["key"]) % 8 == 0]
        if "shard" in row:
            row["shard"] = prefix_of(row["key"]) % 2
    if "generation" in row:
        row.update(epoch="e1", generation=row["at_ms"] // 1000)
    if "effects" in row:
        row["effects"] = max(1, row["effects"])
