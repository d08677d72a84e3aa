"""Notices about missing rounds, accounted-until times and findings of audits.

The dead man's ping is sent from here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from reconciler.clock import Clock
from reconciler.commands.asking.business_ids import business_ids_of
from reconciler.commands.status.report import StatusReport
from reconciler.commands.status.standstill import limit_seconds
from reconciler.contract.facts import Fact
from reconciler.contract.tables import NoticeKind
from reconciler.errors import ReconcilerError
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.catalogue import Sample
from reconciler.policy.shard_rounds import LONG_REST_SECONDS_MAX
from reconciler.settings.notifiers import NotifierKind, NotifierSettings
from reconciler.settings.schema import Settings
from reconciler.telling.notifier import NoticeService, Watch
from reconciler.telling.ports.notices import StandingTrouble
from reconciler.telling.ports.reports import LedgerReports
from reconciler.wiring.channels import make_ping
from reconciler.wiring.connections import Connections
from reconciler.wiring.metrics import Metering
from reconciler.wiring.notices import repeating, telling_people
from reconciler.wiring.rounds import topic_plans
from reconciler.words import said

logger = logging.getLogger(__name__)

#: Rounds run if a round or a row of rest is at most this number of intervals old. A subscription at rest gets a row of
#: rest every twelve intervals.
RECENT_INTERVALS = 16


@contextmanager
def telling(
    settings: Settings,
    *,
    clock: Clock,
    status: Callable[[], StatusReport | None] | None = None,
    metering: Metering | None = None,
    watches: Sequence[Watch] = (),
) -> Iterator[None]:
    """Sends notices within the block. Without a [[notifiers]] section nothing is sent.

    `status`: returns the newest report. A process that does not reach Redis and brokers gives none. Then
    accounted-until times are unknown, and no ping is sent.
    """
    if not settings.notifiers:
        yield
        return
    with ExitStack() as stack:
        all_watches = [rounds_watch(settings), *watches]
        if status is not None:
            all_watches.append(_accounts_watch(status))
            pings = [one for one in settings.notifiers if one.kind is NotifierKind.PING]
            stack.enter_context(pinging(pings, lambda: proves_calm(status()), clock=clock))
        # Connections for notices alone, which the first notice with a key opens.
        connections = stack.enter_context(Connections.for_people(settings, clock=clock))
        name_of = partial(_business_id, connections)
        service = stack.enter_context(telling_people(settings, clock=clock, watches=all_watches, name_of=name_of))
        stack.enter_context(_measured(service, metering))
        yield


def _business_id(connections: Connections, unique_key: str) -> str:
    return business_ids_of(connections, [unique_key]).get(unique_key, "")


def telling_audits(
    settings: Settings, watches: Sequence[Watch], *, clock: Clock
) -> AbstractContextManager[NoticeService | None]:
    """Reports findings of audits within the block. The block of telling() in the same process sends the notices."""
    if not watches:
        return nullcontext()
    kinds = frozenset({NoticeKind.AUDIT_VIOLATION})
    return telling_people(settings, clock=clock, watches=watches, kinds=kinds, sends=False)


def rounds_watch(settings: Settings) -> Watch:
    """Returns the watch that finds subscriptions whose newest stored round is too old.

    A subscription that never had a round may be new, so it is left out. Usually one question for the newest rows of all
    subscriptions shows that rounds run. A further question follows only for a subscription without such a row.
    """
    limit_ms = round((limit_seconds(settings, None) + settings.rounds.skew_margin_seconds) * 1000)
    recent_ms = min(limit_ms, round(RECENT_INTERVALS * settings.rounds.interval_seconds * 1000))
    plans = topic_plans(settings)

    def watch(reports: LedgerReports, now_ms: int) -> Mapping[NoticeKind, Sequence[StandingTrouble]]:
        found = []
        recent = reports.shards_since(settings.environment, since_ms=now_ms - recent_ms)
        late_ms = limit_ms + (round(LONG_REST_SECONDS_MAX * 1000) if reports.rests_are_hidden() else 0)
        for topic in plans:
            running = {shard.subscription for shard in recent if shard.number < topic.shards}
            for of in (plan.subscription for plan in topic.subscriptions if plan.subscription not in running):
                last = reports.last_rounds(of)
                stored_ms = max((r.stored_at_ms for r in last if r.done.shard.number < topic.shards), default=None)
                if stored_ms is not None and now_ms - stored_ms > late_ms:
                    kind = NoticeKind.ROUNDS_STALE
                    found.append(StandingTrouble(kind=kind, topic=of.topic, group=of.group, since_ms=stored_ms))
        return {NoticeKind.ROUNDS_STALE: found}

    return watch


def _accounts_watch(status: Callable[[], StatusReport | None]) -> Watch:
    #: Kind of trouble -> the time since when this process has seen it.
    away_since_ms: dict[NoticeKind, int] = {}

    def watch(_: LedgerReports, now_ms: int) -> Mapping[NoticeKind, Sequence[StandingTrouble]]:
        report = status()
        if report is None:
            return {}
        gone = {NoticeKind.BROKER_AWAY: report.brokers_away, NoticeKind.DATABASE_AWAY: report.databases_away}
        for kind, facts in gone.items():
            if not facts or kind not in away_since_ms:
                away_since_ms[kind] = now_ms
        return {
            NoticeKind.ACCOUNTED_UNTIL_STALE: late_accounts(report, now_ms=now_ms),
            **{kind: _away(kind, facts, since_ms=away_since_ms[kind]) for kind, facts in gone.items()},
        }

    return watch


def _away(kind: NoticeKind, gone: Sequence[Fact], *, since_ms: int) -> Sequence[StandingTrouble]:
    if not gone:
        return []
    return [StandingTrouble(kind=kind, count=len(gone), since_ms=since_ms, detail=said(gone[0]), cause=gone[0])]


def late_accounts(report: StatusReport, *, now_ms: int) -> Sequence[StandingTrouble]:
    """Returns one trouble for each subscription whose accounted-until time does not advance."""
    return [
        StandingTrouble(
            kind=NoticeKind.ACCOUNTED_UNTIL_STALE,
            topic=one.subscription.topic,
            group=one.subscription.group,
            since_ms=now_ms if one.accounted.until_ms is None else one.accounted.until_ms,
            until_ms=one.accounted.until_ms,
            detail=said(one.accounted.late[0]),
            cause=one.accounted.late[0],
        )
        for one in report.subscriptions
        if one.accounted.late
    ]


def proves_calm(report: StatusReport | None) -> bool:
    """Returns True if rounds run and all commits until just now are accounted for. Returns False without a report."""
    if report is None or report.late_lines or not report.subscriptions:
        return False
    return all(one.accounted.until_ms is not None for one in report.subscriptions)


@contextmanager
def pinging(notifiers: Sequence[NotifierSettings], is_calm: Callable[[], bool], *, clock: Clock) -> Iterator[None]:
    """Sends a ping at each interval within the block, as long as `is_calm` returns True."""
    with ExitStack() as stack:
        for one in notifiers:
            turns = {f"ping of {one.name}": _ping_turn(one, is_calm)}
            stack.enter_context(repeating(turns, clock=clock, seconds=one.ping_interval_seconds))
        yield


def _ping_turn(notifier: NotifierSettings, is_calm: Callable[[], bool]) -> Callable[[], None]:
    ping = make_ping(notifier)

    def turn() -> None:
        about = {"notifier": notifier.name}
        try:
            if is_calm():
                ping()
            else:
                logger.info("ping_withheld", extra=about)
        except ReconcilerError as error:
            logger.warning("ping_unsent", extra=about | {"error": str(error)})
        except Exception:  # without a ping the receiver raises its alarm; the next turn may succeed
            logger.exception("ping_failed", extra=about)

    return turn


def _measured(service: NoticeService | None, metering: Metering | None) -> AbstractContextManager[None]:
    if service is None or metering is None:
        return nullcontext()
    return metering.book.reading(lambda: notice_samples(service))


def notice_samples(service: NoticeService) -> Iterator[Sample]:
    """Yields the numbers of sent messages, and for how long a message has been due."""
    for (name, outcome), count in tuple(service.outcomes.items()):
        yield Sample(c.NOTICES, (name, outcome), count)
    looked_at_ms = service.looked_at_ms or 0
    for name, since_ms in service.untold_since_ms.items():
        age_ms = 0 if since_ms is None else max(0, looked_at_ms - since_ms)
        yield Sample(c.OLDEST_NOTICE, (name,), age_ms / 1000)
