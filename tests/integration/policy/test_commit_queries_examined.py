"""Whether a commit query can be trusted, seen at real databases: each way of being wrong has its finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy.engine import make_url

from reconciler.clock import Clock, ManualClock, SystemClock
from reconciler.contract.secret import secret_text
from reconciler.halves.ended_sample import EndedHalves
from reconciler.halves.values import HalfCopy
from reconciler.policy.commit_query import KeyType
from reconciler.policy.commit_query_dry_run import QueryAspect, QueryFinding
from reconciler.wiring.commit_queries import ConfiguredQuery, dry_run
from tests.integration.policy.test_commit_queries import AS_DELIVERED, SLOW, Shop, rows, shop_in, statements_of
from tests.services import mariadb, postgres
from tests.unit.policy.test_commit_query_rows import QUERY

SOUND = "SELECT number, status FROM orders WHERE number IN (:keys)"
#: Halves of each kind.
HALVES = 30
LOCKS = {"postgresql": "LOCK TABLE orders", "mysql": "LOCK TABLES orders WRITE", "sqlite": "BEGIN EXCLUSIVE"}


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    """Orders c0 ... are paid, r0 ... cancelled, x0 ... are of nobody's half."""
    with shop_in(new_database_url()) as made:
        made.write("DELETE FROM orders")
        made.write(rows("orders", (f"('c{number}', 'PAID', 'Ann')" for number in range(HALVES))))
        made.write(rows("orders", (f"('r{number}', 'CANCELLED', 'Ann')" for number in range(HALVES))))
        yield made


def copies(*keys: str) -> list[HalfCopy]:
    return [
        HalfCopy(
            broker="b", topic="ORDERS", producer_group="PG", unique_key=f"U-{key}", queue_offset=number,
            commit_log_offset=number, born_ms=0, store_ms=0, asked=0, is_put_back=False, left_alone_seconds=6.0,
            offset_message_id="", business_key=key,
        )
        for number, key in enumerate(keys)
    ]  # fmt: skip


def kinds(begin: str, number: int = HALVES) -> list[HalfCopy]:
    return copies(*(f"{begin}{index}" for index in range(number)))


def found(
    shop: Shop,
    sql: str = SOUND,
    *,
    url: str = "",
    clock: Clock | None = None,
    committed: Sequence[HalfCopy] | None = None,
    rolled_back: Sequence[HalfCopy] | None = None,
    **changed: object,
) -> dict[str, list[QueryFinding]]:
    query = replace(QUERY, **{"sql": sql.replace("(:keys)", ":keys"), "committed": ("PAID",), **changed})  # type: ignore[arg-type]
    ended = EndedHalves(
        committed=list(kinds("c") if committed is None else committed),
        rolled_back=list(kinds("r") if rolled_back is None else rolled_back),
    )
    configured = ConfiguredQuery(query, secret_text(url or shop.reader_url))
    by_aspect: dict[str, list[QueryFinding]] = {}
    for one in dry_run(configured, ended, clock=clock or ManualClock()):
        by_aspect.setdefault(one.aspect.value, []).append(one)
    return by_aspect


def login_of(shop: Shop) -> str:
    name = make_url(shop.reader_url).username
    return str(name) if shop.kind == "postgresql" else f"'{name}'@'127.0.0.1'"


def short(findings: dict[str, list[QueryFinding]], *aspects: str) -> dict[str, list[tuple[str, str]]]:
    return {
        aspect: [(one.fitness.value, one.found.code.name.removeprefix("query.")) for one in findings[aspect]]
        for aspect in aspects or findings
    }


def test_a_sound_query_is_trusted_and_what_the_database_does_not_tell_is_said_to_be_unknown(shop: Shop) -> None:
    told = short(found(shop))
    assert set(told) == {aspect.value for aspect in QueryAspect} - {"answer", "delivered-messages"}
    unknown = {
        "sqlite": {
            "login": [("noted", "no-logins")],
            "columns": [("noted", "columns-unknown")],
            "transactions": [("noted", "transactions-unknown")],
        },
        "postgresql": {"transactions": [("noted", "transactions-unknown")]},
        "mysql": {
            "transactions": [("noted", "transactions-unknown")],
            "collation": [("noted", "keys-folded")],  # its default takes A for a
        },
    }[shop.kind]
    assert {aspect: said for aspect, said in told.items() if said[0][0] != "fit" and aspect != "trust"} == unknown
    assert told["trust"] == [("noted", "trusted-except")]
    assert told["committed-halves"] == [("fit", "committed-found")]
    assert told["rolled-back-halves"] == [("fit", "rolled-back-unfound")]


@pytest.mark.parametrize(
    ("sql", "aspect", "code"),
    [
        pytest.param(SOUND.replace("number,", "customer,"), "committed-halves", "committed-missed", id="other column"),
        pytest.param(SOUND.replace(", status", ""), "columns", "columns", id="one column"),
        pytest.param(SOUND.replace("orders", "gone"), "answer", "no-answer", id="no table"),
        pytest.param(
            "SELECT o.number, status FROM orders o JOIN parts p ON p.number = o.number WHERE o.number IN (:keys)",
            "committed-halves", "committed-missed", id="several rows a key",
        ),
        pytest.param(
            "SELECT number, NULLIF(status, status) FROM orders WHERE number IN (:keys)",
            "committed-halves", "committed-missed", id="NULL",
        ),
        pytest.param(
            "SELECT number, COALESCE(NULLIF(status, 'CANCELLED'), 'PAID') FROM orders WHERE number IN (:keys)",
            "rolled-back-halves", "rolled-back-found", id="says that all are committed",
        ),
    ],
)  # fmt: skip
def test_a_wrong_query_is_not_trusted(shop: Shop, sql: str, aspect: str, code: str) -> None:
    shop.write(rows("parts", (f"('c{number}', {part})" for number in range(HALVES) for part in range(9))))
    told = short(found(shop, sql))
    assert code in [name for _, name in told[aspect]]
    assert told["trust"][0][0] in ("doubtful", "unfit")


def test_a_key_of_the_customer_is_found_by_the_halves_that_were_rolled_back(shop: Shop) -> None:
    """Ann has a paid order, so that each try of hers seems to be committed."""
    shop.write("CREATE TABLE customers (name VARCHAR(40) PRIMARY KEY, status VARCHAR(20))")
    shop.write(rows("customers", (f"('a{number}', 'PAID')" for number in range(HALVES))))
    if shop.kind != "sqlite":
        shop.write(f"GRANT SELECT ON customers TO {login_of(shop)}")
    sql = "SELECT name, status FROM customers WHERE name IN (:keys)"
    told = found(shop, sql, committed=kinds("a"), rolled_back=kinds("a"))
    assert short(told, "trust", "keys", "committed-halves", "rolled-back-halves") == {
        "trust": [("doubtful", "person-accepts")],
        "keys": [("noted", "keys-shared")],
        "committed-halves": [("fit", "committed-found")],
        "rolled-back-halves": [("doubtful", "rolled-back-found")],
    }
    (finding,) = told["rolled-back-halves"]
    assert [half.unique_key for half in finding.exceptions] == [f"U-a{number}" for number in range(HALVES)]


def test_few_halves_that_were_rolled_back_leave_it_to_a_person(shop: Shop) -> None:
    told = short(found(shop, rolled_back=kinds("r", 19)), "trust", "rolled-back-halves")
    assert told == {"trust": [("doubtful", "person-accepts")], "rolled-back-halves": [("doubtful", "too-few")]}


def test_without_a_half_nothing_is_known(shop: Shop) -> None:
    told = short(found(shop, committed=[], rolled_back=[]), "trust", "plan", "collation", "keys")
    assert told["trust"] == [("doubtful", "person-accepts")]
    assert told["plan"] == [("noted", "plan-unknown")]
    assert told["collation"] == [("noted", "collation-unknown")]
    assert told["keys"] == [("noted", "keys-not-seen")]


def test_a_type_that_is_declared_otherwise_is_told(shop: Shop) -> None:
    told = short(found(shop, committed=kinds(""), rolled_back=[], key_type=KeyType.INTEGER))
    assert told["trust"] == [("unfit", "not-trusted")]
    expected = {"mysql": ("columns", "column-unfit"), "postgresql": ("answer", "no-answer")}
    if shop.kind in expected:
        aspect, code = expected[shop.kind]
        assert told[aspect] == [("unfit", code)]


def test_a_state_of_another_type_than_the_lists_is_told(shop: Shop) -> None:
    sql = "SELECT number, LENGTH(status) FROM orders WHERE number IN (:keys)"
    told = short(found(shop, sql), "trust", "columns")
    assert told["trust"] == [("unfit", "not-trusted")]
    if shop.kind != "sqlite":
        assert told["columns"] == [("unfit", "column-unfit")]


def test_letters_that_are_taken_for_one_another_are_told(shop: Shop) -> None:
    if shop.kind == "sqlite":
        shop.write("DROP TABLE orders", "CREATE TABLE orders (number TEXT COLLATE NOCASE PRIMARY KEY, status TEXT)")
        shop.write(rows("orders", (f"('c{number}', 'PAID')" for number in range(HALVES))))
    expected = ("fit", "keys-as-bytes") if shop.kind == "postgresql" else ("noted", "keys-folded")
    assert short(found(shop), "collation") == {"collation": [expected]}


def test_a_plan_that_reads_many_rows_is_told_and_the_query_is_not_asked(shop: Shop) -> None:
    shop.write(rows("orders", (f"('x{number}', 'PAID', 'c{number}')" for number in range(12_000))))
    shop.write("ANALYZE TABLE orders" if shop.kind == "mysql" else "ANALYZE")
    told = found(shop, "SELECT customer, status FROM orders WHERE customer IN (:keys)")
    assert short(told, "trust", "plan", "rolled-back-halves") == {
        "trust": [("unfit", "not-trusted")],
        "plan": [("unfit", "reads-too-much")],
        "rolled-back-halves": [("unfit", "unanswered")],
    }
    assert short(found(shop), "plan") == {"plan": [("fit", "plan-fits")]}


def test_a_login_that_can_write_is_told(shop: Shop) -> None:
    told = short(found(shop, url=shop.owner.url.render_as_string(hide_password=False)), "trust", "login")
    expected = ("noted", "no-logins") if shop.kind == "sqlite" else ("unfit", "may-write")
    assert told["login"] == [expected]
    assert (told["trust"][0][0] == "unfit") is (shop.kind != "sqlite")


MORE_THAN_SELECT = {
    "postgresql": ("GRANT UPDATE (status) ON orders TO {login}", "GRANT pg_read_server_files TO {login}"),
    "mysql": ("GRANT UPDATE (status) ON orders TO {login}", "GRANT FILE ON *.* TO {login}"),
    "sqlite": (),
}


@pytest.mark.parametrize("number", [0, 1])
def test_a_right_to_one_column_or_to_files_of_the_host_is_more_than_to_read(shop: Shop, number: int) -> None:
    for grant in MORE_THAN_SELECT[shop.kind][number : number + 1]:
        shop.write(grant.format(login=login_of(shop)))
        assert short(found(shop), "login") == {"login": [("unfit", "may-write")]}


@pytest.mark.parametrize(("prefix", "finding"), [("orders", ("fit", "reads-only")), ("test", ("unfit", "may-write"))])
def test_what_mariadb_grants_everybody_in_its_test_databases_counts_in_these_alone(
    mariadb_server: mariadb.MariaDBServer, prefix: str, finding: tuple[str, str]
) -> None:
    places = ("`test`.*", r"`test\_%%`.*")
    with shop_in(mariadb_server.create_database(prefix)) as shop:
        shop.write(*(f"GRANT ALL ON {place} TO PUBLIC" for place in places))
        try:
            assert short(found(shop), "login") == {"login": [finding]}
        finally:
            shop.write(*(f"REVOKE ALL ON {place} FROM PUBLIC" for place in places))


@statements_of(AS_DELIVERED)
def test_a_lock_is_told_as_no_answer(shop: Shop) -> None:
    with shop.owner.connect() as holder:
        holder.exec_driver_sql(LOCKS[shop.kind])
        told = short(found(shop, clock=SystemClock()), "trust", "answer")
        if shop.kind == "mysql":
            holder.exec_driver_sql("UNLOCK TABLES")
        holder.rollback()
    assert told == {"trust": [("unfit", "not-trusted")], "answer": [("unfit", "no-answer")]}


@statements_of(AS_DELIVERED)
def test_a_slow_query_is_no_answer_and_no_proof(shop: Shop) -> None:
    told = short(found(shop, SLOW[shop.kind], clock=SystemClock()), "trust", "rolled-back-halves")
    assert told == {"trust": [("unfit", "not-trusted")], "rolled-back-halves": [("unfit", "unanswered")]}


def test_transactions_are_known_to_a_login_that_may_see_them(shop: Shop) -> None:
    grants = {"postgresql": "GRANT pg_read_all_stats TO {login}", "mysql": "GRANT PROCESS ON *.* TO {login}"}
    if shop.kind in grants:
        shop.write(grants[shop.kind].format(login=login_of(shop)))
    with shop.owner.connect() as writer:
        if shop.kind != "sqlite":  # which lets one write at a time, and tells of none
            writer.exec_driver_sql("UPDATE orders SET customer = 'Bob' WHERE number = 'c0'")
        told = short(found(shop, longest_transaction_seconds=3_600.0), "transactions")
        writer.rollback()
    expected = ("noted", "transactions-unknown") if shop.kind == "sqlite" else ("fit", "transactions-fit")
    assert told == {"transactions": [expected]}


def test_a_standby_is_not_trusted(primary_server: postgres.PostgresServer) -> None:
    url = make_url(primary_server.create_database())
    with (
        shop_in(url.render_as_string(hide_password=False)) as shop,
        postgres.PostgresStandby(primary_server) as standby,
    ):
        standby.catch_up()
        there = make_url(shop.reader_url).set(port=standby.port).render_as_string(hide_password=False)
        told = short(found(shop, url=there), "trust", "role")
    assert told == {"trust": [("unfit", "not-trusted")], "role": [("unfit", "is-replica")]}
