"""Step 8: selects the *suspects*, which are the pending keys that this round looks at. The gate is asked before any
question about single keys.

A key is due if two things are true: it is older than the *grace period*, and the group has consumed everything that was
stored before it (watermark). While the gate is shut, a few of the oldest keys (the *trickle*) are still judged, so that
lost messages of a stopped group are found. Keys that databases alone can settle leave first and do not count. A key
that has waited for a quarter of the brokers' retention is judged in any case. A key that is set apart is not a suspect
yet (tag_filter.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from reconciler.contract.defaults import CANDIDATES_MAX, RETENTION_SECONDS, SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import UNIQUE_KEY_CHARACTERS_MAX, is_unique_key
from reconciler.contract.verdicts import Verdict
from reconciler.policy.events import GateState, LeftKey
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging.suspect import GIVEN_MS, Suspect, lacked_commit, suspect_of
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import Candidate, Candidates
from reconciler.policy.ports.rounds import PendingKey, ShardMemory

#: The smallest page of pending keys for a shard with little room left. Keys that the ledger knows are skipped, so a
#: smaller page might find none.
PAGE_KEYS_MIN = 50
#: Maximum number of pending keys that a round walks through.
SCAN_MAX = 20_000
#: Most REJECTED keys whose halves one round looks at, because forged keys must not cost brokers one look-up each.
HALVES_MAX = 10
#: Of this many places, one is reserved for keys that the ledger follows; new keys may take the others. Losses that wait
#: for their repair are due every few seconds, and would otherwise delay the proof of half a flood.
KNOWN_SHARE = 8
#: A key whose member sorts after the member of every other key.
_LAST_KEY = "F" * UNIQUE_KEY_CHARACTERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRules:
    """How many keys are selected, and how carefully."""

    skew_margin_seconds: float = SKEW_MARGIN_SECONDS
    #: Maximum number of keys of a subscription that one pass judges, and for which one round asks brokers.
    candidates_max: int = CANDIDATES_MAX
    #: Maximum number of pending keys that one round walks through. Keys that the ledger knows already are skipped.
    scan_max: int = SCAN_MAX
    halves_max: int = HALVES_MAX
    #: The brokers' fileReservedTime.
    retention_seconds: float = RETENTION_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkGate:
    """The first-seen time up to which keys may be judged."""

    state: GateState
    #: The watermark's own detail. None: the watermark was not asked.
    detail: Fact | None = None
    #: Keys that were first seen at or before this time are due.
    due_until_ms: int
    #: Keys that were first seen at or before this time are older than the grace period. The trickle takes some of these
    #: keys.
    old_until_ms: int
    #: Redis TIME of the round.
    now_ms: int
    #: The group's watermark. None: it was not asked, or is unknown.
    watermark_ms: int | None = None

    def lets_through(self, first_seen_ms: int) -> bool:
        """Returns True if a key may be judged."""
        return first_seen_ms <= self.due_until_ms


def gate_of(now_ms: int, watermark: Watermark, *, plan: SubscriptionPlan, rules: SelectionRules) -> WatermarkGate:
    """Returns the gate. A key is due if score + grace <= now and watermark > score + skew_margin. A key is also due
    after a quarter of the retention."""
    old_until = now_ms - round(plan.grace_period_seconds * 1000)
    expiring_until = min(old_until, now_ms - round(rules.retention_seconds * 1000 / 4))
    if watermark.state is WatermarkState.UNKNOWN:
        return WatermarkGate(
            state="unknown",
            detail=watermark.detail,
            due_until_ms=expiring_until,
            old_until_ms=old_until,
            now_ms=now_ms,
        )
    consumed_until = watermark.at_ms - round(rules.skew_margin_seconds * 1000) - 1
    is_open = consumed_until >= old_until
    return WatermarkGate(
        state="open" if is_open else "shut",
        detail=watermark.detail,
        due_until_ms=old_until if is_open else max(consumed_until, expiring_until),
        old_until_ms=old_until,
        now_ms=now_ms,
        watermark_ms=watermark.at_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectSelection:
    """The keys that a round looks at."""

    #: Keys that are judged in full.
    due: tuple[Suspect, ...]
    #: Keys that the shut gate holds back: as many as the trickle allows.
    trickle: tuple[Suspect, ...]
    #: Keys that the ledger has closed already. Redis fell back, or they were announced again.
    closed: Mapping[Shard, Sequence[LeftKey]]
    #: Members of pending that are no unique keys. Another program wrote these members, and no message matches such a
    #: member.
    misshapen: Mapping[Shard, Sequence[str]]
    #: Number of keys that became due since this process's last round and that the ledger did not know.
    became_due: int
    #: True if there may be more due keys than this selection had room for.
    has_more: bool


def is_closed(candidate: Candidate, plan: SubscriptionPlan, *, skew_margin_seconds: float) -> bool:
    """Returns True if the key may leave pending without another look.

    Four verdicts are judged again at once when the key is announced again. REJECTED: a forged announcement before the
    commit must not hide a later loss, and one database may have a tombstone while another has a later commit. FILTERED:
    the verdict came from the setting `tags` at that time. BEFORE_SINCE: only if the group answers for the message now.
    CONSUMED: only if another inbox may have a second effect, or if no commit was compared with the effect, which may
    then be of another message. A row with an unreadable value does not close its key, either.
    """
    if candidate.damage is not None or candidate.state is CandidateState.OPEN:
        return False
    if candidate.verdict is Verdict.CONSUMED:
        return not (plan.has_several_inboxes or lacked_commit(candidate.evidence))
    if candidate.verdict is Verdict.BEFORE_SINCE:
        given_ms = candidate.evidence.get(GIVEN_MS)
        return type(given_ms) is int and not plan.answers_for(given_ms, skew_margin_seconds=skew_margin_seconds)
    return candidate.verdict not in {Verdict.REJECTED, Verdict.FILTERED}


def is_followed(candidate: Candidate, shards_in_all: int) -> bool:
    """Returns True if a round asks the ledger for the row: the row is open, and its shard still exists.

    After the number of queues was lowered, rows of removed shards are looked at where their keys are pending now. The
    same is done for rows with unreadable values, which might never be due.
    """
    return candidate.damage is None and candidate.state is CandidateState.OPEN and candidate.shard < shards_in_all


class SuspectSelector:
    """Walks pending and the ledger's open rows within limits. Only the thread of the rounds uses this selector.

    The cursors only save time. After a restart the walk begins with the oldest key again.
    """

    def __init__(self, *, memory: ShardMemory, candidates: Candidates, rules: SelectionRules) -> None:
        self._memory = memory
        self._candidates = candidates
        self.rules = rules
        self._due_before: dict[Shard, int] = {}
        self._cursors: dict[Shard, PendingKey] = {}
        self._behind_cursors: dict[Shard, PendingKey] = {}
        self._turn = 0

    def select(
        self,
        topic: TopicPlan,
        plan: SubscriptionPlan,
        shards: Sequence[Shard],
        gate: WatermarkGate,
        *,
        trickle: int,
        count_until: float,
        keys_max: int,
        behind: Sequence[Suspect] = (),
        going_on: Collection[str] = frozenset(),
    ) -> SuspectSelection:
        """Returns due keys of the given shards, and at most `trickle` keys that the gate holds back.

        `behind`: held-back keys that the ledger does not follow; they come before those that it follows. `count_until`:
        counting keys that became due may stop above this number. `keys_max`: how many due keys there is room for.
        `going_on`: keys that are suspects even if they are set apart again.
        """
        known = self._open_rows(topic, plan, shards, gate, limit=max(1, keys_max // 2))
        room = keys_max - min(len(known), max(1, keys_max // KNOWN_SHARE))
        walk = _Walk(
            topic,
            plan,
            room=room,
            scan=self.rules.scan_max,
            count_until=count_until,
            going_on=going_on,
            skew_margin_seconds=self.rules.skew_margin_seconds,
        )
        # Each round begins with another shard, so that every shard has its turn if there are more shards than room.
        self._turn += 1
        for number in range(len(shards)):
            walk.share(len(shards) - number)
            self._walk_shard(plan, shards[(self._turn + number) % len(shards)], gate, walk)
        known = known[: max(0, keys_max - len(walk.found))]
        chosen = [*behind, *(s for s in known if not s.gate_open)][:trickle]
        trickled = {s.unique_key for s in chosen}
        return SuspectSelection(
            due=tuple(s for s in (*known, *walk.found) if s.unique_key not in trickled),
            trickle=tuple(replace(s, gate_open=True) for s in chosen),
            closed=walk.closed,
            misshapen=walk.misshapen,
            became_due=walk.became_due,
            has_more=walk.has_left_out or any(shard in self._cursors for shard in shards),
        )

    def _open_rows(
        self,
        topic: TopicPlan,
        plan: SubscriptionPlan,
        shards: Sequence[Shard],
        gate: WatermarkGate,
        *,
        limit: int,
    ) -> list[Suspect]:
        numbers = {shard.number for shard in shards}
        rows = self._candidates.open_due(plan.subscription, shards=numbers, limit=limit)
        known: list[Suspect] = []
        for row in rows:
            # A time from when Redis' clock was ahead would make the key wait until that time comes. The round corrects
            # the times of pending keys, too. The stored time stays the earlier time.
            first_seen_ms = min(row.first_seen_ms, gate.now_ms)
            known.append(
                replace(
                    suspect_of(topic, plan, row),
                    first_seen_ms=first_seen_ms,
                    # A loss is followed while the gate is shut, too, because it was proved already.
                    gate_open=row.loss_verdict is not None or gate.lets_through(first_seen_ms),
                )
            )
        return known

    def _walk_shard(self, plan: SubscriptionPlan, shard: Shard, gate: WatermarkGate, walk: _Walk) -> None:
        # The limit is not above what can be due now, because Redis' clock may have been set back.
        before = min(self._due_before.get(shard, -1), gate.old_until_ms)
        after = self._cursors.pop(shard, None)
        while walk.goes_on:
            limit = walk.page_keys
            page = self._memory.due(shard, first_seen_until_ms=gate.due_until_ms, limit=limit, after=after)
            rows = self._candidates.of_keys(plan.subscription, [p.unique_key for p in page]) if page else {}
            for pending in page:
                walk.visit(shard, pending, rows.get(pending.unique_key), is_new=pending.first_seen_ms > before)
            if len(page) < limit:
                self._due_before[shard] = max(before, gate.due_until_ms)
                return
            after = page[-1]
        # The walk stopped early. The next round continues after the last key that was looked at.
        if after is not None:
            self._due_before[shard] = max(before, after.first_seen_ms)
        resume = walk.resume_after(after)
        if resume is not None:
            self._cursors[shard] = resume

    def behind_gate(
        self,
        topic: TopicPlan,
        plan: SubscriptionPlan,
        shards: Sequence[Shard],
        gate: WatermarkGate,
        *,
        going_on: Collection[str] = frozenset(),
    ) -> Iterator[SuspectSelection]:
        """Yields passes over the keys that only the gate holds back. A pass has one page per shard and begins with the
        oldest keys.

        `due` has the keys that the ledger does not follow. The caller may stop at any time. scan_max bounds all passes
        together.
        """
        if gate.due_until_ms >= gate.old_until_ms:
            return
        edge = PendingKey(unique_key=_LAST_KEY, first_seen_ms=gate.due_until_ms)
        places = {shard: self._behind_cursors.pop(shard, edge) for shard in shards}
        places = {s: after if after.first_seen_ms > gate.due_until_ms else edge for s, after in places.items()}
        scan_left, fruitful = self.rules.scan_max, set[int]()
        while places and scan_left > 0:
            walk = _Walk(
                topic,
                plan,
                room=PAGE_KEYS * len(places),
                scan=scan_left,
                count_until=0,
                going_on=going_on,
                skew_margin_seconds=self.rules.skew_margin_seconds,
            )
            walk.share(1)
            for shard, after in tuple(places.items()):
                page = self._memory.due(shard, first_seen_until_ms=gate.old_until_ms, limit=PAGE_KEYS, after=after)
                rows = self._candidates.of_keys(plan.subscription, [p.unique_key for p in page]) if page else {}
                for pending in page:
                    walk.visit(shard, pending, rows.get(pending.unique_key), is_new=False)
                scan_left -= len(page)
                if len(page) < PAGE_KEYS:
                    del places[shard]
                else:
                    places[shard] = page[-1]
            fruitful |= {suspect.shard for suspect in walk.found}
            # Pages with only keys that the ledger follows are read once, and not in every round.
            self._behind_cursors |= {s: after for s, after in places.items() if s.number not in fruitful}
            yield SuspectSelection(
                due=tuple(sorted(walk.found, key=lambda s: (s.first_seen_ms, s.unique_key))),
                trickle=(),
                closed=walk.closed,
                misshapen=walk.misshapen,
                became_due=0,
                has_more=bool(places),
            )
        for shard in set(shards) - set(places):
            self._behind_cursors.pop(shard, None)


class _Walk:
    """Limits and results of one walk over pending."""

    def __init__(
        self,
        topic: TopicPlan,
        plan: SubscriptionPlan,
        *,
        room: int,
        scan: int,
        count_until: float,
        going_on: Collection[str],
        skew_margin_seconds: float,
    ) -> None:
        self.plan = plan
        self._skew_margin_seconds = skew_margin_seconds
        self.topic = topic
        self._going_on = going_on
        self.found: list[Suspect] = []
        self.closed: dict[Shard, list[LeftKey]] = {}
        self.misshapen: dict[Shard, list[str]] = {}
        self.became_due = 0
        #: True if a key found no room.
        self.has_left_out = False
        self._room_left = room
        self._scan_left = scan
        self._count_until = count_until
        self._room_share = 0
        self._scan_share = 0
        self._last: PendingKey | None = None
        self._left_out = False

    def share(self, shards_left: int) -> None:
        """Gives the next shard its share of the remaining room."""
        self._room_share = ceil(self._room_left / shards_left)
        self._scan_share = ceil(self._scan_left / shards_left)
        self._last = None
        self._left_out = False

    def resume_after(self, seen: PendingKey | None) -> PendingKey | None:
        """Returns where the shard's next walk begins: before the first key without room, or after all keys that were
        seen."""
        return self._last if self._left_out else seen

    @property
    def goes_on(self) -> bool:
        """Returns True while there is room for keys, or while keys are still counted."""
        wants_more = self._room_share > 0 or self.became_due <= self._count_until
        return wants_more and self._scan_share > 0

    @property
    def page_keys(self) -> int:
        """Returns the number of keys to read next: little more than there is room for, or a whole page if keys are only
        counted."""
        return min(PAGE_KEYS, max(self._room_share, PAGE_KEYS_MIN)) if self._room_share > 0 else PAGE_KEYS

    def waits(self, pending: PendingKey) -> bool:
        """Returns True until the key's tag was compared with the outbox."""
        return pending.is_apart and pending.unique_key not in self._going_on

    def visit(self, shard: Shard, pending: PendingKey, row: Candidate | None, *, is_new: bool) -> None:
        """Decides about one pending key."""
        self._scan_share -= 1
        self._scan_left -= 1
        if not is_unique_key(pending.unique_key):
            self.leave_out(shard, pending)
        elif row is not None and is_closed(row, self.plan, skew_margin_seconds=self._skew_margin_seconds):
            self.note_closed(shard, row)
        elif not self.waits(pending) and (row is None or not is_followed(row, self.topic.shards)):
            # Only keys without a ledger row are counted, because the number of known keys says nothing about new
            # losses.
            self.became_due += is_new and row is None
            if self._room_share <= 0:
                self._left_out = self.has_left_out = True
            else:
                self._room_share -= 1
                self._room_left -= 1
                self.found.append(
                    Suspect(
                        unique_key=pending.unique_key,
                        topic=self.topic,
                        plans=(self.plan,),
                        first_seen_ms=pending.first_seen_ms,
                        shard=shard.number,
                        known=row,
                    )
                )
        if not self._left_out:
            self._last = pending

    def leave_out(self, shard: Shard, pending: PendingKey) -> None:
        """Records a member of pending that is not a unique key."""
        self.misshapen.setdefault(shard, []).append(pending.unique_key)

    def note_closed(self, shard: Shard, row: Candidate) -> None:
        """Records a key that the ledger has closed."""
        left = LeftKey(unique_key=row.unique_key, state=row.state, verdict=row.verdict)
        self.closed.setdefault(shard, []).append(left)
