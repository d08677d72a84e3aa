"""The questions of `status` to every dependency. Only the ledger has to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.clock import SystemClock
from reconciler.commands.acts.acknowledgement import acknowledged
from reconciler.commands.asking.availability import ask_brokers, ask_databases, ask_redis, away, facts_of_away
from reconciler.commands.asking.broker_rights import ask_rights
from reconciler.commands.asking.check_services import check_services
from reconciler.commands.asking.environment import other_clusters
from reconciler.commands.renaming.renamed_groups import told_of_renames
from reconciler.commands.status.accounting import Accounting
from reconciler.commands.status.damage import damaged_rows, misshapen_members, refused_announcements
from reconciler.commands.status.double_effects import double_effects
from reconciler.commands.status.primaries import blind_witnesses, doubted_witnesses, unproved
from reconciler.commands.status.report import NO_INBOX, NO_OUTBOX, StatusReport, SubscriptionStatus
from reconciler.commands.status.standstill import (
    history_behind,
    history_never_written,
    limit_seconds,
    open_outage,
    rejected,
    undecided,
    unrepaired,
    unrepaired_by_clocks,
)
from reconciler.commands.status.unswept import unswept
from reconciler.commands.together import found_by_each
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.verdicts import Verdict
from reconciler.errors import RedisAway
from reconciler.policy.evidence import Watermark
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.policy.ports.rounds import ShardReading
from reconciler.settings.schema import Settings
from reconciler.telling.lag import Lag, lag_of
from reconciler.telling.ports.reports import StoredRound, VerdictCount
from reconciler.telling.undecided_keys import beyond_set_up, handed_out
from reconciler.wiring.connections import Connections
from reconciler.wiring.history import read_overview, sees_history
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.subscriptions import subscription_of

if TYPE_CHECKING:
    from reconciler.history.reader import HistoryOverview

STANDING_CHECK_SERVICE = Code("status.standing-check-service", broker=Field.NAME, state=Field.FACT)
BY_QUERY = Code("status.by-query")
BY_HALVES = Code("status.by-halves")
EFFECTS_BY_QUERY = Code("status.effects-by-query")


def read_status(
    connections: Connections,
    *,
    rounds_within_seconds: float | None = None,
    sees_check_services: bool = True,
    is_beside_run: bool = True,
) -> StatusReport:
    """Asks ledger, Redis, brokers and the services' databases. Raises DatabaseAway if the ledger does not answer.

    `rounds_within_seconds`: a commit older than this that is not accounted for is late. None means the default of
    limit_seconds(). `sees_check_services`: with False `standing` is empty, which saves each broker several questions.
    `is_beside_run`: with False, a history that this process cannot see is left out.
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
    accounting = _accounting(
        connections, rounds, readings, verdicts, now_ms, within_seconds=rounds_within_seconds, away=gone
    )
    reached = found_by_each(rounds.witnesses.brokers.watermark, rounds.subscriptions)
    may_lose = {v.subscription for v in verdicts if v.is_open_loss or v.damage is not None}
    for topic in rounds.plans:
        for plan in topic.subscriptions:
            of = plan.subscription
            last = last_rounds[of]
            newest[of] = [r for r in last if r.done.shard.number < topic.shards]
            statuses.append(_status_of(rounds, topic, plan, last, accounting, readings, reached[of], asked_ms=now_ms))
    repairs, holds = tuple(reports.repair_counts(settings.environment)), tuple(reports.holds(settings.environment))
    losing = [of for of in rounds.subscriptions if of in may_lose]
    late += _unrepaired(connections, losing, holds, now_ms=now_ms, within_seconds=rounds_within_seconds)
    unknown, gone = accounting.undecided, accounting.away
    late += [*other_clusters(connections), *told_of_renames(connections), *_other_shards(rounds)]
    doubted, life_seconds = unproved(connections), limit_seconds(settings, rounds_within_seconds)
    late += blind_witnesses(doubted, within_seconds=life_seconds)
    is_seen = is_beside_run or sees_history(settings)
    history, history_away = read_overview(settings, rounds.subscriptions) if is_seen else (None, None)
    late += _behind(connections, history, newest, within_seconds=rounds_within_seconds)
    return StatusReport(
        asked_ms=now_ms,
        subscriptions=tuple(statuses),
        history=history,
        verdicts=verdicts,
        repairs=repairs,
        holds=holds,
        outages=tuple(reports.outages(settings.environment, limit=5).rows),
        away=(*dict.fromkeys(gone.values()), *([away("history", history_away)] if history_away is not None else [])),
        late=tuple(late),
        late_by_away=tuple((gone["redis"], line) for line in outage if "redis" in gone),
        undecided=tuple(undecided(verdicts, now_ms, settings.rounds.retention_seconds, unknown=unknown)),
        undecidable=tuple(line for found in unknown.values() if (line := beyond_set_up(found)) is not None),
        handed_out=tuple(line for found in unknown.values() if (line := handed_out(found)) is not None),
        unswept=tuple(unswept(connections)),
        standing=_standing_check_services(connections) if sees_check_services else (),
        rejected=tuple(rejected(verdicts, reads_halves=_reading_halves(settings))),
        doubled=tuple(double_effects(reports, verdicts, settings.environment)),
        unproved=tuple(doubted_witnesses(doubted, within_seconds=life_seconds)),
        damaged=(*damaged_rows(verdicts, repairs), *_on_its_way(connections, rounds, newest, readings, now_ms=now_ms)),
        acknowledged=acknowledged(connections, now_ms=now_ms) if any(v.is_open_loss for v in verdicts) else (),
    )


def _accounting(
    connections: Connections,
    rounds: RoundAssembly,
    readings: Mapping[Shard, ShardReading],
    verdicts: Iterable[VerdictCount],
    asked_ms: int,
    *,
    within_seconds: float | None,
    away: Mapping[str, Fact],
) -> Accounting:
    return Accounting(
        connections,
        rounds.memory,
        rounds.witnesses.inbox,
        readings=readings,
        undecided_in={v.subscription for v in verdicts if v.verdict is Verdict.UNKNOWN},
        rejected_in={v.subscription for v in verdicts if v.verdict is Verdict.REJECTED},
        asked_ms=asked_ms,
        within_seconds=within_seconds,
        away=away,
    )


def _unrepaired(
    connections: Connections,
    losing: Sequence[Subscription],
    holds: Iterable[HeldTopic],
    *,
    now_ms: int,
    within_seconds: float | None,
) -> Iterator[Fact]:
    """Yields facts about losses without a repair, and about repairs that wait for clocks. `run` looks at no repair of a
    topic that is held, or in shadow mode."""
    settings, ledger = connections.settings, connections.ledger
    for of in losing:
        yield from unrepaired(
            settings,
            of,
            candidates=ledger.candidates,
            repairs=ledger.repairs,
            now_ms=now_ms,
            within_seconds=within_seconds,
        )
    held = {hold.topic for hold in holds}
    topics = sorted({of.topic for of in losing if of.topic not in held and settings.repairs.is_enabled_for(of.topic)})
    yield from unrepaired_by_clocks(
        settings, topics, reports=ledger.reports, now_ms=now_ms, within_seconds=within_seconds
    )


def _behind(
    connections: Connections,
    history: HistoryOverview | None,
    newest: Mapping[Subscription, Sequence[StoredRound]],
    *,
    within_seconds: float | None,
) -> Iterator[Fact]:
    settings = connections.settings
    for captured in history.subscriptions if history is not None else ():
        of = captured.subscription
        yield from history_behind(settings, of, newest[of], captured.captured_ms, within_seconds=within_seconds)
        if history is not None and history.entries == 0:
            written_ms = history.spool_written_ms
            yield from history_never_written(
                settings,
                of,
                newest[of],
                since_ms=connections.ledger.rounds.since_ms(of),
                spooled_seconds_ago=None if written_ms is None else (SystemClock().now_ms() - written_ms) / 1000,
                within_seconds=within_seconds,
            )


def _standing_check_services(connections: Connections) -> tuple[Fact, ...]:
    return tuple(
        STANDING_CHECK_SERVICE(broker=one.broker, state=one.stands)
        for one in check_services(connections)
        if one.stands is not None
    )


def _other_shards(assembly: RoundAssembly) -> Iterable[Fact]:
    """Yields one line for each subscription that gets no rounds because its number of shards has changed."""
    return assembly.shard_numbers.problems(assembly.subscriptions).values()


def _who_is_away(connections: Connections) -> dict[str, Fact]:
    asked = ask_redis(connections) | ask_databases(connections) | ask_brokers(connections) | ask_rights(connections)
    # The ledger has answered.
    return facts_of_away(connections.settings, {"ledger": connections.ledger.database.require_transactions} | asked)


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
        last_round_ms=max((r.looked_at_ms for r in last if r.done.shard.number < topic.shards), default=None),
        accounted=accounting.of(topic, plan, last, watermark),
        weaker=tuple(weaker),
        lag=_lag(assembly, plan, watermark, (pending, oldest_ms), asked_ms=asked_ms),
        since_ms=assembly.ledger.rounds.since_ms(subscription) if plan.since_ms is None else plan.since_ms,
    )


def weaker_evidence(topic: TopicPlan, plan: SubscriptionPlan, *, has_inbox: bool) -> list[Fact]:
    """Returns what the set-up of a subscription lacks, and which weaker evidence stands in its place."""
    found = [] if topic.evidence.has_outbox else [NO_OUTBOX()]
    found += [BY_QUERY()] if topic.evidence.asks_business else []
    found += [BY_HALVES()] if plan.reads_halves else []
    if plan.asks_effects:
        return [*found, EFFECTS_BY_QUERY()]
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
    """Returns the lag of a group, if any. Brokers are asked for connected members only if messages have waited long."""
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
        return None  # the group may keep its offsets elsewhere
    return replace(found, is_deserted=is_deserted)


def _on_its_way(
    connections: Connections,
    assembly: RoundAssembly,
    newest: Mapping[Subscription, Sequence[StoredRound]],
    readings: Mapping[Shard, ShardReading],
    *,
    now_ms: int,
) -> Iterator[Fact]:
    """Yields damage of announcements and of commit sets."""
    yield from _refused(connections, newest, now_ms=now_ms)
    yield from _misshapen(assembly, readings)


def _refused(
    connections: Connections, newest: Mapping[Subscription, Sequence[StoredRound]], *, now_ms: int
) -> Iterator[Fact]:
    """Yields one line for each unique-key topic with refused announcements."""
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
