"""Verifies and repairs named messages or every open loss. The reconciler's brakes apply."""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

from reconciler.clock import utc_text
from reconciler.commands.acts.hand_over import brakes_of, cancel, changed_meanwhile, hand_over, nothing_of_dismissed
from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.availability import require_all_dependencies
from reconciler.commands.asking.business_ids import NamedMessages, keys_named
from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import (
    HAS_CHANGED,
    HAS_GONE,
    HELD_FIRST,
    JUDGED_FIRST,
    OVER_WITHOUT_EFFECT,
    SHOWN_FIRST,
    UNSENT,
    UNSENT_FAILED,
    UNSENT_NOTHING,
    WOULD_BE_OPENED,
)
from reconciler.contract.stored_facts import bounded
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairAct, RepairState, Rung
from reconciler.contract.verdicts import LOSSES, QUARANTINING, SETTLING, Verdict, what_ends
from reconciler.errors import ChangedMeanwhile, InvalidValue
from reconciler.policy.dismissal import CHANGED, DISMISSED
from reconciler.policy.keys_by_hand import KeysByHand
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.closing import seen_of
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.policy.ports.ledger import Candidate, Repair
from reconciler.policy.repairing.case import RepairOutcome
from reconciler.policy.repairing.rungs import first_rung
from reconciler.telling.ports.paging import LedgerFilter, all_rows
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.subscriptions import require_subscription
from reconciler.words import said, said_and_coded

#: Maximum number of messages of one business id that are looked at.
NAMED_MAX = 20
#: Outcomes after which no person has to do anything.
WELL = frozenset({"sent", "done", "cancelled"})
#: Maximum number of keys of one `repair --all`.
REPAIR_KEYS_MAX = 10_000
#: Maximum number of keys whose seen words the form of a preview carries. This is half of the fields that a form may
#: have.
SHOWN_KEYS_MAX = 5_000
#: Maximum number of keys of one look.
_LOOKED_AT_MAX = 500


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
        """One line: the verdict, and what was done."""
        done = " ".join(word for word in (self.outcome, self.rung) if word)
        return ": ".join(word for word in (self.verdict, done, self.cells["reason"]) if word)

    @property
    def cells(self) -> dict[str, str]:
        """The cells for people."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"reason": "" if self.reason is None else said(self.reason)}

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return {**self.cells, "fact": None if self.reason is None else bounded(self.reason)}

    @property
    def ended_well(self) -> bool:
        """True if no person and no later try has anything left to do. False for a key that could not be judged."""
        return self.outcome in WELL or (not self.outcome and self.verdict != Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualRepairReport:
    """What `reconciler repair` did, or would do."""

    keys: tuple[RepairLine, ...]
    dry_run: bool
    #: Facts about how names were understood.
    notes: tuple[Fact, ...] = ()
    #: The number of lines that a dry run without a limit would have.
    lines: int = 0
    #: Key -> the word for what a dry run saw. A later repair is compared with this word.
    seen: Mapping[str, str] = field(default_factory=dict)

    columns = ("topic", "group", "unique key", "verdict", "outcome", "rung", "reason")

    @property
    def exit_code(self) -> int:
        """The exit code.

        Exit code 5: a key has changed since it was looked at.
        Exit code 4: some repairs failed, wait or are held, or a dry run found something to do.
        Exit code 2: a key could not be judged.
        Exit code 0: every key is sent, done or well.
        """
        if any(key.outcome == CHANGED for key in self.keys):
            return ChangedMeanwhile.exit_code
        if any(key.outcome not in {"", *WELL} for key in self.keys):
            return 4
        return 2 if any(key.verdict == Verdict.UNKNOWN and not key.outcome for key in self.keys) else 0

    def rows(self) -> list[tuple[str, ...]]:
        """Returns rows for people."""
        return [tuple(key.cells.values()) for key in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
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
    is_failed: bool = False,
    judged_max: int | None = None,
    seen: Mapping[str, str] | None = None,
    act: RepairAct = RepairAct.LADDER,
) -> ManualRepairReport:
    """Verifies and repairs named messages, or every open loss if `names` is empty. The reconciler's brakes apply.

    `names`: unique keys and business ids. Only a dry run takes a business id of several messages.
    `verdict`: limits the open losses to this verdict. `is_failed`: takes losses whose repairs have failed instead.
    `judged_max`: most lines of a dry run, which notes how many lines there would be.
    `seen`: key -> the word for what the person saw of the key (ports.seen_of). A key that has changed is reported and
    left as it is. Without `names`, keys that `seen` lacks are left, too.
    `act`: a hand-over and its cancelling need named messages.
    Raises InvalidValue for an ambiguous name, and for a name that neither an outbox nor the ledger knows. Raises
    DependencyAway.
    """
    settings = connections.settings
    require_subscription(settings, topic, group)
    assembly = RoundAssembly(connections)
    require_all_dependencies(connections)
    named = [_named(connections, name, topic=topic, dry_run=dry_run) for name in dict.fromkeys(names)]
    unique_keys = [key for one in named for key in one.unique_keys]
    find = partial(failed_keys, connections) if is_failed else partial(open_loss_keys, connections, verdict=verdict)
    work = list(keys_by_subscription(assembly, unique_keys, find=find, topic=topic, group=group))
    unheard = sorted(set(unique_keys).difference(*(keys for _, _, keys in work)))
    notes = [note for one in named for note in one.notes]
    if unheard:
        why = ("no outbox and no verdict has it: see reconciler explain", *map(said, notes))
        raise InvalidValue("KEYS", ", ".join(unheard), "; ".join(why))
    done: list[RepairLine] = []
    lines = sum(len(keys) for _, _, keys in work)
    how = "" if act is RepairAct.LADDER else str(act)
    every = "--failed" if is_failed else "--all"
    detail = ", ".join(text for text in ("" if unique_keys else every, how, reason) if text)
    shown: dict[str, str] = {}
    changed = set() if seen is None else keys_changed(connections, seen)
    for plan, subscription, keys in work:
        by_hand = assembly.keys_by_hand(plan)
        if dry_run:
            left = None if judged_max is None else max(0, judged_max - len(done))
            unshown = [key for key in keys if key not in shown]
            shown |= seen_now(connections, unshown[: None if judged_max is None else SHOWN_KEYS_MAX - len(shown)])
            # The seen word of a key was read before the key is judged.
            done += (
                _carry_out(connections, by_hand, plan, subscription, key, act=act, dry_run=True) for key in keys[:left]
            )
        else:
            wanted = keys if unique_keys or seen is None else [key for key in keys if key in seen]
            do = partial(repair_key, connections, by_hand, plan, subscription, by=by, detail=detail, act=act)
            done += (do(key, is_changed=key in changed) for key in wanted)
    if dry_run:
        holds = connections.ledger.holds.active(settings.environment)
        done = [_held(key, brakes_of(settings.repairs, key.topic, holds)) for key in done]
        notes += [JUDGED_FIRST(judged=len(done), lines=lines)] if len(done) < lines else []
        messages = len({key for _, _, keys in work for key in keys})
        notes += [SHOWN_FIRST(shown=len(shown), messages=messages)] if len(shown) < messages else []
    return ManualRepairReport(keys=tuple(done), dry_run=dry_run, notes=tuple(notes), lines=lines, seen=shown)


def _named(connections: Connections, name: str, *, topic: str | None, dry_run: bool) -> NamedMessages:
    """Returns the keys of one name. Unless this is a dry run, a business id of several messages is refused."""
    named = keys_named(connections, name, limit=NAMED_MAX)
    if named.business is None:
        return named
    topics = {s.topic for s in connections.settings.subscriptions if topic in (None, s.topic)}
    messages = [message for message in named.business.messages if message.topic in topics]
    if not messages:
        raise InvalidValue("KEYS", name, f"its messages are of other topics: {', '.join(map(said, named.notes))}")
    if not dry_run and (len(messages) > 1 or named.business.older or named.business.damaged):
        found = "; ".join(
            f"{message.unique_key} of {message.topic}, {message.state or 'half'}, "
            f"written {utc_text(message.created_at_ms)}"
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
    assembly: RoundAssembly,
    unique_keys: Sequence[str],
    *,
    find: Callable[..., list[str]],
    topic: str | None,
    group: str | None,
) -> Iterator[tuple[TopicPlan, Subscription, list[str]]]:
    """Yields each subscription with its keys, in the order of the settings.

    Only keys that an outbox or the ledger knows are yielded. Without `unique_keys`, `find` returns the keys of a topic
    and group.
    """
    for plan in assembly.plans:
        for subscription in (p.subscription for p in plan.subscriptions):
            if topic in (None, subscription.topic) and group in (None, subscription.group):
                of = {"topic": subscription.topic, "group": subscription.group}
                wanted = unique_keys or find(**of, limit=REPAIR_KEYS_MAX)
                known = _known(assembly, subscription, wanted)
                yield plan, subscription, [key for key in dict.fromkeys(wanted) if key in known]


def repair_key(
    connections: Connections,
    by_hand: KeysByHand,
    plan: TopicPlan,
    subscription: Subscription,
    unique_key: str,
    *,
    by: str,
    detail: str,
    is_changed: bool = False,
    act: RepairAct = RepairAct.LADDER,
) -> RepairLine:
    """Verifies and repairs one key, and records the act.

    `is_changed`: the key has changed since the person saw it, so this key is left as it is. Raises DatabaseAway,
    RedisAway.
    """
    topic, group = subscription.topic, subscription.group
    done = recorded(connections, "repair", by=by, topic=topic, group=group, unique_key=unique_key, detail=detail)
    with done as outcome:
        try:
            if is_changed:
                raise changed_meanwhile(connections, subscription, unique_key)
            line = _carry_out(connections, by_hand, plan, subscription, unique_key, act=act, dry_run=False)
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
    """Returns the keys that have changed since a person saw them. Raises DatabaseAway."""
    now = seen_now(connections, list(seen))
    return {key for key, shown in seen.items() if now[key] != shown}


def seen_now(connections: Connections, unique_keys: Sequence[str]) -> dict[str, str]:
    """Returns key -> the word for what is shown of this key now (ports.seen_of). Raises DatabaseAway."""
    reports, environment = connections.ledger.reports, connections.settings.environment
    seen: dict[str, str] = {}
    for begin in range(0, len(unique_keys), _LOOKED_AT_MAX):
        some = tuple(unique_keys[begin : begin + _LOOKED_AT_MAX])
        only = LedgerFilter(unique_keys=some)
        candidates, repairs = defaultdict[str, list[Candidate]](list), defaultdict[str, list[Repair]](list)
        for candidate in all_rows(partial(reports.candidates, environment, only=only), limit=sys.maxsize):
            candidates[candidate.unique_key].append(candidate)
        for repair in all_rows(partial(reports.repairs, environment, only=only), limit=sys.maxsize):
            repairs[repair.unique_key].append(repair)
        seen |= {key: seen_of(candidates[key], repairs[key]) for key in some}
    return seen


def digest_of(seen: Mapping[str, str]) -> str:
    """Returns a digest of a preview's keys and of what was shown of each key. The order of the keys does not matter."""
    text = "\n".join(sorted(f"{key}={shown}" for key, shown in seen.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _carry_out(
    connections: Connections,
    by_hand: KeysByHand,
    plan: TopicPlan,
    subscription: Subscription,
    unique_key: str,
    *,
    act: RepairAct,
    dry_run: bool,
) -> RepairLine:
    """Does one act on one key. A dry run only returns what the act would do."""
    if act is RepairAct.LADDER:
        return _repair(by_hand, plan, subscription, unique_key, dry_run=dry_run)
    if act is RepairAct.CANCEL:
        found = cancel(connections, subscription, unique_key, dry_run=dry_run)
    else:
        found = hand_over(connections, by_hand, subscription, unique_key, dry_run=dry_run)
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
    by_hand: KeysByHand, plan: TopicPlan, subscription: Subscription, unique_key: str, *, dry_run: bool
) -> RepairLine:
    """Repairs by the rungs of `repair_order`. If nothing is sent, the line says why, and what would change this."""
    judged, outcome = by_hand.repair_one(subscription, unique_key, dry_run=dry_run)
    verdict = judged.entry.verdict
    word, rung, reason = "", "", what_ends(verdict, unique_key)
    is_over = outcome is None or (outcome.outcome == "done" and verdict not in SETTLING)
    if judged.suspect.known is not None and judged.suspect.known.is_dismissed:
        word, reason = DISMISSED, UNSENT_NOTHING(why=nothing_of_dismissed(unique_key))
    elif is_over and dry_run and verdict in LOSSES:
        # With this verdict a repair would be opened, but a dry run writes no verdict.
        word, rung, reason = "planned", str(first_rung(plan.repair_order, verdict)), WOULD_BE_OPENED()
    elif is_over and verdict in QUARANTINING:
        word = "waits"
    elif is_over and outcome is not None and verdict in LOSSES:
        ending = what_ends(Verdict.QUARANTINED, unique_key)
        word, rung, reason = "waits", str(outcome.rung), OVER_WITHOUT_EFFECT(why=outcome.reason, ending=ending)
    elif outcome is not None and not is_over:  # a repair for other groups completes nothing for this group
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
    """Returns the reason of the outcome. If nothing was sent, the reason says what would change this."""
    if outcome.outcome in UNSENT:
        return UNSENT[outcome.outcome](why=outcome.reason)
    if outcome.outcome == "failed":
        return UNSENT_FAILED(why=outcome.reason, ending=what_ends(Verdict.QUARANTINED, outcome.unique_key))
    return outcome.reason


def open_loss_keys(
    connections: Connections, *, topic: str | None, group: str | None, verdict: Verdict | None = None, limit: int
) -> list[str]:
    """Returns the keys of open losses. With a verdict, only losses that have this verdict now are returned.

    A key that is lost for several groups is returned once for each of these groups. Raises InvalidValue for a topic or
    group that is not configured, and DatabaseAway.
    """
    only = LedgerFilter(topic=topic, group=group, verdict=verdict, candidate_state=CandidateState.OPEN, is_loss=True)
    return _keys_of(connections, only, limit)


def waiting_keys(
    connections: Connections, *, topic: str | None, group: str | None, verdict: Verdict | None
) -> list[str]:
    """Returns the keys that wait for a person, at most REPAIR_KEYS_MAX, without duplicates. Errors are as in
    open_loss_keys()."""
    only = LedgerFilter(topic=topic, group=group, verdict=verdict, candidate_state=CandidateState.QUARANTINED)
    return list(dict.fromkeys(_keys_of(connections, only, REPAIR_KEYS_MAX)))


def _keys_of(connections: Connections, only: LedgerFilter, limit: int) -> list[str]:
    require_subscription(connections.settings, only.topic, only.group)
    newest_first = partial(connections.ledger.reports.candidates, connections.settings.environment, only=only)
    return [row.unique_key for row in all_rows(newest_first, limit=limit)]


def failed_keys(connections: Connections, *, topic: str | None, group: str | None, limit: int) -> list[str]:
    """Returns the keys whose repair has failed for a group that still lacks the effect. The newest key comes first.

    A key that has failed for several groups is returned once for each of these groups. A failed repair for every group
    counts for each group that lacks the effect. Raises what open_loss_keys() raises.
    """
    settings, found = connections.settings, list[str]()
    require_subscription(settings, topic, group)
    only = LedgerFilter(topic=topic, repair_state=RepairState.FAILED)
    failed = list(all_rows(partial(connections.ledger.reports.repairs, settings.environment, only=only), limit=limit))
    for one in settings.subscriptions:
        if topic in (None, one.topic) and group in (None, one.group):
            of_group = (row for row in failed if row.topic == one.topic and row.scope in (EVERY_GROUP, one.group))
            keys = list(dict.fromkeys(row.unique_key for row in of_group))
            subscription = Subscription(environment=settings.environment, topic=one.topic, group=one.group)
            rows = connections.ledger.candidates.of_keys(subscription, keys)
            found += [key for key in keys if key in rows and rows[key].state is not CandidateState.SETTLED]
    return found[:limit]


def _known(assembly: RoundAssembly, subscription: Subscription, unique_keys: Sequence[str]) -> set[str]:
    """Returns the keys that the ledger or an outbox of this topic has. Keys of other topics are left out."""
    outbox = assembly.witnesses.outbox.look_up(subscription.topic, dict.fromkeys(unique_keys, WHENEVER_COMMITTED_MS))
    found = {
        key
        for key, lookup in outbox.items()
        if lookup.is_found and lookup.records[0].message.topic == subscription.topic
    }
    return found | set(assembly.ledger.candidates.of_keys(subscription, unique_keys))
