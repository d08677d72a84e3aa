"""A key that a round looks at, and the evidence of its verdict as the ledger stores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from reconciler.contract.facts import Fact
from reconciler.contract.reasons import EFFECT_NOT_COMPARED, OTHER_MESSAGE_AT, TAG_COMPARED
from reconciler.contract.stored_facts import REASON, reason_in, with_texts
from reconciler.contract.tables import OutboxState
from reconciler.contract.verdicts import QUARANTINING, SETTLING, Undecided, Verdict
from reconciler.policy.commit_evidence import NamedOutbox, named_outboxes
from reconciler.policy.commit_query import BusinessAnswer
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Recorded, StoredMessage
from reconciler.policy.inquiry.case_file import CaseFile, GroupAnswers, Question
from reconciler.policy.inquiry.delivery import difference
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.policy.ports.ledger import COMMITTED_AT, COPY_SEEN, LOST_WITHOUT_INBOX, Candidate, Repair

#: A field of the evidence: the number of consecutive looks that met an unreadable value.
DAMAGED_LOOKS = "damaged_looks"
#: A field of the evidence: the verdict that had closed the key before the key was opened again.
TAKEN_BACK = "taken_back"
#: A field of the evidence of UNKNOWN: {"by": an Undecided, "since_ms": Redis TIME of the first look with that cause}.
UNDECIDED = "undecided"
#: A field of the evidence of UNKNOWN with another cause: the last value of UNDECIDED with the cause HANDED_OUT.
HANDED_OUT_BEFORE = "handed_out_before"
#: A field of the evidence: the outbox that a half names, {"identity", "producer_group", "half_at"}.
NAMED_OUTBOX = "named_outbox"
#: A field of the evidence of BEFORE_SINCE: when groups were given the message, by its broker's or outbox's clock.
GIVEN_MS = "given_ms"
#: A field of the evidence: the producer's span, if the message carries one.
TRACEPARENT = "traceparent"
#: A field of the evidence: the answer of the business's row, {"state", "detail"}.
COMMIT_QUERY = "commit_query"
#: A field of the evidence: what the effect query says, {"presence", "detail"}.
EFFECT_QUERY = "effect_query"
#: Maximum number of characters of the reason that are stored, because a reason may repeat texts of a half.
REASON_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, kw_only=True)
class Suspect(CaseFile):
    """A key that one round looks at for one group."""

    first_seen_ms: int
    shard: int
    #: Redis TIME of the round. None: a person asks, and the grace period does not matter.
    now_ms: int | None = None
    #: The ledger's row, if the key was judged before.
    known: Candidate | None = None
    #: False if the gate holds this key back, so that only its inbox and outbox are asked.
    gate_open: bool = True
    #: The topic-wide repair of the key, if there is one.
    repair: Repair | None = None
    #: The hand-over to the group, if there is one.
    hand_over: Repair | None = None

    def not_before_ms(self, question: Question) -> int:
        """Returns the time of the announcement plus the margin by which clocks may differ. If a person asks for a key
        without an announcement, the outbox must prove that it is a primary."""
        if question is Question.OUTBOX and not self.first_seen_ms:
            return WHENEVER_COMMITTED_MS
        return self.first_seen_ms + round(self.skew_margin_seconds * 1000)

    @property
    def was_lost(self) -> bool:
        """True if the loss of the key was proved earlier."""
        return self.known is not None and self.known.loss_verdict is not None

    def saw_copy(self, groups: Sequence[str]) -> bool:
        """Returns True if an earlier look saw a committed copy."""
        return self.known is not None and self.known.saw_copy and self.plan.group in groups

    @property
    def redis_now_ms(self) -> int | None:
        """Redis TIME of the round."""
        return self.now_ms

    @property
    def plan(self) -> SubscriptionPlan:
        """The group that is judged."""
        return self.plans[0]

    @property
    def group(self) -> GroupAnswers:
        """The answers about the group."""
        return self.of_group[self.plan.group]

    @property
    def inbox(self) -> Lookup[InboxRow] | None:
        """The newest answer of the group's inbox, or of its effect query."""
        return self.group.inbox_again or self.group.inbox

    @property
    def is_weaker(self) -> bool:
        """True if a witness is missing by configuration. Then every verdict says so."""
        return not (self.has_outbox and self.group.shows_effects)

    @property
    def named_outboxes(self) -> tuple[NamedOutbox, ...]:
        """The outboxes that halves name. The names come from halves that were looked at now, or from the stored
        evidence."""
        if self.halves is not None:
            return named_outboxes(self.halves, topic=self.topic.topic)
        noted = self.known.evidence.get(NAMED_OUTBOX) if self.known is not None else None
        if not isinstance(noted, Mapping):
            return ()
        identity, group, half_at = (noted.get(name) for name in ("identity", "producer_group", "half_at"))
        if not (isinstance(identity, str) and isinstance(group, str) and isinstance(half_at, str)):
            return ()
        return (NamedOutbox(identity=identity, producer_group=group, half_at=half_at),)

    @property
    def damaged_looks(self) -> int:
        """The number of consecutive looks that met an unreadable value. This look counts, too."""
        if self.damage is None:
            return 0
        before = self.known.evidence.get(DAMAGED_LOOKS) if self.known is not None else None
        return 1 + (before if type(before) is int else 0)


def suspect_of(topic: TopicPlan, plan: SubscriptionPlan, row: Candidate) -> Suspect:
    """Makes the suspect for a ledger row that is looked at again."""
    return Suspect(
        unique_key=row.unique_key,
        topic=topic,
        plans=(plan,),
        first_seen_ms=row.first_seen_ms,
        shard=row.shard,
        known=row,
    )


def evidence_of(
    suspect: Suspect, english: Callable[[Fact], str], *, reason: Fact, undecided_by: Undecided | None = None
) -> dict[str, object]:
    """Returns the evidence for JSON: the answer of each witness, with a bounded size."""
    evidence: dict[str, object] = {REASON: reason}
    if undecided_by is not None:
        evidence[UNDECIDED] = {"by": str(undecided_by), "since_ms": _undecided_since_ms(suspect, undecided_by)}
        for named in suspect.named_outboxes[-1:] if undecided_by is Undecided.CONTRADICTION else ():
            evidence[NAMED_OUTBOX] = asdict(named)
    evidence |= _of_set_up(suspect)
    inbox = suspect.inbox
    asked: dict[str, Lookup[InboxRow] | Lookup[OutboxRow] | Lookup[StoredMessage] | None] = {
        EFFECT_QUERY if suspect.group.asks_effects else "inbox": inbox,
        "outbox": suspect.outbox,
        "committed_copies": suspect.copies,
        "half_copies": suspect.halves,
        "parked_copies": suspect.parked,
        **{f"{name}_copies": lookup for name, lookup in (suspect.group.copies or {}).items()},
    }
    for witness, lookup in asked.items():
        if lookup is not None:
            evidence[witness] = {"presence": str(lookup.presence), "detail": lookup.reason}
    evidence |= _of_business(suspect.business)
    row = suspect.row
    if row is not None:
        evidence["outbox_state"] = str(row.state)
        if row.message.content_digest is None:
            evidence["compared"] = TAG_COMPARED()
        elif any(effect.content_digest is None for effect in (inbox.records if inbox is not None else ())):
            evidence["compared"] = EFFECT_NOT_COMPARED()
    evidence |= _places(suspect, suspect.message)
    if COMMITTED_AT not in evidence and suspect.saw_copy(() if suspect.group.shows_effects else (suspect.plan.group,)):
        evidence[COPY_SEEN] = True
    if (traceparent := suspect.traceparent) is not None:
        evidence[TRACEPARENT] = traceparent
    if suspect.damaged_looks:
        evidence[DAMAGED_LOOKS] = suspect.damaged_looks
    if suspect.check_back is not None:
        evidence["half_age_seconds"] = round(suspect.check_back.age_seconds, 3)
    return with_texts(evidence, english, characters_max=REASON_CHARACTERS_MAX)


def _of_set_up(suspect: Suspect) -> dict[str, object]:
    weaker: dict[str, object] = {"weaker": True} if suspect.is_weaker else {}
    is_unseen = suspect.known is not None and suspect.known.was_lost_without_inbox
    return weaker | ({LOST_WITHOUT_INBOX: True} if is_unseen else {})


def _of_business(answer: BusinessAnswer | None) -> dict[str, object]:
    if answer is None:
        return {}
    return {COMMIT_QUERY: {"state": str(answer.state)} | ({} if answer.why is None else {"detail": answer.why})}


def undecided_by(evidence: Mapping[str, object]) -> tuple[Undecided | None, int | None]:
    """Returns the cause that keeps a key UNKNOWN, and since when (Redis TIME). None: only time keeps it, or an older
    release stored no cause."""
    return _cause_in(evidence.get(UNDECIDED))


def _cause_in(noted: object) -> tuple[Undecided | None, int | None]:
    if not isinstance(noted, Mapping) or noted.get("by") not in tuple(Undecided):
        return None, None
    since_ms = noted.get("since_ms")
    return Undecided(noted["by"]), since_ms if type(since_ms) is int else None


def _undecided_since_ms(suspect: Suspect, by: Undecided) -> int | None:
    """Returns the time of the first of the consecutive looks with the same cause.

    A group that was handed the message has it also while a witness is silent, so HANDED_OUT keeps its first time.
    """
    evidence: Mapping[str, object] = suspect.known.evidence if suspect.known is not None else {}
    found = _cause_in(_handed_out(suspect)) if by is Undecided.HANDED_OUT else undecided_by(evidence)
    before, since_ms = found
    return since_ms if before is by and since_ms is not None else suspect.now_ms


def _handed_out(suspect: Suspect) -> object:
    """Returns the last value of UNDECIDED with the cause HANDED_OUT. None if another verdict came since."""
    known = suspect.known
    if known is None or known.verdict is not Verdict.UNKNOWN:
        return None
    is_now = undecided_by(known.evidence)[0] is Undecided.HANDED_OUT
    return known.evidence.get(UNDECIDED if is_now else HANDED_OUT_BEFORE)


def handed_out_before(suspect: Suspect, verdict: Verdict, by: Undecided | None) -> dict[str, object]:
    """Returns evidence about a message that the group was handed, if another cause keeps the key UNKNOWN now."""
    value = _handed_out(suspect)
    is_kept = value is not None and verdict is Verdict.UNKNOWN and by is not Undecided.HANDED_OUT
    return {HANDED_OUT_BEFORE: value} if is_kept else {}


def lacked_commit(evidence: Mapping[str, object]) -> bool:
    """Returns True for a verdict that asked the outbox and found no committed row."""
    return "outbox" in evidence and evidence.get("outbox_state") in (None, str(OutboxState.ROLLED_BACK))


def _places(suspect: Suspect, row: Recorded | None) -> dict[str, object]:
    """Returns three things: where the newest copy of each kind lies, which copies are of other messages, and when the
    message was given to groups too early."""
    found: dict[str, object] = {GIVEN_MS: suspect.given_ms} if suspect.lies_before(suspect.plan) else {}
    others: list[Fact] = []
    copies = ((COMMITTED_AT, suspect.copies), ("half_at", suspect.halves), ("parked_at", suspect.parked))
    for name, lookup in copies:
        for copy in lookup.records if lookup is not None else ():
            place, why = f"{copy.broker}@{copy.commit_log_offset}", difference(copy, row)
            if why is None:
                found[name] = place
            else:
                others.append(OTHER_MESSAGE_AT(topic=copy.topic, place=place, why=why))
    if others:
        found["other_messages"] = {"copies": len(others), "newest": others[-1]}
    return found


def taken_back(suspect: Suspect, english: Callable[[Fact], str], verdict: Verdict) -> dict[str, object]:
    """Returns evidence about the last different verdict that had closed the key: its reason, and its time by Redis."""
    known = suspect.known
    if known is None:
        return {}
    if known.verdict is verdict or known.verdict not in SETTLING | QUARANTINING:
        return {TAKEN_BACK: known.evidence[TAKEN_BACK]} if TAKEN_BACK in known.evidence else {}
    before = {"verdict": str(known.verdict), REASON: reason_in(known.evidence), "at_ms": suspect.now_ms}
    return {TAKEN_BACK: with_texts(before, english)}
