"""Verification and repair of named messages, or of every open loss, through the brakes of the reconciler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

from reconciler.clock import utc_text
from reconciler.commands.business_ids import NamedMessages, keys_named
from reconciler.commands.dismiss import ledger_rows
from reconciler.commands.hand_over import brakes_of, cancel, changed_meanwhile, hand_over, nothing_of_dismissed
from reconciler.commands.operator_actions import recorded
from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import (
    HAS_CHANGED,
    HAS_GONE,
    HELD_FIRST,
    JUDGED_FIRST,
    OVER_WITHOUT_EFFECT,
    UNSENT,
    UNSENT_FAILED,
    UNSENT_NOTHING,
    WOULD_BE_OPENED,
)
from reconciler.contract.stored_facts import bounded
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, RepairAct, Rung
from reconciler.contract.verdicts import LOSSES, QUARANTINING, SETTLING, Verdict, what_ends
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED, DISMISSED
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.policy.ports.paging import LedgerFilter, all_rows
from reconciler.policy.repairing.case import RepairOutcome
from reconciler.policy.repairing.rungs import first_rung
from reconciler.policy.round import ReconcileRound
from reconciler.wiring.availability import require_all_dependencies
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.subscriptions import require_subscription
from reconciler.words import said, said_and_coded

#: Messages of one business id that are looked at.
NAMED_MAX = 20
#: Outcomes that leave nothing to a person.
WELL = frozenset({"sent", "done", "cancelled"})
#: Most keys of one `repair --all`.
REPAIR_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairLine:
    """One line of `reconciler repair`."""

    topic: str
    group: str
    unique_key: str
    verdict: str
    #: sent, done, failed, waits, held, taken, planned, changed, dismissed, refused, cancelled; empty: nothing to do.
    outcome: str
    rung: str
    reason: Fact | None = None

    @property
    def summary(self) -> str:
        """In one line: verdict, and what was done about it."""
        done = " ".join(word for word in (self.outcome, self.rung) if word)
        return ": ".join(word for word in (self.verdict, done, self.cells["reason"]) if word)

    @property
    def cells(self) -> dict[str, str]:
        """For people."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"reason": "" if self.reason is None else said(self.reason)}

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {**self.cells, "fact": None if self.reason is None else bounded(self.reason)}

    @property
    def ended_well(self) -> bool:
        """Nothing is left to a person or to a later try; a key that could not be judged is not well."""
        return self.outcome in WELL or (not self.outcome and self.verdict != Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualRepairReport:
    """What `reconciler repair` did, or would do."""

    keys: tuple[RepairLine, ...]
    dry_run: bool
    #: How names were understood, one each.
    notes: tuple[Fact, ...] = ()
    #: How many lines there would be, had a dry run no bound.
    lines: int = 0
    #: Of a dry run: key -> what it saw, which a repair can be compared with.
    seen: Mapping[str, str] = field(default_factory=dict)

    columns = ("topic", "group", "unique key", "verdict", "outcome", "rung", "reason")

    @property
    def exit_code(self) -> int:
        """5: a key has changed since it was looked at; 4: some repairs failed, wait or are held, or a dry run found
        something to do; 2: a key could not be judged; 0: all is sent, done or well."""
        if any(key.outcome == CHANGED for key in self.keys):
            return ChangedMeanwhile.exit_code
        if any(key.outcome not in {"", *WELL} for key in self.keys):
            return 4
        return 2 if any(key.verdict == Verdict.UNKNOWN and not key.outcome for key in self.keys) else 0

    def rows(self) -> list[tuple[str, ...]]:
        """Rows for people."""
        return [tuple(key.cells.values()) for key in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        keys = [key.as_dict() for key in self.keys]
        told, facts = said_and_coded({"notes": self.notes})
        return {"dry_run": self.dry_run, "keys": keys, **told, "seen": dict(self.seen), "facts": facts}


def repair_now(
    connections: Connections,
    names: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    dry_run: bool,
    by: str,
    reason: str = "",
    verdict: Verdict | None = None,
    judged_max: int | None = None,
    seen: Mapping[str, str] | None = None,
    act: RepairAct = RepairAct.LADDER,
) -> ManualRepairReport:
    """Verifies and repairs messages (none named: every open loss, of the verdict if given) through the brakes of the
    reconciler.

    A name is a unique key, or the business id of one message: of several, only a dry run looks at all. `judged_max`: a
    dry run looks at no more lines, and notes how many there are. `seen`: what was shown of keys (ports.seen_of): one
    that has changed since is told, and left as it is; of every open loss, those that were not shown are left, too.
    `act`: hand-overs, and their end, are of named messages. Raises InvalidValue for what neither an outbox nor the
    ledger knows and for an open choice, and DependencyAway.
    """
    settings = connections.settings
    require_subscription(settings, topic, group)
    assembly = RoundAssembly(connections)
    require_all_dependencies(connections)
    named = [_named(connections, name, topic=topic, dry_run=dry_run) for name in dict.fromkeys(names)]
    unique_keys = [key for one in named for key in one.unique_keys]
    work = list(keys_by_subscription(connections, assembly, unique_keys, topic=topic, group=group, verdict=verdict))
    unheard = sorted(set(unique_keys).difference(*(keys for _, _, keys in work)))
    notes = [note for one in named for note in one.notes]
    if unheard:
        why = ("no outbox and no verdict has it: see reconciler explain", *map(said, notes))
        raise InvalidValue("KEYS", ", ".join(unheard), "; ".join(why))
    done: list[RepairLine] = []
    lines = sum(len(keys) for _, _, keys in work)
    how = "" if act is RepairAct.LADDER else str(act)
    detail = ", ".join(text for text in ("" if unique_keys else "--all", how, reason) if text)
    shown: dict[str, str] = {}
    changed = set() if seen is None else keys_changed(connections, seen)
    for plan, subscription, keys in work:
        rounds = assembly.rounds_of(plan)
        if dry_run:
            left = None if judged_max is None else max(0, judged_max - len(done))
            for key in keys[:left]:
                shown.setdefault(key, ledger_rows(connections, key).seen)  # before it is judged
                done.append(_done(connections, rounds, plan, subscription, key, act=act, dry_run=True))
        else:
            wanted = keys if unique_keys or seen is None else [key for key in keys if key in seen]
            done += (
                repair_key(
                    connections,
                    rounds,
                    plan,
                    subscription,
                    key,
                    by=by,
                    detail=detail,
                    is_changed=key in changed,
                    act=act,
                )
                for key in wanted
            )
    if dry_run:
        holds = connections.ledger.holds.active(settings.environment)
        done = [_held(key, brakes_of(settings, holds.get(key.topic, ()))) for key in done]
        notes += [JUDGED_FIRST(judged=len(done), lines=lines)] if len(done) < lines else []
    return ManualRepairReport(keys=tuple(done), dry_run=dry_run, notes=tuple(notes), lines=lines, seen=shown)


def _named(connections: Connections, name: str, *, topic: str | None, dry_run: bool) -> NamedMessages:
    """The keys of one name. A business id of several messages does not say which one is meant."""
    named = keys_named(connections, name, limit=NAMED_MAX)
    if named.business is None:
        return named
    topics = {s.topic for s in connections.settings.subscriptions if topic in (None, s.topic)}
    messages = [message for message in named.business.messages if message.topic in topics]
    if not messages:
        raise InvalidValue("KEYS", name, f"its messages are of other topics: {', '.join(map(said, named.notes))}")
    if not dry_run and (len(messages) > 1 or named.business.older or named.business.damaged):
        found = "; ".join(
            f"{message.unique_key} of {message.topic}, {message.state}, written {utc_text(message.created_at_ms)}"
            for message in messages
        )
        rest = "".join(f"; {said(line)}" for line in (*named.business.left_out, *named.business.damaged))
        remedy = "a business id of more than one message, perhaps: name unique keys, --dry-run judges all"
        raise InvalidValue("KEYS", name, f"{remedy}: {found}{rest}")
    return replace(named, unique_keys=tuple(message.unique_key for message in messages))


def _held(key: RepairLine, brake: tuple[str, ...]) -> RepairLine:
    if not brake or key.outcome != "planned" or key.reason is None:
        return key
    return replace(key, outcome="held", reason=HELD_FIRST(by=brake, then=key.reason))


def keys_by_subscription(
    connections: Connections,
    assembly: RoundAssembly,
    unique_keys: Sequence[str],
    *,
    topic: str | None,
    group: str | None,
    verdict: Verdict | None = None,
) -> Iterator[tuple[TopicPlan, Subscription, list[str]]]:
    """Keys (none named: every open loss) that an outbox or the ledger knows, in the order of the settings."""
    for plan in assembly.plans:
        for subscription in (p.subscription for p in plan.subscriptions):
            if topic in (None, subscription.topic) and group in (None, subscription.group):
                of = {"topic": subscription.topic, "group": subscription.group}
                wanted = unique_keys or open_loss_keys(connections, **of, verdict=verdict, limit=REPAIR_KEYS_MAX)
                known = _known(assembly, subscription, wanted)
                yield plan, subscription, [key for key in dict.fromkeys(wanted) if key in known]


def repair_key(
    connections: Connections,
    rounds: ReconcileRound,
    plan: TopicPlan,
    subscription: Subscription,
    unique_key: str,
    *,
    by: str,
    detail: str,
    is_changed: bool = False,
    act: RepairAct = RepairAct.LADDER,
) -> RepairLine:
    """Verifies and repairs one key, on record. `is_changed`: it is not what the person saw, and is left as it is.

    Raises DatabaseAway, RedisAway.
    """
    topic, group = subscription.topic, subscription.group
    done = recorded(connections, "repair", by=by, topic=topic, group=group, unique_key=unique_key, detail=detail)
    with done as outcome:
        try:
            if is_changed:
                raise changed_meanwhile(connections, subscription, unique_key)
            line = _done(connections, rounds, plan, subscription, unique_key, act=act, dry_run=False)
        except ChangedMeanwhile as error:
            now = {name: str(value) for name, value in error.now.items()}
            code = HAS_CHANGED if now else HAS_GONE
            line = RepairLine(
                topic=topic,
                group=group,
                unique_key=unique_key,
                verdict=now.get("verdict", ""),
                outcome=CHANGED,
                rung="",
                reason=code(unique_key=unique_key, group=group, **now),
            )
        outcome.result = line.summary
    return line


def keys_changed(connections: Connections, seen: Mapping[str, str]) -> set[str]:
    """Keys that are not any more what was shown of them. Raises DatabaseAway."""
    return {key for key, shown in seen.items() if ledger_rows(connections, key).seen != shown}


def _done(
    connections: Connections,
    rounds: ReconcileRound,
    plan: TopicPlan,
    subscription: Subscription,
    unique_key: str,
    *,
    act: RepairAct,
    dry_run: bool,
) -> RepairLine:
    if act is RepairAct.LADDER:
        return _repair(rounds, plan, subscription, unique_key, dry_run=dry_run)
    if act is RepairAct.CANCEL:
        found = cancel(connections, subscription, unique_key, dry_run=dry_run)
    else:
        found = hand_over(connections, rounds, subscription, unique_key, dry_run=dry_run)
    return RepairLine(
        topic=subscription.topic,
        group=subscription.group,
        unique_key=unique_key,
        verdict=found.verdict,
        outcome=found.outcome,
        rung=str(Rung.HAND_OVER),
        reason=found.told,
    )


def _repair(
    rounds: ReconcileRound, plan: TopicPlan, subscription: Subscription, unique_key: str, *, dry_run: bool
) -> RepairLine:
    """By the rungs of `repair_order`. Where nothing is sent, the reason says so, and what would."""
    judged, outcome = rounds.repair_one(subscription, unique_key, dry_run=dry_run)
    verdict = judged.entry.verdict
    word, rung, reason = "", "", what_ends(verdict, unique_key)
    is_over = outcome is None or (outcome.outcome == "done" and verdict not in SETTLING)
    if judged.suspect.known is not None and judged.suspect.known.is_dismissed:
        word, reason = DISMISSED, UNSENT_NOTHING(why=nothing_of_dismissed(unique_key))
    elif is_over and dry_run and verdict in LOSSES:
        # Its repair would be opened by the verdict, which a dry run does not write.
        word, rung, reason = "planned", str(first_rung(plan.repair_order, verdict)), WOULD_BE_OPENED()
    elif is_over and verdict in QUARANTINING:
        word = "waits"
    elif is_over and outcome is not None and verdict in LOSSES:
        ending = what_ends(Verdict.QUARANTINED, unique_key)
        word, rung, reason = "waits", str(outcome.rung), OVER_WITHOUT_EFFECT(why=outcome.reason, ending=ending)
    elif outcome is not None and not is_over:  # what was repaired for other groups ends nothing here
        word, rung, reason = outcome.outcome, str(outcome.rung), _reason(outcome)
    return RepairLine(
        topic=subscription.topic,
        group=subscription.group,
        unique_key=unique_key,
        verdict=str(verdict),
        outcome=word,
        rung=rung,
        reason=reason,
    )


def _reason(outcome: RepairOutcome) -> Fact:
    """Where nothing is sent, with what would."""
    if outcome.outcome in UNSENT:
        return UNSENT[outcome.outcome](why=outcome.reason)
    if outcome.outcome == "failed":
        return UNSENT_FAILED(why=outcome.reason, ending=what_ends(Verdict.QUARANTINED, outcome.unique_key))
    return outcome.reason


def open_loss_keys(
    connections: Connections, *, topic: str | None, group: str | None, verdict: Verdict | None = None, limit: int
) -> list[str]:
    """Keys of open losses, of those with a verdict now, or of all; one that is lost for several groups stands there as
    often.

    Raises InvalidValue for a topic or group that is not configured, DatabaseAway.
    """
    require_subscription(connections.settings, topic, group)
    only = LedgerFilter(topic=topic, group=group, verdict=verdict, candidate_state=CandidateState.OPEN, is_loss=True)
    newest_first = partial(connections.ledger.reports.candidates, connections.settings.environment, only=only)
    return [row.unique_key for row in all_rows(newest_first, limit=limit)]


def _known(assembly: RoundAssembly, subscription: Subscription, unique_keys: Sequence[str]) -> set[str]:
    """Keys that an outbox of this topic has, or the ledger. Keys of other topics are left out."""
    outbox = assembly.witnesses.outbox.look_up(subscription.topic, dict.fromkeys(unique_keys, WHENEVER_COMMITTED_MS))
    found = {
        key
        for key, lookup in outbox.items()
        if lookup.is_found and lookup.records[0].message.topic == subscription.topic
    }
    return found | set(assembly.ledger.candidates.of_keys(subscription, unique_keys))
