"""Rounds whose commits a real database proves, by a commit query, and which send by it: what is wrong, slow or away
proves no loss and sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy.engine import make_url

from reconciler.clock import Clock, ManualClock, SystemClock
from reconciler.contract.secret import secret_text
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.policy.commit_query import CommitQuery, KeyType
from reconciler.wiring.commit_queries import ConfiguredQuery, OpenQueries
from tests.integration.policy.test_commit_queries import AS_DELIVERED, ROWS, SLOW, Shop, rows, shop_in, statements_of
from tests.services import postgres
from tests.unit.policy.fake_databases import FakeReading
from tests.unit.policy.test_commit_query_rows import QUERY
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

SOUND = "SELECT number, status FROM orders WHERE number IN :keys"
LOCKS = {"postgresql": "LOCK TABLE orders", "mysql": "LOCK TABLES orders WRITE", "sqlite": "BEGIN EXCLUSIVE"}


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    with shop_in(new_database_url()) as made:
        yield made


class Judged:
    """Rounds over one announced message whose half names an order. They send what is lost: a person stands by the
    query, no producer is connected, and the broker puts the half back."""

    def __init__(self, shop: Shop, order: str, *, clock: Clock | None = None, url: str = "", **changed: object) -> None:
        query: CommitQuery = replace(QUERY, **{"sql": SOUND, "key": "body:number", **changed})  # type: ignore[arg-type]
        self.world = World()
        self.world.with_query()
        self.world.topic = replace(self.world.topic, sends_by_query=True)
        self.world.broker.put_back_after_seconds = 30.0
        self.half_of(1, order)
        configured = ConfiguredQuery(query, secret_text(url or shop.reader_url))
        self.queries = OpenQueries({TOPIC: configured}, clock=clock or self.world.clock, why_not=lambda _topic: None)
        self.world.queries = self.queries  # type: ignore[assignment]
        halves = self.world.ledger.halves
        self.world.reading = FakeReading(self.world.broker.halves, self.queries, halves, ENVIRONMENT)  # type: ignore[arg-type]
        self.process = self.world.process()

    def half_of(self, number: int, order: str) -> None:
        """A half that names the order; its key is announced."""
        self.world.broker.send_half(key(number), body=f'{{"number": "{order}"}}'.encode())
        self.world.announce(key(number))

    def half_announces(self) -> None:
        """The half message is the announcement: then a missing row settles it."""
        plans = tuple(replace(plan, reads_halves=True) for plan in self.world.topic.subscriptions)
        self.world.topic = replace(self.world.topic, subscriptions=plans)
        self.process = self.world.process()

    def after(self, rounds: int = 40) -> str | None:
        """The verdict."""
        self.world.rounds(self.process, rounds)
        return self.world.verdict(key(1))

    def comes_to(self, told: Callable[[], bool]) -> bool:
        """What had no answer in time, or rests after several, is asked again."""
        return any(told() for _ in range(8) if self.after())

    def proves(self) -> bool:
        """A loss."""
        return self.comes_to(lambda: self.world.verdict(key(1)) == "LOST_CONFIRM")

    def sends_once(self) -> bool:
        """And nothing more in the rounds that follow."""
        self.comes_to(lambda: bool(self.sent))
        self.after()
        return self.sent == [key(1)]

    @property
    def sent(self) -> list[str]:
        """Each half that was ended, whichever way, and each message that was republished."""
        broker = self.world.broker
        return [unique_key for unique_key, _, _ in broker.ends] + [one.unique_key for one in broker.republished]

    def is_undecided(self, rounds: int = 40) -> bool:
        """Neither a loss was proved nor anything settled or sent."""
        verdict, row = self.after(rounds), self.world.candidate(key(1))
        assert row is not None
        undecided = (verdict, row.state, self.world.repair(key(1))) == ("UNKNOWN", CandidateState.OPEN, None)
        return undecided and not self.sent

    def is_rejected(self) -> bool:
        """Settled as not committed, and nothing was sent."""
        return self.comes_to(lambda: self.world.verdict(key(1)) == "REJECTED") and not self.sent

    def waits_because(self) -> str:
        """Why its repair is not gone on with."""
        repair = self.world.repair(key(1))
        assert repair is not None
        assert repair.state is RepairState.OPEN
        assert repair.why is not None
        return repair.why.code.name


def test_a_row_of_the_business_proves_the_loss_which_is_sent_once_and_no_row_proves_nothing(shop: Shop) -> None:
    for order, is_lost in (("A", True), ("nobody", False)):
        judged = Judged(shop, order)
        with closing(judged.queries):
            assert judged.sends_once() if is_lost else judged.is_undecided()


def test_a_row_that_comes_a_minute_late_settles_nothing_before_and_is_sent_once_then(shop: Shop) -> None:
    judged = Judged(shop, "late")
    with closing(judged.queries):
        assert judged.is_undecided(rounds=12)
        shop.write("INSERT INTO orders VALUES ('late', 'PAID', 'Ann')")
        assert judged.sends_once()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE orders SET status = 'CANCELLED' WHERE number = 'A'", "reason.business-rolled-back"),
        ("UPDATE orders SET status = NULL WHERE number = 'A'", "reason.business-unknown"),
        ("DELETE FROM orders WHERE number = 'A'", "reason.business-unknown"),
    ],
)
def test_a_row_that_is_changed_back_before_the_send_sends_nothing_and_afterwards_undoes_nothing(
    shop: Shop, change: str, told: str
) -> None:
    judged = Judged(shop, "A")
    judged.world.broker.producers = True
    with closing(judged.queries):
        assert judged.proves()
        shop.write(change)
        judged.world.broker.producers = False
        assert judged.comes_to(lambda: judged.waits_because() == told)
        assert judged.sent == []
        shop.write("DELETE FROM orders WHERE number = 'A'", "INSERT INTO orders VALUES ('A', 'PAID', 'Ann')")
        assert judged.sends_once()
        shop.write(change)
        judged.after()
        assert judged.sent == [key(1)]


@statements_of(AS_DELIVERED)
def test_a_lock_that_comes_after_the_proof_keeps_it_from_being_sent(shop: Shop) -> None:
    judged = Judged(shop, "A")
    judged.world.broker.producers = True
    with closing(judged.queries):
        assert judged.proves()
        judged.world.broker.producers = False
        with shop.owner.connect() as holder:
            holder.exec_driver_sql(LOCKS[shop.kind])
            judged.after(12)
            assert (judged.sent, judged.waits_because()) == ([], "reason.business-unknown")
            if shop.kind == "mysql":
                holder.exec_driver_sql("UNLOCK TABLES")
            holder.rollback()
        assert judged.sends_once()


def with_later(shop: Shop, *values: str) -> None:
    """A table in which a number may come several times."""
    shop.write("CREATE TABLE later (number VARCHAR(40), status VARCHAR(20))", rows("later", values))
    shop.show("later")


@pytest.mark.parametrize("order", ["B", "N", "two"])
def test_a_row_that_does_not_say_committed_proves_nothing(shop: Shop, order: str) -> None:
    """Cancelled, NULL, and two rows that disagree."""
    with_later(shop, "('two', 'PAID')", "('two', 'CANCELLED')", "('B', 'CANCELLED')", "('N', NULL)")
    judged = Judged(shop, order, sql="SELECT number, status FROM later WHERE number IN :keys")
    with closing(judged.queries):
        assert judged.is_undecided()


def test_two_rows_that_agree_are_one_answer_and_a_third_one_makes_them_none(shop: Shop) -> None:
    with_later(shop, *["('A', 'PAID')"] * 3)
    for limit, is_lost in ((3, False), (2, True)):
        one = f"SELECT number, status FROM (SELECT number, status FROM later LIMIT {limit}) few WHERE number IN :keys"
        judged = Judged(shop, "A", sql=one)
        with closing(judged.queries):
            assert judged.sends_once() if is_lost else judged.is_undecided()


def test_of_halves_that_share_a_key_of_the_customer_none_is_sent(shop: Shop) -> None:
    """Both orders of Ann are paid, and one of her two halves was rolled back: no row tells which."""
    judged = Judged(shop, "Ann", sql="SELECT customer, status FROM orders WHERE customer IN :keys")
    judged.half_of(2, "Ann")
    with closing(judged.queries):
        assert judged.is_undecided()
        assert judged.world.verdict(key(2)) == "UNKNOWN"


#: A column that takes letters for one another, whatever the server's own collation.
FOLDED = {
    "postgresql": 'number VARCHAR(40) COLLATE "folded"',
    "mysql": "number VARCHAR(40) COLLATE utf8mb4_general_ci",
    "sqlite": "number VARCHAR(40) COLLATE NOCASE",
}


def test_a_row_in_other_letters_proves_nothing_where_the_database_takes_them_for_one_another(shop: Shop) -> None:
    if shop.kind == "postgresql":
        shop.write("CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    shop.write(f"CREATE TABLE folded_orders ({FOLDED[shop.kind]}, status VARCHAR(20))")
    shop.write("INSERT INTO folded_orders VALUES ('A', 'PAID')")
    shop.show("folded_orders")
    for order, is_lost in (("a", False), ("A", True)):
        judged = Judged(shop, order, sql="SELECT number, status FROM folded_orders WHERE number IN :keys")
        with closing(judged.queries):
            assert judged.sends_once() if is_lost else judged.is_undecided()


@pytest.mark.parametrize(
    ("order", "changed"),
    [
        ("A", {"sql": "SELECT customer, status FROM orders WHERE number IN :keys"}),
        ("A", {"sql": "SELECT number, customer FROM orders WHERE number IN :keys"}),
        ("A", {"sql": "SELECT number FROM orders WHERE number IN :keys"}),
        ("A", {"sql": "SELECT number, status FROM gone WHERE number IN :keys"}),
        ("17", {"key_type": KeyType.INTEGER}),
        ("a", {}),
        ("A ", {}),
        ("A", {"key": "KEYS"}),
    ],
)
def test_a_query_that_is_wrong_proves_nothing(shop: Shop, order: str, changed: dict[str, object]) -> None:
    judged = Judged(shop, order, **changed)  # type: ignore[arg-type]
    with closing(judged.queries):
        assert judged.is_undecided()


def test_ten_thousand_rows_prove_nothing(shop: Shop) -> None:
    shop.write(rows("orders", (f"('x{number}', 'PAID', 'Ann')" for number in range(ROWS))))
    judged = Judged(shop, "A", sql="SELECT number, status FROM orders WHERE number IN :keys OR status = 'PAID'")
    with closing(judged.queries):
        assert judged.is_undecided()


@statements_of(AS_DELIVERED)
def test_a_query_that_is_slow_proves_nothing(shop: Shop) -> None:
    judged = Judged(shop, "A", clock=SystemClock(), sql=SLOW[shop.kind].replace("(:keys)", ":keys"))
    with closing(judged.queries):
        assert judged.is_undecided(rounds=6)


@statements_of(AS_DELIVERED)
def test_a_lock_proves_nothing_while_it_is_there(shop: Shop) -> None:
    judged = Judged(shop, "A", clock=SystemClock())
    with closing(judged.queries):
        with shop.owner.connect() as holder:
            holder.exec_driver_sql(LOCKS[shop.kind])
            assert judged.is_undecided(rounds=5)
            if shop.kind == "mysql":
                holder.exec_driver_sql("UNLOCK TABLES")
            holder.rollback()
        judged.world.clock.advance(60)
        assert judged.comes_to(lambda: judged.world.repair(key(1)) is not None)


def test_a_paused_standby_proves_no_commit_and_no_rollback_whatever_it_has(
    primary_server: postgres.PostgresServer,
) -> None:
    """It still has A as paid, lacks a row that came since, and lacks one that nobody wrote."""
    with shop_in(primary_server.create_database()) as shop, postgres.PostgresStandby(primary_server) as standby:
        standby.catch_up()
        standby.pause()
        shop.write("UPDATE orders SET status = 'CANCELLED'", "INSERT INTO orders VALUES ('late', 'PAID', 'Ann')")
        there = make_url(shop.reader_url).set(port=standby.port).render_as_string(hide_password=False)
        for order, is_committed in (("A", False), ("late", True), ("nobody", False)):
            judged = Judged(shop, order, url=there, longest_transaction_seconds=1.0)
            judged.half_announces()
            with closing(judged.queries):
                assert judged.is_undecided()
            judged = Judged(shop, order, longest_transaction_seconds=1.0)
            judged.half_announces()
            with closing(judged.queries):
                assert judged.sends_once() if is_committed else judged.is_rejected(), order


def test_statements_of_rounds_are_a_second_apart_at_least(shop: Shop) -> None:
    clock = ManualClock()
    judged = Judged(shop, "nobody", clock=clock)
    asked: list[float] = []
    look_up = judged.queries.look_up

    def noted(*given: object) -> object:
        answers = look_up(*given)  # type: ignore[arg-type]
        asked.append(clock.monotonic_seconds())
        return answers

    with closing(judged.queries), pytest.MonkeyPatch.context() as patch:
        patch.setattr(judged.queries, "look_up", noted)
        judged.process = judged.world.process()
        assert judged.is_undecided(rounds=20)
    assert len(asked) > 2
    assert all(later - before >= 1.0 for before, later in pairwise(asked))
