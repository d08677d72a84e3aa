"""Low watermark of a group: one queue that is not known shuts the gate, and nothing opens it wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.contract.queue_proof import QueueRecord
from reconciler.evidence.queue_ends import QueueEnds
from reconciler.evidence.reused_offsets import LOOK_SECONDS, PROVED, ReusedOffsets
from reconciler.evidence.watermark import Watermarks
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.evidence import WatermarkState
from reconciler.rocketmq.wire.codes import MQVersion, RequestCode, pop_retry_topics
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.sql.engines import writing
from reconciler.sql.tables import ledger_metadata
from tests.engines import with_tables
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

NOW_MS = 1_700_000_000_000
MARGIN_SECONDS = 10.0
CAUGHT_UP_MS = NOW_MS - 10_000
POP_RETRY_TOPIC = pop_retry_topics("Orders", "CG")[0]

#: (topic, queue) -> (consumer offset or None, minimum, maximum)
Positions = dict[tuple[str, int], tuple[int | None, int, int]]


def _keeps(broker: ScriptedBroker, positions: Positions, *, store_time_ms: Callable[[int], int]) -> None:
    def of(request: Command) -> tuple[int | None, int, int]:
        return positions[request.fields["topic"], int(request.fields["queueId"])]

    def group_offset(request: Command) -> Command:
        offset = of(request)[0]
        return broker.refuse(request, 22) if offset is None else broker.success(request, {"offset": str(offset)})

    def pull(request: Command) -> Command:
        at, (_, minimum, maximum) = int(request.fields["queueOffset"]), of(request)
        fields = {"minOffset": str(minimum), "maxOffset": str(maximum)}
        if not minimum <= at < maximum:
            return reply_to(request, 21, fields={"nextBeginOffset": str(min(max(at, minimum), maximum)), **fields})
        body = encode_record(record(queue_offset=at, store_timestamp_ms=store_time_ms(at)))
        return broker.success(request, {"nextBeginOffset": str(at + 1), **fields}, body)

    broker.on(RequestCode.QUERY_CONSUMER_OFFSET, group_offset)
    broker.on(RequestCode.GET_MIN_OFFSET, lambda request: broker.success(request, {"offset": str(of(request)[1])}))
    broker.on(RequestCode.GET_MAX_OFFSET, lambda request: broker.success(request, {"offset": str(of(request)[2])}))
    broker.on(RequestCode.PULL_MESSAGE, pull)


def _cluster(positions: Positions, *, brokers: int = 1, version: int = MQVersion.V5_3_3) -> ScriptedCluster:
    cluster = ScriptedCluster(versions=(version,) * brokers, clock=ManualClock(NOW_MS))
    for broker in cluster.brokers:
        for topic in {topic for topic, _ in positions}:
            cluster.name_server.place(topic, broker, queues=sum(topic == other for other, _ in positions))
        _keeps(broker, positions, store_time_ms=lambda offset: NOW_MS - 60_000 + offset)
    return cluster


def _watermarks(cluster: ScriptedCluster) -> Watermarks:
    return Watermarks(cluster.client, cluster.routes, cluster.families)


def _watermark(cluster: ScriptedCluster) -> tuple[WatermarkState, int]:
    found = _watermarks(cluster).watermark(
        "Orders", "CG", skew_margin_seconds=MARGIN_SECONDS, pop_retry_topics=[POP_RETRY_TOPIC]
    )
    return found.state, found.at_ms


@pytest.mark.parametrize(
    ("positions", "expected_ms"),
    [
        pytest.param({("Orders", 0): (7, 0, 7)}, CAUGHT_UP_MS, id="consumed to its end"),
        pytest.param({("Orders", 0): (9, 0, 7)}, None, id="beyond its end, which was lost"),
        pytest.param({("Orders", 0): (None, 0, 0)}, CAUGHT_UP_MS, id="empty, no offset (5.x answers 22)"),
        pytest.param({("Orders", 0): (0, 0, 0)}, CAUGHT_UP_MS, id="empty, offset 0 (older brokers)"),
        pytest.param({("Orders", 0): (None, 5, 5)}, CAUGHT_UP_MS, id="all deleted"),
        pytest.param({("Orders", 0): (0, -1, 0)}, CAUGHT_UP_MS, id="never written: minimum -1"),
        pytest.param({("Orders", 0): (3, 0, 7)}, NOW_MS - 59_997, id="lags"),
        pytest.param({("Orders", 0): (3, 5, 7)}, NOW_MS - 59_995, id="what it wants next is deleted"),
        pytest.param({("Orders", 0): (7, 0, 7), ("Orders", 1): (2, 0, 7)}, NOW_MS - 59_998, id="one of two lags"),
        pytest.param({("Orders", 0): (2, 0, 7), ("Orders", 1): (4, 0, 7)}, NOW_MS - 59_998, id="the first lags more"),
        pytest.param({("Orders", 0): (4, 0, 7), ("Orders", 1): (2, 0, 7)}, NOW_MS - 59_998, id="the second lags more"),
        pytest.param({("Orders", 0): (7, 0, 7), ("%RETRY%CG", 0): (1, 0, 2)}, NOW_MS - 59_999, id="retries wait"),
        pytest.param({("Orders", 0): (7, 0, 7), ("%RETRY%CG", 0): (2, 0, 2)}, CAUGHT_UP_MS, id="retries consumed"),
        pytest.param({("Orders", 0): (None, 0, 7)}, None, id="no offset where messages wait"),
        pytest.param({("Orders", 0): (0, 0, 7)}, NOW_MS - 60_000, id="offset 0 where messages wait"),
        pytest.param(
            {("Orders", 0): (7, 0, 7), (POP_RETRY_TOPIC, 0): (0, 0, 2)},
            NOW_MS - 60_000,
            id="nothing of POP's popped again",
        ),
        pytest.param({("Orders", 0): (7, 0, 7), ("%RETRY%CG", 0): (None, 0, 2)}, None, id="no offset for retries"),
    ],
)
def test_the_watermark_follows_the_slowest_queue(positions: Positions, expected_ms: int | None) -> None:
    with _cluster(positions) as cluster:
        expected = (WatermarkState.UNKNOWN, 0) if expected_ms is None else (WatermarkState.KNOWN, expected_ms)
        assert _watermark(cluster) == expected


def test_what_is_stored_while_a_broker_takes_its_time_is_not_behind_the_watermark() -> None:
    """Nor does it put a group that has consumed it by then ahead of the end that was told."""
    positions: Positions = {("Orders", 0): (7, 0, 7)}
    with _cluster(positions) as cluster:
        end, broker = cluster.broker.handlers[RequestCode.GET_MAX_OFFSET], cluster.broker

        def slowly(request: Command) -> Command | bytes | None:
            answer = end(request)
            cluster.clock.sleep(2)
            positions["Orders", 0] = (8, 0, 8)
            return answer

        broker.on(RequestCode.GET_MAX_OFFSET, slowly)
        assert _watermark(cluster) == (WatermarkState.KNOWN, CAUGHT_UP_MS)


@pytest.mark.parametrize("offsets", [(2, 4), (4, 2)])
def test_what_waits_is_counted_in_every_queue_and_since_the_oldest(offsets: tuple[int, int]) -> None:
    with _cluster({("Orders", queue): (offset, 0, 7) for queue, offset in enumerate(offsets)}) as cluster:
        found = _watermarks(cluster).watermark("Orders", "CG", skew_margin_seconds=MARGIN_SECONDS)
        assert (found.waiting, found.waiting_since_ms) == (8, NOW_MS - 59_998)


def test_a_broker_that_refuses_keeps_no_other_from_telling_where_its_queues_end() -> None:
    with _cluster({("Orders", 0): (7, 0, 7)}, brokers=2) as cluster:
        first = cluster.broker
        first.on(RequestCode.GET_MAX_OFFSET, lambda request: first.refuse(request, 1, "broken"))
        found, silent = QueueEnds(cluster.client, cluster.routes).of_topic("Orders", {})
        assert ([(end.queue.broker_name, end.end) for end in found], list(silent)) == ([("broker-b", 7)], ["broker-a"])


@pytest.mark.parametrize(
    ("offset", "version", "lacks"),
    [
        (0, MQVersion.V4_9_8, True),
        (None, MQVersion.V5_3_3, True),
        (0, MQVersion.V5_3_3, False),
        (9, MQVersion.V5_3_3, False),
    ],
    ids=["0 of an older broker", "none", "0", "beyond the end"],
)
def test_a_watermark_says_whether_it_is_unknown_for_want_of_an_offset(
    offset: int | None, version: int, lacks: bool
) -> None:
    with _cluster({("Orders", 0): (offset, 0, 7)}, version=version) as cluster:
        found = _watermarks(cluster).watermark("Orders", "CG", skew_margin_seconds=MARGIN_SECONDS)
        assert found.lacks_offset is lacks
        assert not lacks or (found.state, found.at_ms) == (WatermarkState.UNKNOWN, 0)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.PULL_MESSAGE,
    ],
)
def test_one_question_without_an_answer_makes_it_unknown(code: RequestCode) -> None:
    with _cluster({("Orders", 0): (3, 0, 7)}) as cluster:
        cluster.broker.on(code, lambda request: cluster.broker.refuse(request, 1, "broken"))
        assert _watermark(cluster)[0] is WatermarkState.UNKNOWN
        cluster.be_impatient()
        cluster.broker.on(code, lambda _: None)
        assert _watermark(cluster)[0] is WatermarkState.UNKNOWN


def test_a_broker_that_is_away_makes_it_unknown() -> None:
    with _cluster({("Orders", 0): (7, 0, 7)}, brokers=2) as cluster:
        assert _watermark(cluster)[0] is WatermarkState.KNOWN
        cluster.brokers[1].close()
        assert _watermark(cluster)[0] is WatermarkState.UNKNOWN
        del cluster.name_server.routes["Orders"]["broker-b"]
        del cluster.name_server.cluster["broker-b"]
        assert _watermark(cluster)[0] is WatermarkState.UNKNOWN
        assert _watermarks(cluster).positions("Orders", "CG") is None


def test_positions_name_every_queue() -> None:
    with _cluster({("Orders", 0): (7, 0, 7), ("%RETRY%CG", 0): (None, 0, 0)}) as cluster:
        positions = _watermarks(cluster).positions("Orders", "CG")
        assert positions is not None
        assert [(one.topic, one.queue_id, one.consumer_offset, one.max_offset) for one in positions] == [
            ("Orders", 0, 7, 7),
            ("%RETRY%CG", 0, None, 0),
        ]


# ---- queues that give offsets a second time


class Tail:
    """One queue whose records the test replaces."""

    def __init__(self) -> None:
        self.positions: Positions = {("Orders", 0): (100, 0, 100)}
        self.lived = 0

    def store_time_ms(self, offset: int) -> int:
        return NOW_MS - 60_000 + offset + (1_000 * self.lived if offset >= 90 else 0)

    def lose(self, *, consumer_offset: int, end: int) -> None:
        """Offsets from 90 on are given again."""
        self.lived += 1
        self.positions["Orders", 0] = (consumer_offset, 0, end)


@pytest.fixture
def tail() -> Tail:
    return Tail()


@dataclass
class Watched:
    """One broker with that queue."""

    cluster: ScriptedCluster
    watermarks: Watermarks
    clock: ManualClock

    def doubtful_below(self) -> int:
        positions = self.watermarks.positions("Orders", "CG")
        assert positions is not None
        return positions[0].doubtful_below


@pytest.fixture
def watched(tail: Tail) -> Iterator[Watched]:
    clock = ManualClock(NOW_MS)
    cluster = ScriptedCluster(versions=(MQVersion.V5_3_3,), clock=clock)
    for broker in cluster.brokers:
        cluster.name_server.place("Orders", broker, queues=1)
        _keeps(broker, tail.positions, store_time_ms=tail.store_time_ms)
    with cluster:
        yield Watched(cluster, _watermarks(cluster), clock)


def test_a_queue_that_ends_before_what_was_seen_proves_nothing_of_what_it_holds(tail: Tail, watched: Watched) -> None:
    assert watched.doubtful_below() == 0
    tail.lose(consumer_offset=90, end=90)
    assert watched.doubtful_below() == 100
    tail.positions["Orders", 0] = (120, 0, 130)
    assert watched.doubtful_below() == 130
    watched.clock.advance(LOOK_SECONDS)
    tail.positions["Orders", 0] = (130, 0, 140)
    assert watched.doubtful_below() == 140
    tail.positions["Orders", 0] = (150, 0, 150)
    assert watched.doubtful_below() == 140, "what is stored from then on is proved"


def test_an_end_that_another_thread_has_overtaken_is_no_lost_tail() -> None:
    def look(offset: int) -> QueueRecord | None:
        record = QueueRecord(queue_offset=offset, stored_at_ms=NOW_MS, commit_log_offset=offset, unique_key="K")
        return record if offset < 105 else None

    reused, place = ReusedOffsets(ManualClock(NOW_MS)), ("Orders", "broker-a", 0)
    proved = [reused.proved_from(place, group="CG", consumer_offset=90, end=end, look=look) for end in (105, 100, 105)]
    assert proved == [PROVED] * 3


def test_a_record_that_is_not_shown_is_asked_for_no_more_often_than_any_other() -> None:
    asked: list[int] = []
    clock = ManualClock(NOW_MS)
    reused, place = ReusedOffsets(clock), ("Orders", "broker-a", 0)
    for _ in range(100):
        assert reused.proved_from(place, group="CG", consumer_offset=90, end=100, look=asked.append) == PROVED
        clock.advance(1)
    assert len(asked) == 4, "at 0, 30, 60 and 90 s"


def test_a_queue_with_another_record_at_a_remembered_offset_proves_nothing_below_what_was_seen(
    tail: Tail, watched: Watched
) -> None:
    assert watched.doubtful_below() == 0
    tail.lose(consumer_offset=100, end=140)
    watched.clock.advance(LOOK_SECONDS)
    assert watched.doubtful_below() == 140


def test_a_queue_that_grows_and_loses_old_records_by_age_is_no_other_queue(tail: Tail, watched: Watched) -> None:
    for begin, end in ((0, 100), (0, 140), (120, 180), (180, 180), (180, 200)):
        tail.positions["Orders", 0] = (end, begin, end)
        assert watched.doubtful_below() == 0
        watched.clock.advance(LOOK_SECONDS)


def test_an_offset_of_a_group_behind_the_end_of_the_queue_is_of_a_queue_that_is_no_more(
    tail: Tail, watched: Watched
) -> None:
    tail.lose(consumer_offset=100, end=95)
    assert watched.doubtful_below() == 100
    tail.positions["Orders", 0] = (100, 0, 130)
    assert watched.doubtful_below() == 130


def test_a_broker_that_shows_no_record_is_believed_as_before(tail: Tail, watched: Watched) -> None:
    (broker,) = watched.cluster.brokers
    broker.on(RequestCode.PULL_MESSAGE, lambda request: broker.refuse(request, 16))
    for end in (100, 140):
        tail.positions["Orders", 0] = (end, 0, end)
        assert watched.doubtful_below() == 0
        watched.clock.advance(LOOK_SECONDS)


# ---- and processes that are started again


def started(cluster: ScriptedCluster, clock: ManualClock, ledger: SqlLedger, *, has_rounds: bool = True) -> Watched:
    """A process that begins with what the ledger has."""
    reused = ReusedOffsets(clock, kept=ledger.seen_queues, environment="test")
    if has_rounds:
        reused.begin_to_keep()
    watermarks = Watermarks(cluster.client, cluster.routes, cluster.families, reused=reused)
    return Watched(cluster, watermarks, clock)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with with_tables(f"sqlite:///{tmp_path}/ledger.db", ledger_metadata) as engine:
        yield SqlLedger(engine)


@pytest.mark.parametrize("end", [95, 140])
def test_a_tail_that_was_lost_while_no_process_ran_makes_offsets_of_groups_prove_something(
    tail: Tail, watched: Watched, ledger: SqlLedger, end: int
) -> None:
    first = started(watched.cluster, watched.clock, ledger)
    assert first.doubtful_below() == 0
    tail.lose(consumer_offset=90, end=end)  # the first process is gone
    second = started(watched.cluster, watched.clock, ledger)
    assert second.doubtful_below() == max(100, end)
    third = started(watched.cluster, watched.clock, ledger)
    tail.positions["Orders", 0] = (140, 0, 180)
    assert third.doubtful_below() == 180, "a doubt is kept, too"


def test_a_queue_that_went_on_while_no_process_ran_is_doubted(tail: Tail, watched: Watched, ledger: SqlLedger) -> None:
    for begin, end in ((0, 100), (0, 140), (120, 180), (180, 180), (180, 200)):
        tail.positions["Orders", 0] = (end, begin, end)
        assert started(watched.cluster, watched.clock, ledger).doubtful_below() == 0


def test_a_command_that_only_looks_writes_into_the_ledger(tail: Tail, watched: Watched, ledger: SqlLedger) -> None:
    assert started(watched.cluster, watched.clock, ledger, has_rounds=False).doubtful_below() == 0
    assert ledger.seen_queues.of_topic("test", "Orders") == {}
    started(watched.cluster, watched.clock, ledger).doubtful_below()
    tail.lose(consumer_offset=90, end=95)
    assert started(watched.cluster, watched.clock, ledger, has_rounds=False).doubtful_below() == 100
    kept = ledger.seen_queues.of_topic("test", "Orders")["broker-a", 0]
    assert (kept.end, kept.doubtful_below) == (100, 0)


def test_a_ledger_that_cannot_keep_what_was_seen_stops_no_round(
    tail: Tail, watched: Watched, ledger: SqlLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """It was not upgraded, or is away: as before, this process knows what it has seen itself."""
    with writing(ledger.database.engine) as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_floor DROP COLUMN proof")
    first = started(watched.cluster, watched.clock, ledger)
    assert first.doubtful_below() == 0
    with writing(ledger.database.engine) as connection:
        connection.exec_driver_sql("DROP TABLE reconciler_floor")
    tail.lose(consumer_offset=90, end=95)
    assert first.doubtful_below() == 100
    second = started(watched.cluster, watched.clock, ledger)
    assert second.doubtful_below() == 0
    assert caplog.text.count("column_missing") == 1
