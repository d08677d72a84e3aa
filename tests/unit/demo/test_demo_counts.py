"""The demo's counts over hand-made databases: each broken promise changes its number."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.demo.plan import MessageFate
from reconciler.demo.truth import (
    LAGGING,
    LOAD_ENDED,
    REFERENCE,
    DemoCounts,
    DemoFiles,
    attempted_numbers,
    connect,
    count,
    create_effects,
    create_orders,
    create_truth,
    is_loss,
    set_mark,
    write_attempt,
    write_copies,
)
from reconciler.sql import tables

END_OF_LOAD_MS = 1_000


class Books:
    """All databases of a demo; `settle` is what a healthy demo leaves, the tests change it."""

    def __init__(self, folder: Path) -> None:
        self.files = DemoFiles(folder)
        self._number = 0

    def create(self) -> Books:
        create_truth(self.files.truth)
        create_orders(self.files.outbox)
        for group in (REFERENCE, LAGGING):
            create_effects(self.files.inbox(group))
        for path, metadata in (
            (self.files.outbox, tables.outbox_metadata),
            (self.files.ledger, tables.ledger_metadata),
        ):
            engine = sa.create_engine(f"sqlite:///{path}")
            metadata.create_all(engine)
            engine.dispose()
        set_mark(self.files.truth, LOAD_ENDED, END_OF_LOAD_MS)
        return self

    def run(self, path: Path, sql: str, *values: object) -> None:
        with closing(connect(path)) as db:
            db.execute(sql, values)

    def attempt(self, key: str, fate: MessageFate, *, state: str = "SETTLED") -> None:
        self._number += 1
        with closing(connect(self.files.truth)) as db:
            write_attempt(db, self._number, key, fate)
        sql = (
            "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms)"
            " VALUES (?, 'ORDERS', 'demo', ?, 1)"
        )
        self.run(self.files.outbox, sql, key, state)

    def effect(self, key: str, *groups: str, at_ms: int) -> None:
        for group in groups:
            self.run(self.files.inbox(group), "INSERT INTO effects VALUES (?, ?, 0, ?)", group, key, at_ms)

    def copy(self, key: str, queue_offset: int = 0) -> None:
        write_copies(self.files.truth, [(key, "embedded", 0, queue_offset)])

    def found(self, key: str, group: str = REFERENCE, *, loss: str | None = "LOST_CONFIRM") -> None:
        sql = (
            "INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state, verdict,"
            " loss_verdict, evidence, attempts, first_seen_ms, next_at_ms, updated_at_ms)"
            " VALUES ('demo', 'ORDERS', ?, ?, 0, 'SETTLED', 'CONSUMED', ?, '{}', 1, 1, 1, 1)"
        )
        self.run(self.files.ledger, sql, group, key, loss)

    def repair(self, key: str, scope: str = "*", *, attempts: int = 1, rung: str = "end") -> None:
        sql = (
            "INSERT INTO reconciler_repair (environment, topic, scope, unique_key, state, rung, attempts, next_at_ms,"
            " created_at_ms) VALUES ('demo', 'ORDERS', ?, ?, 'DONE', ?, ?, 1, 1)"
        )
        self.run(self.files.ledger, sql, scope, key, rung, attempts)

    def hand_over(self, key: str, *, attempts: int = 1) -> None:
        """As the product does it: the row for every group counts the hand-over as an attempt, too."""
        self.repair(key, attempts=attempts, rung="hand-over")
        self.repair(key, REFERENCE, rung="hand-over")
        self.repair(key, LAGGING, rung="hand-over")

    def settle(self) -> Books:
        """Two delivered, one rolled back, one repaired by END, one handed over, one healed by the broker's check."""
        for key in ("D1", "D2"):
            self.attempt(key, MessageFate.DELIVER)
            self.effect(key, REFERENCE, LAGGING, at_ms=500)
            self.copy(key)
        self.attempt("R1", MessageFate.ROLL_BACK, state="ROLLED_BACK")
        for key in ("L1", "L2", "L3"):
            self.attempt(key, MessageFate.END_DROPPED)
            self.effect(key, REFERENCE, LAGGING, at_ms=2_000)
            self.found(key)
        self.copy("L1")
        self.repair("L1")
        self.hand_over("L2")
        self.copy("L3")
        self.repair("L3", attempts=0)
        return self

    def counts(self) -> DemoCounts:
        return count(self.files)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five databases, made once: a copy takes a hundredth of the time."""
    return Books(tmp_path_factory.mktemp("settled")).create().settle().files.folder


@pytest.fixture
def books(settled: Path, tmp_path: Path) -> Books:
    return Books(shutil.copytree(settled, tmp_path / "demo"))


SETTLED = DemoCounts(
    committed=5,
    rolled_back=1,
    lost=3,
    delivered_before=2,
    healed_by_broker=1,
    found=3,
    repaired=2,
    delivered_after=5,
    double_effects=0,
    unnecessary_repairs=0,
    rolled_back_delivered=0,
)


def test_a_healthy_demo_is_counted_as_it_was(books: Books) -> None:
    assert books.counts() == SETTLED
    assert SETTLED.holds(messages=5, lose=3)
    assert SETTLED.as_dict()["found"] == 3


def test_an_effect_applied_twice_is_counted(books: Books) -> None:
    books.effect("D1", REFERENCE, at_ms=501)
    books.effect("L1", LAGGING, at_ms=2_001)
    assert books.counts() == replace(SETTLED, double_effects=2)


def test_an_effect_that_came_twice_is_not_one_before_and_one_after(books: Books) -> None:
    """A delivered message whose effect came again after the load is no repaired one."""
    books.effect("D1", REFERENCE, at_ms=3_000)
    assert books.counts() == replace(SETTLED, double_effects=1)


def test_a_repair_of_a_message_that_had_a_copy_is_unnecessary(books: Books) -> None:
    books.repair("D1")
    books.copy("D1", queue_offset=9)
    books.copy("D1", queue_offset=10)
    assert books.counts() == replace(SETTLED, unnecessary_repairs=2)


def test_a_second_copy_that_no_repair_made_is_not_held_against_the_repairs(books: Books) -> None:
    books.copy("D2", queue_offset=9)
    assert books.counts() == SETTLED


def test_a_hand_over_that_had_a_copy_is_unnecessary_once_a_key(books: Books) -> None:
    books.copy("L2")
    assert books.counts() == replace(SETTLED, unnecessary_repairs=1)


def test_a_hand_over_whose_handlers_never_ran_is_judged_as_well(books: Books) -> None:
    books.repair("D2", rung="hand-over")
    assert books.counts() == replace(SETTLED, unnecessary_repairs=1)


def test_a_hand_over_after_an_end_of_the_same_key_had_a_copy(books: Books) -> None:
    books.run(books.files.ledger, "DELETE FROM reconciler_repair WHERE unique_key = 'L1'")
    books.hand_over("L1", attempts=2)
    assert books.counts() == replace(SETTLED, unnecessary_repairs=1)


def test_a_repair_that_was_never_sent_repaired_nothing(books: Books) -> None:
    books.run(books.files.ledger, "UPDATE reconciler_repair SET attempts = 0 WHERE unique_key = 'L1'")
    assert books.counts() == replace(SETTLED, repaired=1, healed_by_broker=2)


def test_a_rolled_back_message_that_had_an_effect_is_counted_once(books: Books) -> None:
    books.effect("R1", REFERENCE, LAGGING, at_ms=500)
    assert books.counts() == replace(SETTLED, rolled_back_delivered=1)


def test_a_message_that_one_group_never_got_is_not_delivered(books: Books) -> None:
    books.run(books.files.inbox(LAGGING), "DELETE FROM effects WHERE key = 'L1'")
    assert books.counts() == replace(SETTLED, delivered_after=4)


def test_a_loss_that_nobody_repaired_is_lost_before_and_after(books: Books) -> None:
    for group in (REFERENCE, LAGGING):
        books.run(books.files.inbox(group), "DELETE FROM effects WHERE key = 'L1'")
    assert books.counts() == replace(SETTLED, repaired=1, delivered_after=4)


def test_a_loss_found_for_two_groups_is_one_and_a_suspicion_is_none(books: Books) -> None:
    books.found("L1", LAGGING)
    books.found("D1", loss=None)
    assert books.counts() == SETTLED


def test_an_effect_in_the_last_moment_of_the_load_is_a_delivery(books: Books) -> None:
    books.attempt("D3", MessageFate.DELIVER)
    books.effect("D3", REFERENCE, LAGGING, at_ms=END_OF_LOAD_MS)
    books.attempt("D4", MessageFate.DELIVER)
    books.effect("D4", REFERENCE, LAGGING, at_ms=END_OF_LOAD_MS + 1)
    late = replace(SETTLED, committed=7, delivered_after=7, delivered_before=3, lost=4, healed_by_broker=2)
    assert books.counts() == late


@pytest.mark.parametrize(
    "broken",
    [
        {"committed": 4},
        {"delivered_after": 4},
        {"lost": 2},
        {"found": 4},
        {"repaired": 1},
        {"healed_by_broker": 2},
        {"double_effects": 1},
        {"unnecessary_repairs": 1},
        {"rolled_back_delivered": 1},
    ],
    ids=str,
)
def test_one_wrong_number_is_enough_to_fail_the_demo(broken: dict[str, int]) -> None:
    assert not replace(SETTLED, **broken).holds(messages=5, lose=3)


def test_a_demo_that_sent_something_else_than_asked_does_not_hold() -> None:
    assert not SETTLED.holds(messages=6, lose=3)
    assert not SETTLED.holds(messages=5, lose=2)


def test_a_restarted_producer_knows_what_it_tried_and_what_must_get_lost(books: Books) -> None:
    with closing(connect(books.files.truth)) as db:
        assert attempted_numbers(db) == {1, 2, 3, 4, 5, 6}
        assert [key for key in ("D1", "R1", "L1", "never tried") if is_loss(db, key)] == ["L1"]


def test_copies_are_written_all_or_not_at_all(books: Books) -> None:
    def pulled() -> object:
        yield ("X1", "embedded", 0, 1)
        raise ConnectionError("the broker went away in the middle of the pull")

    with pytest.raises(ConnectionError):
        write_copies(books.files.truth, pulled())  # type: ignore[arg-type]  # a generator that fails
    with closing(sqlite3.connect(books.files.truth)) as db:
        assert db.execute("SELECT count(*) FROM copies WHERE key = 'X1'").fetchone() == (0,)


def test_files_of_a_demo_do_not_meet(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    paths = [files.truth, files.outbox, files.ledger, files.settings, files.released]
    paths += [files.inbox(REFERENCE), files.inbox(LAGGING), files.log("producer-0"), files.log("reference")]
    assert len(set(paths)) == len(paths)
    assert {path.parent for path in paths} == {tmp_path}
