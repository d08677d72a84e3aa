"""Dismisses a key by a person's order: a key that was given up, or a loss of a held topic for which nothing was sent.
The key leaves the list of open work, and its verdict stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reconciler.clock import utc_text
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import DISMISSAL_TAKEN_BACK, REPAIR_DISMISSED
from reconciler.contract.outcomes import (
    DISMISSAL_HAS_EFFECT,
    DISMISSED_BEFORE,
    EFFECT_MAY_COME,
    EFFECT_UNKNOWN,
    IS_OPEN,
    LOSS_IS_OPEN,
    OTHER_ROW,
    SENT_BEFORE,
    TOOK_EFFECT,
    WITH_EFFECT,
)
from reconciler.contract.row_rules import FINISHED_REPAIRS, bounded_text
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.verdicts import LOSSES, VERDICTS_ON_THE_ROW, Undecided, Verdict
from reconciler.policy.evidence import InboxRow, Lookup, Recorded
from reconciler.policy.inquiry.delivery import EFFECTS_SEEN_MS, double_effect, effect_times_ms, other_content
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.judging.waits import ASK_AGAIN_SECONDS_MIN
from reconciler.policy.ports.closing import Closing, Closings, KeyInLedger
from reconciler.policy.ports.ledger import DISMISSED_AT_MS, Candidate, Repair, VerdictEntry

#: The outcome for a group whose row was dismissed. Other outcomes are the row's state, or the state of its repair.
DISMISSED = "dismissed"
CLOSED = frozenset({DISMISSED, str(CandidateState.SETTLED)})
#: The outcome of a dismissal that was taken back: the group's row waits for a person again.
TAKEN_BACK = "taken back"
#: The outcome if there was no dismissal to take back.
NOT_DISMISSED = "not dismissed"
#: The outcome if the key has changed since the person saw it: nothing was closed.
CHANGED = "changed"
#: The outcome if the message has its effect for the group, so that nothing of the group was closed. If a person
#: repaired the message by hand, its effect is now doubled.
HAS_EFFECT = "has its effect"
#: Fields that a dismissal adds to the evidence.
_OF_DISMISSAL = frozenset({"dismissed_by", "dismissed_because", DISMISSED_AT_MS, EFFECTS_SEEN_MS})
#: Outcomes for a key that differs from the state that the person saw.
NOT_AS_SEEN = frozenset({CHANGED, HAS_EFFECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFound:
    """The effect, by a group's inbox, of a key that a person dismisses."""

    #: True if the message took effect once, completely, and with the content of its outbox row, as far as that content
    #: is known.
    is_plain: bool = False
    #: The effect as a fact for people. None: no inbox has a row of the message.
    told: Fact | None = None
    #: When the rows of the effect were written, complete or incomplete ones. None: the times are unknown.
    applied_at_ms: frozenset[int] | None = None


def effect_found(inbox: Lookup[InboxRow], row: Recorded | None) -> EffectFound:
    """Compares the answer of a group's inboxes with the outbox row."""
    at_ms = None if inbox.is_unknown and inbox.incomplete is None else effect_times_ms(inbox)
    if inbox.is_unknown:
        return EffectFound(told=EFFECT_UNKNOWN(why=inbox.reason), applied_at_ms=at_ms)
    if not inbox.is_found:
        return EffectFound(applied_at_ms=at_ms)
    other = other_content(inbox, row) or double_effect(inbox)
    if other is not None:
        return EffectFound(told=OTHER_ROW(why=other), applied_at_ms=at_ms)
    told = TOOK_EFFECT(at_ms=inbox.records[0].applied_at_ms)
    return EffectFound(is_plain=True, told=told, applied_at_ms=at_ms)


class Dismissals:
    """Closes rows by a person's order: QUARANTINED candidates and FAILED repairs; open rows of subscriptions that are
    no longer configured, which no round closes; and open losses of held topics whose repair has no attempt and no
    claim. Raises DatabaseAway."""

    def __init__(self, *, closings: Closings, configured: Collection[Subscription], held: Collection[str] = ()) -> None:
        """`held`: topics whose repairs are stopped. If a topic's hold ends meanwhile, no harm is done, because a claim
        prevents the dismissal."""
        self._closings = closings
        self._configured = frozenset(configured)
        self._held = frozenset(held)

    def dismiss(
        self,
        seen: KeyInLedger,
        *,
        group: str | None,
        by: str,
        reason: str,
        effects: Mapping[str, EffectFound] | None = None,
    ) -> dict[str, str]:
        """Returns group -> one of CLOSED, CHANGED, HAS_EFFECT, or the state on which the reconciler still works. In
        this last case nothing of the group is changed.

        `seen`: the rows that the person saw. The rows are closed in one step if they have not changed since. `group`:
        only this group. `effects`: the effect of each group by its inboxes; an unknown effect prevents nothing. The
        repair for every group is closed together with the last group that needs a person. Nothing is sent to a
        dismissed group afterwards: a hand-over to it is DONE before it begins, and the repair for every group leaves it
        out (ladder.py).
        """
        outcomes = self.outcomes(seen, group=group, effects=effects)
        if not outcomes:
            return {}
        closing = self._closing(seen, outcomes, by=by, reason=reason, effects=effects or {})
        if (closing.verdicts or closing.scopes) and not self._closings.close(closing):
            return outcomes | dict.fromkeys(
                (name for name, told in outcomes.items() if told in CLOSED), self._why(closing)
            )
        return outcomes

    def take_back(self, seen: KeyInLedger, *, group: str | None, by: str, reason: str) -> dict[str, str]:
        """Returns group -> TAKEN_BACK, NOT_DISMISSED, CHANGED, or the state of the repair that is under way.

        The group waits for a person again, as before its dismissal, and its repairs are FAILED. Nothing is sent here. A
        repair by hand sends, after checking everything again. While a repair of the key is under way nothing is taken
        back, because that repair was decided without this group.
        """
        rows = {row.subscription.group: row for row in seen.candidates if group in (None, row.subscription.group)}
        outcomes = {name: TAKEN_BACK if row.is_dismissed else NOT_DISMISSED for name, row in rows.items()}
        wanted = [name for name, outcome in outcomes.items() if outcome == TAKEN_BACK]
        busy = [repair for repair in seen.repairs if repair.state not in FINISHED_REPAIRS]
        if not wanted or busy:
            return outcomes | dict.fromkeys(wanted, f"repair is {busy[0].state}" if busy else "")
        of = seen.candidates[0].subscription
        closing = Closing(
            environment=of.environment,
            topic=of.topic,
            unique_key=seen.candidates[0].unique_key,
            candidates=seen.candidates,
            repairs=seen.repairs,
            verdicts={rows[name].subscription: _before_dismissal(rows[name], by=by, reason=reason) for name in wanted},
            scopes=frozenset((EVERY_GROUP, *wanted)),
            answer=DISMISSAL_TAKEN_BACK(by=by, reason=bounded_text(reason)),
        )
        is_done = self._closings.take_back(closing)
        return outcomes if is_done else outcomes | dict.fromkeys(wanted, CHANGED)

    def _why(self, closing: Closing) -> str:
        """Returns why nothing was closed. A claim alone changes nothing that a person sees."""
        held = self._closings.claimed(closing)
        if held is None or held.lease_until_ms is None:
            return CHANGED
        until = utc_text(held.lease_until_ms)
        return f"repair is {held.state}, claimed until it has run, or until the ledger's clock passes {until}"

    def outcomes(
        self, seen: KeyInLedger, *, group: str | None, effects: Mapping[str, EffectFound] | None = None
    ) -> dict[str, str]:
        """Returns the outcomes that dismiss() would have, if the key has not changed since the person saw it."""
        rows = {row.subscription.group: row for row in seen.candidates}
        outcomes = {
            name: self._under_way(row, seen.repairs) or DISMISSED for name, row in rows.items() if group in (None, name)
        }
        for name in [name for name, outcome in outcomes.items() if outcome == DISMISSED]:
            is_settled = rows[name].state is CandidateState.SETTLED
            effect = (effects or {}).get(name, EffectFound())
            if effect.is_plain and rows[name].verdict not in VERDICTS_ON_THE_ROW:
                outcomes[name] = str(CandidateState.SETTLED) if is_settled else HAS_EFFECT
            elif is_settled and not any(_needs_a_person(repair, {name, EVERY_GROUP}) for repair in seen.repairs):
                outcomes[name] = str(CandidateState.SETTLED)
        return self._unless_shared(seen, outcomes)

    def _closing(
        self,
        seen: KeyInLedger,
        outcomes: Mapping[str, str],
        *,
        by: str,
        reason: str,
        effects: Mapping[str, EffectFound],
    ) -> Closing:
        rows = {row.subscription.group: row for row in seen.candidates}
        topic = seen.candidates[0].subscription
        dismissed = {name for name, outcome in outcomes.items() if outcome == DISMISSED}
        done = {name for name, outcome in outcomes.items() if outcome in CLOSED}
        scopes = {row.scope for row in seen.repairs if row.scope in done and row.state is not RepairState.DONE}
        if self._ends_for_all(seen, outcomes):
            scopes.add(EVERY_GROUP)
        else:  # the repair for every group may still begin for another group
            scopes |= dismissed
        return Closing(
            environment=topic.environment,
            topic=topic.topic,
            unique_key=seen.candidates[0].unique_key,
            candidates=seen.candidates,
            repairs=seen.repairs,
            verdicts={
                rows[name].subscription: _verdict(
                    rows[name], by=by, reason=reason, seen_ms=effects.get(name, EffectFound()).applied_at_ms
                )
                for name in sorted(dismissed)
                if rows[name].state is not CandidateState.SETTLED
            },
            scopes=frozenset(scopes),
            answer=REPAIR_DISMISSED(by=by, reason=bounded_text(reason)),
        )

    def _may_close_for_all(self, seen: KeyInLedger, *, is_begun: bool) -> bool:
        """Returns True if the repair for every group may be closed. An unfinished repair may be closed only if no round
        works on the topic any more. If no repair exists, every group must have a verdict, because a group without a
        verdict may be lagging."""
        for repair in seen.repairs:
            if repair.scope == EVERY_GROUP:
                is_left = not any(row.subscription in self._configured for row in seen.candidates)
                if repair.state is RepairState.FAILED or (is_left and repair.state is not RepairState.DONE):
                    return True
                if not self._is_untouched(repair):
                    return False
        judged, topic = {row.subscription for row in seen.candidates}, seen.candidates[0].subscription
        of_topic = {s for s in self._configured if (s.environment, s.topic) == (topic.environment, topic.topic)}
        return is_begun and of_topic <= judged

    def _under_way(self, row: Candidate, repairs: Sequence[Repair]) -> str | None:
        """Returns why the group's effect may still come: its row is open, or a repair that reaches the group is not
        finished.

        An open contradiction has no commit to repair, so only a person can end it. A loss whose repair has not begun
        stays unsent under a hold.
        """
        if row.subscription not in self._configured:
            return None
        begun = next((one for one in _unfinished(row, repairs) if not self._is_untouched(one)), None)
        is_open_loss = row.verdict in LOSSES and row.subscription.topic in self._held and begun is None
        is_contradiction = undecided_by(row.evidence)[0] is Undecided.CONTRADICTION
        if row.state is CandidateState.OPEN and not (is_contradiction or is_open_loss):
            return str(CandidateState.OPEN)
        return None if begun is None else f"repair is {begun.state}"

    def _is_untouched(self, repair: Repair) -> bool:
        """Returns True if the repair's topic is held and nothing was sent for the repair. The lock under which rows are
        closed also checks for a claim."""
        is_sent = repair.attempts or repair.sent_at_ms is not None
        return repair.topic in self._held and repair.state is RepairState.OPEN and not is_sent

    def _unless_shared(self, seen: KeyInLedger, outcomes: dict[str, str]) -> dict[str, str]:
        """Closes an unfinished repair for every group only if all groups are closed. Such a repair may be claimed for
        another group at any time, and would then reach the dismissed group."""
        shared = [one for one in seen.repairs if one.scope == EVERY_GROUP and one.state not in FINISHED_REPAIRS]
        if not shared or self._ends_for_all(seen, outcomes):
            return outcomes
        rows = {row.subscription.group: row for row in seen.candidates if row.subscription in self._configured}
        return outcomes | {
            name: str(row.state)
            if row.state is CandidateState.OPEN and row.verdict in LOSSES
            else f"repair is {shared[0].state}"
            for name, row in rows.items()
            if outcomes.get(name) == DISMISSED
        }

    def _ends_for_all(self, seen: KeyInLedger, outcomes: Mapping[str, str]) -> bool:
        done = {name for name, outcome in outcomes.items() if outcome in CLOSED}
        left = (row for row in seen.candidates if row.subscription.group not in done)
        is_last = bool(done) and all(row.state is CandidateState.SETTLED for row in left)
        return is_last and self._may_close_for_all(seen, is_begun=DISMISSED in outcomes.values())


def _unfinished(row: Candidate, repairs: Sequence[Repair]) -> list[Repair]:
    """Returns the repairs that may still bring the group its effect."""
    scopes = (EVERY_GROUP, row.subscription.group)
    return [repair for repair in repairs if repair.scope in scopes and repair.state not in FINISHED_REPAIRS]


def meaning_of(outcome: str, row: Candidate, effect: EffectFound, repairs: Sequence[Repair] = ()) -> Fact | None:
    """Returns the meaning of one group's outcome, and what a person can do. None: the outcome's word is enough.
    `repairs`: the repairs of the key."""
    if outcome == HAS_EFFECT and effect.told is not None:
        return DISMISSAL_HAS_EFFECT(effect=effect.told, unique_key=row.unique_key)
    if outcome == DISMISSED or (outcome in CLOSED and effect.is_plain):
        is_older = outcome != DISMISSED and row.is_dismissed
        return DISMISSED_BEFORE(effect=effect.told) if is_older and effect.told is not None else effect.told
    if outcome in (*CLOSED, CHANGED):
        return None
    may_come = _may_come(outcome, row, repairs)
    if not effect.is_plain or effect.told is None:
        return may_come
    return WITH_EFFECT(effect=effect.told, but=may_come)


def _may_come(outcome: str, row: Candidate, repairs: Sequence[Repair]) -> Fact:
    sent = next((one for one in _unfinished(row, repairs) if one.sent_at_ms is not None), None)
    if sent is not None and sent.sent_at_ms is not None:
        return SENT_BEFORE(rung=str(sent.rung), at_ms=sent.sent_at_ms)
    if outcome != CandidateState.OPEN:
        return EFFECT_MAY_COME(outcome=outcome)
    if row.verdict in LOSSES:
        return LOSS_IS_OPEN(verdict=str(row.verdict), topic=row.subscription.topic)
    return IS_OPEN(verdict=str(row.verdict))


def _needs_a_person(repair: Repair, scopes: Collection[str]) -> bool:
    return repair.scope in scopes and repair.state is RepairState.FAILED


def _before_dismissal(row: Candidate, *, by: str, reason: str) -> VerdictEntry:
    """Makes the row as it was before the dismissal: given up, with the name of the person who took the dismissal back.
    Databases are asked again for what the key lacks."""
    kept = {name: value for name, value in row.evidence.items() if name not in _OF_DISMISSAL}
    return VerdictEntry(
        unique_key=row.unique_key,
        verdict=row.verdict,
        evidence=kept | {"dismissal_taken_back_by": by, "dismissal_taken_back_because": bounded_text(reason)},
        first_seen_ms=row.first_seen_ms,
        state=CandidateState.QUARANTINED,
        wait_seconds=0.0,
        # The row existed and is gone. Another question would open the key, and then something would be sent without a
        # person.
        ask_again_seconds=None if row.verdict in VERDICTS_ON_THE_ROW else ASK_AGAIN_SECONDS_MIN,
    )


def _verdict(row: Candidate, *, by: str, reason: str, seen_ms: frozenset[int] | None) -> VerdictEntry:
    """Keeps the verdict and its evidence. SETTLED is final, unless the message takes effect (absence_review.py). An
    open row is given up only now. `seen_ms`: EFFECTS_SEEN_MS."""
    outcomes: dict[str, object] = {"dismissed_by": by, "dismissed_because": bounded_text(reason)}
    was_open = row.state is CandidateState.OPEN
    verdict = Verdict.QUARANTINED if was_open else row.verdict
    is_on_row = verdict in VERDICTS_ON_THE_ROW
    if is_on_row and seen_ms is not None:
        outcomes[EFFECTS_SEEN_MS] = sorted(seen_ms)
    seen = {name: value for name, value in row.evidence.items() if name not in (DISMISSED_AT_MS, EFFECTS_SEEN_MS)}
    return VerdictEntry(
        unique_key=row.unique_key,
        verdict=verdict,
        evidence=seen | outcomes | ({"verdict_before": str(row.verdict)} if was_open else {}),
        first_seen_ms=row.first_seen_ms,
        state=CandidateState.SETTLED,
        wait_seconds=0.0,
        ask_again_seconds=None if is_on_row and seen_ms is None else ASK_AGAIN_SECONDS_MIN,
    )
