"""`reconciler run`: rounds, verification and repairs until the process is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, TypeAlias

from reconciler.clock import Clock, SystemClock
from reconciler.commands.acts.hold import ENDS_SECONDS, lift_ended
from reconciler.commands.acts.job_worker import working_on_jobs
from reconciler.commands.asking.probe_topic import ProbeTopicWatch
from reconciler.commands.metrics import StatusReading, measuring, status_reading
from reconciler.commands.notices import telling
from reconciler.commands.safety import require_own_identities, require_safe_redis
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, RedisAway, TransientError
from reconciler.policy.brakes import RateLimit
from reconciler.policy.environment import RENEW_SECONDS
from reconciler.policy.events import OutageOpened
from reconciler.policy.evidence import as_foreign
from reconciler.policy.plan import TopicPlan
from reconciler.policy.round import ReconcileRound
from reconciler.policy.turn import Turn
from reconciler.settings.schema import MODE_NOT_NEEDED, Settings
from reconciler.wiring.announcements import build_announcement_consumer
from reconciler.wiring.connections import Connections, repair_rate_of
from reconciler.wiring.environment import enter_environment, environment_guard
from reconciler.wiring.history import history_sink, writing_history
from reconciler.wiring.metrics import Metering
from reconciler.wiring.rounds import RoundAssembly
from reconciler.wiring.scheduler import Tick, TickRunner, serve_when_possible
from reconciler.wiring.subscriptions import require_past_since
from reconciler.wiring.tracing import traced_by, tracing

if TYPE_CHECKING:
    from reconciler.instrumentation.tracing.spans import EventSpans

logger = logging.getLogger(__name__)

#: Pause between two looks for an open outage. A look works on the outage.
OUTAGE_SECONDS = 1.0
#: Pause between two checks of Redis' settings, because the eviction policy of a running server can change.
SAFETY_SECONDS = 10.0
RETENTION_SECONDS = 3600.0
#: Maximum number of passes of one turn. One pass deletes 100 000 rows of a table at most. Nine subscriptions with 16
#: shards each store more rounds than one pass deletes in an hour.
RETENTION_PASSES_MAX = 20
#: Pause between two passes, so that other writers have their turn in a database that allows one writer at a time.
RETENTION_PAUSE_SECONDS = 1.0

#: Makes further services of the process of its metering (None without metrics.listen), the rate of repairs and the
#: reading of status.
Beside: TypeAlias = Callable[[Metering | None, RateLimit, StatusReading], AbstractContextManager[object]]


def run_service(
    settings: Settings,
    stop: threading.Event,
    *,
    beside: Beside = lambda *_: nullcontext(),
) -> None:
    """Runs announcement consumers, rounds, outage recovery and retention until the stop.

    At the start and later, the service waits for dependencies that are away.
    Raises ConfigurationError for what only a person can correct: a Redis that is unsafe at the start, missing tables,
    another number of shards, or another cluster that uses the same environment.
    """
    clock = SystemClock()
    require_past_since(settings, now_ms=clock.now_ms())
    repair_rate = repair_rate_of(settings, clock)
    status = status_reading(settings, clock=clock)
    with (
        measuring(settings, "run", clock=clock, status=status) as metering,
        telling(settings, clock=clock, status=status.get, metering=metering),
        tracing(settings, clock=clock, metering=metering) as spans,
        beside(metering, repair_rate, status),
    ):
        if settings.rounds.mode is not None:
            logger.warning("setting_not_needed", extra={"detail": MODE_NOT_NEEDED})
        serve_when_possible(
            lambda: _serve(
                Connections(settings, clock=clock, repair_rate=repair_rate), stop, metering=metering, spans=spans
            ),
            stop=stop,
            clock=clock,
        )


def _serve(
    connections: Connections, stop: threading.Event, *, metering: Metering | None, spans: EventSpans | None
) -> None:
    settings, clock = connections.settings, connections.clock
    with connections:
        sink = history_sink(settings, clock)
        assembly = RoundAssembly(connections, history=sink, metering=metering, spans=spans, is_shared=True)
        rounds = [(topic, assembly.rounds_of(topic)) for topic in assembly.plans]
        turn = assembly.turn()
        ticks = [_rounds_of_topic(assembly, topic, of, turn, metering, spans) for topic, of in rounds]
        recovery = assembly.recovery()

        def recover() -> None:
            if assembly.ledger.outages.current(settings.environment) is None:
                return
            with suppress(RedisAway):  # rounds and the safety tick log this error, and the outage stays open
                still_safe_redis(assembly)
                recovery.run(settings.environment)

        retention, guard = assembly.retention(), environment_guard(connections)

        def begin_rounds() -> None:
            assembly.ledger.database.require_transactions()
            for topic in turn.begin():
                runner.begin(_job_of(topic))

        ticks += [
            Tick(name="rounds", interval_seconds=settings.rounds.interval_seconds, run=begin_rounds),
            Tick(name="environment", interval_seconds=RENEW_SECONDS, run=guard.look),
            Tick(name="holds", interval_seconds=ENDS_SECONDS, run=lambda: lift_ended(connections, by=assembly.owner)),
            Tick(name="outage", interval_seconds=OUTAGE_SECONDS, run=recover),
            Tick(name="safety", interval_seconds=SAFETY_SECONDS, run=lambda: still_safe_redis(assembly)),
            Tick(name="probe-topic", interval_seconds=SAFETY_SECONDS, run=ProbeTopicWatch(connections).look),
            Tick(
                name="retention",
                interval_seconds=RETENTION_SECONDS,
                run=lambda: delete_old_rows(
                    lambda: retention.delete_old(settings.environment).has_more, stop=stop, clock=clock
                ),
            ),
        ]
        require_own_identities(connections)
        require_safe_redis(assembly)
        _require_ledger(assembly)
        if not enter_environment(connections, guard, stop=stop):
            return
        with (
            writing_history(assembly, sink=sink, clock=clock) as history,
            working_on_jobs(connections, stop=stop, assembly=assembly),
        ):
            consumer = build_announcement_consumer(connections, concerns=assembly.concerns)
            runner = TickRunner(ticks, stop=stop, clock=clock)
            consumer.start()
            try:
                with (
                    nullcontext()
                    if metering is None
                    else metering.reading_service(runner=runner, consumer=consumer, history=history)
                ):
                    runner.run()
            finally:
                consumer.stop()
                with suppress(TransientError):  # the leases end by themselves
                    assembly.leave()
                    for _, topic_rounds in rounds:
                        topic_rounds.release()


def _require_ledger(assembly: RoundAssembly) -> None:
    """Raises DatabaseAway if the ledger is away, or a table of it has no transactions. Raises ConfigurationError for
    missing tables."""
    environment, ledger = assembly.settings.environment, assembly.ledger
    ledger.database.require_transactions()
    ledger.holds.active(environment)
    for topic in assembly.plans:  # without this call only a round would miss the tables of the newest release
        ledger.brokers.note(environment, topic.topic, None, keep_seconds=assembly.settings.rounds.retention_seconds)
    ledger.jobs.page(environment, limit=1)


def delete_old_rows(delete_some: Callable[[], bool], *, stop: threading.Event, clock: Clock) -> None:
    """Runs passes until nothing old is left, the stop comes, or the limit is reached. The next turn deletes the rest.

    `delete_some`: runs one pass, and returns True if old rows are left. Raises DatabaseAway.
    """
    for _ in range(RETENTION_PASSES_MAX):
        if not delete_some() or clock.wait(stop, RETENTION_PAUSE_SECONDS):
            return


def _job_of(topic: TopicPlan) -> str:
    return f"rounds {topic.topic}"


def _rounds_of_topic(
    assembly: RoundAssembly,
    topic: TopicPlan,
    rounds: ReconcileRound,
    turn: Turn,
    metering: Metering | None,
    spans: EventSpans | None,
) -> Tick:
    run = traced_by(spans, rounds.run)

    def one(subscription: Subscription) -> None:
        with suppress(RedisAway):  # the round notices it and opens the outage
            if assembly.shard_numbers.keep(subscription) is not None:
                return
        report = run(subscription)
        if metering is not None and report.suspended is not None:
            metering.events.suspended(subscription)

    def every() -> None:
        each_of([plan.subscription for plan in topic.subscriptions], one)
        if rounds.may_rest:
            turn.ended(topic)

    seconds = assembly.settings.rounds.interval_seconds
    return Tick(name=_job_of(topic), interval_seconds=seconds, run=every, is_begun=True)


def each_of(subscriptions: Sequence[Subscription], run: Callable[[Subscription], object]) -> None:
    """Calls `run` for each subscription, even after a call has failed. Raises the first unexpected error at the end.

    Raises TransientError and ConfigurationError at once. A dependency that is away is away for every subscription. A
    person has to correct the configuration.
    """
    failure: Exception | None = None
    for subscription in subscriptions:
        try:
            run(subscription)
        except (TransientError, ConfigurationError):
            raise
        except Exception as error:
            logger.exception("subscription_failed", extra={"subscription": str(subscription)})
            failure = failure or error
    if failure is not None:
        raise failure


def still_safe_redis(assembly: RoundAssembly) -> None:
    """Checks Redis' settings while the reconciler runs.

    Unsafe settings pause the reconciler until they are corrected, as if Redis were away. Raises RedisAway.
    """
    try:
        require_safe_redis(assembly)
    except ConfigurationError as error:
        environment, outages = assembly.settings.environment, assembly.ledger.outages
        outage = outages.current(environment)
        if outage is not None and outage.reason == "AWAY" and assembly.memory.is_spread:
            outages.note_reason(outage, "UNSAFE")  # without this reason, shards of other servers would continue
        if outage is None:
            outages.open(environment, reason="UNSAFE", noticed_by=assembly.owner)
            assembly.events.emit(OutageOpened(environment=environment, reason="UNSAFE", detail=as_foreign(str(error))))
        raise RedisAway("Redis is not safe any more, rounds and announcements pause", remedy=str(error)) from error
