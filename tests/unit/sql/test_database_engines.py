"""Engines: time, locks, read-only, and the project's errors for each driver's."""

from __future__ import annotations

import sqlite3
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue, MissingDependency
from reconciler.sql.database_time import NOW_MS_SQL, database_now_ms, now_ms
from reconciler.sql.driver_errors import away, driver_error, translate_driver_error
from reconciler.sql.engines import missing_driver, open_engine, reading, writing
from reconciler.sql.pools import close_engine
from reconciler.sql.tables import inbox, inbox_metadata
from tests.import_path import ROOT
from tests.polling import eventually


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """A database with an inbox."""
    opened = open_engine(database_url, lock_timeout_seconds=1)
    inbox_metadata.create_all(opened)
    yield opened
    opened.dispose()


def insert(connection: sa.Connection, key: str) -> None:
    connection.execute(
        sa.insert(inbox).values(
            consumer_group="g",
            unique_key=key,
            topic="T",
            source="consumer",
            applied_at_ms=now_ms(connection.dialect.name),
        )
    )


def keys(engine: sa.Engine) -> list[str]:
    with reading(engine) as connection:
        return list(connection.execute(sa.select(inbox.c.unique_key).order_by(inbox.c.unique_key)).scalars())


def test_database_time_is_now_and_moves_inside_a_transaction(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        before_ms = time.time_ns() // 1_000_000
        first = database_now_ms(connection)
        assert abs(first - before_ms) < 60_000
        deadline = time.monotonic() + 60
        while database_now_ms(connection) == first:
            assert time.monotonic() < deadline


def test_a_connection_that_a_thread_still_has_when_its_engine_is_closed_is_closed_when_it_comes_back(
    tmp_path: Path,
) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db")
    opened: list[sqlite3.Connection] = []
    sa.event.listen(engine, "connect", lambda connection, _entry: opened.append(connection))
    with reading(engine):
        close_engine(engine)
        with reading(engine):  # a thread that has not ended asks once more
            pass
    assert len(opened) == 2
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            connection.execute("SELECT 1")


@pytest.mark.pooled
def test_a_transaction_commits_as_a_whole_or_not_at_all(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        insert(connection, "A1")
    with pytest.raises(DatabaseAway), writing(engine) as connection:  # noqa: PT012  # what is inside is undone
        insert(connection, "A2")
        raise DatabaseAway
    assert keys(engine) == ["A1"]


def test_a_reader_sees_committed_rows_only_and_waits_for_nobody(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        insert(connection, "A1")
        assert keys(engine) == []
    assert keys(engine) == ["A1"]


def test_keys_differ_by_case(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        for key in ("ab", "AB"):
            insert(connection, key)
    assert sorted(keys(engine)) == ["AB", "ab"]


@pytest.mark.pooled
def test_a_lock_costs_the_timeout_and_is_database_away(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        insert(connection, "A1")

        def is_its_own() -> bool:
            began = time.monotonic()
            with pytest.raises(DatabaseAway), writing(engine) as other:
                insert(other, "A1")
            return time.monotonic() - began < 4

        eventually(is_its_own, within_seconds=30, message="shorter than the default")
    assert keys(engine) == ["A1"]


def test_a_deadlock_victim_gets_database_away(engine: sa.Engine) -> None:
    if engine.dialect.name == "sqlite":
        return  # BEGIN IMMEDIATE: there is one writer, and so no deadlock
    patient = open_engine(engine.url.render_as_string(hide_password=False), lock_timeout_seconds=20)
    barrier = threading.Barrier(2)
    failures: list[Exception] = []

    def cross(first: str, second: str) -> None:
        try:
            with writing(patient) as connection:
                insert(connection, first)
                barrier.wait(60)
                insert(connection, second)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=cross, args=pair) for pair in (("A1", "B1"), ("B1", "A1"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    patient.dispose()
    assert any(isinstance(failure, DatabaseAway) for failure in failures)
    assert keys(engine) == ["A1", "B1"]


def test_a_missing_table_or_column_names_the_upgrade(engine: sa.Engine) -> None:
    for statement in ("SELECT 1 FROM reconciler_nothing", "SELECT no_column FROM reconciler_inbox"):
        with pytest.raises(ConfigurationError, match="reconciler db upgrade"), reading(engine) as connection:
            connection.exec_driver_sql(statement)


def test_a_bug_in_a_statement_is_not_taken_for_a_database_that_is_away(engine: sa.Engine) -> None:
    pattern = "error in your SQL syntax" if engine.dialect.name == "mysql" else "syntax error"
    with pytest.raises(sa.exc.DBAPIError, match=pattern), reading(engine) as connection:
        connection.exec_driver_sql("SELECT FROM WHERE")


@pytest.mark.pooled
def test_a_read_only_engine_cannot_write(engine: sa.Engine, database_url: str) -> None:
    with writing(engine) as connection:
        insert(connection, "A1")
    read_only = open_engine(database_url, read_only=True)
    assert keys(read_only) == ["A1"]
    with pytest.raises((DatabaseAway, sa.exc.DBAPIError)), writing(read_only) as connection:
        insert(connection, "A2")
    read_only.dispose()
    assert keys(engine) == ["A1"]


def test_nothing_listens_is_database_away_without_the_password() -> None:
    for url in ("postgresql://me:s3cret@127.0.0.1:1/db", "mysql://me:s3cret@127.0.0.1:1/db"):
        engine = open_engine(url)
        with pytest.raises(DatabaseAway) as raised, reading(engine):
            pass
        assert "s3cret" not in str(raised.value)
        engine.dispose()


@pytest.mark.sql
def test_a_wrong_password_is_database_away_without_the_password(mariadb_url: str) -> None:
    wrong = make_url(mariadb_url).set(password="wr0ng").render_as_string(hide_password=False)
    engine = open_engine(wrong)
    with pytest.raises(DatabaseAway, match="Access denied") as raised, reading(engine):
        pass
    assert "wr0ng" not in str(raised.value)
    engine.dispose()


def told(url: sa.URL, statement: str = "SELECT 1") -> str:
    engine = open_engine(url.render_as_string(hide_password=False))
    with pytest.raises((ConfigurationError, DatabaseAway)) as raised, reading(engine) as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()
    line = str(raised.value)
    assert "\n" not in line
    assert "l1mited" not in line
    return line


@pytest.mark.parametrize(
    "server",
    [
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def test_what_a_database_refuses_is_told_in_one_line_with_a_remedy(server: str, request: pytest.FixtureRequest) -> None:
    owner = open_engine(request.getfixturevalue(f"{server}_server").create_database())
    who = "limited" if server == "postgres" else "limited@'127.0.0.1'"
    with writing(owner) as connection:
        for statement in (
            "CREATE TABLE open_to_it (x INTEGER)",
            "CREATE TABLE closed_to_it (x INTEGER)",
            "CREATE ROLE limited LOGIN" if server == "postgres" else f"CREATE USER {who} IDENTIFIED BY 'l1mited'",
            f"GRANT SELECT ON open_to_it TO {who}",
        ):
            connection.exec_driver_sql(statement)
    limited = owner.url.set(username="limited", password="l1mited")
    shown_as = f"{owner.dialect.name}://127.0.0.1:{owner.url.port}/{owner.url.database}"
    for line, remedy in (
        (told(limited.set(port=1)), "; start the database, or correct its URL"),
        (told(owner.url.set(database="nowhere")), "; create the database, or correct its URL"),
        (told(limited.set(username="nobody")), "; correct user and password in its URL, or let the server admit them"),
        (
            told(limited, "SELECT x FROM closed_to_it"),
            "; GRANT the login what docs/reference/rights.md lists; `reconciler",
        ),
        (told(owner.url, "SELECT x FROM reconciler_none"), "run reconciler db upgrade"),
    ):
        assert remedy in line
    assert told(limited, "SELECT x FROM closed_to_it").startswith(f"{shown_as}: ")
    with writing(owner) as connection:
        connection.exec_driver_sql("DROP OWNED BY limited" if server == "postgres" else f"DROP USER {who}")
        if server == "postgres":
            connection.exec_driver_sql("DROP ROLE limited")
    owner.dispose()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("cannot execute INSERT in a read-only transaction", "name a database in its URL that takes writes"),
        ('(1290, "The MySQL server is running with the --super-read-only option")', "name a database in its URL"),
        ('FATAL:  password authentication failed for user "app"', "correct user and password"),
        ("fe_sendauth: no password supplied", "correct user and password"),
        ("FATAL:  no such database: orders", "create the database"),  # pgbouncer
        ("attempt to write a readonly database", "GRANT the login"),
        ("FATAL:  the database system is starting up", "start the database"),
        ("connection timeout expired: timed out", "start the database"),
    ],
)
def test_words_that_no_server_here_says_have_their_remedy(words: str, remedy: str, tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/x.db", must_exist=True)
    assert f"; {remedy}" in str(away(sqlite3.OperationalError(words), engine))
    engine.dispose()


@pytest.mark.sql("postgres")
def test_a_url_that_names_another_driver_of_postgres_is_reached_by_ours(postgres_url: str) -> None:
    """With the other one, no test would show whether settings and statements stay in their transaction."""
    engine = open_engine(make_url(postgres_url).set(drivername="postgresql+psycopg2").render_as_string())
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "5s"
    engine.dispose()


@pytest.mark.sql("postgres")
def test_a_begin_that_is_refused_with_any_state_is_database_away(postgres_url: str) -> None:
    # Poolers answer a BEGIN with states of their own; here the server refuses the setting, which is a DataError.
    opened = open_engine(postgres_url, lock_timeout_seconds=1e9)
    with pytest.raises(DatabaseAway, match="lock_timeout"), reading(opened):
        pass
    opened.dispose()


def test_a_file_that_is_no_database_is_database_away(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"no database" * 1_000)
    for read_only in (False, True):
        engine = open_engine(f"sqlite:///{path}", read_only=read_only)
        with pytest.raises(DatabaseAway, match="not a database"), reading(engine) as connection:
            connection.exec_driver_sql("SELECT * FROM sqlite_master")
        engine.dispose()


def test_a_reader_neither_creates_a_file_nor_changes_its_journal(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/missing.db", read_only=True)
    with pytest.raises(DatabaseAway), reading(engine):
        pass
    engine.dispose()
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "a b%c.db"
    plain = sqlite3.connect(path)
    plain.execute("CREATE TABLE t (x INTEGER)")
    plain.commit()
    plain.close()
    engine = open_engine(f"sqlite:///{path}", read_only=True)
    with reading(engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 0
    engine.dispose()


def test_a_new_file_that_another_process_writes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE t (x INTEGER)")
        engine = open_engine(f"sqlite:///{path}")

        def end_the_other(statement: str) -> None:
            if statement == "BEGIN IMMEDIATE" and other.in_transaction:
                other.execute("COMMIT")

        def watch(connection: sqlite3.Connection, _record: object) -> None:
            connection.set_trace_callback(end_the_other)

        sa.event.listen(engine, "connect", watch, insert=True)
        with reading(engine) as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        engine.dispose()


def test_a_wal_database_that_nobody_has_open_can_be_read(tmp_path: Path) -> None:
    writer = open_engine(f"sqlite:///{tmp_path}/wal.db")
    inbox_metadata.create_all(writer)
    with writing(writer) as connection:
        insert(connection, "A1")
    writer.dispose()
    reader = open_engine(f"sqlite:///{tmp_path}/wal.db", read_only=True)
    assert keys(reader) == ["A1"]
    reader.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be shared"):
        open_engine(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3cret but no url",
        "postgresql://u:p@s3cret@127.0.0.1:1/x",
        "postgresql://u:p@s3cret:word@127.0.0.1:1/x",
        "postgresql://u@h:s3cret/x",
        "mysql://u@h/x?password=s3cret",
    ],
)
def test_a_malformed_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        open_engine(url)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(("scheme", "extra"), [("postgresql", "postgres"), ("mysql", "mysql"), ("mariadb", "mysql")])
def test_a_driver_that_is_missing_is_named_with_the_extra_that_brings_it(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.sql.engines.find_spec", lambda _package: None)
    told = missing_driver(f"{scheme}://u:p@h/db")
    assert told is not None
    assert told.endswith(f"install the extra {extra} (docs/how-to/install.md#extras)")
    offered = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extra in offered


@pytest.mark.parametrize("url", ["oracle://h/db", "nosuchdialect://h/db"])
def test_another_database_is_refused(url: str) -> None:
    with pytest.raises((InvalidValue, MissingDependency)):
        open_engine(url)


def test_no_free_connection_is_database_away(new_database_url: Callable[[], str]) -> None:
    engine = open_engine(new_database_url(), pool_size=1)
    engine.pool._timeout = 0.1  # type: ignore[attr-defined]  # ten seconds are too long for a test
    held = [engine.connect() for _ in range(11)]
    with pytest.raises(DatabaseAway, match="no free connection"), reading(engine):
        pass
    for connection in held:
        connection.close()
    engine.dispose()


def test_the_text_of_an_error_repeats_what_a_statement_carried() -> None:
    own = ValueError("no such column")
    assert driver_error(sa.exc.DBAPIError("SELECT :body", {"body": "4111 1111"}, own)) is own
    assert driver_error(own) is own


def test_the_time_of_sqlite_is_that_of_its_host_to_the_millisecond() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for _ in range(200):
            before = time.time_ns() // 1_000_000
            (at_ms,) = connection.execute(f"SELECT {NOW_MS_SQL['sqlite']}").fetchone()
            assert before <= at_ms <= time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("state", "kind"),
    [("42P10", ConfigurationError), ("", ConfigurationError), ("55P03", DatabaseAway), ("40P01", DatabaseAway)],
)
def test_a_triggers_statement_that_met_a_lock_lacks_no_unique_key(state: str, kind: type[Exception]) -> None:
    """PostgreSQL repeats the statement of a function behind the error. Drivers without a state give the text alone."""
    error = type("OperationalError", (Exception,), {"sqlstate": state})(
        'canceling statement CONTEXT: SQL statement "INSERT INTO audit VALUES (1) ON CONFLICT DO NOTHING"'
    )
    engine = sa.create_engine("postgresql+psycopg://reader@db.example/shop")
    assert isinstance(translate_driver_error(error, engine), kind)
