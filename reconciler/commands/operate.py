"""What an operator does by hand: hold, resume, repair, dismiss, rebuild."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from reconciler.clock import utc_text
from reconciler.commands.business_ids import Named, keys_named
from reconciler.commands.operator_actions import operator, recorded
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import InvalidValue
from reconciler.policy.dismissal import CLOSED, Dismissals
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports import WHENEVER_COMMITTED_MS, Candidate, LedgerFilter
from reconciler.policy.repairing.rungs import first_rung
from reconciler.policy.round import ReconcileRound
from reconciler.settings.schema import Settings
from reconciler.wiring.availability import ask_databases, ask_ledger, ask_redis, require, require_everybody
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import Policy, topic_plans

#: Messages of one business id that are looked at.
NAMED_MAX = 20
#: Most keys of one `repair --all`.
REPAIR_KEYS_MAX = 10_000


def _require_topic(settings: Settings, topic: str) -> None:
    if topic not in {s.topic for s in settings.subscriptions}:
        raise InvalidValue("topic", topic, "no [[subscriptions]] section has it")


def _require_subscription(settings: Settings, topic: str | None, group: str | None) -> None:
    """A misspelt name would choose nothing, which looks like nothing to be done."""
    if topic is not None:
        _require_topic(settings, topic)
    if group is not None and not any(s.group == group and topic in (None, s.topic) for s in settings.subscriptions):
        raise InvalidValue("group", group, f"no [[subscriptions]] section has it{f' for {topic}' if topic else ''}")


def place_hold(settings: Settings, topic: str, *, reason: str) -> bool:
    """Stops the repairs of a topic; False if they were stopped by hand already."""
    _require_topic(settings, topic)
    with Connections(settings) as connections:
        holds = connections.ledger.holds
        with recorded(connections, "hold", topic=topic, detail=reason) as outcome:
            placed = holds.place(settings.environment, topic, HoldKind.HOLD, by=operator(), reason=reason)
            outcome.result = "held" if placed else "was on hold already"
        return placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """What `reconciler resume` found and did."""

    lifted: tuple[HoldKind, ...]
    #: Brakes that are still on.
    left: tuple[HoldKind, ...]


def lift_hold(settings: Settings, topic: str, *, breaker: bool) -> Lifted:
    """Lets the repairs go on; with `breaker` closes the circuit breaker, too. A topic that is stopped may have left
    the settings meanwhile."""
    kinds = (HoldKind.HOLD, HoldKind.BREAKER) if breaker else (HoldKind.HOLD,)
    with Connections(settings) as connections:
        holds = connections.ledger.holds
        if topic not in holds.active(settings.environment):
            _require_topic(settings, topic)
        with recorded(connections, "resume", topic=topic, detail="--breaker" if breaker else "") as outcome:
            lifted = tuple(kind for kind in kinds if holds.lift(settings.environment, topic, kind))
            outcome.result = f"lifted {', '.join(lifted)}" if lifted else "was not on hold"
        return Lifted(lifted=lifted, left=tuple(holds.active(settings.environment).get(topic, ())))


def rebuild(settings: Settings, *, since_ms: int | None, progress: Callable[[int], None]) -> int:
    """Scans inboxes into the commit sets; returns the rows. Raises UsageError, RedisAway, DatabaseAway."""
    with Connections(settings) as connections:
        require(ask_redis(connections) | ask_ledger(connections) | ask_databases(connections))
        recovery = Policy(connections).recovery()
        detail = "" if since_ms is None else f"since {utc_text(since_ms)}"
        with recorded(connections, "rebuild", detail=detail) as outcome:
            scanned = recovery.rebuild(settings.environment, since_ms=since_ms, progress=progress)
            outcome.result = f"{scanned} inbox rows put back"
        return scanned


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissed:
    """What `reconciler dismiss` did: (topic, group, unique key, "dismissed", or why it was left)."""

    keys: tuple[tuple[str, str, str, str], ...]

    columns = ("topic", "group", "unique key", "outcome")

    @property
    def exit_code(self) -> int:
        """4: the service still works on a key; 0: none of them needs a person any more."""
        return 0 if all(key[3] in CLOSED for key in self.keys) else 4

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        names = ("topic", "group", "unique_key", "outcome")
        return {"keys": [dict(zip(names, row, strict=True)) for row in self.keys]}


def dismiss(
    settings: Settings, unique_keys: Sequence[str], *, topic: str | None, group: str | None, reason: str
) -> Dismissed:
    """Takes keys off the list of what needs a person. Raises InvalidValue for a key without a verdict, DatabaseAway."""
    with Connections(settings) as connections:
        require(ask_ledger(connections))
        ledger = connections.ledger
        configured = {plan.subscription for t in topic_plans(settings) for plan in t.subscriptions}
        dismissals = Dismissals(candidates=ledger.candidates, repairs=ledger.repairs, configured=configured)
        # From the ledger, not from the settings: what is not configured any more needs a person, too.
        keys = {key: _candidates_by_topic(connections, key, topic=topic) for key in dict.fromkeys(unique_keys)}
        unheard = [key for key, topics in keys.items() if not any(_has(rows, group) for rows in topics.values())]
        if unheard:
            raise InvalidValue("KEYS", ", ".join(sorted(unheard)), "no verdict has it: see reconciler explain")
        done: list[tuple[str, str, str, str]] = []
        for key, topics in keys.items():
            for name, rows in topics.items():
                with recorded(
                    connections, "dismiss", topic=name, group=group, unique_key=key, detail=reason
                ) as outcome:
                    groups = dismissals.dismiss(rows, group=group, by=operator(), reason=reason)
                    outcome.result = ", ".join(f"{of}: {what}" for of, what in groups.items())
                done += ((name, of, key, what) for of, what in groups.items())
        return Dismissed(keys=tuple(done))


def _candidates_by_topic(connections: Connections, unique_key: str, *, topic: str | None) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for row in connections.ledger.reports.life(connections.settings.environment, unique_key).candidates:
        if topic in (None, row.subscription.topic):
            found.setdefault(row.subscription.topic, []).append(row)
    return found


def _has(rows: Sequence[Candidate], group: str | None) -> bool:
    return any(group in (None, row.subscription.group) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedKey:
    """One line of `reconciler repair`."""

    topic: str
    group: str
    unique_key: str
    verdict: str
    #: sent, done, failed, waits, held, taken, planned, or "" where there is nothing to repair.
    outcome: str
    rung: str
    reason: str

    @property
    def told(self) -> str:
        """In one line: verdict, and what was done about it."""
        done = " ".join(word for word in (self.outcome, self.rung) if word)
        return ": ".join(word for word in (self.verdict, done, self.reason) if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNow:
    """What `reconciler repair` did, or would do."""

    keys: tuple[RepairedKey, ...]
    dry_run: bool
    #: How names were understood, one line each.
    notes: tuple[str, ...] = ()

    columns = ("topic", "group", "unique key", "verdict", "outcome", "rung", "reason")

    @property
    def exit_code(self) -> int:
        """4: some repairs failed, wait or are held, or a dry run found something to do; 2: a key could not be judged;
        0: all is sent, done or well."""
        if any(key.outcome not in {"", "sent", "done"} for key in self.keys):
            return 4
        return 2 if any(key.verdict == Verdict.UNKNOWN and not key.outcome for key in self.keys) else 0

    def rows(self) -> list[tuple[str, ...]]:
        """Rows for people."""
        return [(k.topic, k.group, k.unique_key, k.verdict, k.outcome, k.rung, k.reason) for k in self.keys]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        names = ("topic", "group", "unique_key", "verdict", "outcome", "rung", "reason")
        keys = [dict(zip(names, row, strict=True)) for row in self.rows()]
        return {"dry_run": self.dry_run, "keys": keys, "notes": list(self.notes)}


def repair_now(
    settings: Settings, names: Sequence[str], *, topic: str | None, group: str | None, dry_run: bool
) -> RepairNow:
    """Verifies and repairs messages (none named: every open loss) through the same brakes as the service.

    A name is a unique key, or the business id of one message: of several, only a dry run looks at all. Raises
    InvalidValue for what neither an outbox nor the ledger knows and for an open choice, and DependencyAway.
    """
    _require_subscription(settings, topic, group)
    with Connections(settings) as connections:
        policy = Policy(connections)
        require_everybody(connections)
        named = [_named(connections, name, topic=topic, dry_run=dry_run) for name in dict.fromkeys(names)]
        unique_keys = [key for one in named for key in one.unique_keys]
        work = list(_work(policy, unique_keys, topic=topic, group=group))
        unheard = sorted(set(unique_keys).difference(*(keys for _, _, keys in work)))
        if unheard:
            raise InvalidValue("KEYS", ", ".join(unheard), "no outbox and no verdict has it: see reconciler explain")
        done: list[RepairedKey] = []
        detail = "" if unique_keys else "--all"
        for plan, subscription, keys in work:
            rounds = policy.rounds_of(plan)
            if dry_run:
                done += (_repair(rounds, plan, subscription, key, dry_run=True) for key in keys)
                continue
            about = {"topic": subscription.topic, "group": subscription.group}
            for key in keys:
                with recorded(connections, "repair", **about, unique_key=key, detail=detail) as outcome:
                    done.append(_repair(rounds, plan, subscription, key, dry_run=False))
                    outcome.result = done[-1].told
        if dry_run:
            brakes = connections.ledger.holds.active(settings.environment)
            done = [_held(key, _brake(settings, brakes.get(key.topic, ()))) for key in done]
        return RepairNow(keys=tuple(done), dry_run=dry_run, notes=tuple(note for one in named for note in one.notes))


def _named(connections: Connections, name: str, *, topic: str | None, dry_run: bool) -> Named:
    """The keys of one name. A business id of several messages does not say which one is meant."""
    named = keys_named(connections, name, limit=NAMED_MAX)
    if named.business is None:
        return named
    topics = {s.topic for s in connections.settings.subscriptions if topic in (None, s.topic)}
    messages = [message for message in named.business.messages if message.topic in topics]
    if not messages:
        raise InvalidValue("KEYS", name, f"its messages are of other topics: {', '.join(named.notes)}")
    if not dry_run and (len(messages) > 1 or named.business.older or named.business.damaged):
        found = "; ".join(
            f"{message.unique_key} of {message.topic}, {message.state}, written {utc_text(message.created_at_ms)}"
            for message in messages
        )
        rest = "".join(f"; {line}" for line in (named.business.older_text, *named.business.damaged) if line)
        remedy = "a business id of more than one message, perhaps: name unique keys, --dry-run judges all"
        raise InvalidValue("KEYS", name, f"{remedy}: {found}{rest}")
    return replace(named, unique_keys=tuple(message.unique_key for message in messages))


def _brake(settings: Settings, holds: Collection[HoldKind]) -> str:
    """What would keep the repairs of a topic from being sent now; empty: nothing."""
    return ", ".join(map(str, holds)) if settings.repairs.enabled else "repairs.enabled = false"


def _held(key: RepairedKey, brake: str) -> RepairedKey:
    if not brake or key.outcome != "planned":
        return key
    return replace(key, outcome="held", reason=f"held: {brake}; then {key.reason}")


def _work(
    policy: Policy, unique_keys: Sequence[str], *, topic: str | None, group: str | None
) -> Iterator[tuple[TopicPlan, Subscription, list[str]]]:
    """Keys by subscription, in the order of the settings."""
    for plan in policy.plans:
        for subscription in (p.subscription for p in plan.subscriptions):
            if topic in (None, subscription.topic) and group in (None, subscription.group):
                wanted = unique_keys or _open_losses(policy, subscription)
                known = _known(policy, subscription, wanted)
                yield plan, subscription, [key for key in dict.fromkeys(wanted) if key in known]


def _repair(
    rounds: ReconcileRound, plan: TopicPlan, subscription: Subscription, unique_key: str, *, dry_run: bool
) -> RepairedKey:
    judged, outcome = rounds.repair_one(subscription, unique_key, dry_run=dry_run)
    verdict = judged.verification.verdict
    told = ("", "", "") if outcome is None else (outcome.outcome, str(outcome.rung), outcome.reason)
    if outcome is None and dry_run and verdict in LOSSES:
        # Its repair would be opened by the verdict, which a dry run does not write.
        told = ("planned", str(first_rung(plan.repair_order, verdict)), "the repair would be opened")
    return RepairedKey(
        topic=subscription.topic,
        group=subscription.group,
        unique_key=unique_key,
        verdict=str(verdict),
        outcome=told[0],
        rung=told[1],
        reason=told[2],
    )


def _open_losses(policy: Policy, subscription: Subscription) -> list[str]:
    only = LedgerFilter(
        topic=subscription.topic, group=subscription.group, candidate_state=CandidateState.OPEN, is_loss=True
    )
    rows = policy.ledger.reports.candidates(subscription.environment, only=only, limit=REPAIR_KEYS_MAX)
    return [row.unique_key for row in rows]


def _known(policy: Policy, subscription: Subscription, unique_keys: Sequence[str]) -> set[str]:
    """Keys of this topic: some outbox has them, or the ledger. A key of another topic is nobody's business here."""
    outbox = policy.witnesses.outbox.read(subscription.topic, dict.fromkeys(unique_keys, WHENEVER_COMMITTED_MS))
    found = {key for key, lookup in outbox.items() if lookup.is_found and lookup.records[0].topic == subscription.topic}
    return found | set(policy.ledger.candidates.read(subscription, unique_keys))
