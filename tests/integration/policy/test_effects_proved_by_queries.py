"""Rounds whose effects a real database proves, by an effect query: a row ends candidate and repair, and an absence that
the database could not have seen sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy.engine import make_url

from reconciler.clock import Clock
from reconciler.contract.secret import secret_text
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.policy.commit_query import KeyType
from reconciler.policy.effect_query import EffectQuery
from reconciler.wiring.commit_queries import ConfiguredQuery, OpenQueries
from reconciler.wiring.effect_queries import INSPECTED_SECONDS, ConfiguredEffectQuery
from tests.integration.policy.test_commit_queries import AS_DELIVERED, Shop, shop_in, statements_of
from tests.integration.policy.test_commits_proved_by_queries import LOCKS, SOUND, Judged
from tests.integration.policy.test_rows_that_a_reader_cannot_have import HIDING
from tests.services import postgres
from tests.unit.policy.fake_databases import FakeReading
from tests.unit.policy.test_commit_query_rows import QUERY
from tests.unit.policy.world import ENVIRONMENT, TOPIC, key

EFFECTS = "SELECT number, status FROM bills WHERE number IN :keys"


def effect_query(sql: str = EFFECTS) -> EffectQuery:
    return EffectQuery(
        topic=TOPIC,
        group="billing",
        sql=sql,
        key="body:number",
        key_type=KeyType.TEXT,
        applied=("BILLED",),
        not_applied=("NEW",),
    )


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    with shop_in(new_database_url()) as made:
        with_bills(made)
        yield made


def with_bills(shop: Shop) -> None:
    """The consumer's own table, empty."""
    shop.write("CREATE TABLE bills (number VARCHAR(40) PRIMARY KEY, status VARCHAR(20))")
    shop.show("bills")


class Billed(Judged):
    """As Judged, of a group whose effects are rows of `bills`, which it writes as it consumes."""

    def __init__(self, shop: Shop, order: str, *, clock: Clock | None = None, effects_at: str = "") -> None:
        super().__init__(shop, order, clock=clock)
        self.queries.close()
        self.shop, self.bills_nothing, self._billed = shop, False, 0
        self.world.with_effect_query()
        query = ConfiguredQuery(replace(QUERY, sql=SOUND, key="body:number"), secret_text(shop.reader_url))
        effects = ConfiguredEffectQuery(effect_query(), secret_text(effects_at or shop.reader_url))
        self.queries = OpenQueries(
            {TOPIC: query}, clock=clock or self.world.clock, why_not=lambda _topic: None, effects=[effects]
        )
        self.world.queries = self.queries  # type: ignore[assignment]
        halves = self.world.ledger.halves
        self.world.reading = FakeReading(self.world.broker.halves, self.queries, halves, ENVIRONMENT)  # type: ignore[arg-type]
        self.process = self.world.process()

    def after(self, rounds: int = 40) -> str | None:
        for _ in range(rounds):
            self.world.consume(effects=False)
            self.bill()
            self.world.rounds(self.process, 1, consume=False)
        return self.world.verdict(key(1))

    def bill(self) -> None:
        new = len(self.world.deliveries) - self._billed
        self._billed += new
        if new and not self.bills_nothing:
            self.shop.write("INSERT INTO bills VALUES ('A', 'BILLED')")

    def comes_to_say(self, code: str) -> bool:
        return self.comes_to(lambda: code in str(self.evidence))

    @property
    def evidence(self) -> dict[str, object]:
        found = self.world.candidate(key(1))
        assert found is not None
        return dict(found.evidence)

    @property
    def row(self) -> tuple[CandidateState, str]:
        found = self.world.candidate(key(1))
        assert found is not None
        return found.state, str(found.verdict)


def test_what_is_sent_ends_with_the_row_that_the_group_writes(shop: Shop) -> None:
    billed = Billed(shop, "A")
    with closing(billed.queries):
        assert billed.sends_once()
        assert billed.comes_to(lambda: billed.row == (CandidateState.SETTLED, "CONSUMED"))
        repair = billed.world.repair(key(1))
        assert repair is not None
        assert repair.state is RepairState.DONE


def test_what_was_billed_another_way_is_not_sent(shop: Shop) -> None:
    shop.write("INSERT INTO bills VALUES ('A', 'BILLED')")
    billed = Billed(shop, "A")
    with closing(billed.queries):
        assert billed.comes_to(lambda: billed.row == (CandidateState.SETTLED, "CONSUMED"))
        assert billed.sent == []


@pytest.mark.parametrize("status", ["'NEW'", None])
def test_a_delivery_without_an_effect_is_for_a_person(shop: Shop, status: str | None) -> None:
    billed = Billed(shop, "A")
    billed.bills_nothing = True
    if status is not None:
        shop.write(f"INSERT INTO bills VALUES ('A', {status})")
    billed.world.broker.commit(billed.world.broker.halves[0])
    with closing(billed.queries):
        assert billed.comes_to(lambda: billed.row == (CandidateState.QUARANTINED, "DELIVERED_NOT_APPLIED"))
        assert billed.sent == []


@pytest.mark.parametrize("status", ["NULL", "'WHO KNOWS'"])
def test_a_row_of_another_state_says_nothing(shop: Shop, status: str) -> None:
    shop.write(f"INSERT INTO bills VALUES ('A', {status})")
    billed = Billed(shop, "A")
    with closing(billed.queries):
        billed.after()
        assert (billed.row, billed.sent) == ((CandidateState.OPEN, "UNKNOWN"), [])


@statements_of(AS_DELIVERED)
def test_a_lock_that_comes_after_the_proof_keeps_it_from_being_sent(shop: Shop) -> None:
    billed = Billed(shop, "A")
    billed.world.broker.producers = True
    lock = {**LOCKS, "postgresql": "LOCK TABLE bills", "mysql": "LOCK TABLES bills WRITE"}[shop.kind]
    with closing(billed.queries):
        assert billed.proves()
        billed.world.broker.producers = False
        with shop.owner.connect() as holder:
            holder.exec_driver_sql(lock)
            billed.after(12)
            assert billed.sent == []
            if shop.kind == "mysql":
                holder.exec_driver_sql("UNLOCK TABLES")
            holder.rollback()
        assert billed.sends_once()


@pytest.mark.sql("postgres")
def test_rows_that_a_policy_hides_since_are_no_absence(postgres_url: str) -> None:
    """It was enabled after the query had been looked at."""
    with shop_in(postgres_url) as shop:
        with_bills(shop)
        billed = Billed(shop, "A")
        billed.world.broker.producers = True
        with closing(billed.queries):
            assert billed.proves()
            login = make_url(shop.reader_url).username
            shop.write("ALTER TABLE bills ENABLE ROW LEVEL SECURITY")
            shop.write(HIDING[0].format(table="bills", column="status", login=login))
            billed.world.clock.advance(INSPECTED_SECONDS)
            billed.world.broker.producers = False
            billed.after()
            assert (billed.sent, billed.waits_because()) == ([], "reason.effect-unknown")


def test_a_standby_proves_neither_an_effect_nor_that_there_is_none(primary_server: postgres.PostgresServer) -> None:
    with shop_in(primary_server.create_database()) as shop, postgres.PostgresStandby(primary_server) as standby:
        with_bills(shop)
        standby.catch_up()
        there = make_url(shop.reader_url).set(port=standby.port).render_as_string(hide_password=False)
        for is_billed in (False, True):
            if is_billed:
                shop.write("INSERT INTO bills VALUES ('A', 'BILLED')")
                standby.catch_up()
            billed = Billed(shop, "A", effects_at=there)
            with closing(billed.queries):
                assert billed.comes_to_say("query.not-the-primary")
                assert (billed.row, billed.sent) == ((CandidateState.OPEN, "UNKNOWN"), [])
