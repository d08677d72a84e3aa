"""The ordered list of classes once more, slowly: one key after the other, over plain rows. Written from the issue's
text, sharing nothing with the kernel, so that both must be wrong in the same way to agree on a wrong answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.audit.small_evidence import SKEW_MS, Row, SmallEvidence

#: (topic, group) -> key -> class
Judgement = dict[tuple[str, str], dict[bytes, str]]


def judged(evidence: SmallEvidence) -> Judgement:
    """Every key of every subscription's window."""
    answer: Judgement = {}
    for asked in evidence.subscriptions:
        keys = {row["key"] for rows in evidence.rows.values() for row in rows if "key" in row}
        named = {key: _KeyStory(evidence, asked, key) for key in keys}
        answer[asked["topic"], asked["group"]] = {
            key: story.name() for key, story in named.items() if story.belongs() and not story.is_unproved_half()
        }
    return answer


class _KeyStory:
    def __init__(self, evidence: SmallEvidence, asked: Row, key: bytes) -> None:
        self.evidence, self.asked, self.key = evidence, asked, key
        self.outbox = [r for r in evidence.rows["outbox"] if r["key"] == key and r["topic"] == asked["topic"]]
        self.commits = [row for row in self.outbox if row["state"] != "ROLLED_BACK"]
        self.inbox = self.of("inbox")
        self.effects = [r for r in self.of("effects") if r["effects"] > 0]
        self.candidates = self.of("candidate")
        self.repairs = [
            row
            for row in evidence.rows["repair"]
            if row["key"] == key and row["topic"] == asked["topic"] and row["scope"] in ("*", asked["group"])
        ]
        self.announced = self.of("announced")

    def of(self, table: str) -> list[Row]:
        return [
            row
            for row in self.evidence.rows[table]
            if row.get("key", self.key) == self.key
            and (row["topic"], row["consumer_group"]) == (self.asked["topic"], self.asked["group"])
        ]

    def belongs(self) -> bool:
        """Its outbox row lies in the window, or was seen too late for its own; else when evidence first shows it."""
        times = [row["at_ms"] for row in self.announced]
        times += [row["applied_at_ms"] for row in self.inbox]
        times += [row["first_seen_ms"] for row in self.candidates]
        if self.commits:
            late_ms = round(self.asked["late_after_seconds"] * 1000)
            at_ms = self.committed_ms
            if not times or min(times) - at_ms > late_ms + 86_400_000:
                at_ms += 2 * late_ms
            elif min(times) - at_ms > late_ms:
                at_ms = min(times) - late_ms
        elif self.outbox:
            at_ms = min(row["created_at_ms"] for row in self.outbox)
        else:
            if not times:
                times = [row["created_at_ms"] for row in self.repairs]
            if not times and self.effects:
                times = [self.evidence.start_ms]
            if not times:
                return False
            at_ms = min(times)
        return bool(self.evidence.start_ms <= at_ms < self.evidence.end_ms)

    def is_unproved_half(self) -> bool:
        """No outbox could tell whether it was committed, and nothing else tells what became of it."""
        if not self.asked.get("of_halves") or set(self.asked["producer_groups"]) & set(self.evidence.outboxes):
            return False
        return not (self.effect or self.effect_incomplete() or self.unaccounted() or self.quarantined())

    def name(self) -> str:
        for name in (
            "effect_incomplete", "effect_without_commit", "double_effect", "repair_differs", "unnecessary_repair",
            "not_announced_not_found", "unaccounted", "lost", "quarantined", "repaired", "effect_late",
            "effect_in_time", "filtered", "rejected", "rolled_back", "pending",
        ):  # fmt: skip
            if getattr(self, name)():
                return name.upper()
        raise AssertionError(f"no rule for {self.key!r}")

    @property
    def effect(self) -> bool:
        return bool(self.inbox or self.effects)

    @property
    def taken(self) -> bool:
        tags = self.asked["tags"]
        return any(tags is None or row.get("tag") in tags for row in self.commits)

    @property
    def committed_ms(self) -> int:
        return int(min(row["created_at_ms"] for row in self.commits))

    @property
    def is_old(self) -> bool:
        as_of_ms = self.evidence.collected_at_ms
        if self.evidence.has_history:
            as_of_ms = min(as_of_ms, self.evidence.as_of_ms)
        return bool(self.commits) and as_of_ms - self.committed_ms > self.asked["grace_period_seconds"] * 1000

    @property
    def sent(self) -> list[Row]:
        return [row for row in self.repairs if row["attempts"] > 0]

    def effect_incomplete(self) -> bool:
        return any(row.get("incomplete") is not None for row in self.inbox)

    def effect_without_commit(self) -> bool:
        complete = set(self.asked["producer_groups"]) <= set(self.evidence.outboxes)
        return complete and self.effect and not self.commits

    def double_effect(self) -> bool:
        return any(row["effects"] > 1 for row in self.effects)

    def repair_differs(self) -> bool:
        sent = _smallest(row.get("content_digest") for row in self.commits)
        consumed = _smallest(row.get("content_digest") for row in self.inbox)
        return bool(self.sent) and self.effect and None not in (sent, consumed) and sent != consumed

    def unnecessary_repair(self) -> bool:
        if not self.inbox:
            return False
        applied_ms = min(row["applied_at_ms"] for row in self.inbox)
        for scope in ("*", self.asked["group"]):
            first = [_first_sent(row) for row in self.sent if row["scope"] == scope]
            known = [at_ms for at_ms in first if at_ms is not None]
            if known and min(known) > applied_ms + SKEW_MS:
                return True
        return False

    def not_announced_not_found(self) -> bool:
        watched = self.announced or self.candidates or not (self.evidence.ledger and self.evidence.has_history)
        return self.taken and not self.effect and not watched and self.is_old

    def unaccounted(self) -> bool:
        if self.commits and not self.taken:
            return False
        if not self.announced or self.of("left") or self.of("consumed") or self.candidates or not self.evidence.ledger:
            return False
        newest = max(self.announced, key=lambda r: (r["at_ms"], r["generation"], r["shard"], r["epoch"]))
        later = []
        for row in self.of("snapshot"):
            if row["shard"] != newest["shard"] or row["at_ms"] <= newest["at_ms"]:
                continue
            if row["epoch"] != newest["epoch"] or row["generation"] < newest["generation"]:
                continue
            later.append(row["at_ms"])
        if not later:
            return False
        return not any(r["at_ms"] == min(later) and r["shard"] == newest["shard"] for r in self.of("pending"))

    def lost(self) -> bool:
        return self.taken and not self.effect and self.is_old and not self.quarantined()

    def quarantined(self) -> bool:
        if not self.evidence.ledger and any(row["reason"] == "QUARANTINED" for row in self.of("left")):
            return True
        if not self.candidates:
            return False
        order = ["OPEN", "SETTLED", "QUARANTINED"]
        return bool(max((row["updated_at_ms"], order.index(_state(row))) for row in self.candidates)[1] == 2)

    def repaired(self) -> bool:
        return self.effect and bool(self.sent)

    def effect_late(self) -> bool:
        if not self.inbox or not self.commits:
            return False
        took_ms = min(row["applied_at_ms"] for row in self.inbox) - self.committed_ms
        return bool(took_ms > self.asked["late_after_seconds"] * 1000)

    def effect_in_time(self) -> bool:
        return self.effect

    def filtered(self) -> bool:
        return bool(self.commits) and not self.taken

    def rejected(self) -> bool:
        return not self.outbox

    def rolled_back(self) -> bool:
        return not self.commits

    def pending(self) -> bool:
        return self.taken and not self.is_old


def _first_sent(row: Row) -> int | None:
    if row.get("first_sent_at_ms") is not None:
        return int(row["first_sent_at_ms"])
    return row.get("sent_at_ms") if row["attempts"] == 1 else None


def _smallest(digests: Iterable[Any]) -> bytes | None:
    return min((digest for digest in digests if digest is not None), default=None)


def _state(candidate: dict[str, Any]) -> str:
    """A person settles what was given up by dismissing it, and so does `since`; the verdict stays."""
    given_up = candidate["verdict"] in {
        "BEFORE_SINCE", "COLLISION", "DEAD_LETTERED", "DELIVERED_NOT_APPLIED", "INCOMPLETE", "QUARANTINED",
    }  # fmt: skip
    return "QUARANTINED" if candidate["state"] == "SETTLED" and given_up else str(candidate["state"])
