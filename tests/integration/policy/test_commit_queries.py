"""Commit queries at real databases: what they say, and which mistakes say nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from reconciler.clock import Clock, ManualClock, SystemClock
from reconciler.evidence import business_query
from reconciler.evidence.business_query import SqlBusinessQuery
from reconciler.policy.commit_query import BusinessAnswer, KeyType, KeyValue
from reconciler.words import said
from tests.integration.policy.test_rows_that_a_reader_cannot_have import HIDING, SHOWING
from tests.polling import eventually
from tests.services import postgres
from tests.unit.policy.test_commit_query_rows import QUERY

_NAMES = count(1)
SECRET = "private"  # loopback, one test run
#: Rows beside those that a test asks for.
ROWS = 12_000
#: How long a statement may take. On a busy machine any may take the product's two seconds, and then says nothing.
AS_DELIVERED, PATIENT = business_query.STATEMENT_SECONDS, 60.0
SLOW = {
    "postgresql": "SELECT number, status FROM orders, pg_sleep(20) WHERE number IN (:keys)",
    "mysql": "SELECT number, status FROM orders WHERE number IN (:keys) AND SLEEP(20) = 0",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT number, status FROM orders, n WHERE number IN (:keys) AND n.i < 0",
}


@dataclass(frozen=True)
class Shop:
    """A database with a table of orders, by its owner and by a login that reads."""

    owner: sa.Engine
    reader_url: str

    @property
    def kind(self) -> str:
        return {"mariadb": "mysql"}.get(self.owner.dialect.name, self.owner.dialect.name)

    def write(self, *statements: str) -> None:
        with self.owner.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def show(self, table: str) -> None:
        """Lets the login that reads see the table."""
        if self.kind != "sqlite":
            self.write(f"GRANT SELECT ON {table} TO {_login(self.kind, str(make_url(self.reader_url).username))}")

    @contextmanager
    def query(self, sql: str = "", *, clock: Clock | None = None, url: str = "", **changed: object) -> Iterator[Asked]:
        text = (sql or "SELECT number, status FROM orders WHERE number IN (:keys)").replace("(:keys)", ":keys")
        query = replace(QUERY, **{"sql": text, "committed": ("PAID",), **changed})  # type: ignore[arg-type]
        found = SqlBusinessQuery(query, url or self.reader_url, clock=clock or ManualClock())
        with closing(found):
            yield Asked(found)


@dataclass(frozen=True)
class Asked:
    """A query, with short names of its answers."""

    query: SqlBusinessQuery

    def says(self, *keys: KeyValue) -> list[str]:
        answers = self.query.ask(keys)
        return [_short(answers[key]) for key in keys]

    def problems(self, keys: Sequence[KeyValue] = ("A",)) -> list[str]:
        return [problem.code.name for problem in self.query.inspect(keys).problems]


def _short(answer: BusinessAnswer | None) -> str:
    if answer is None:
        return "none"
    return answer.state.value if answer.why is None else answer.why.code.name


def rows(table: str, values: Iterable[str]) -> str:
    return f"INSERT INTO {table} VALUES {', '.join(values)}"


@pytest.fixture
def shop(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    with shop_in(new_database_url()) as made:
        yield made


@contextmanager
def statements_of(seconds: float) -> Iterator[None]:
    """A statement of the queries that are made within may take so long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(business_query, "STATEMENT_SECONDS", seconds)
        yield


@contextmanager
def shop_in(url: str) -> Iterator[Shop]:
    """Its queries are waited for; a test of slow ones is `@statements_of(AS_DELIVERED)`."""
    owner = sa.create_engine(url)
    made = Shop(owner, _reader_of(owner))
    made.write(
        "CREATE TABLE orders (number VARCHAR(40) PRIMARY KEY, status VARCHAR(20), customer VARCHAR(40))",
        "CREATE TABLE parts (number VARCHAR(40), part INTEGER)",
        "INSERT INTO orders VALUES ('A', 'PAID', 'Ann'), ('B', 'CANCELLED', 'Bob'), ('N', NULL, 'Nan'), "
        "('17', 'PAID', 'Ann')",
        rows("parts", (f"('A', {part})" for part in range(9))),
    )
    for table in ("orders", "parts"):
        made.show(table)
    try:
        with statements_of(PATIENT):
            yield made
    finally:
        if made.kind != "sqlite":
            name = str(make_url(made.reader_url).username)
            dropped = [f"DROP OWNED BY {name}", f"DROP ROLE {name}"] if made.kind == "postgresql" else []
            made.write(*(dropped or [f"DROP USER {_login(made.kind, name)}"]))
        owner.dispose()


def _login(kind: str, name: str) -> str:
    return name if kind == "postgresql" else f"'{name}'@'127.0.0.1'"


def _reader_of(owner: sa.Engine) -> str:
    url = owner.url.set(drivername=owner.url.get_backend_name())
    if owner.dialect.name != "sqlite":
        name = f"shop_reader_{next(_NAMES)}"
        is_postgres = owner.dialect.name == "postgresql"
        with owner.begin() as connection:
            who = f"ROLE {name} LOGIN PASSWORD" if is_postgres else f"USER {_login('mysql', name)} IDENTIFIED BY"
            connection.exec_driver_sql(f"CREATE {who} '{SECRET}'")
        url = url.set(username=name, password=SECRET)
    return url.render_as_string(hide_password=False)


def test_it_says_what_is_committed_now(shop: Shop) -> None:
    with shop.query() as asked:
        assert asked.problems() == []
        assert asked.says("A", "B", "N", "late") == ["committed", "rolled-back", "query.null-state", "none"]
        shop.write("INSERT INTO orders VALUES ('late', 'PAID', 'Ann')", "UPDATE orders SET status = 'CANCELLED'")
        assert asked.says("A", "late") == ["rolled-back", "rolled-back"]


@pytest.mark.parametrize(
    ("sql", "keys", "expected"),
    [
        ("SELECT customer, status FROM orders WHERE number IN (:keys)", ("A",), "query.key-not-asked"),
        ("SELECT number FROM orders WHERE number IN (:keys)", ("A",), "query.columns"),
        ("SELECT number, gone FROM orders WHERE number IN (:keys)", ("A",), "query.no-answer"),
        ("SELECT number, status FROM orders WHERE number IN (:keys) GROUP", ("A",), "query.no-answer"),
        (
            "SELECT o.number, status FROM orders o JOIN parts p ON p.number = o.number WHERE o.number IN (:keys)",
            ("A",),
            "query.rows-too-many",
        ),
        ("SELECT number, status FROM orders WHERE number IN (:keys) OR 1 = 1", ("A", "B"), "query.rows-too-many"),
    ],
)
def test_a_query_that_is_wrong_says_nothing(shop: Shop, sql: str, keys: tuple[str, ...], expected: str) -> None:
    with shop.query(sql) as asked:
        assert set(asked.says(*keys)) == {expected}


def test_the_remedy_of_a_table_that_is_not_ours_is_no_upgrade_and_no_grant_of_ours(shop: Shop) -> None:
    wrong = [("SELECT nowhere, status FROM orders WHERE nowhere IN (:keys)", "correct the query, or its URL")]
    if shop.kind != "sqlite":
        shop.write("CREATE TABLE hidden (number VARCHAR(40) PRIMARY KEY, status VARCHAR(20))")
        sql = "SELECT number, status FROM hidden WHERE number IN (:keys)"
        wrong.append((sql, "GRANT the login SELECT on what the query reads"))
    for sql, remedy in wrong:
        with shop.query(sql) as asked:
            (problem,) = asked.query.inspect(["A"]).problems
            assert said(problem).endswith(remedy)


def test_a_key_of_another_type_than_the_column_says_nothing(shop: Shop) -> None:
    with shop.query(key_type=KeyType.INTEGER) as asked:
        (said,) = asked.says(17)
    assert said == ("query.no-answer" if shop.kind == "postgresql" else "query.key-of-other-type")


def test_a_collation_that_takes_keys_for_one_another_says_nothing_of_these_alone(shop: Shop) -> None:
    if shop.kind == "sqlite":
        shop.write("DROP TABLE orders", "CREATE TABLE orders (number TEXT COLLATE NOCASE PRIMARY KEY, status TEXT)")
        shop.write("INSERT INTO orders VALUES ('A', 'PAID'), ('B', 'PAID')")
    clock = ManualClock()
    with shop.query(clock=clock) as asked:
        of_a, since = "none" if shop.kind == "postgresql" else "query.key-not-asked", clock.monotonic_seconds()
        others = [f"none-{number}" for number in range(400)]
        said = asked.says("a", *others, *(["B"] if shop.kind == "sqlite" else []))
        assert said == [of_a, *["none"] * 400, *(["committed"] if shop.kind == "sqlite" else [])]
        assert clock.monotonic_seconds() - since <= 1.0, "two statements"


def test_of_two_spellings_of_one_key_the_row_is_that_of_neither_other(shop: Shop) -> None:
    """Where the database takes them for one, what has no row of its own is not said to have none."""
    if shop.kind == "sqlite":
        shop.write("DROP TABLE orders", "CREATE TABLE orders (number TEXT COLLATE NOCASE PRIMARY KEY, status TEXT)")
        shop.write("INSERT INTO orders VALUES ('A', 'PAID')")
    with shop.query() as asked:
        assert asked.says("A", "a") == ["committed", "none" if shop.kind == "postgresql" else "query.key-not-asked"]


STRANGE = "\u8ba2\u5355"


@pytest.fixture
def narrow(new_database_url: Callable[[], str]) -> Iterator[Shop]:
    """A shop whose database, or column, lacks the characters of STRANGE; SQLite takes any."""
    url = make_url(new_database_url())
    if url.get_backend_name() == "postgresql":
        server = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        url = url.set(database=f"{url.database}_narrow")
        with server.connect() as connection:
            connection.exec_driver_sql(
                f"CREATE DATABASE {url.database} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
            )
        server.dispose()
    with shop_in(url.render_as_string(hide_password=False)) as made:
        if made.kind == "mysql":
            made.write("ALTER TABLE orders MODIFY number VARCHAR(40) CHARACTER SET latin1")
        yield made


def test_a_key_that_a_database_cannot_take_silences_no_other(narrow: Shop) -> None:
    """It is found once: then it is left out for a while."""
    says = "none" if narrow.kind == "sqlite" else "query.no-answer"
    keys = [f"x{number}" for number in range(499)]
    keys.insert(250, STRANGE)
    clock = ManualClock()
    with narrow.query(clock=clock) as asked:
        assert asked.problems([STRANGE, "A"]) == []
        said = dict(zip(keys, asked.says(*keys), strict=True))
        assert said.pop(STRANGE) == says
        assert set(said.values()) == {"none"}
        before = clock.monotonic_seconds()
        assert asked.says("A", STRANGE, "B") == ["committed", says, "rolled-back"]
        assert clock.monotonic_seconds() - before <= 1.0, "one statement"


def test_of_several_keys_that_a_database_cannot_take_one_a_minute_is_found(narrow: Shop) -> None:
    strange = [f"{STRANGE}{number}" for number in range(3)]
    keys = [f"x{number}" for number in range(497)]
    for number, key in enumerate(strange):
        keys.insert(10 + 240 * number, key)
    clock = ManualClock()
    with narrow.query(clock=clock) as asked:
        for _ in strange:
            asked.says(*keys)
            clock.advance(60)
        said = dict(zip(keys, asked.says(*keys), strict=True))
    says = "none" if narrow.kind == "sqlite" else "query.no-answer"
    assert [said.pop(key) for key in strange] == [says] * 3
    assert set(said.values()) == {"none"}


def test_a_text_of_megabytes_costs_no_more_memory_and_silences_no_other_key(tmp_path: Path) -> None:
    with shop_in(f"sqlite:///{tmp_path}/shop.db") as shop:
        shop.write("INSERT INTO orders VALUES ('wide', CAST(zeroblob(40000000) AS TEXT), 'Ann')")
        with shop.query() as asked:
            assert asked.says("A", "wide", "late") == ["committed", "query.no-answer", "none"]


def test_a_plan_that_reads_the_whole_table_is_found_before_it_is_asked(shop: Shop) -> None:
    shop.write(rows("orders", (f"('x{number}', 'PAID', 'c{number}')" for number in range(ROWS))))
    shop.write("ANALYZE TABLE orders" if shop.kind == "mysql" else "ANALYZE")
    with shop.query("SELECT customer, status FROM orders WHERE customer IN (:keys)") as asked:
        assert asked.problems(["c1"]) == ["query.reads-too-much"]
    with shop.query("SELECT o.customer, o.status FROM orders o WHERE o.customer IN (:keys)") as asked:
        assert asked.problems(["c1"]) == ["query.reads-too-much"]
    with shop.query() as asked:
        assert asked.problems([f"x{number}" for number in range(500)]) == []
        assert asked.says(*(f"x{number}" for number in range(500))) == ["committed"] * 500


def test_a_login_that_can_write_is_not_asked_with(shop: Shop) -> None:
    with shop.query(url=shop.owner.url.render_as_string(hide_password=False)) as asked:
        assert asked.problems() == ([] if shop.kind == "sqlite" else ["query.may-write"])


@pytest.mark.sql("postgres")
def test_a_policy_that_shows_every_row_is_no_problem_and_any_other_is(postgres_url: str) -> None:
    with shop_in(postgres_url) as shop:
        shop.write("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
        login = make_url(shop.reader_url).username
        for policies in (*HIDING, *SHOWING):
            shop.write(policies.format(table="orders", column="status", login=login))
            with shop.query() as asked:
                assert asked.problems() == ([] if policies in SHOWING else ["query.rows-may-hide"]), policies
            shop.write(*(f"DROP POLICY IF EXISTS {name} ON orders" for name in ("own", "every", "less")))


@statements_of(AS_DELIVERED)
def test_a_query_that_is_slow_costs_two_seconds(shop: Shop) -> None:
    with shop.query(SLOW[shop.kind], clock=SystemClock()) as asked:
        assert asked.says("A") == ["query.no-answer"]


def test_after_three_statements_without_an_answer_none_is_sent_for_a_minute(shop: Shop) -> None:
    clock = ManualClock()
    with shop.query("SELECT number, status FROM later WHERE number IN (:keys)", clock=clock) as asked:
        assert [asked.says("A") for _ in range(4)] == [["query.no-answer"]] * 3 + [["query.rests"]]
        shop.write("CREATE TABLE later (number VARCHAR(40), status VARCHAR(20))")
        shop.show("later")
        clock.advance(60.0)
        assert asked.says("A") == ["none"]


@statements_of(AS_DELIVERED)
def test_a_lock_costs_two_seconds_and_says_nothing(shop: Shop) -> None:
    lock = {
        "postgresql": "LOCK TABLE orders",
        "mysql": "LOCK TABLES orders WRITE",
        "sqlite": "BEGIN EXCLUSIVE",
    }
    with shop.query(clock=SystemClock()) as asked:
        with shop.owner.connect() as holder:
            holder.exec_driver_sql(lock[shop.kind])
            assert asked.says("A") == ["query.no-answer"]
            if shop.kind == "mysql":
                holder.exec_driver_sql("UNLOCK TABLES")
            holder.rollback()
        eventually(lambda: asked.says("A") == ["committed"], within_seconds=60)


@statements_of(PATIENT)
def test_a_standby_says_nothing(primary_server: postgres.PostgresServer) -> None:
    url = make_url(primary_server.create_database())
    owner = sa.create_engine(url)
    shop = Shop(owner, url.set(drivername="postgresql").render_as_string(hide_password=False))
    shop.write("CREATE TABLE orders (number TEXT PRIMARY KEY, status TEXT)", "INSERT INTO orders VALUES ('A', 'PAID')")
    with postgres.PostgresStandby(primary_server) as standby:
        standby.catch_up()
        standby.pause()
        shop.write("UPDATE orders SET status = 'CANCELLED'")
        there = url.set(drivername="postgresql", port=standby.port).render_as_string(hide_password=False)
        with shop.query(url=there) as asked:
            assert asked.says("A", "B") == ["query.not-the-primary"] * 2
        with shop.query() as asked:
            assert asked.says("A", "B") == ["rolled-back", "none"]
    owner.dispose()
