"""Rounds whose commits a real database proves, by a commit query: what is wrong, slow or away proves no loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest
from sqlalchemy.engine import make_url

from reconciler.clock import Clock, ManualClock, SystemClock
from reconciler.contract.secret import secret_text
from reconciler.contract.tables import CandidateState
from reconciler.policy.commit_query import CommitQuery, KeyType
from reconciler.wiring.commit_queries import ConfiguredQuery, OpenQueries
from tests.integration.policy.test_commit_queries import ROWS, SLOW, Shop, rows, shop_in
from tests.services import postgres
from tests.unit.policy.test_commit_query_rows import QUERY
from tests.unit.policy.world import TOPIC, World, key

SOUND = "SELECT number, status FROM orders WHERE number IN :keys"
LOCKS = {"postgresql": "LOCK TABLE orders", "mysql": "LOCK TABLES orders WRITE", "sqlite": "BEGIN EXCLUSIVE"}


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    with shop_in(new_database_url()) as made:
        yield made


class Judged:
    """Rounds over one announced message whose half names an order."""

    def __init__(self, shop: Shop, order: str, *, clock: Clock | None = None, url: str = "", **changed: object) -> None:
        query: CommitQuery = replace(QUERY, **{"sql": SOUND, "key": "body:number", **changed})  # type: ignore[arg-type]
        self.world = World()
        self.world.with_query()
        self.world.broker.send_half(key(1), body=f'{{"number": "{order}"}}'.encode())
        self.world.announce(key(1))
        configured = ConfiguredQuery(query, secret_text(url or shop.reader_url))
        self.queries = OpenQueries({TOPIC: configured}, clock=clock or self.world.clock)
        self.world.queries = self.queries  # type: ignore[assignment]
        self.process = self.world.process()

    def after(self, rounds: int = 12) -> str | None:
        """The verdict. Nothing was sent."""
        self.world.rounds(self.process, rounds)
        assert (self.world.broker.ends, self.world.broker.republished) == ([], [])
        return self.world.verdict(key(1))

    def is_undecided(self, rounds: int = 12) -> bool:
        """Neither a loss was proved nor anything settled."""
        verdict, row = self.after(rounds), self.world.candidate(key(1))
        assert row is not None
        return (verdict, row.state, self.world.repair(key(1))) == ("UNKNOWN", CandidateState.OPEN, None)


def test_a_row_of_the_business_proves_the_loss_and_no_row_proves_nothing(shop: Shop) -> None:
    for order, expected in (("A", "LOST_CONFIRM"), ("nobody", "UNKNOWN")):
        judged = Judged(shop, order)
        with closing(judged.queries):
            assert judged.after() == expected
            assert (judged.world.repair(key(1)) is None) is (expected == "UNKNOWN")


def test_a_row_that_comes_a_minute_late_proves_it_then(shop: Shop) -> None:
    judged = Judged(shop, "late")
    with closing(judged.queries):
        assert judged.is_undecided()
        shop.write("INSERT INTO orders VALUES ('late', 'PAID', 'Ann')")
        judged.world.clock.advance(60)
        assert judged.after() == "LOST_CONFIRM"


@pytest.mark.parametrize("order", ["B", "N", "two"])
def test_a_row_that_does_not_say_committed_proves_nothing(shop: Shop, order: str) -> None:
    """Cancelled, NULL, and two rows that disagree."""
    shop.write("CREATE TABLE later (number VARCHAR(40), status VARCHAR(20))")
    shop.write("INSERT INTO later VALUES ('two', 'PAID'), ('two', 'CANCELLED'), ('B', 'CANCELLED'), ('N', NULL)")
    if shop.kind != "sqlite":
        login = str(make_url(shop.reader_url).username)
        who = login if shop.kind == "postgresql" else f"'{login}'@'127.0.0.1'"
        shop.write(f"GRANT SELECT ON later TO {who}")
    judged = Judged(shop, order, sql="SELECT number, status FROM later WHERE number IN :keys")
    with closing(judged.queries):
        assert judged.is_undecided()


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


def test_a_query_that_is_slow_proves_nothing(shop: Shop) -> None:
    judged = Judged(shop, "A", clock=SystemClock(), sql=SLOW[shop.kind].replace("(:keys)", ":keys"))
    with closing(judged.queries):
        assert judged.is_undecided(rounds=6)


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
        assert judged.after() == "LOST_CONFIRM"


def test_a_standby_proves_nothing_whatever_it_has(postgres_server: postgres.PostgresServer) -> None:
    with shop_in(postgres_server.create_database()) as shop, postgres.PostgresStandby(postgres_server) as standby:
        standby.catch_up()
        standby.pause()
        shop.write("UPDATE orders SET status = 'CANCELLED'")
        there = make_url(shop.reader_url).set(port=standby.port).render_as_string(hide_password=False)
        for order in ("A", "nobody"):
            judged = Judged(shop, order, url=there)
            with closing(judged.queries):
                assert judged.is_undecided()


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
