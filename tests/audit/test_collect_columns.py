"""What comes as columns says the same as row by row."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.audit.collect.columns import key_bytes, members_of
from reconciler.audit.collect.selection import Selection, read_rows
from reconciler.audit.collect.sources import Source
from reconciler.audit.errors import AuditError
from reconciler.contract.evidence_layout import OUTBOX_EVIDENCE
from reconciler.contract.unique_key import UNIQUE_KEY_PATTERN, member_of
from reconciler.sql import tables
from tests.integration.policy.test_proof_of_primaries import login_of
from tests.services.postgres import PostgresServer

SELECTION = Selection(
    layout=OUTBOX_EVIDENCE,
    table="reconciler_outbox",
    equal=(("producer_group", "%orders"),),
    among=(("topic", ("ORDERS", "%RETURNS")),),
    since=("created_at_ms", 0, 1_000),
)


@settings(deadline=None)
@given(st.lists(st.from_regex(UNIQUE_KEY_PATTERN, fullmatch=True) | st.binary(min_size=16, max_size=32).map(bytes.hex)))
@example([])
@example(["0a" * 16, "0A" * 16, "F" * 33, "0A" * 17, "G" * 64, "_" * 16])
def test_a_column_of_keys_has_the_member_of_each(keys: list[str]) -> None:
    keys = [*keys, *(key.upper() for key in keys)]
    found = members_of(pa.array(["before", *keys, "behind"], pa.string()).slice(1, len(keys)))
    assert found.to_pylist() == [member_of(key) for key in keys]


@pytest.mark.parametrize(
    "other", [None, "", "AB" * 7, "A" * 65, "AB" * 15 + "A ", "AB" * 15 + "\u00c4A", "0" * 31 + "\n"]
)
def test_a_column_with_a_text_that_is_no_key_is_refused_as_that_text_is(other: str | None) -> None:
    with pytest.raises(ValueError, match="is no unique key") as alone:
        key_bytes(other)
    with pytest.raises(ValueError, match="is no unique key") as refused:
        members_of(pa.array(["AB" * 16, other, "AB" * 17], pa.string()))
    assert str(refused.value) == str(alone.value)


def read(url: str) -> list[dict[str, object]]:
    source = Source(kind="database", address=url, option="--outbox orders")
    return [row for page in read_rows(source, SELECTION) for row in page.to_pylist()]


def with_outbox(url: str, rows: list[dict[str, object]]) -> None:
    engine = sa.create_engine(url)
    tables.outbox.create(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(tables.outbox), rows)
    engine.dispose()


def row(number: int, **more: object) -> dict[str, object]:
    of = {"unique_key": f"{number:032X}", "topic": "%RETURNS", "producer_group": "%orders", "state": "NEW"}
    return {**of, "tag": None, "content_digest": None, "created_at_ms": number, "business_id": None, **more}


@pytest.mark.parametrize("text", ["", "NULL", "\\N", "\\.", '"', ",", "a,b\r\n\"c'%s\\", "\t", "\u00e9\u4e2d", None])
def test_every_database_gives_texts_and_nothing_as_they_were_written(
    new_database_url: Callable[[], str], text: str | None
) -> None:
    url = new_database_url()
    digest = bytes(range(32))
    with_outbox(url, [row(1, tag=text, business_id=text), row(2, tag="b", business_id=text, content_digest=digest)])
    found = read(url)
    assert [(one["tag"], one["business_id"], one["content_digest"]) for one in found] == [
        (text, text, None),
        ("b", text, digest),
    ]
    assert [one["key"] for one in found] == [bytes(15) + b"\1", bytes(15) + b"\2"]


def database_in(server: PostgresServer, encoding: str) -> str:
    made = server.create_database()
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True) as connection:
        name = made.rpartition("/")[2]
        connection.execute(f"DROP DATABASE {name}".encode())
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
    return made


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_of_a_database_in_another_encoding_are_texts(postgres_server: PostgresServer, encoding: str) -> None:
    url = database_in(postgres_server, encoding)
    with_outbox(f"{url}?client_encoding=utf8", [row(1, tag="caf\u00e9")])
    assert [one["tag"] for one in read(url)] == ["caf\u00e9"]


def test_a_text_that_is_none_is_refused_where_the_database_checks_nothing(postgres_server: PostgresServer) -> None:
    url = database_in(postgres_server, "SQL_ASCII")
    with_outbox(f"{url}?client_encoding=utf8", [row(1)])
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(b"UPDATE reconciler_outbox SET tag = E'\\xff'")
    with pytest.raises(AuditError, match=r"--outbox orders: .* invalid byte sequence") as refused:
        read(url)
    assert refused.value.reason == "inputs"


def test_a_database_that_fails_in_the_middle_of_its_rows_is_no_evidence(postgres_url: str) -> None:
    with_outbox(postgres_url, [row(number) for number in range(1, 900)])
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute(b"ALTER TABLE reconciler_outbox RENAME TO before")
        connection.execute(
            b"CREATE VIEW reconciler_outbox AS SELECT unique_key, topic, producer_group, tag, content_digest, state,"
            b" created_at_ms + 0 / (created_at_ms - 800) AS created_at_ms, announced_at_ms, business_id FROM before"
        )
    with pytest.raises(AuditError, match="did not answer to the end: division by zero") as refused:
        read(postgres_url)
    assert refused.value.reason == "inputs"


def test_keys_that_are_bytes_in_the_database_are_members(postgres_url: str) -> None:
    with_outbox(postgres_url, [row(1)])
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute(
            b"ALTER TABLE reconciler_outbox ALTER COLUMN unique_key TYPE bytea USING decode(unique_key, 'hex')"
        )
    assert [one["key"] for one in read(postgres_url)] == [bytes(15) + b"\1"]


#: Policies of the outbox, and whether a login that they hold for sees each row that is asked for.
ROW_SECURITY = (
    ("", False),
    ("CREATE POLICY a ON {table} USING (length(tag) > 99)", False),
    ("CREATE POLICY a ON {table} USING (topic = '%RETURNS')", False),
    ("CREATE POLICY a ON {table} FOR UPDATE TO {login} USING (true)", False),
    ("CREATE POLICY a ON {table} TO reconciler USING (true)", False),
    ("CREATE POLICY a ON {table} USING (true); CREATE POLICY b ON {table} AS RESTRICTIVE USING (tag = '')", False),
    ("CREATE POLICY a ON {table} USING (true); CREATE POLICY b ON {table} USING (tag = '')", True),
    ("CREATE POLICY a ON {table} FOR SELECT TO {login} USING (producer_group LIKE '%orders')", True),
    ("CREATE POLICY a ON {table} USING (EXISTS (SELECT FROM pg_class WHERE {table}.producer_group > ''))", True),
    ("ALTER ROLE {login} BYPASSRLS", True),
)


def test_what_row_security_may_hide_is_no_evidence_and_what_it_shows_is_read_as_without_it(postgres_url: str) -> None:
    with_outbox(postgres_url, [row(1), row(2, topic="ORDERS", tag="x")])
    reader = login_of(postgres_url, "SELECT ON reconciler_outbox")
    before = read(reader)
    for policies, shows in ROW_SECURITY:
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
            connection.execute(b"ALTER TABLE reconciler_outbox ENABLE ROW LEVEL SECURITY")
            connection.execute(policies.format(table="reconciler_outbox", login=sa.make_url(reader).username).encode())
        if shows:
            assert read(reader) == before, policies
        else:
            with pytest.raises(AuditError, match="row security may hide rows of reconciler_outbox") as refused:
                read(reader)
            assert refused.value.reason == "inputs", policies
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
            connection.execute(
                b"DROP POLICY IF EXISTS a ON reconciler_outbox; DROP POLICY IF EXISTS b ON reconciler_outbox"
            )
