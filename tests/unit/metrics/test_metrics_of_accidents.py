"""Every metric of the catalogue is moved by an accident that it is there for, and by nothing in calm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from reconciler.clock import SystemClock
from reconciler.commands.asking.availability import results_of
from reconciler.commands.metrics import dependency_samples, report_samples, status_samples
from reconciler.commands.notices import notice_samples
from reconciler.commands.status.report import StatusReport
from reconciler.contract.tables import HoldKind
from reconciler.errors import DatabaseAway, InvariantViolation, RedisAway
from reconciler.history.reader import HistoryOverview, SubscriptionHistory
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.catalogue import METRICS, Metric
from reconciler.instrumentation.metrics.events import EventMetrics
from reconciler.instrumentation.metrics.look_ups import MeasuredBrokerEvidence
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.instrumentation.tracing.export import SpanCounts
from reconciler.policy.brakes import BreakerRules
from reconciler.policy.ports.evidence import BrokerEvidence
from reconciler.sql.tables import ledger_metadata
from reconciler.wiring.metrics import Metering, announcement_samples, build_samples, history_samples, schedule_samples
from reconciler.wiring.scheduler import Tick, TickRunner
from tests.unit.announcing.announcement_world import World as AnnouncementWorld
from tests.unit.announcing.announcement_world import announcement
from tests.unit.channels.receiver import Reply, receiving
from tests.unit.consumers.messages import inbox_engine, sqlite_url
from tests.unit.consumers.test_replay_worker import insert_row, worker_of
from tests.unit.history.house import BILLING, START_MS, House, some_keys
from tests.unit.metrics.measured_world import Measured, scraped, settings, total
from tests.unit.policy.test_dismissal import dismiss
from tests.unit.policy.world import ENVIRONMENT, TOPIC, key
from tests.unit.producers.test_sweeping import Sweeping
from tests.unit.producers.world import World as ProducerWorld
from tests.unit.service.notice_world import NoticeWorld, listener, webhook
from tests.unit.web.reports import facts_of

Page = dict[str, float]


@cache
def lost_and_repaired() -> Page:
    """END is lost; the loss is proved and repaired."""
    measured = Measured()
    world = measured.world
    world.deliver(2)
    world.lose(1)
    world.rounds(world.process(), 16)
    return measured.page(measured.state())


@cache
def lost_and_dismissed() -> Page:
    """Nothing is left to be sent again, and a person has seen to it."""
    measured = Measured()
    world = measured.world
    world.lose(1)
    world.broker.halves.clear()
    world.rounds(world.process(), 30)
    assert dismiss(world) == {"billing": "dismissed"}
    return measured.page(measured.state())


@cache
def lost_on_hold() -> Page:
    """The same while a person holds the topic: nothing is sent."""
    measured = Measured()
    world = measured.world
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="alice", reason="drill")
    world.lose(1)
    world.rounds(world.process(), 8)
    return measured.page(measured.state())


@cache
def another_content() -> Page:
    """The inbox has the key with another content: a person must look."""
    measured = Measured()
    world = measured.world
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half, content_digest=b"o" * 32)
    world.broker.commit(half)
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1), b"t" * 32)
    world.announce(key(1))
    world.rounds(world.process(), 6, consume=False)
    return measured.page(measured.state())


@cache
def storm() -> Page:
    """Too much becomes lost at once."""
    measured = Measured(breaker=BreakerRules(candidates_min=5))
    for number in range(6):
        measured.world.lose(number)
    measured.world.rounds(measured.world.process(), 3)
    return measured.page(measured.state())


@cache
def wiped() -> Page:
    """Redis loses its memory: the outage is open, and its scan is done."""
    measured = Measured(shards=1)
    world = measured.world
    world.deliver(1)
    process = world.process()
    world.rounds(process, 1)
    world.deliver(2)
    world.consume(records=False)
    world.shards.wipe()
    for report in (world.rounds(process, 1)[0], world.rounds(process, 1)[0]):
        assert report.suspended is not None
        measured.events.suspended(report.subscription)
    world.recovery().run(ENVIRONMENT)
    return measured.page(measured.state())


@cache
def away_and_back() -> Page:
    """Redis is away, and comes back without its memory: the outage is over."""
    measured = Measured(shards=1)
    world = measured.world
    world.deliver(1)
    process = world.process()
    world.rounds(process, 1)
    world.ledger.outages.open(ENVIRONMENT, reason="AWAY", noticed_by="test")
    world.shards.wipe()
    world.recovery().run(ENVIRONMENT)
    world.rounds(process, 1)
    return measured.page(measured.state())


@cache
def foreign_tag() -> Page:
    """A key whose tag the group does not take."""
    measured = Measured(tags={"billing": frozenset({"paid"})})
    measured.world.commit_locally(key(1), tag="noise")
    measured.world.announce(key(1), tag="noise")
    measured.world.rounds(measured.world.process(), 4)
    return measured.page()


@cache
def stopped_shard() -> Page:
    """A shard's key has a wrong type."""
    measured = Measured(shards=1)

    def wrong(_shard: object) -> object:
        raise InvariantViolation("commit is a string")

    measured.world.shards.state = wrong  # type: ignore[method-assign, assignment]  # the accident
    measured.world.rounds(measured.world.process(), 1)
    return measured.page()


@cache
def fallen_back() -> Page:
    """Redis loses the end of what it had acknowledged."""
    measured = Measured(shards=1)
    world = measured.world
    process = world.process()
    world.rounds(process, 1)
    snapshot = world.shards.save()
    world.lose(1)
    world.rounds(process, 2)
    world.shards.restore(snapshot)
    world.rounds(process, 2)
    return measured.page()


@cache
def announcements() -> Page:
    """Announcements come, one of another environment is refused, Redis falls back, the rest waits."""
    world = AnnouncementWorld()
    step = world.step()
    world.topic.send(announcement(key(1)))
    world.run(step)
    saved = world.memory.save()
    world.topic.send(announcement(key(2), environment="elsewhere"))
    world.run(step)
    world.memory.restore(saved)
    world.run_seconds(step, 5)
    for number in range(40):
        world.topic.send(announcement(key(10 + number)))
    step.run_once(next(iter(world.topic.stored)))
    return scraped(MetricBook("run"), announcement_samples(step.states()))


class _Ahead(SystemClock):
    ahead_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.ahead_seconds


@cache
def late_schedule() -> Page:
    """A turn finds Redis away, the next one hangs for a minute."""
    stop, clock = threading.Event(), _Ahead()
    turns, pages = list[int](), list[Page]()

    def turn() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise RedisAway("gone")
        clock.ahead_seconds = 60.0
        pages.append(scraped(MetricBook("sweep"), schedule_samples(runner)))
        stop.set()

    runner = TickRunner([Tick(name="sweep", interval_seconds=0.05, run=turn)], stop=stop, clock=clock)
    runner.run()
    return pages[0]


@cache
def history_without_room() -> Page:
    """Events find no room in memory; rounds are gone before they are captured."""
    with TemporaryDirectory() as folder:
        house = House(Path(folder), event_rows_max=1)
        house.round(0, announced=some_keys(2))
        house.recorder.run_pass()
        for _ in range(5):
            house.round(0, announced=some_keys(2))
        measured = Measured()
        measured.world.lose(1)
        measured.world.lose(2)
        measured.world.rounds(measured.world.process(), 16)
        for event in measured.world.events.all:
            house.sink.emit(event)
        house.recorder.run_pass()
        waiting = house.counters.spool_bytes
        page = scraped(MetricBook("run"), history_samples(house.counters.as_dict()))
        house.dies()
    seen = SubscriptionHistory(subscription=BILLING, rounds=1, captured_until_ms=START_MS, captured_ms={}, gaps=0)
    overview = HistoryOverview(
        entries=0, files=0, rows=0, size_bytes=0, spool_bytes=waiting, subscriptions=(seen,), problems=()
    )
    report = replace(measured.report(), history=overview)
    return page | scraped(MetricBook("run"), status_samples(report, settings()))


@cache
def traced() -> Page:
    """The collector has been away since it took one span."""
    book = MetricBook("run")
    metering = Metering(book, EventMetrics(book), clock=SystemClock())
    with metering.reading_spans(lambda: asdict(SpanCounts(made=3, sent=1))):
        return scraped(book)


@cache
def dead_producer() -> Page:
    """A producer died after its commit: the sweep announces its row."""
    with TemporaryDirectory() as folder:
        world = ProducerWorld(sqlite_url(Path(folder)))
        sweeping = Sweeping(world)
        world.insert_row("AB" * 16, created_at_ms=sweeping.now_ms() - 60_000)
        book = MetricBook("sweep")
        metering = Metering(book, EventMetrics(MetricBook("run")), clock=SystemClock())
        metering.swept(sweeping.sweeper().sweep_once(), took_seconds=0.25)
        world.close()
    return scraped(book)


@cache
def poisoned_outbox() -> Page:
    """Another release or language wrote rows whose keys are none."""
    with TemporaryDirectory() as folder:
        world = ProducerWorld(sqlite_url(Path(folder)))
        for number in range(3):
            world.insert_row(f"no key {number}")
        book = MetricBook("sweep")
        metering = Metering(book, EventMetrics(MetricBook("run")), clock=SystemClock())
        metering.swept(Sweeping(world).sweeper().sweep_once(), took_seconds=0.25)
        world.close()
    return scraped(book)


@cache
def handed_over() -> Page:
    """A hand-over whose handler refuses, and one that takes effect."""
    with TemporaryDirectory() as folder, inbox_engine(sqlite_url(Path(folder))) as engine:
        ledger_metadata.create_all(engine)
        insert_row(engine, key(1))
        worker = worker_of(engine)
        stop = threading.Event()

        class Once(SystemClock):
            def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
                stop.set()
                return True

        worker._clock = Once()
        worker.run(stop)
        book = MetricBook("replay")
        metering = Metering(book, EventMetrics(MetricBook("run")), clock=SystemClock())
        with metering.reading_worker(worker, settings().subscriptions[0]):
            return scraped(book)


@cache
def process() -> Page:
    """Any process: which release it is, what answers, how long reading took."""

    def slowly() -> StatusReport:
        clock.sleep(0.01)
        return Measured().report()

    clock = SystemClock()
    status = LatestReading(slowly, clock=clock, interval_seconds=10)
    samples = [*build_samples(), *dependency_samples({"redis": None}), *report_samples(status, settings())]
    return scraped(MetricBook("run"), samples)


@cache
def refused_notice() -> Page:
    """A loss is proved, and the receiver of notices has another secret."""
    with TemporaryDirectory() as folder, receiving(lambda _: Reply(status=401)) as receiver:
        told = NoticeWorld(Path(folder))
        service = told.service(listener(webhook(receiver.url)))
        told.turn(service)
        told.clock.advance(1)
        told.lose(1)
        for _ in range(3):
            told.turn(service, seconds=5)
        told.engine.dispose()
        return scraped(MetricBook("run"), notice_samples(service))


@cache
def renamed_producer_group() -> Page:
    """Its rows wait in an outbox, and no section names it."""
    measured = Measured()
    told = replace(measured.report(), unswept=facts_of("1 commits of old-orders to ORDERS wait"))
    return measured.page(status_samples(told, settings()))


ACCIDENTS: dict[Metric, Callable[[], Page]] = {
    c.ACCOUNTED_UNTIL: lost_and_repaired,
    c.UNSWEPT: renamed_producer_group,
    c.STATE_UP: process,
    c.STATE_READ: process,
    c.DEPENDENCY_UP: process,
    c.PENDING: lost_on_hold,
    c.OLDEST_PENDING: lost_on_hold,
    c.WATERMARK: lost_on_hold,
    c.LAST_ROUND: lost_on_hold,
    c.OPEN: lost_on_hold,
    c.LOST: lost_on_hold,
    c.REPAIRED: lost_and_repaired,
    c.QUARANTINED: another_content,
    c.REPAIR_ROWS: lost_on_hold,
    c.HOLD: lost_on_hold,
    c.BREAKER_OPEN: storm,
    c.OUTAGE_OPEN: wiped,
    c.HISTORY_SPOOL: history_without_room,
    c.HISTORY_UNTIL: history_without_room,
    c.ADMITTED: announcements,
    c.REFUSED: announcements,
    c.REWINDS: announcements,
    c.ANNOUNCEMENT_QUEUES: announcements,
    c.ANNOUNCEMENTS_BEHIND: announcements,
    c.ROUNDS: lost_and_repaired,
    c.ROUND_DURATION: lost_and_repaired,
    c.SHARDS_OWNED: lost_and_repaired,
    c.ANNOUNCED: lost_and_repaired,
    c.MATCHED: lost_and_repaired,
    c.NOT_TAKEN: foreign_tag,
    c.SHARDS_STOPPED: stopped_shard,
    c.ROUNDS_VOIDED: fallen_back,
    c.OUTAGES: away_and_back,
    c.RECOVERED: wiped,
    c.TURNS_MISSED: late_schedule,
    c.LATENESS: late_schedule,
    c.VERDICTS: lost_and_repaired,
    c.LOSSES: lost_and_repaired,
    c.DETECTION: lost_and_repaired,
    c.LOOK_UPS: lost_and_repaired,
    c.LOOK_UP_DURATION: lost_and_repaired,
    c.REPAIR_STEPS: lost_and_repaired,
    c.REPAIR_TIME: lost_and_repaired,
    c.BREAKER_OPENINGS: storm,
    c.HISTORY_WRITTEN: history_without_room,
    c.HISTORY_DROPPED: history_without_room,
    c.HISTORY_MISSED: history_without_room,
    c.SWEEPS: dead_producer,
    c.SWEEP_DURATION: dead_producer,
    c.LAST_SWEEP: dead_producer,
    c.SWEPT_ROWS: dead_producer,
    c.SWEEP_WALK: poisoned_outbox,
    c.HAND_OVERS: handed_over,
    c.SPANS: traced,
    c.NOTICES: refused_notice,
    c.OLDEST_NOTICE: refused_notice,
    c.BUILD_INFO: process,
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_that_no_accident_moves_would_show_nothing_when_it_matters(metric: Metric) -> None:
    assert total(ACCIDENTS[metric](), metric) > 0


def test_numbers_of_one_loss_are_those_of_the_ledger() -> None:
    place = "consumer_group=billing,topic=ORDERS"
    held, repaired, dismissed = lost_on_hold(), lost_and_repaired(), lost_and_dismissed()
    assert dismissed[f"reconciler_repaired_ids{{{place}}}"] == 0
    assert dismissed[f"reconciler_quarantined_ids{{{place}}}"] == 0
    assert held[f"reconciler_lost_ids{{{place}}}"] == 1
    assert held[f"reconciler_repaired_ids{{{place}}}"] == 0
    assert held[f"reconciler_open_ids{{{place},verdict=lost_confirm}}"] == 1
    assert held[f"reconciler_pending_ids{{{place}}}"] == 1
    assert held["reconciler_hold{topic=ORDERS}"] == 1
    assert held["reconciler_breaker_open{topic=ORDERS}"] == 0
    assert repaired[f"reconciler_lost_ids{{{place}}}"] == 0
    assert repaired[f"reconciler_repaired_ids{{{place}}}"] == 1
    assert repaired[f"reconciler_losses_total{{{place},verdict=lost_confirm}}"] == 1, "told at each look, lost once"
    assert repaired["reconciler_repairs_total{outcome=done,rung=end,topic=ORDERS}"] == 1
    assert repaired["reconciler_lookup_duration_seconds_sum{kind=committed}"] >= 1.0


def test_memory_lost_while_redis_is_away_is_counted_once_and_as_lost() -> None:
    page = away_and_back()
    reasons = {name: value for name, value in page.items() if name.startswith("reconciler_outages_total") and value}
    assert reasons == {"reconciler_outages_total{reason=memory_lost}": 1}
    assert total(page, c.OUTAGE_OPEN) == 0


def test_the_breaker_and_a_hold_are_two_things() -> None:
    assert storm()["reconciler_hold{topic=ORDERS}"] == 0
    assert storm()["reconciler_breaker_open{topic=ORDERS}"] == 1


def test_calm_shows_no_loss_and_no_brake() -> None:
    measured = Measured()
    measured.world.deliver(1)
    measured.world.rounds(measured.world.process(), 6)
    page = measured.page(measured.state())
    alarms = (c.LOST, c.QUARANTINED, c.HOLD, c.BREAKER_OPEN, c.OUTAGE_OPEN, c.OPEN, c.LOSSES, c.OUTAGES, c.REPAIR_ROWS)
    assert {metric.name: total(page, metric) for metric in alarms} == dict.fromkeys((m.name for m in alarms), 0)
    assert total(page, c.ROUNDS) == 6


def test_a_ledger_that_is_away_is_told_and_shows_no_zero() -> None:
    def away() -> StatusReport | None:
        return None

    status = LatestReading(away, clock=SystemClock(), interval_seconds=10)
    page = scraped(MetricBook("run"), report_samples(status, settings()))
    assert page["reconciler_state_up"] == 0
    assert not {name.partition("{")[0] for name in page} & {c.LOST.name, c.PENDING.name, c.ACCOUNTED_UNTIL.name}


def test_what_is_not_known_of_a_subscription_is_absent() -> None:
    measured = Measured()
    (one,) = measured.report().subscriptions
    unknown = replace(
        one, pending=None, oldest_pending_ms=None, last_round_ms=None, accounted=replace(one.accounted, until_ms=None)
    )
    page = measured.page(status_samples(replace(measured.report(), subscriptions=(unknown,)), settings()))
    absent = {c.PENDING.name, c.OLDEST_PENDING.name, c.LAST_ROUND.name, c.ACCOUNTED_UNTIL.name}
    assert not {name.partition("{")[0] for name in page} & absent


def test_a_dependency_that_raises_is_0_and_its_word_is_kept_for_readyz() -> None:
    def away() -> None:
        raise DatabaseAway("connection refused")

    results = results_of({"ledger": away, "redis": lambda: None})
    assert results == {"ledger": "connection refused", "redis": None}
    page = scraped(MetricBook("run"), dependency_samples(results))
    assert page["reconciler_dependency_up{dependency=ledger}"] == 0
    assert page["reconciler_dependency_up{dependency=redis}"] == 1


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    for accident in set(ACCIDENTS.values()):
        accident.cache_clear()  # type: ignore[attr-defined]  # functools.cache


def test_a_new_question_to_brokers_is_not_lost_behind_the_measuring_witness() -> None:
    asked = {name for name in vars(BrokerEvidence) if not name.startswith("_")}
    witness = MeasuredBrokerEvidence(Measured().world.broker, MetricBook("run"), clock=SystemClock())
    assert {name for name in asked if not callable(getattr(witness, name, None))} == set()
