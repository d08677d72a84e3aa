"""Finds reasons why "0 lost" means nothing now, such as an open outage or keys without a verdict."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.answers import INDEX_BEHIND
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import DatabaseAway, DependencyAway
from reconciler.policy.ports.ledger import Candidates, HeldTopic, Outage, Repairs
from reconciler.policy.repairing.case import waits_since_ms
from reconciler.policy.shard_rounds import LONG_REST_SECONDS_MAX
from reconciler.settings.schema import Settings
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.telling.ports.reports import LedgerReports, RepairCount, StoredRound, VerdictCount
from reconciler.telling.undecided_keys import UndecidedKeys
from reconciler.wiring.connections import Connections

OPEN_OUTAGE = Code("status.open-outage", at_ms=Field.TIME, reason=Field.NAME, step=Field.FACT)
ROUNDS_FOLLOW = Code("status.rounds-follow")
ROUNDS_WAIT = Code("status.rounds-wait")
UNREPAIRED = Code("status.unrepaired", number=Field.NUMBER, subscription=Field.NAME, unique_key=Field.NAME)
UNREPAIRED_BY_CLOCKS = Code(
    "status.unrepaired-by-clocks", number=Field.NUMBER, topic=Field.NAME, unique_key=Field.NAME, why=Field.FACT
)
UNDECIDED = Code(
    "status.undecided", subscription=Field.NAME, number=Field.COUNT, verdict=Field.NAME, hours=Field.NUMBER
)
HISTORY_BEHIND = Code("status.history-behind", subscription=Field.NAME, seconds=Field.NUMBER)
HISTORY_NEVER_WRITTEN = Code("status.history-never-written", subscription=Field.NAME, folder=Field.NAME)
REJECTED = Code("status.rejected", subscription=Field.NAME, number=Field.COUNT)
BEFORE_SINCE = Code("status.before-since", subscription=Field.NAME, number=Field.COUNT, at_ms=Field.TIME)
SINCE_JUDGED_AGAIN = Code("status.since-judged-again", subscription=Field.NAME, number=Field.COUNT)
QUARANTINED = Code("status.quarantined", number=Field.COUNT)
FAILED = Code("status.failed", number=Field.COUNT)
BREAKER = Code("status.breaker", topic=Field.NAME)

#: A standstill shorter than this is not late. The limit is longer if ROUNDS_LATE_INTERVALS intervals are longer.
ROUNDS_LATE_SECONDS_MIN = 300.0
ROUNDS_LATE_INTERVALS = 60
#: Maximum number of losses of a subscription that are looked at: one loss without a repair is enough for the line.
LOSSES_ASKED = 100


def open_outage(outage: Outage | None) -> list[Fact]:
    """Returns a fact about an open outage, or nothing.

    Rounds wait during an outage. An outage of one node of a Redis Cluster stops only the rounds of that node's shards.
    """
    if outage is None or outage.closed_at_ms is not None:
        return []
    step = ROUNDS_FOLLOW() if outage.is_scanned else ROUNDS_WAIT()
    return [OPEN_OUTAGE(at_ms=outage.started_at_ms, reason=str(outage.reason), step=step)]


def unrepaired(
    settings: Settings,
    subscription: Subscription,
    *,
    candidates: Candidates,
    repairs: Repairs,
    now_ms: int,
    within_seconds: float | None,
) -> list[Fact]:
    """Returns a fact about proved losses that have had no repair for too long. A round opens a repair just after the
    verdict."""
    limit_ms = round(limit_seconds(settings, within_seconds) * 1000)
    losses = [
        row.unique_key
        for row in candidates.open_losses(subscription, limit=LOSSES_ASKED)
        # Redis' clock dates the first look. If it is far ahead, no loss would ever be late by the ledger's clock.
        if row.verdict in LOSSES and abs(now_ms - row.first_seen_ms) > limit_ms
    ]
    known = repairs.of_keys(subscription.environment, subscription.topic, losses) if losses else {}
    left = [key for key in losses if not known.get(key)]
    if not left:
        return []
    return [UNREPAIRED(number=len(left), subscription=str(subscription), unique_key=left[0])]


def unrepaired_by_clocks(
    settings: Settings,
    topics: Iterable[str],
    *,
    reports: LedgerReports,
    now_ms: int,
    within_seconds: float | None,
) -> Iterator[Fact]:
    """Yields a fact for each topic whose repairs have waited for too long for the clock of a broker.

    By that clock, the broker's index has not reached the time of the loss, or of the last send. So the ledger's clock
    is ahead of the broker's. Answers of earlier looks do not count: a brake may have prevented the later looks.
    """
    limit_ms = round(limit_seconds(settings, within_seconds) * 1000)
    for topic in topics:
        waiting = [
            (repair.created_at_ms, repair.unique_key, why)
            for state in (RepairState.OPEN, RepairState.SENT)
            for repair in reports.repairs(
                settings.environment,
                limit=LOSSES_ASKED,
                only=LedgerFilter(topic=topic, repair_state=state, scope=EVERY_GROUP, before_ms=now_ms - limit_ms),
            ).rows
            if (why := repair.why) is not None
            and why.tells(INDEX_BEHIND)
            and min(now_ms, repair.next_at_ms) - waits_since_ms(repair) > limit_ms
        ]
        if waiting:
            _, unique_key, why = min(waiting, key=lambda one: one[:2])
            yield UNREPAIRED_BY_CLOCKS(number=len(waiting), topic=topic, unique_key=unique_key, why=why)


def undecided(
    verdicts: Iterable[VerdictCount],
    now_ms: int,
    retention_seconds: float,
    *,
    unknown: Mapping[Subscription, UndecidedKeys],
) -> list[Fact]:
    """Returns facts about keys that have been open for half of the brokers' retention.

    The witnesses of these keys must answer before the retention is over. A group that lags is left out, because its own
    monitoring shows the lag. Keys that the configuration cannot decide are left out, too. `unknown`: the keys that are
    UNKNOWN without a proved loss.
    """
    lines = []
    for v in verdicts:
        count, oldest_ms = v.count, v.oldest_ms
        if v.verdict is Verdict.UNKNOWN and v.loss_verdict is None and v.subscription in unknown:
            known = unknown[v.subscription]
            count, oldest_ms = v.count - known.set_up_count, known.other_oldest_ms or now_ms
        hours = (now_ms - oldest_ms) / 3_600_000
        is_open = v.state is CandidateState.OPEN and (v.verdict is Verdict.UNKNOWN or v.verdict in LOSSES)
        if is_open and hours * 3_600 > retention_seconds / 2:
            of = str(v.subscription)
            lines.append(UNDECIDED(subscription=of, number=count, verdict=str(v.verdict), hours=round(hours)))
    return lines


def history_behind(
    settings: Settings,
    subscription: Subscription,
    rounds: Collection[StoredRound],
    captured_ms: Mapping[int, int],
    *,
    within_seconds: float | None,
) -> list[Fact]:
    """Returns a fact about rounds that the history lacks although there was time to seal these rounds.

    A full disk can be the reason. `rounds`: the newest round of every shard. `captured_ms`: shard -> the time of the
    shard's newest round in the history.
    """
    behind_seconds = max(
        (
            (stored.done.at_ms - captured_ms[stored.done.shard.number]) / 1000
            for stored in rounds
            if stored.done.shard.number in captured_ms and not stored.is_void
        ),
        default=0.0,
    )
    if behind_seconds <= settings.history.seal_seconds + limit_seconds(settings, within_seconds):
        return []
    return [HISTORY_BEHIND(subscription=str(subscription), seconds=round(behind_seconds))]


def history_never_written(
    settings: Settings,
    subscription: Subscription,
    rounds: Collection[StoredRound],
    *,
    since_ms: int | None,
    spooled_seconds_ago: float | None,
    within_seconds: float | None,
) -> list[Fact]:
    """Returns a fact about a history without any entry, although there was time to seal rounds.

    `run` may not write there, or the folder is lost. `rounds`: the newest round of every shard. `since_ms`: time of the
    subscription's first round. `spooled_seconds_ago`: age of the newest file in the spool, since which `run` may just
    have begun a history.
    """
    patience_seconds = settings.history.seal_seconds + limit_seconds(settings, within_seconds)
    newest_ms = max((stored.done.at_ms for stored in rounds if not stored.is_void), default=None)
    if newest_ms is None or (newest_ms - (since_ms or 0)) / 1000 <= patience_seconds:
        return []
    if spooled_seconds_ago is not None and spooled_seconds_ago <= patience_seconds:
        return []
    return [HISTORY_NEVER_WRITTEN(subscription=str(subscription), folder=str(settings.history.path))]


def rejected(verdicts: Iterable[VerdictCount], *, reads_halves: Container[Subscription] = ()) -> list[Fact]:
    """Returns facts about announced keys that no configured outbox shows as committed.

    Such an announcement is foreign, or the settings lack an outbox. If an outbox is missing, lost messages are settled
    without a repair, and the verdict is the same. `reads_halves`: subscriptions that are left out, because there each
    half that was rolled back has this verdict.
    """
    return [
        REJECTED(subscription=str(v.subscription), number=v.count)
        for v in verdicts
        if v.verdict is Verdict.REJECTED and v.subscription not in reads_halves
    ]


def before_since(verdicts: Iterable[VerdictCount], since_ms: Mapping[Subscription, int | None]) -> list[Fact]:
    """Returns facts about messages that a group was given before its subscription's present or earlier `since`.

    `since_ms`: subscription -> the present `since`. With 0 or None the subscription leaves no message out. A
    subscription that is not configured gets no fact.
    """
    lines = []
    for v in verdicts:
        if v.verdict is Verdict.BEFORE_SINCE and v.subscription in since_ms:
            at_ms = since_ms.get(v.subscription)
            if at_ms and v.state is CandidateState.SETTLED:
                lines.append(BEFORE_SINCE(subscription=str(v.subscription), number=v.count, at_ms=at_ms))
            else:
                lines.append(SINCE_JUDGED_AGAIN(subscription=str(v.subscription), number=v.count))
    return lines


class NeedKind(StrEnum):
    """The kinds of trouble that only a person can end."""

    QUARANTINED = "quarantined"
    FAILED = "failed"
    BREAKER = "breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One trouble that only a person can end."""

    kind: NeedKind
    #: Keys or repairs.
    count: int = 0
    #: The topic of an open breaker. Empty for every other kind.
    topic: str = ""

    @property
    def fact(self) -> Fact:
        """The trouble, with the command that shows or ends it."""
        match self.kind:
            case NeedKind.QUARANTINED:
                return QUARANTINED(number=self.count)
            case NeedKind.FAILED:
                return FAILED(number=self.count)
            case NeedKind.BREAKER:
                return BREAKER(topic=self.topic)


def persons_needed(
    *, verdicts: Iterable[VerdictCount], repairs: Iterable[RepairCount], holds: Iterable[HeldTopic]
) -> list[Need]:
    """Returns the troubles that only a person can end."""
    quarantined = sum(v.count for v in verdicts if v.state is CandidateState.QUARANTINED)
    failed = sum(r.count for r in repairs if r.state is RepairState.FAILED)
    needed = [Need(kind=NeedKind.QUARANTINED, count=quarantined)] if quarantined else []
    needed += [Need(kind=NeedKind.FAILED, count=failed)] if failed else []
    return needed + [Need(kind=NeedKind.BREAKER, topic=h.topic) for h in holds if h.kind is HoldKind.BREAKER]


def require_rounds(connections: Connections) -> None:
    """Raises DependencyAway if rounds were written before, and none within the time that is not late.

    A ledger whose disk is full, or that only reads, answers every question. Only its missing rows show that it takes
    none. A ledger that is away has its own line.
    """
    reports, settings = connections.ledger.reports, connections.settings
    seconds = limit_seconds(settings, None)
    with suppress(DatabaseAway):
        now_ms = connections.ledger_now_ms()
        is_recent = bool(reports.shards_since(settings.environment, since_ms=now_ms - round(seconds * 1000)))
        if not is_recent and reports.rests_are_hidden():
            seconds += LONG_REST_SECONDS_MAX
        before_ms = now_ms - round(seconds * 1000)
        is_recent = is_recent or bool(reports.shards_since(settings.environment, since_ms=before_ms))
        if not is_recent and reports.traces(settings.environment, before_ms=before_ms).has_earlier_round:
            raise DependencyAway(
                f"no round was written within {seconds:g} s: `turn_skipped` in the log of `run` names the reason, such "
                "as a ledger that takes no rows"
            )


def limit_seconds(settings: Settings, within_seconds: float | None) -> float:
    """Returns the longest standstill that is not late: the monitor's --rounds-within, or the default."""
    if within_seconds is not None:
        return within_seconds
    return max(ROUNDS_LATE_SECONDS_MIN, ROUNDS_LATE_INTERVALS * settings.rounds.interval_seconds)
