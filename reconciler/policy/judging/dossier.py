"""What is known about one key while it is verified, and what may be asked next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.tables import OutboxState
from reconciler.contract.verdicts import QUARANTINING, SETTLING, Verdict
from reconciler.policy.evidence import FilterKind, InboxRow, Lookup, OutboxRow, QueuePosition, StoredMessage
from reconciler.policy.judging.delivery import difference, of_row, row_of
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports import Candidate, Repair

#: Keys in one page of pending, one read of the ledger, one query of an inbox or outbox.
PAGE_KEYS = 500
#: Name in the evidence of how many looks in a row met something that nobody can read.
DAMAGED_LOOKS = "damaged_looks"
#: Name in the evidence of the verdict that closed the key before, and was taken back since.
TAKEN_BACK = "taken_back"
#: Characters of one witness's answer that are kept.
DETAIL_CHARACTERS_MAX = 400


class Question(StrEnum):
    """What to ask next; the order is the order of cost."""

    INBOX = "inbox"
    OUTBOX = "outbox"
    COMMITTED_COPIES = "committed copies"
    INBOX_AGAIN = "inbox again"
    GROUP_COPIES = "group copies"
    COPIES_AGAIN = "committed copies again"
    HALF_COPIES = "half copies"
    CHECK_BACK = "check-back"
    FILTER_KIND = "filter"
    PARKED_COPIES = "parked copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAge:
    """How old a half is, in its broker's own time, and what that age means there."""

    age_seconds: float
    #: Younger than this it is left to the broker's own check-back.
    wait_seconds: float
    #: Older than this an open half would have a put-back copy; None: cannot be told.
    rollback_evident_after_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One key that is looked at in a round, with all answers so far; None means not asked yet."""

    unique_key: str
    first_seen_ms: int
    shard: int
    #: Redis TIME of the round that looks; None: a person asks, who does not wait for the grace period.
    now_ms: int | None = None
    #: The ledger's row, if the key was verified before.
    known: Candidate | None = None
    #: False: the gate is shut for this key: only its inbox and outbox are asked.
    gate_open: bool = True
    #: The topic-wide repair of the key, if there is one.
    repair: Repair | None = None
    inbox: Lookup[InboxRow] | None = None
    outbox: Lookup[OutboxRow] | None = None
    copies: Lookup[StoredMessage] | None = None
    #: Read before the copies; None also if a broker did not answer.
    positions: Sequence[QueuePosition] | None = None
    #: Read after the positions.
    inbox_again: Lookup[InboxRow] | None = None
    group_copies: Mapping[str, Lookup[StoredMessage]] | None = None
    #: Read after the group's copies.
    copies_again: Lookup[StoredMessage] | None = None
    halves: Lookup[StoredMessage] | None = None
    check_back: HalfAge | None = None
    parked: Lookup[StoredMessage] | None = None
    filter_kind: FilterKind | None = None

    @property
    def damage(self) -> str | None:
        """What a witness has and nobody can read, where nothing but that keeps an answer from being known."""
        copies = (self.copies, self.halves, self.parked, *(self.group_copies or {}).values())
        asked: tuple[Lookup[InboxRow] | Lookup[OutboxRow] | Lookup[StoredMessage] | None, ...] = (
            *(self.inbox_again or self.inbox, self.outbox),
            *(of_row(found, row_of(self.outbox)) for found in copies if found is not None and found.has_damage),
        )
        return next((lookup.damage for lookup in asked if lookup is not None and lookup.damage is not None), None)

    @property
    def damaged_looks(self) -> int:
        """How many looks in a row met damage, this one included."""
        if self.damage is None:
            return 0
        before = self.known.evidence.get(DAMAGED_LOOKS) if self.known is not None else None
        return 1 + (before if type(before) is int else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """For whom is judged, and which witnesses exist at all."""

    topic: TopicPlan
    plan: SubscriptionPlan
    has_outbox: bool
    has_inbox: bool
    #: How far the databases' clocks may be ahead of Redis'.
    skew_margin_seconds: float = 10.0

    @property
    def is_weaker(self) -> bool:
        """A witness is missing by configuration: every verdict says so."""
        return not (self.has_outbox and self.has_inbox)


def evidence_of(dossier: Dossier, bench: Bench, *, reason: str) -> dict[str, object]:
    """JSON-ready: what each witness answered. Bounded."""
    evidence: dict[str, object] = {"reason": reason}
    if bench.is_weaker:
        evidence["weaker"] = True
    inbox = dossier.inbox_again or dossier.inbox
    asked: dict[str, Lookup[InboxRow] | Lookup[OutboxRow] | Lookup[StoredMessage] | None] = {
        "inbox": inbox,
        "outbox": dossier.outbox,
        "committed_copies": dossier.copies,
        "half_copies": dossier.halves,
        "parked_copies": dossier.parked,
        **{f"{name}_copies": lookup for name, lookup in (dossier.group_copies or {}).items()},
    }
    for witness, lookup in asked.items():
        if lookup is not None:
            evidence[witness] = {"presence": str(lookup.presence), "detail": lookup.reason[:DETAIL_CHARACTERS_MAX]}
    row = row_of(dossier.outbox)
    if row is not None:
        evidence["outbox_state"] = str(row.state)
        if row.content_digest is None:
            evidence["compared"] = "the tag only: the outbox row has no digest"
        elif any(effect.content_digest is None for effect in (inbox.records if inbox is not None else ())):
            evidence["compared"] = "not the effect: the inbox row has no digest"
    evidence |= _places(dossier, row)
    if dossier.damaged_looks:
        evidence[DAMAGED_LOOKS] = dossier.damaged_looks
    if dossier.check_back is not None:
        evidence["half_age_seconds"] = round(dossier.check_back.age_seconds, 3)
    return evidence


def lacked_commit(evidence: Mapping[str, object]) -> bool:
    """True of a verdict for which the outbox was asked and had no committed row."""
    return "outbox" in evidence and evidence.get("outbox_state") in (None, str(OutboxState.ROLLED_BACK))


def _places(dossier: Dossier, row: OutboxRow | None) -> dict[str, object]:
    """Where the newest copy of each kind lies, and what is not this message."""
    found: dict[str, object] = {}
    others: list[str] = []
    copies = (("committed_at", dossier.copies), ("half_at", dossier.halves), ("parked_at", dossier.parked))
    for name, lookup in copies:
        for copy in lookup.records if lookup is not None else ():
            place, why = f"{copy.broker}@{copy.commit_log_offset}", difference(copy, row)
            if why is None:
                found[name] = place
            else:
                others.append(f"{copy.topic} on {place}: {why}")
    if others:
        found["other_messages"] = {"copies": len(others), "newest": others[-1][:DETAIL_CHARACTERS_MAX]}
    return found


def taken_back(dossier: Dossier, verdict: Verdict) -> dict[str, object]:
    """Evidence beside a verdict: the last other one that had closed the key, why, and by what Redis TIME it fell."""
    known = dossier.known
    if known is None:
        return {}
    if known.verdict is verdict or known.verdict not in SETTLING | QUARANTINING:
        return {TAKEN_BACK: known.evidence[TAKEN_BACK]} if TAKEN_BACK in known.evidence else {}
    reason = str(known.evidence.get("reason"))[:DETAIL_CHARACTERS_MAX]
    return {TAKEN_BACK: {"verdict": str(known.verdict), "reason": reason, "at_ms": dossier.now_ms}}
