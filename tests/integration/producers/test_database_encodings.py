"""Texts of PostgreSQL: a database in SQL_ASCII checks none, and sessions may begin with another encoding than UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from checkback_producers.outbox import SqlOutbox
from reconciler.audit.collect.database import reading
from reconciler.audit.collect.sources import parse_sources
from reconciler.errors import MalformedInput
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Presence
from reconciler.sql import schema
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import PostgresServer
from tests.unit.producers.world import GROUP, TOPIC, World, new_key

pytestmark = pytest.mark.sql("postgres")


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """A fresh database in SQL_ASCII."""
    made = make_url(postgres_server.create_database())
    with psycopg.connect(postgres_server.url().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {made.database}".encode())
        connection.execute(f"CREATE DATABASE {made.database} ENCODING 'SQL_ASCII' TEMPLATE template0".encode())
    return made.render_as_string(hide_password=False)


@pytest.fixture
def world(url: str) -> Iterator[World]:
    made = World(url)
    yield made
    made.close()


def write_tag(url: str, key: str, tag: bytes) -> None:
    parts = make_url(url)
    with psycopg.connect(host=parts.host, port=parts.port, user=parts.username, dbname=parts.database) as connection:
        connection.execute(b"UPDATE reconciler_outbox SET tag = '%b' WHERE unique_key = '%b'" % (tag, key.encode()))


@pytest.fixture
def latin_url(postgres_server: PostgresServer) -> str:
    """A fresh database in UTF8 whose sessions begin with LATIN1."""
    made = postgres_server.create_database()
    with psycopg.connect(postgres_server.url().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {make_url(made).database} SET client_encoding = 'LATIN1'".encode())
    return made


@pytest.mark.sql("pgbouncer")
@pytest.mark.parametrize("is_pooled", [False, True], ids=["alone", "behind pgbouncer"])
@pytest.mark.set_up("a PostgreSQL database in UTF8 with another client_encoding")
def test_every_text_is_written_and_read_whatever_encoding_sessions_begin_with(
    latin_url: str, is_pooled: bool, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("pgbouncer_server").through(latin_url) if is_pooled else latin_url
    schema.upgrade(url, "outbox")
    world, key = World(url), new_key()
    world.insert_row(key, tag="\u652f\u4ed8")
    world.close()
    with closing(SqlOutboxReader([CommitSource(producer_group=GROUP, topics=frozenset({TOPIC}), url=url)])) as reader:
        found = reader.look_up(TOPIC, {key: 0})
    assert [row.message.tag for row in found[key].records] == ["\u652f\u4ed8"]
    ((_, source),) = parse_sources(outbox=[f"{GROUP}={url}"]).outboxes
    with reading(source) as connection:
        asked = sa.text("SELECT unique_key FROM reconciler_outbox WHERE tag = :tag")
        assert connection.execute(asked, {"tag": "\u652f\u4ed8"}).scalar_one() == key


@pytest.mark.set_up("a PostgreSQL database in SQL_ASCII")
def test_a_text_in_another_encoding_is_damage_of_its_row_alone(world: World, url: str) -> None:
    sound, damaged = new_key(), new_key()
    world.insert_row(sound)
    world.insert_row(damaged)
    write_tag(url, sound, "支付".encode())
    write_tag(url, damaged, b"pay\xe9")
    with closing(SqlOutboxReader([CommitSource(producer_group=GROUP, topics=frozenset({TOPIC}), url=url)])) as reader:
        found = reader.look_up(TOPIC, dict.fromkeys((sound, damaged), 0))
    assert [row.message.tag for row in found[sound].records] == ["支付"]
    assert found[damaged].presence is Presence.UNKNOWN
    with closing(SqlOutbox(url)) as outbox:
        assert outbox.mark_announced([sound, damaged]) == 2
        with pytest.raises(MalformedInput, match="tag"):
            outbox.find(damaged)
        fact = outbox.find(sound)
    assert fact is not None
    assert fact.tag == "支付"


@pytest.mark.sql("pgbouncer")
def test_its_tables_are_made_behind_a_pooler(pgbouncer_server: PgBouncer, url: str) -> None:
    pooled = pgbouncer_server.through(url)
    schema.upgrade(pooled, "outbox")
    with closing(SqlOutbox(pooled)) as outbox:
        assert outbox.find(new_key()) is None
        assert len(outbox.identity()) == 32


def test_a_text_in_another_encoding_ends_an_audit(world: World, url: str) -> None:
    keys = [new_key(), new_key()]
    for key in keys:
        world.insert_row(key)
    write_tag(url, keys[0], "支付".encode())
    write_tag(url, keys[1], b"pay\xe9")
    ((_, source),) = parse_sources(outbox=[f"{GROUP}={url}"]).outboxes
    with reading(source) as connection:
        tags = connection.execute(sa.text("SELECT tag FROM reconciler_outbox")).scalars()
        assert set(tags) == {"支付", b"pay\xe9"}
