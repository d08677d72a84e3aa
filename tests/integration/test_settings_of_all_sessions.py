"""What a server sets for all sessions, also by init_connect: rows beyond its limit are not absent, and a statement of
its own is a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from reconciler.audit.collect.database import _engine
from reconciler.audit.collect.sources import Source
from reconciler.sql.engines import open_engine

pytestmark = pytest.mark.sql("mariadb")

EVERY_ENGINE = pytest.mark.parametrize(
    "opened",
    [
        open_engine,
        lambda url: open_engine(url, read_only=True),
        lambda url: open_engine(url, autocommit=True),
        lambda url: _engine(Source(kind="database", address=url.replace("mysql+pymysql", "mysql"), option="--inbox")),
    ],
    ids=["plain", "read-only", "autocommit", "audit"],
)


@pytest.fixture
def limited(mariadb_url: str) -> Iterator[str]:
    """A database of a server that returns two rows, of a table that has three."""
    owner = sa.create_engine(mariadb_url)
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
        connection.exec_driver_sql("INSERT INTO numbers VALUES (1), (2), (3)")
        connection.exec_driver_sql("SET GLOBAL sql_select_limit = 2")
    try:
        yield mariadb_url
    finally:
        with owner.begin() as connection:
            connection.exec_driver_sql("SET GLOBAL sql_select_limit = 18446744073709551615")
        owner.dispose()


@EVERY_ENGINE
def test_a_limit_of_the_server_hides_no_row(limited: str, opened: Callable[[str], sa.Engine]) -> None:
    engine = opened(limited)
    with engine.connect() as connection:
        assert len(connection.execute(sa.text("SELECT number FROM numbers")).all()) == 3
    engine.dispose()


@pytest.fixture
def nulling(mariadb_url: str) -> Iterator[str]:
    """A database of a server that takes an empty text for NULL, of a table that has one."""
    owner = sa.create_engine(mariadb_url)
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE texts (text VARCHAR(10))")
        connection.exec_driver_sql("INSERT INTO texts VALUES ('')")
        before = connection.exec_driver_sql("SELECT @@GLOBAL.sql_mode").scalar()
        connection.exec_driver_sql("SET GLOBAL sql_mode = 'ANSI_QUOTES,EMPTY_STRING_IS_NULL,PIPES_AS_CONCAT'")
    try:
        yield mariadb_url
    finally:
        with owner.begin() as connection:
            connection.execute(sa.text("SET GLOBAL sql_mode = :before"), {"before": before})
        owner.dispose()


@EVERY_ENGINE
def test_an_empty_text_is_found_where_the_server_takes_it_for_null(
    nulling: str, opened: Callable[[str], sa.Engine]
) -> None:
    engine = opened(nulling)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT COUNT(*) FROM texts WHERE text = ''")).scalar() == 1
        assert "ANSI_QUOTES" in str(connection.execute(sa.text("SELECT @@sql_mode")).scalar()), "the others stay"
    engine.dispose()


def test_a_statement_of_its_own_is_over_when_it_is_answered(mariadb_url: str) -> None:
    """Also where each COMMIT begins another transaction."""
    owner = sa.create_engine(mariadb_url)
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
        connection.exec_driver_sql("SET GLOBAL completion_type = CHAIN")
    try:
        single = open_engine(mariadb_url, autocommit=True)
        count = sa.text("SELECT COUNT(*) FROM numbers")
        with single.connect() as ours, open_engine(mariadb_url).connect() as theirs:
            for seen in range(3):
                assert ours.execute(count).scalar() == seen
                theirs.exec_driver_sql("INSERT INTO numbers VALUES (1)")
                assert ours.execute(count).scalar() == seen, "not before it is committed"
                theirs.commit()
            theirs.engine.dispose()
        single.dispose()
    finally:
        with owner.begin() as connection:
            connection.exec_driver_sql("SET GLOBAL completion_type = DEFAULT")
        owner.dispose()
