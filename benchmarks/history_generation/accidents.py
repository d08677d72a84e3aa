"""Accidents, one function a class, each in several variants that meet at their rule's edge; and harmless noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.history_generation.plan import CODE, TAKEN_TAGS, Int64s
from benchmarks.history_generation.stories import (
    CLOSED,
    EVERY_GROUP,
    NEVER,
    NEW,
    NO_ROW,
    OPEN,
    QUARANTINED,
    TAGS,
    TOMBSTONE,
    Stories,
)

#: How long after the announcement a loss is repaired.
REPAIR_AFTER_MS = 60_000
#: Share of ordinary keys for each kind of noise.
NOISE_SHARE = 0.002


def plant(stories: Stories) -> None:
    """All accidents of the plan on keys of the window, chosen for each prefix by itself, then noise on the rest."""
    order = stories.rng.permutation(stories.inside)
    first = 0
    for name, count in sorted(stories.planted.items()):
        chosen = np.sort(order[first : first + count])
        first += count
        ACCIDENTS[name](stories, chosen)
    _noise(stories, order[first:])
    _outside(stories)


def _variants(s: Stories, i: Int64s, count: int) -> list[Int64s]:
    """`i` cut into `count` random parts, as positions in `i`."""
    drawn = s.rng.integers(0, count, len(i))
    return [np.flatnonzero(drawn == number) for number in range(count)]


def _groups(s: Stories, i: Int64s) -> Int64s:
    return s.rng.integers(0, s.plan.groups, len(i))


def _quiet_end(s: Stories) -> int:
    """Keys made before it have everything that is repaired or late behind them inside the history."""
    return s.plan.end_ms - 700_000


def _all_groups(s: Stories, i: Int64s) -> tuple[Int64s, Int64s]:
    return np.repeat(i, s.plan.groups), np.tile(np.arange(s.plan.groups), len(i))


def effect_incomplete(s: Stories, i: Int64s) -> None:
    g = _groups(s, i)
    s.incomplete[i, g] = True
    doubled, judged, late = _variants(s, i, 3)
    s.effects[i[doubled], g[doubled]] = 2
    s.judge(i[judged], g[judged], QUARANTINED, "INCOMPLETE")
    s.apply_at(i[late], g[late], s.created[i[late]] + s.plan.late_after_ms + 1)
    s.expect(i, g, CODE["EFFECT_INCOMPLETE"])


def effect_without_commit(s: Stories, i: Int64s) -> None:
    # Without an outbox row the key's time is its first trace, which must lie in the window, too.
    s.create_before(i, s.plan.end_ms - 120_000)
    missing, tombstone, unannounced, double, judged = _variants(s, i, 5)
    s.state[i] = NO_ROW
    s.state[i[tombstone]] = TOMBSTONE
    s.unannounce(*_all_groups(s, i[unannounced]))
    s.effects[i[double]] = 2
    s.judge(*_all_groups(s, i[judged]), CLOSED, "REJECTED")
    s.expect(i, None, CODE["EFFECT_WITHOUT_COMMIT"])
    del missing


def double_effect(s: Stories, i: Int64s) -> None:
    g = _groups(s, i)
    s.effects[i, g] = s.rng.integers(2, 6, len(i))
    _, late, _ = _variants(s, i, 3)
    s.apply_at(i[late], g[late], s.created[i[late]] + s.plan.late_after_ms + 1)
    s.effects[i[late], g[late]] = 2
    s.expect(i, g, CODE["DOUBLE_EFFECT"])


def _repaired(s: Stories, i: Int64s) -> tuple[Int64s, Int64s]:
    """Lost, repaired, applied a little later: half of them for every group, half of them handed over to one.

    Returns the group that each story is about, and the times of sending.
    """
    s.create_before(i, _quiet_end(s))
    g = _groups(s, i)
    sent = s.created[i] + REPAIR_AFTER_MS + s.rng.integers(0, 20_000, len(i))
    once, twice, unknown_first, skewed = _variants(s, i, 4)
    attempts = np.ones(len(i), np.int64)
    attempts[twice] = attempts[unknown_first] = 2
    first_sent = np.full(len(i), NEVER)
    first_sent[twice] = sent[twice] - 15_000
    handed = s.rng.random(len(i)) < 0.5
    scope = np.where(handed, g, EVERY_GROUP)
    rung = np.where(handed, 2, s.rng.integers(0, 2, len(i)))
    s.repair(i, scope, sent_ms=sent, rung=rung, attempts=attempts, first_sent_ms=first_sent)
    applied = sent + s.rng.integers(20, 5_000, len(i))
    # Just not too early: the clocks differ by all of the bound, or the time of the first send is not known.
    applied[skewed] = sent[skewed] - s.plan.skew_bound_ms
    applied[unknown_first] = sent[unknown_first] - 30_000
    for group in range(s.plan.groups):
        reached = ~handed | (g == group)
        s.apply_at(i[reached], np.full(reached.sum(), group), applied[reached])
        s.judge(i[reached], np.full(reached.sum(), group), CLOSED, "CONSUMED", loss="LOST_CONFIRM", left=False)
        s.expected[i[reached], group] = CODE["REPAIRED"]
    s.handed_over[i[handed], g[handed]] = True
    del once
    return g, sent


def repaired(s: Stories, i: Int64s) -> None:
    g, _ = _repaired(s, i)
    unknown, _ = _variants(s, i, 2)  # another content, perhaps: one of the digests is NULL
    s.digest_differs[i[unknown], g[unknown]] = True
    s.inbox_digest_known[i[unknown], g[unknown]] = False


def repair_differs(s: Stories, i: Int64s) -> None:
    g, _ = _repaired(s, i)
    s.digest_known[i] = True
    s.inbox_digest_known[i, g] = True
    s.digest_differs[i, g] = True
    s.expect(i, g, CODE["REPAIR_DIFFERS"])


def unnecessary_repair(s: Stories, i: Int64s) -> None:
    s.create_before(i, _quiet_end(s))
    g = _groups(s, i)
    for group in range(s.plan.groups):  # a candidate, open when the repair was claimed
        s.judge(i, np.full(len(i), group), CLOSED, "CONSUMED", loss="LOST_CONFIRM", left=False)
    edge, twice, handed, others_later = _variants(s, i, 4)
    sent = np.maximum(s.applied[i].max(axis=1) + s.plan.skew_bound_ms + 1, s.created[i] + REPAIR_AFTER_MS)
    s.applied[i[edge], g[edge]] = sent[edge] - s.plan.skew_bound_ms - 1
    s.consumed[i[edge], g[edge]] = s.applied[i[edge], g[edge]] + 50
    attempts = np.ones(len(i), np.int64)
    attempts[twice] = 3
    first_sent = np.full(len(i), NEVER)
    first_sent[twice] = sent[twice]
    last_sent = np.where(attempts > 1, sent + 40_000, sent)
    scope = np.full(len(i), EVERY_GROUP)
    scope[handed] = g[handed]
    rung = np.where(scope == EVERY_GROUP, s.rng.integers(0, 2, len(i)), 2)
    s.repair(i, scope, sent_ms=last_sent, rung=rung, attempts=attempts, first_sent_ms=first_sent)
    for group in range(s.plan.groups):
        needed = others_later[g[others_later] != group]
        s.apply_at(i[needed], np.full(len(needed), group), sent[needed] + 1_000)
        reached = (scope == EVERY_GROUP) | (scope == group)
        early = sent > s.applied[i, group] + s.plan.skew_bound_ms
        name = np.where(early, CODE["UNNECESSARY_REPAIR"], CODE["REPAIRED"])
        s.expected[i[reached], group] = name[reached]


def not_announced_not_found(s: Stories, i: Int64s) -> None:
    s.create_before(i, _unseen_end(s))
    g = _groups(s, i)
    new, consumed, _ = _variants(s, i, 3)
    was_consumed = s.consumed[i, g]
    s.lose(i, g)
    s.unannounce(i, g)
    s.state[i[new]] = NEW
    s.consumed[i[consumed], g[consumed]] = was_consumed[consumed]
    s.expect(i, g, CODE["NOT_ANNOUNCED_NOT_FOUND"])


def _old_enough(s: Stories) -> int:
    """Keys made before it are older than the grace period whenever the audit's clock is read."""
    return min(s.plan.end_ms - 60_000, s.plan.history_end_ms - 1_000 * s.plan.grace_seconds - 60_000)


def _unseen_end(s: Stories) -> int:
    """Keys made before it count in the window although no witness sees them."""
    return min(_old_enough(s), s.plan.end_ms - 2 * s.plan.late_after_ms)


def unaccounted(s: Stories, i: Int64s) -> None:
    s.create_before(i, s.plan.end_ms - 120_000)
    g = _groups(s, i)
    effect, lost, uncommitted, tombstone, late = _variants(s, i, 5)
    s.consumed[i, g] = NEVER
    s.forgotten[i, g] = s.rng.integers(1, 3, len(i))
    s.expect(i, g, CODE["UNACCOUNTED"])
    s.lose(i[lost], g[lost])
    s.applied[i[late], g[late]] = s.created[i[late]] + s.plan.late_after_ms + 2_000
    for part, state in ((uncommitted, NO_ROW), (tombstone, TOMBSTONE)):
        s.state[i[part]] = state
        s.lose(*_all_groups(s, i[part]))
        s.forgotten[i[part]] = s.rng.integers(1, 3, len(part))[:, None]
        s.expect(i[part], None, CODE["UNACCOUNTED"])
    del effect


def lost(s: Stories, i: Int64s) -> None:
    s.create_before(i, _old_enough(s))
    g = _groups(s, i)
    parts = _variants(s, i, 8)
    was_consumed = s.consumed[i, g]
    s.lose(i, g)
    s.expect(i, g, CODE["LOST"])
    found, _, not_announced, settled, consumed, tried, new, other_group = parts
    s.judge(i[found], g[found], OPEN, "LOST_CONFIRM", loss="LOST_CONFIRM")
    s.unannounce(i[not_announced], g[not_announced])
    s.judge(i[not_announced], g[not_announced], OPEN, "PARKED", loss="PARKED")
    s.judge(i[settled], g[settled], CLOSED, "CONSUMED")
    s.consumed[i[consumed], g[consumed]] = was_consumed[consumed]
    s.judge(i[tried], g[tried], OPEN, "LOST_CONFIRM", loss="LOST_CONFIRM")
    sent = s.created[i[tried]] + REPAIR_AFTER_MS
    hand_over = np.full(len(tried), 2)
    s.repair(i[tried], g[tried], sent_ms=sent, rung=hand_over, attempts=hand_over, state="SENT")
    s.state[i[new]] = NEW
    s.judge(i[new], g[new], OPEN, "UNKNOWN")
    # Quarantined in another group of the topic, which says nothing about this one.
    if s.plan.groups > 1:
        others = (g[other_group] + 1) % s.plan.groups
        s.lose(i[other_group], others)
        s.judge(i[other_group], others, QUARANTINED, "DEAD_LETTERED")
        s.expect(i[other_group], others, CODE["QUARANTINED"])


def quarantined(s: Stories, i: Int64s) -> None:
    s.create_before(i, _old_enough(s) - 700_000)
    g = _groups(s, i)
    dead, collision, given_up, unannounced, retried = _variants(s, i, 5)
    s.consumed[i, g] = NEVER
    s.unannounce(i[unannounced], g[unannounced])
    s.judge(i, g, QUARANTINED, "QUARANTINED")
    s.judge(i[dead], g[dead], QUARANTINED, "DEAD_LETTERED")
    s.judge(i[collision], g[collision], QUARANTINED, "COLLISION")
    s.digest_differs[i[collision], g[collision]] = True
    for part in (dead, given_up, unannounced):
        s.lose(i[part], g[part])
    sent = s.created[i[retried]] + REPAIR_AFTER_MS
    s.applied[i[retried], g[retried]] = sent + 2_000
    hand_over = np.full(len(retried), 2)
    s.repair(i[retried], g[retried], sent_ms=sent, rung=hand_over, attempts=hand_over - 1, state="FAILED")
    s.expect(i, g, CODE["QUARANTINED"])


def effect_late(s: Stories, i: Int64s) -> None:
    g = _groups(s, i)
    edge, judged, claimed, _ = _variants(s, i, 4)
    late = s.rng.integers(1, 600_000, len(i))
    late[edge] = 1
    s.apply_at(i, g, s.created[i] + s.plan.late_after_ms + late)
    s.judge(i[judged], g[judged], CLOSED, "CONSUMED", left=False)
    # A repair that was written down and never sent is none.
    none = np.zeros(len(claimed), np.int64)
    s.repair(
        *(i[claimed], g[claimed]), sent_ms=s.created[i[claimed]] + 1_000, rung=none + 2, attempts=none, state="OPEN"
    )
    s.expect(i, g, CODE["EFFECT_LATE"])


def filtered(s: Stories, i: Int64s) -> None:
    s.tag[i] = s.rng.integers(len(TAKEN_TAGS), len(TAGS), len(i))
    _, untagged, unannounced, judged = _variants(s, i, 4)
    s.create_before(i[unannounced], _unseen_end(s))
    s.tag[i[untagged]] = -1
    for group in range(0, s.plan.groups, 2):
        at = np.full(len(i), group)
        s.lose(i, at)
        s.unannounce(i[unannounced], at[unannounced])
        s.judge(i[judged], at[judged], CLOSED, "FILTERED")
        s.expect(i, at, CODE["FILTERED"])


def rejected(s: Stories, i: Int64s) -> None:
    s.create_before(i, s.plan.end_ms - 120_000)
    s.state[i] = NO_ROW
    s.lose(*_all_groups(s, i))
    judged, _, unannounced = _variants(s, i, 3)  # the second one waits in pending
    s.unannounce(*_all_groups(s, i[unannounced]))
    for part in (judged, unannounced):
        s.judge(*_all_groups(s, i[part]), CLOSED, "REJECTED")
    s.expect(i, None, CODE["REJECTED"])


def rolled_back(s: Stories, i: Int64s) -> None:
    s.state[i] = TOMBSTONE
    s.lose(*_all_groups(s, i))
    unannounced, judged = _variants(s, i, 2)
    s.unannounce(*_all_groups(s, i[unannounced]))
    s.judge(*_all_groups(s, i[judged]), CLOSED, "REJECTED")
    s.expect(i, None, CODE["ROLLED_BACK"])


def pending(s: Stories, i: Int64s) -> None:
    youngest = s.plan.history_end_ms - 1_000 * s.plan.grace_seconds + 30_000
    s.move(i, s.rng.integers(youngest, s.plan.end_ms, len(i)) - s.created[i])
    g = _groups(s, i)
    s.lose(i, g)
    judged, _ = _variants(s, i, 2)
    s.judge(i[judged], g[judged], OPEN, "LAGGING")
    s.expect(i, g, CODE["PENDING"])


def _noise(s: Stories, ordinary: Int64s) -> None:
    """What looks like an accident and is none: all of these are effects in time."""
    drawn = s.rng.random(len(ordinary))
    parts = [ordinary[(drawn >= at * NOISE_SHARE) & (drawn < (at + 1) * NOISE_SHARE)] for at in range(8)]
    unannounced, unrecorded, edge, lagging, claimed, other_tag, again, differs = parts
    s.unannounce(*_all_groups(s, unannounced))
    i, g = _all_groups(s, unrecorded)  # no SADD: verified later, and settled
    s.consumed[i, g] = NEVER
    s.judge(i, g, CLOSED, "CONSUMED")
    i, g = _all_groups(s, edge)
    s.apply_at(i, g, s.created[i] + s.plan.late_after_ms)
    i, g = _all_groups(s, lagging)
    s.judge(i, g, CLOSED, "CONSUMED", left=False)
    none = np.zeros(len(claimed), np.int64)
    s.repair(claimed, none - 1, sent_ms=s.created[claimed] + 1_000, rung=none, attempts=none, state="OPEN")
    s.tag[other_tag] = len(TAKEN_TAGS)
    s.announced_again[again] = True
    s.digest_differs[differs] = True


def _outside(s: Stories) -> None:
    """Keys of other windows, with accidents of their own, and one of them at each edge."""
    i = np.arange(s.inside, len(s))
    plan, rng = s.plan, s.rng
    before = rng.random(len(i)) < 0.5
    created = np.where(
        before,
        rng.integers(plan.start_ms - 300_000, plan.start_ms, len(i)),
        rng.integers(plan.end_ms, plan.end_ms + 200_000, len(i)),
    )
    created[:1] = plan.end_ms
    created[1:2] = plan.start_ms - 1
    s.move(i, created - s.created[i])
    lost_, unannounced, double, forgotten, late, phantom, _ = _variants(s, i, 7)
    # One before the window that no witness has seen would count in it.
    unannounced = unannounced[created[unannounced] >= plan.end_ms]
    for part in (lost_, unannounced, forgotten):
        s.lose(*_all_groups(s, i[part]))
    s.unannounce(*_all_groups(s, i[unannounced]))
    s.effects[i[double]] = 3
    s.forgotten[i[forgotten]] = 2
    k, g = _all_groups(s, i[late])
    s.apply_at(k, g, s.created[k] + plan.late_after_ms + 5_000)
    s.state[i[phantom]] = np.where(created[phantom] < plan.start_ms, TOMBSTONE, NO_ROW)


ACCIDENTS: dict[str, Callable[[Stories, Int64s], None]] = {
    "EFFECT_INCOMPLETE": effect_incomplete,
    "EFFECT_WITHOUT_COMMIT": effect_without_commit,
    "DOUBLE_EFFECT": double_effect,
    "REPAIR_DIFFERS": repair_differs,
    "UNNECESSARY_REPAIR": unnecessary_repair,
    "NOT_ANNOUNCED_NOT_FOUND": not_announced_not_found,
    "UNACCOUNTED": unaccounted,
    "LOST": lost,
    "QUARANTINED": quarantined,
    "REPAIRED": repaired,
    "EFFECT_LATE": effect_late,
    "FILTERED": filtered,
    "REJECTED": rejected,
    "ROLLED_BACK": rolled_back,
    "PENDING": pending,
}
