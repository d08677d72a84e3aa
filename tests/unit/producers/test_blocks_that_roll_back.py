"""A block that rolls its connection back and goes on: the business is committed, the outbox row is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from checkback_producers.errors import NotCommitted
from checkback_producers.ports import Outcome
from tests.unit.producers.world import World, message


def test_a_block_that_rolls_back_and_commits_something_else_is_told_that_its_message_is_gone(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path}/orders.db")
    try:
        tx = world.producer().transaction(message())
        with closing(sqlite3.connect(tmp_path / "orders.db")) as connection:

            def block() -> None:
                with tx:
                    tx.record(connection)
                    connection.rollback()
                    connection.execute("CREATE TABLE effect_of_the_block (n INTEGER)")
                    connection.commit()

            with pytest.raises(NotCommitted, match="committed without their message"):
                block()
        assert tx.outcome is Outcome.ROLLBACK
    finally:
        world.close()
