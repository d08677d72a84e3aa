"""What status shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from reconciler.commands.acts.acknowledgement import acknowledged
from reconciler.commands.asking.availability import (
    AWAY,
    BROKER_AWAY,
    DATABASE_AWAY,
    ask_brokers,
    ask_databases,
    ask_redis,
    away,
    facts_of_away,
)
from reconciler.commands.asking.broker_rights import ask_rights
from reconciler.commands.asking.check_services import check_services
from reconciler.commands.asking.environment import other_clusters
from reconciler.commands.listings import LISTINGS, text_of
from reconciler.commands.renaming.renamed_groups import told_of_renames
from reconciler.commands.status.accounting import Accounting
from reconciler.commands.status.damage import damaged_rows, misshapen_members, refused_announcements
from reconciler.commands.status.double_effects import double_effects
from reconciler.commands.status.primaries import blind_witnesses, doubted_witnesses, unproved
from reconciler.commands.status.standstill import (
    Need,
    before_since,
    history_behind,
    limit_seconds,
    open_outage,
    persons_needed,
    rejected,
    undecided,
    unrepaired,
)
from reconciler.commands.status.unswept import unswept
from reconciler.commands.together import found_by_each
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import later_end
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.verdicts import Verdict
from reconciler.errors import RedisAway
from reconciler.policy.evidence import Watermark, WatermarkState
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import HeldTopic, Outage
from reconciler.policy.ports.rounds import ShardReading
from reconciler.settings.schema import Settings
from reconciler.telling.account import Account, Summary, summary_of
from reconciler.telling.lag import Lag, lag_of
from reconciler.telling.ports.reports import RepairCount, StoredRound, VerdictCount
from reconciler.telling.undecided_keys import beyond_set_up
from reconciler.wiring.connections import Connections
from reconciler.wiring.history import read_overview
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.subscriptions import subscription_of
from reconciler.words import counted, said, said_and_coded

if TYPE_CHECKING:
    from reconciler.wiring.history import HistoryOverview

STANDING_CHECK_SERVICE = Code("status.standing-check-service", broker=Field.NAME, state=Field.FACT)
LATE = Code("status.late", subscription=Field.NAME, cause=Field.FACT)
#: Without it, commits that were never announced cannot be seen.
NO_OUTBOX = Code("status.no-outbox")
NO_INBOX = Code("status.no-inbox")
BY_QUERY = Code("status.by-query")
BY_HALVES = Code("status.by-halves")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """One subscription now."""

    subscription: Subscription
    #: None: Redis did not answer.
    pending: int | None
    oldest_pending_ms: int | None
    watermark: Watermark
    last_round_ms: int | None
    accounted: Account
    #: What cannot be proved here.
    weaker: tuple[Fact, ...]
    #: None: nothing waits for the group, or not for long.
    lag: Lag | None = None
    #: It answers for messages since then; 0: for every message; None: it has had no round yet.
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """Everything `reconciler status` shows."""

    subscriptions: tuple[SubscriptionStatus, ...]
    verdicts: tuple[VerdictCount, ...]
    repairs: tuple[RepairCount, ...]
    holds: tuple[HeldTopic, ...]
    outages: tuple[Outage, ...]
    #: Dependencies that did not answer, one line each: the rest may be incomplete.
    away: tuple[Fact, ...]
    #: None: no history is configured, or it did not answer.
    history: HistoryOverview | None = None
    #: An open outage, losses without a repair, a history that ends too early, another cluster, one line each.
    late: tuple[Fact, ...] = ()
    #: Keys without a verdict for half of the brokers' retention, one line each: the evidence will soon be deleted.
    undecided: tuple[Fact, ...] = ()
    #: UNKNOWN keys that the configuration cannot decide, one line a subscription; no alarm.
    undecidable: tuple[Fact, ...] = ()
    #: Commits of producer groups that no section names, which nobody announces, one line each; no alarm.
    unswept: tuple[Fact, ...] = ()
    #: Brokers whose check service stands still, one line each; no alarm.
    standing: tuple[Fact, ...] = ()
    #: Keys that were settled because no configured outbox has them, one line each; worth a look, no alarm.
    rejected: tuple[Fact, ...] = ()
    #: Keys that took effect in two inboxes of one group, one line a subscription.
    doubled: tuple[Fact, ...] = ()
    #: Databases of evidence that may lack or hide rows, one line each; those that blind us are in `late`, too.
    unproved: tuple[Fact, ...] = ()
    #: Damaged values, refused announcements, and recorders that write no keys, one line each.
    damaged: tuple[Fact, ...] = ()
    #: Who has what is lost, one line; it silences nothing.
    acknowledged: tuple[Fact, ...] = ()
    #: Lines of `late` that follow from what is away, each with that.
    late_by_away: tuple[tuple[Fact, Fact], ...] = ()
    #: The ledger's time before the first question; 0: not asked.
    asked_ms: int = 0

    @property
    def exit_code(self) -> int:
        """3: something is away, or commits are not accounted for; 1: something needs a person; 0: neither."""
        if self.away or self.late_lines:
            return 3
        return 1 if self.needs_a_person else 0

    @property
    def needs_a_person(self) -> bool:
        """A quarantined key, a failed repair, an open breaker, keys that stay undecided, or damaged values."""
        return bool(self._persons)

    @property
    def late_lines(self) -> tuple[Fact, ...]:
        """Why "0 lost" means nothing, one line each, also where what is away says it."""
        of_accounts = (_late(one, cause) for one in self._accounts for cause in one.late)
        return (*of_accounts, *self._stopped, *(line for _, line in self.late_by_away))

    @property
    def brokers_away(self) -> tuple[Fact, ...]:
        """Lines of `away`: one a broker, or one where name servers know of none."""
        return tuple(fact for fact in self.away if fact.code in (BROKER_AWAY, AWAY["rocketmq"]))

    @property
    def databases_away(self) -> tuple[Fact, ...]:
        """Lines of `away`: one a database of the services."""
        return tuple(fact for fact in self.away if fact.code is DATABASE_AWAY)

    @property
    def following(self) -> Mapping[Fact, tuple[Fact, ...]]:
        """What is away -> what is so, or looks so, because of it: nobody needs to be told until it is back."""
        found: dict[Fact, list[Fact]] = {}
        for account in self._accounts:
            for gone, causes in account.following.items():
                found.setdefault(gone, []).extend(_late(account, cause) for cause in causes)
        for gone, line in self.late_by_away:
            found.setdefault(gone, []).append(line)
        return {gone: tuple(lines) for gone, lines in found.items()}

    @property
    def lagging(self) -> tuple[Fact, ...]:
        """Groups for which messages have waited for long, one line each; of those that nobody serves, `late` tells."""
        return tuple(s.lag.fact for s in self.subscriptions if s.lag is not None and not s.lag.is_deserted)

    @property
    def before_since(self) -> tuple[Fact, ...]:
        """Messages from before subscriptions answer for any, one line each; no alarm."""
        return tuple(before_since(self.verdicts, {s.subscription: s.since_ms for s in self.subscriptions}))

    @property
    def remarks(self) -> Mapping[str, tuple[Fact, ...]]:
        """What is told below the sentence, by the name under which it is told; empty ones, too.

        What follows from a dependency that is away is left out: its own line tells of it.
        """
        of_accounts = (_late(one, cause) for one in self._accounts for cause in one.late if cause not in one.following)
        return {
            "away": self.away,
            "late": (*of_accounts, *self._stopped),
            "undecided": self.undecided,
            "doubled": self.doubled,
            "damaged": self.damaged,
            "unproved": self.unproved,
            "rejected": self.rejected,
            "before_since": self.before_since,
            "lagging": self.lagging,
            "undecidable": self.undecidable,
            "unswept": self.unswept,
            "standing": self.standing,
            "acknowledged": self.acknowledged,
        }

    @property
    def summary(self) -> Fact:
        """One sentence: until when all is well, or what needs a person."""
        return self.summed_up.fact

    @property
    def summed_up(self) -> Summary:
        """The sentence, and what it is about."""
        return summary_of(
            self._accounts,
            troubles=(*self.away, *self._stopped),
            persons=self._persons,
            held=sorted({hold.topic for hold in self.holds}),
            held_until_ms=reduce(later_end, (hold.until_ms for hold in self.holds)) if self.holds else None,
            lost=self.lost,
            lagging=self.lagging,
            unswept=self.unswept,
            sees_announced_only=any(weak.code is NO_OUTBOX for s in self.subscriptions for weak in s.weaker),
        )

    @property
    def needs(self) -> Sequence[Need]:
        """Troubles that only a person can end; others have their lines in `doubled`, `undecided` and `damaged`."""
        return persons_needed(verdicts=self.verdicts, repairs=self.repairs, holds=self.holds)

    @property
    def lost(self) -> int:
        """Proved losses that neither arrived nor were given up; each subscription is counted up to COUNTED_MAX + 1."""
        return sum(v.count for v in self.verdicts if v.is_open_loss)

    @property
    def _accounts(self) -> list[Account]:
        return [s.accounted for s in self.subscriptions]

    @property
    def _stopped(self) -> tuple[Fact, ...]:
        deserted = (s.lag.fact for s in self.subscriptions if s.lag is not None and s.lag.is_deserted)
        return (*deserted, *self.late)

    @property
    def _persons(self) -> list[Fact]:
        return [*(need.fact for need in self.needs), *self.doubled, *self.undecided, *self.damaged]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        sentences, facts = said_and_coded({**self.remarks, "late": self.late_lines})
        followed = {gone: said_and_coded({"lines": lines}) for gone, lines in self.following.items()}
        return {
            "summary": said(self.summary),
            "needs_a_person": self.needs_a_person,
            **sentences,
            "facts": {"summary": self.summary.as_dict(), **facts},
            "following": [
                {"away": said(gone), **of, "facts": coded["lines"]} for gone, (of, coded) in followed.items()
            ],
            **{name: [dict(zip(columns, row, strict=True)) for row in rows] for name, columns, rows in self._parts()},
            "holds": [
                dict(zip(_HOLD, _hold_row(h), strict=True))
                | {"fact": None if h.reason_fact is None else h.reason_fact.as_dict()}
                for h in self.holds
            ],
            "subscriptions": [
                dict(zip(_SUBSCRIPTION, _subscription_row(s), strict=True))
                | {"accounted_until_ms": s.accounted.until_ms}
                | {"waiting": s.watermark.waiting, "waiting_since_ms": s.watermark.waiting_since_ms}
                | {"since_ms": s.since_ms}
                for s in self.subscriptions
            ],
        }

    def tables(self) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[object]]]]:
        """Tables for people; empty ones are left out, except the first."""
        accounts = [
            (a.subscription.topic, a.subscription.group, a.until_ms, "yes" if a.late else "") for a in self._accounts
        ]
        if accounts:
            yield "Accounted for", ("topic", "group", "until_ms", "late"), accounts
        for name, columns, rows in self._parts():
            if rows or name == "subscriptions":
                yield name.capitalize(), columns, [_with_count_texts(columns, row) for row in rows]

    def _parts(self) -> Iterator[tuple[str, Sequence[str], list[tuple[object, ...]]]]:
        yield "subscriptions", _SUBSCRIPTION, [_subscription_row(s) for s in self.subscriptions]
        yield (
            "verdicts",
            ("topic", "group", "state", "verdict", "loss_verdict", "keys", "oldest_ms"),
            [
                (
                    v.subscription.topic,
                    v.subscription.group,
                    str(v.state),
                    str(v.verdict),
                    text_of(v.loss_verdict),
                    v.count,
                    v.oldest_ms,
                )
                for v in self.verdicts
            ],
        )
        yield (
            "repairs",
            ("topic", "scope", "state", "rung", "attempted", "repairs"),
            [(r.topic, r.scope, str(r.state), str(r.rung), r.attempted, r.count) for r in self.repairs],
        )
        yield "holds", _HOLD, [_hold_row(h) for h in self.holds]
        yield (
            "outages",
            ("started_at_ms", "reason", "scanned", "closed_at_ms", "left_out"),
            list(map(LISTINGS["outages"].row, self.outages)),
        )
        yield (
            "history",
            ("topic", "group", "captured_until_ms", "recent_rounds", "gaps", "spool_bytes", "problems"),
            [] if self.history is None else list(_history_rows(self.history)),
        )


def _late(account: Account, cause: Fact) -> Fact:
    return LATE(subscription=str(account.subscription), cause=cause)


#: Columns of rows that are counted up to a limit.
_COUNTS = frozenset({"keys", "attempted", "repairs"})
_HOLD = ("topic", "kind", "since_ms", "until_ms", "by", "reason")
_SUBSCRIPTION = (
    "topic", "group", "pending", "oldest_pending_ms", "watermark_ms", "watermark_detail", "last_round_ms", "weaker",
)  # fmt: skip


def _with_count_texts(columns: Sequence[str], row: Sequence[object]) -> Sequence[object]:
    return [
        counted(value) if column in _COUNTS and isinstance(value, int) else value
        for column, value in zip(columns, row, strict=True)
    ]


def _hold_row(held: HeldTopic) -> tuple[object, ...]:
    return held.topic, str(held.kind), held.since_ms, held.until_ms, held.by, held.reason


def _subscription_row(s: SubscriptionStatus) -> tuple[object, ...]:
    is_known = s.watermark.state is not WatermarkState.UNKNOWN
    return (
        s.subscription.topic,
        s.subscription.group,
        s.pending,
        s.oldest_pending_ms,
        s.watermark.at_ms if is_known else None,
        said(s.watermark.detail),
        s.last_round_ms,
        ", ".join(map(said, s.weaker)),
    )


def _history_rows(history: HistoryOverview) -> Iterator[tuple[object, ...]]:
    for s in history.subscriptions:
        about = (s.subscription.topic, s.subscription.group, s.captured_until_ms, s.rounds, s.gaps)
        yield (*about, history.spool_bytes, "; ".join(history.problems[:3]))


def read_status(
    connections: Connections, *, rounds_within_seconds: float | None = None, sees_check_services: bool = True
) -> StatusReport:
    """Asks ledger, Redis, brokers and the services' databases; only the ledger may not be away (DatabaseAway).

    Late is what is not accounted for until `rounds_within_seconds` ago; None: five minutes, and sixty intervals.
    `sees_check_services`: False leaves `standing` empty, which costs each broker several questions.
    """
    settings = connections.settings
    late: list[Fact] = []
    rounds = RoundAssembly(connections)
    reports = connections.ledger.reports
    now_ms = connections.ledger_now_ms()
    gone = _who_is_away(connections)
    statuses = []
    newest: dict[Subscription, Sequence[StoredRound]] = {}
    outage = open_outage(connections.ledger.outages.current(settings.environment))
    late += [] if "redis" in gone else outage
    verdicts = tuple(reports.verdict_counts(settings.environment))
    last_rounds = reports.last_rounds_of(rounds.subscriptions)
    readings = rounds.memory.readings([shard for topic in rounds.plans for shard in _shards_of(topic)])
    accounting = Accounting(
        connections,
        rounds.memory,
        rounds.witnesses.inbox,
        readings=readings,
        undecided_in={v.subscription for v in verdicts if v.verdict is Verdict.UNKNOWN},
        asked_ms=now_ms,
        within_seconds=rounds_within_seconds,
        away=gone,
    )
    reached = found_by_each(rounds.witnesses.brokers.watermark, rounds.subscriptions)
    may_lose = {v.subscription for v in verdicts if v.is_open_loss or v.damage is not None}
    for topic in rounds.plans:
        for plan in topic.subscriptions:
            of = plan.subscription
            last = last_rounds[of]
            newest[of] = [r for r in last if r.done.shard.number < topic.shards]
            if of in may_lose:
                late += _unrepaired(connections, of, now_ms=now_ms, within_seconds=rounds_within_seconds)
            statuses.append(_status_of(rounds, topic, plan, last, accounting, readings, reached[of], asked_ms=now_ms))
    unknown, gone = accounting.undecided, accounting.away
    late += [*other_clusters(connections), *told_of_renames(connections), *_other_shards(rounds)]
    doubted, life_seconds = unproved(connections), limit_seconds(settings, rounds_within_seconds)
    late += blind_witnesses(doubted, within_seconds=life_seconds)
    history, history_away = read_overview(settings, rounds.subscriptions)
    late += _behind(settings, history, newest, within_seconds=rounds_within_seconds)
    repairs = tuple(reports.repair_counts(settings.environment))
    return StatusReport(
        asked_ms=now_ms,
        subscriptions=tuple(statuses),
        history=history,
        verdicts=verdicts,
        repairs=repairs,
        holds=tuple(reports.holds(settings.environment)),
        outages=tuple(reports.outages(settings.environment, limit=5).rows),
        away=(*dict.fromkeys(gone.values()), *([away("history", history_away)] if history_away is not None else [])),
        late=tuple(late),
        late_by_away=tuple((gone["redis"], line) for line in outage if "redis" in gone),
        undecided=tuple(undecided(verdicts, now_ms, settings.rounds.retention_seconds, unknown=unknown)),
        undecidable=tuple(line for found in unknown.values() if (line := beyond_set_up(found)) is not None),
        unswept=tuple(unswept(connections)),
        standing=_standing_check_services(connections) if sees_check_services else (),
        rejected=tuple(rejected(verdicts, reads_halves=_reading_halves(settings))),
        doubled=tuple(double_effects(reports, verdicts, settings.environment)),
        unproved=tuple(doubted_witnesses(doubted, within_seconds=life_seconds)),
        damaged=(*damaged_rows(verdicts, repairs), *_on_its_way(connections, rounds, newest, readings, now_ms=now_ms)),
        acknowledged=acknowledged(connections, now_ms=now_ms) if any(v.is_open_loss for v in verdicts) else (),
    )


def _unrepaired(connections: Connections, of: Subscription, *, now_ms: int, within_seconds: float | None) -> list[Fact]:
    ledger = connections.ledger
    return unrepaired(
        connections.settings,
        of,
        candidates=ledger.candidates,
        repairs=ledger.repairs,
        now_ms=now_ms,
        within_seconds=within_seconds,
    )


def _behind(
    settings: Settings,
    history: HistoryOverview | None,
    newest: Mapping[Subscription, Sequence[StoredRound]],
    *,
    within_seconds: float | None,
) -> Iterator[Fact]:
    for captured in history.subscriptions if history is not None else ():
        of = captured.subscription
        yield from history_behind(settings, of, newest[of], captured.captured_ms, within_seconds=within_seconds)


def _standing_check_services(connections: Connections) -> tuple[Fact, ...]:
    return tuple(
        STANDING_CHECK_SERVICE(broker=one.broker, state=one.stands)
        for one in check_services(connections)
        if one.stands is not None
    )


def _other_shards(assembly: RoundAssembly) -> Iterable[Fact]:
    """One line a subscription that gets no rounds, since its number of shards is another one."""
    return assembly.shard_numbers.problems(assembly.subscriptions).values()


def _who_is_away(connections: Connections) -> dict[str, Fact]:
    databases, brokers = ask_databases(connections), ask_brokers(connections)
    return facts_of_away(
        connections.settings, {**ask_redis(connections), **databases, **brokers, **ask_rights(connections)}
    )


def _status_of(
    assembly: RoundAssembly,
    topic: TopicPlan,
    plan: SubscriptionPlan,
    last: Sequence[StoredRound],
    accounting: Accounting,
    readings: Mapping[Shard, ShardReading],
    watermark: Watermark,
    *,
    asked_ms: int,
) -> SubscriptionStatus:
    subscription = plan.subscription
    pending, oldest_ms = _pending(assembly, topic.shards_of(subscription), readings)
    weaker = weaker_evidence(topic, plan, has_inbox=assembly.witnesses.inbox.is_configured(subscription))
    weaker += accounting.weaker(topic)
    return SubscriptionStatus(
        subscription=subscription,
        pending=pending,
        oldest_pending_ms=oldest_ms,
        watermark=watermark,
        last_round_ms=max((r.done.at_ms for r in last if r.done.shard.number < topic.shards), default=None),
        accounted=accounting.of(topic, plan, last, watermark),
        weaker=tuple(weaker),
        lag=_lag(assembly, plan, watermark, (pending, oldest_ms), asked_ms=asked_ms),
        since_ms=assembly.ledger.rounds.since_ms(subscription) if plan.since_ms is None else plan.since_ms,
    )


def weaker_evidence(topic: TopicPlan, plan: SubscriptionPlan, *, has_inbox: bool) -> list[Fact]:
    """What the set-up of a subscription lacks, and what stands in its place."""
    found = [] if topic.evidence.has_outbox else [NO_OUTBOX()]
    found += [BY_QUERY()] if topic.evidence.asks_business else []
    found += [BY_HALVES()] if plan.reads_halves else []
    return found + ([] if has_inbox else [NO_INBOX()])


def _reading_halves(settings: Settings) -> frozenset[Subscription]:
    return frozenset(subscription_of(settings, one) for one in settings.subscriptions if one.reads_halves)


def _lag(
    assembly: RoundAssembly,
    plan: SubscriptionPlan,
    watermark: Watermark,
    pending: tuple[int | None, int | None],
    *,
    asked_ms: int,
) -> Lag | None:
    """Who is connected is asked only where messages have waited for long."""
    found = lag_of(
        plan.subscription,
        watermark,
        pending=pending[0] or 0,
        oldest_pending_ms=pending[1],
        asked_ms=asked_ms,
        alarm_seconds=plan.lag_alarm_seconds,
        skew_margin_seconds=assembly.settings.rounds.skew_margin_seconds,
    )
    if found is None:
        return None
    is_deserted = assembly.witnesses.brokers.is_deserted(plan.subscription)
    if watermark.lacks_offset and not is_deserted:
        return None  # it may keep its offsets elsewhere
    return replace(found, is_deserted=is_deserted)


def _on_its_way(
    connections: Connections,
    assembly: RoundAssembly,
    newest: Mapping[Subscription, Sequence[StoredRound]],
    readings: Mapping[Shard, ShardReading],
    *,
    now_ms: int,
) -> Iterator[Fact]:
    """Damage of announcements and of commit sets."""
    yield from _refused(connections, newest, now_ms=now_ms)
    yield from _misshapen(assembly, readings)


def _refused(
    connections: Connections, newest: Mapping[Subscription, Sequence[StoredRound]], *, now_ms: int
) -> Iterator[Fact]:
    """One line a unique-key topic."""
    settings = connections.settings
    of_topic: dict[str, list[StoredRound]] = {}
    for subscription, rounds in newest.items():
        of_topic.setdefault(settings.unique_key_topic.name_for(subscription.topic), []).extend(rounds)
    reports = connections.ledger.reports
    for name, rounds in of_topic.items():
        yield from refused_announcements(reports, settings.environment, name, rounds, now_ms=now_ms)


def _misshapen(assembly: RoundAssembly, readings: Mapping[Shard, ShardReading]) -> Iterator[Fact]:
    for topic in assembly.plans:

        def sample(of: Subscription, topic: TopicPlan = topic) -> Iterable[tuple[Shard, bytes]]:
            found = [readings.get(shard) for shard in topic.shards_of(of)]
            is_empty = all(one is not None and not one.consumed for one in found)
            return () if is_empty else assembly.sample_commit_sets(of, shards=topic.shards)

        yield from misshapen_members(topic, sample)


def _shards_of(topic: TopicPlan) -> Iterator[Shard]:
    for plan in topic.subscriptions:
        yield from topic.shards_of(plan.subscription)


def _pending(
    assembly: RoundAssembly, shards: Sequence[Shard], readings: Mapping[Shard, ShardReading]
) -> tuple[int | None, int | None]:
    try:
        sizes = [
            assembly.memory.pending_size(shard) if found is None else (found.pending, found.oldest_pending_ms)
            for shard, found in ((shard, readings.get(shard)) for shard in shards)
        ]
    except RedisAway:
        return None, None
    return sum(size for size, _ in sizes), min((oldest for _, oldest in sizes if oldest is not None), default=None)
