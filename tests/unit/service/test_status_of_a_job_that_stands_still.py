"""H55: the job is not running, and "0 lost" is all that is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock, SystemClock
from reconciler.commands.status.damage import refused_announcements
from reconciler.commands.status.standstill import (
    history_behind,
    history_never_written,
    open_outage,
    unrepaired,
    unrepaired_by_clocks,
)
from reconciler.contract.answers import ANSWER, INDEX_BEHIND, NO_HIT
from reconciler.contract.reasons import COPIES_UNKNOWN
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ConfigurationError
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.plan import SubscriptionPlan
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement
from reconciler.policy.ports.ledger import Outage, RepairChange, VerdictEntry
from reconciler.policy.ports.rounds import RoundCounts, RoundDone
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox, outbox_identity, outbox_metadata
from reconciler.telling.account import OutboxReading
from reconciler.telling.ports.reports import StoredRound
from reconciler.testing.memory import MemoryLedger
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.unit.policy.fake_databases import FakeInbox
from tests.unit.policy.world import World

ROOT = Path(__file__).parents[3]
SUBSCRIPTION = Subscription(environment="production", topic="ORDERS", group="billing")


def outage(**changes: object) -> Outage:
    calm = {
        "environment": "production", "started_at_ms": 1_700_000_000_000, "reason": "AWAY", "scan_position": None,
        "scanned": 0, "closed_at_ms": None,
    }  # fmt: skip
    return Outage(**{**calm, **changes})  # type: ignore[arg-type]  # fields by name


def test_an_open_outage_is_no_calm_although_the_last_round_is_young() -> None:
    (line,) = open_outage(outage())
    assert "since 2023-11-14T22:13:20Z (AWAY)" in said(line)
    assert "rounds wait for Redis" in said(line)
    assert "are scanned" in said(open_outage(outage(scan_position={"complete": True}))[0])
    assert open_outage(outage(closed_at_ms=1_700_000_001_000)) == []
    assert open_outage(None) == []


def stored(number: int, generation: int, *, at_ms: int = 1, is_void: bool = False) -> StoredRound:
    shard = Shard(subscription=SUBSCRIPTION, number=number)
    counts = RoundCounts(
        announced=0, matched=0, pending_before=0, pending_added=0, pending_matched=0, pending_after=0
    )  # fmt: skip
    done = RoundDone(shard=shard, epoch="e", generation=generation, at_ms=at_ms, offsets={}, counts=counts)
    return StoredRound(done=done, is_void=is_void, stored_at_ms=1)


@pytest.mark.parametrize(
    ("captured_ms", "told"),
    [
        ({0: 700_000, 1: 100_000}, True),
        ({0: 99_999, 1: 700_000}, True),
        ({0: 100_000, 1: 700_000}, False),
        ({1: 700_000}, False),
        ({}, False),
    ],
)
def test_a_history_that_cannot_be_written_does_not_wait_for_the_auditor(
    captured_ms: dict[int, int], *, told: bool
) -> None:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_HISTORY__PATH": "/history"})
    assert settings.history.seal_seconds == 300
    rounds = [stored(0, 5, at_ms=700_000), stored(1, 5, at_ms=700_001), stored(1, 6, at_ms=9_000_000, is_void=True)]
    late = history_behind(settings, SUBSCRIPTION, rounds, captured_ms, within_seconds=None)
    ends = f"the history of {SUBSCRIPTION} ends 600 s before its last round"
    assert [said(line).partition(":")[0] for line in late] == [ends] * told
    assert history_behind(settings, SUBSCRIPTION, rounds, {0: 350_000}, within_seconds=50.0) == []
    assert history_behind(settings, SUBSCRIPTION, rounds, {0: 349_999}, within_seconds=50.0) != []


@pytest.mark.parametrize(
    ("since_ms", "spooled_seconds_ago", "told"),
    [
        (0, None, True),
        (None, None, True),
        (99_999, 601.0, True),
        (100_000, None, False),  # there was no time to seal a round
        (0, 600.0, False),  # `run` has just begun to write
    ],
)
def test_a_history_that_was_never_written_does_not_wait_for_the_auditor(
    since_ms: int | None, spooled_seconds_ago: float | None, *, told: bool
) -> None:
    settings = load_settings(ROOT / "config" / "reconciler.toml", {"RECONCILER_HISTORY__PATH": "/history"})
    rounds = [stored(0, 5, at_ms=700_000), stored(1, 6, at_ms=9_000_000, is_void=True)]
    late = history_never_written(
        settings, SUBSCRIPTION, rounds, since_ms=since_ms, spooled_seconds_ago=spooled_seconds_ago, within_seconds=None
    )
    nothing = f"nothing is in the history of {SUBSCRIPTION} in /history, although rounds run"
    assert [said(line).partition(":")[0] for line in late] == [nothing] * told


def test_a_loss_that_was_proved_and_never_got_a_repair_is_told() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    key, shard = "A" * 32, Shard(subscription=SUBSCRIPTION, number=0)
    loss = VerdictEntry(
        unique_key=key, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=clock.now_ms(),
        state=CandidateState.OPEN, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(shard, [loss])

    def told(within_seconds: float | None = None) -> list[str]:
        settings = load_settings(ROOT / "config" / "reconciler.toml", {})
        lines = unrepaired(
            settings, SUBSCRIPTION, candidates=ledger.candidates, repairs=ledger.repairs, now_ms=clock.now_ms(),
            within_seconds=within_seconds,
        )  # fmt: skip
        return [said(line) for line in lines]

    clock.advance(200)
    assert told() == [], "the turn may be under way"
    assert len(told(100.0)) == 1, "a monitor's own time"
    clock.advance(200)
    (line,) = told()
    assert line.startswith("1 losses of")
    assert key in line
    clock.step_wall(-86_400.0)
    assert len(told()) == 1, "Redis, whose clock dated it, is a day ahead"
    clock.step_wall(86_400.0)
    ledger.repairs.open(SUBSCRIPTION.environment, SUBSCRIPTION.topic, key, rung=Rung.END)
    assert told() == []


def test_a_repair_that_waits_for_a_brokers_clock_is_told_once_it_waits_for_long() -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    settings = load_settings(ROOT / "config" / "reconciler.toml", {})
    behind = INDEX_BEHIND(detail=NO_HIT(), seconds="10800.0")
    answers = {
        "A" * 32: COPIES_UNKNOWN(why=ANSWER(witness="broker-a", presence="UNKNOWN", detail=behind)),
        "B" * 32: COPIES_UNKNOWN(why=ANSWER(witness="broker-a", presence="UNKNOWN", detail=NO_HIT())),
    }
    for key in answers:
        ledger.repairs.open("production", "ORDERS", key, rung=Rung.END)

    def looks() -> None:
        for key, answer in answers.items():
            ((repair,),) = ledger.repairs.of_keys("production", "ORDERS", [key]).values()
            assert ledger.repairs.claim(repair, token=key, lease_seconds=60.0) is not None
            change = RepairChange(state=RepairState.OPEN, rung=Rung.END, answer=answer)
            assert ledger.repairs.change(repair, change, token=key) is not None

    def told(within_seconds: float | None = None) -> list[str]:
        lines = unrepaired_by_clocks(
            settings, ["ORDERS", "INVOICES"], reports=ledger.reports, now_ms=clock.now_ms(),
            within_seconds=within_seconds,
        )  # fmt: skip
        return [said(line) for line in lines]

    looks()
    clock.advance(200)
    looks()
    assert told() == []
    clock.advance(200)
    assert told() == [], "a brake kept it from another look, and its next one may find that the clock has come so far"
    assert len(told(100.0)) == 1, "a monitor's own time"
    looks()
    (line,) = told()
    assert line.startswith(f"1 repairs of ORDERS wait for a broker's clock, {'A' * 32} the oldest: ")
    assert "by its own clock 10800.0 s are missing" in line


@pytest.mark.parametrize(
    ("offset", "seconds_ago", "shard", "told"),
    [(400, 10, 0, True), (499, 3_500, 0, True), (399, 10, 0, False), (499, 3_700, 0, False), (499, 10, 1, False)],
)
def test_announcements_that_are_all_refused_are_no_calm(
    offset: int, seconds_ago: float, shard: int, *, told: bool
) -> None:
    clock = ManualClock()
    ledger = MemoryLedger(clock)
    queue = AnnouncementQueue(unique_key_topic="KEYS", broker="a/b", queue_id=0)
    refused = RefusedAnnouncement(
        queue=queue, queue_offset=offset, reason="SIGNATURE", detail="the message has no signature", body=b""
    )
    ledger.announcements.quarantine("production", [refused])
    clock.advance(seconds_ago)
    done = replace(stored(shard, 5).done, offsets={"a/b/0": 500, "a/b/1": 7, "no queue": 9})
    rounds = [StoredRound(done=done, is_void=False, stored_at_ms=1)]
    lines = list(refused_announcements(ledger.reports, "production", "KEYS", rounds, now_ms=clock.now_ms()))
    words = "were refused, and what they tell of passes by unseen: SIGNATURE: the message has no signature"
    assert [said(line).partition(" (")[0] for line in lines] == [f"1 of the last announcements on KEYS {words}"] * told


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Connections, sa.Engine]]:
    """A service's outbox and what `status` reads it with."""
    url = f"sqlite:///{tmp_path}/shop.db"
    environ = {"RECONCILER_PRODUCERS": f'[{{"group": "shop", "topics": ["ORDERS"], "outbox_url": "{url}"}}]'}
    engine = open_engine(url)
    outbox_metadata.create_all(engine)
    ensure_identity(engine)
    with Connections(load_settings(ROOT / "config" / "reconciler.toml", environ)) as connections:
        yield connections, engine
    engine.dispose()


def test_a_wrong_clock_of_the_host_that_asks_neither_hides_a_dead_job_nor_makes_one(tmp_path: Path) -> None:
    settings = load_settings(
        ROOT / "config" / "reconciler.toml", {"RECONCILER_LEDGER__URL": f"sqlite:///{tmp_path}/ledger.db"}
    )
    (tmp_path / "ledger.db").touch()
    with Connections(settings, clock=ManualClock()) as connections:
        assert abs(connections.ledger_now_ms() - SystemClock().now_ms()) < 60_000


def insert(engine: sa.Engine, key: str, **changes: object) -> None:
    row = {"unique_key": key, "topic": "ORDERS", "producer_group": "shop", "state": "NEW", "created_at_ms": 1}
    with engine.begin() as connection:
        connection.execute(sa.insert(outbox).values(**{**row, **changes}))


def look(shop: tuple[Connections, sa.Engine]) -> OutboxReading:
    _, engine = shop
    return OutboxInspector(engine).oldest_unannounced(producer_group="shop", topic="ORDERS")


def test_the_oldest_row_that_nobody_announced_is_seen_beside_the_last_sweep(
    shop: tuple[Connections, sa.Engine],
) -> None:
    _, engine = shop
    insert(engine, "A" * 32, state="ANNOUNCED")
    insert(engine, "B" * 32, producer_group="other")
    insert(engine, "C" * 32, topic="NOBODY_RECONCILES_IT")
    calm = look(shop)
    assert (calm.swept_at_ms, calm.oldest_key, calm.oldest_ms) == (None, None, None)
    assert abs(calm.now_ms - SystemClock().now_ms()) < 60_000
    insert(engine, "E" * 32, created_at_ms=70)
    insert(engine, "D" * 32, created_at_ms=60)
    with engine.begin() as connection:
        connection.execute(sa.update(outbox_identity).where(outbox_identity.c.id == 2).values(swept_at_ms=50))
    seen = look(shop)
    assert (seen.swept_at_ms, seen.oldest_key, seen.oldest_ms) == (50, "D" * 32, 60)


def unheard(
    shop: tuple[Connections, sa.Engine], inbox: FakeInbox, ledger: MemoryLedger, *, until_ms: int = 1_000
) -> str | None:
    _, engine = shop
    found = OutboxInspector(engine).oldest_unheard(
        producer_group="shop",
        plan=SubscriptionPlan(subscription=SUBSCRIPTION, tags=frozenset({"paid"})),
        inbox=inbox,
        candidates=ledger.candidates,
        until_ms=until_ms,
    )
    return None if found is None else found.unique_key


def announced(engine: sa.Engine, number: int, **changes: object) -> str:
    key = f"{number:032X}"
    insert(engine, key, **{"state": "ANNOUNCED", "announced_at_ms": number, "tag": "paid", **changes})
    return key


def test_what_was_announced_on_another_topic_than_is_read_here_is_seen_in_the_outbox(
    shop: tuple[Connections, sa.Engine],
) -> None:
    """The service's unique_key_topic has another name: no process reads its announcements, and status ended with 0."""
    inbox, ledger, engine = FakeInbox(), MemoryLedger(ManualClock()), shop[1]
    consumed, known, lost, later = (announced(engine, number) for number in (101, 102, 110, 111))
    announced(engine, 103, tag="noise")
    announced(engine, 104, state="SETTLED")
    announced(engine, 105, topic="REFUNDS")
    announced(engine, 106, producer_group="another")
    announced(engine, 107, announced_at_ms="soon")
    inbox.rows["billing", consumed] = World.inbox_row_of("billing", consumed, 1)
    rejected = VerdictEntry(
        unique_key=known, verdict=Verdict.REJECTED, evidence={}, first_seen_ms=1, state=CandidateState.SETTLED,
        wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=SUBSCRIPTION, number=0), [rejected])
    assert unheard(shop, inbox, ledger) == lost
    assert unheard(shop, inbox, ledger, until_ms=109) is None
    inbox.rows["billing", lost] = World.inbox_row_of("billing", lost, 1)
    assert unheard(shop, inbox, ledger) == later
    inbox.away = True
    assert unheard(shop, inbox, ledger) is None


@pytest.mark.parametrize("one", [{}, {"tag": "noise"}, {"announced_at_ms": 1.5}], ids=["heard", "foreign", "damaged"])
def test_a_row_that_nobody_has_heard_of_is_seen_behind_pages_of_others(
    shop: tuple[Connections, sa.Engine], one: dict[str, object]
) -> None:
    inbox, ledger = FakeInbox(), MemoryLedger(ManualClock())
    for number in range(PAGE_KEYS + 1):
        key = announced(shop[1], number, **(one if number == 1 else {}))
        inbox.rows["billing", key] = World.inbox_row_of("billing", key, 1)
    lost = announced(shop[1], PAGE_KEYS + 1)
    assert unheard(shop, inbox, ledger) == lost


def test_rows_without_a_key_hide_no_row_that_nobody_has_heard_of(shop: tuple[Connections, sa.Engine]) -> None:
    row = {"topic": "ORDERS", "producer_group": "shop", "state": "ANNOUNCED", "tag": "paid", "created_at_ms": 1}
    with shop[1].begin() as connection:
        poison = ({"unique_key": f"poison row {number}", "announced_at_ms": number} for number in range(5 * PAGE_KEYS))
        connection.execute(sa.insert(outbox), [row | one for one in poison])
    lost = announced(shop[1], 5 * PAGE_KEYS)
    assert unheard(shop, FakeInbox(), MemoryLedger(ManualClock()), until_ms=5 * PAGE_KEYS) == lost


@pytest.mark.parametrize("without", ["DROP TABLE {}", "ALTER TABLE {} DROP COLUMN swept_at_ms"])
def test_an_outbox_without_the_sign_of_life_tells_its_rows_alone(
    shop: tuple[Connections, sa.Engine], without: str
) -> None:
    _, engine = shop
    insert(engine, "D" * 32, created_at_ms=60)
    with engine.begin() as connection:
        connection.exec_driver_sql(without.format(outbox_identity.name))
    seen = look(shop)
    assert (seen.swept_at_ms, seen.oldest_key) == (None, "D" * 32)


def test_values_that_nobody_can_read_are_no_times(shop: tuple[Connections, sa.Engine]) -> None:
    _, engine = shop
    insert(engine, "D" * 32)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE reconciler_outbox SET created_at_ms = 'yesterday'")
        connection.exec_driver_sql("UPDATE reconciler_outbox_identity SET swept_at_ms = 'today' WHERE id = 2")
    seen = look(shop)
    assert (seen.swept_at_ms, seen.oldest_key, seen.oldest_ms) == (None, "D" * 32, None)


def test_an_outbox_without_its_tables_does_not_count_as_empty(shop: tuple[Connections, sa.Engine]) -> None:
    _, engine = shop
    outbox_metadata.drop_all(engine)
    with pytest.raises(ConfigurationError):
        look(shop)
