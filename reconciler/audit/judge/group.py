"""Makes the facts of one subscription from its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reconciler.audit.evidence.plan import GroupPlan, JudgePlan
from reconciler.audit.judge.accounting import unaccounted
from reconciler.audit.judge.facts import (
    NEVER,
    CodedRows,
    GroupFacts,
    TopicFacts,
    accepted_tags,
    candidate_states,
    digests_differ,
    earliest,
    flagged,
    key_times,
    largest,
    quarantined_by_history,
    repair_facts,
)
from reconciler.audit.judge.keys import Longs
from reconciler.audit.judge.rows import NO_NAME, Flags, Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """Rows of one subscription. `repair` has repairs of the topic's other groups, too."""

    inbox: CodedRows
    effects: CodedRows
    candidate: CodedRows
    repair: CodedRows
    announced: CodedRows
    consumed: CodedRows
    left: CodedRows
    pending: CodedRows


def group_facts(
    topic: TopicFacts, rows: GroupRows, asked: GroupPlan, plan: JudgePlan, vocabulary: Vocabulary
) -> GroupFacts:
    """Computes every fact that a rule needs."""
    size, window = topic.size, plan.window
    applied_at = _first(rows.inbox, "applied_at_ms", size)
    announced_at = _first(rows.announced, "at_ms", size)
    consumed_at = _first(rows.consumed, "at_ms", size)
    effects = largest(rows.effects.codes, rows.effects.rows.times["effects"], size)
    effect = (applied_at != NEVER) | (effects > 0)
    candidate, quarantined = candidate_states(rows.candidate, size, vocabulary)
    repair = repair_facts(rows.repair, asked.group, size, vocabulary)
    announced, committed, created_at = announced_at != NEVER, topic.committed, topic.created_at
    seen_at = np.minimum(np.minimum(announced_at, applied_at), _first(rows.candidate, "first_seen_ms", size))
    times = key_times(topic, window.start_ms, seen_at, repair.created_at, asked.late_after_ms)
    present = (times >= window.start_ms) & (times < window.end_ms)
    present &= committed | topic.tombstone | announced | effect | candidate | repair.seen
    suspects = present & announced & (consumed_at == NEVER) & ~candidate & np.bool_(plan.ledger)
    suspects[rows.left.codes] = False
    # An answer of the outbox takes keys with a refused tag out of pending. No other row says so, and the history may
    # lack the last rows.
    accepted = accepted_tags(topic, asked, vocabulary)
    suspects &= ~committed | accepted
    lacking, looked_at = unaccounted(suspects, rows.announced, rows.pending, asked, vocabulary)
    incomplete = flagged(rows.inbox.codes[rows.inbox.rows.names["incomplete"] != NO_NAME], size)
    quarantined = quarantined | quarantined_by_history(rows.left, plan, size, vocabulary)
    unproved = present & np.bool_(asked.of_halves) & ~(effect | incomplete | quarantined | lacking)
    return GroupFacts(
        present=present & ~unproved,
        key_time=times,
        seen_at=seen_at,
        committed=committed,
        tombstone=topic.tombstone,
        created_at=created_at,
        accepted=accepted,
        effect=effect,
        applied_at=applied_at,
        incomplete=incomplete,
        effects=effects,
        repair=repair,
        digests_differ=digests_differ(repair.sent & effect & committed, topic.commits, rows.inbox),
        unnecessary=_sent_after_effect(repair.first_sent, applied_at, plan.skew_bound_ms),
        announced_at=announced_at,
        consumed_at=consumed_at,
        watched=announced | candidate if plan.ledger and plan.history else np.ones(size, np.bool_),
        quarantined=quarantined,
        unaccounted=lacking,
        looked_at=looked_at,
        old=committed & (asked.as_of_ms - created_at > asked.grace_ms),
        late=committed & (applied_at != NEVER) & (applied_at - created_at > asked.late_after_ms),
        outboxes_complete=asked.outboxes_complete,
        unproved=unproved,
    )


def _first(coded: CodedRows, column: str, size: int) -> Longs:
    return earliest(coded.codes, coded.rows.times[column], size)


def _sent_after_effect(first_sent: tuple[Longs, Longs], applied_at: Longs, skew_bound_ms: int) -> Flags:
    """Marks repairs whose first send is known and later than the group's effect by more than the skew bound."""
    late = np.zeros(len(applied_at), np.bool_)
    for sent_at in first_sent:
        late |= (sent_at != NEVER) & (sent_at - skew_bound_ms > applied_at)
    return late
