"""A body above max_allowed_packet: the database closes the connection, and is not away."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest
from sqlalchemy.engine import make_url

from reconciler.errors import InvalidValue
from tests.integration.producers.faces import FACES
from tests.services.mariadb import MariaDBServer
from tests.unit.producers.world import message

pytestmark = pytest.mark.sql("mariadb")

PACKET_BYTES = 1 << 20


@pytest.fixture
def url(mariadb_server: MariaDBServer) -> Iterator[str]:
    """A database whose new connections take packets of a mebibyte at most."""
    made = mariadb_server.create_database()
    of = make_url(made)
    root = pymysql.connect(host=of.host, port=of.port or 0, user=of.username, password=of.password or "")
    try:
        with root.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
            (before,) = cursor.fetchone() or (0,)
            cursor.execute("SET GLOBAL max_allowed_packet = %s", (PACKET_BYTES,))
        yield made
        with root.cursor() as cursor:
            cursor.execute("SET GLOBAL max_allowed_packet = %s", (before,))
    finally:
        root.close()


@pytest.mark.parametrize(
    "body",
    [b"x" * (PACKET_BYTES + 1), b"'" * (PACKET_BYTES * 3 // 4), b"x" * (PACKET_BYTES * 4)],
    ids=["a little", "quotes, which are sent twice", "more than a socket holds"],
)
def test_a_body_above_the_packet_is_refused_by_name_and_remedy(url: str, body: bytes, face: str) -> None:
    world = FACES[face](url)

    def block() -> None:
        with (
            world.producer(keep_bodies=True).transaction(message(body=body)) as tx,
            world.database.connect() as connection,
        ):
            try:
                tx.record(connection)
            finally:
                connection.invalidate()  # the server has closed it

    try:
        with pytest.raises(InvalidValue, match=r"max_allowed_packet.*1048576.*raise it") as caught:
            block()
        assert caught.value.field == "body"
        assert caught.value.value == f"{len(body)} bytes"
    finally:
        world.close()


def test_a_body_below_it_is_kept(url: str, face: str) -> None:
    world = FACES[face](url)
    try:
        with (
            world.producer(keep_bodies=True).transaction(message(body=b"x" * (PACKET_BYTES // 4))) as tx,
            world.database.begin() as connection,
        ):
            world.do_business(connection, "order 1")
            tx.record(connection)
        assert world.did_business("order 1")
    finally:
        world.close()
