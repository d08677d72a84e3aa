"""A shop that holds none of our code: orders in a database, and halves at the embedded broker that announce them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.settings_file import commit_queries_file, settings_file
from tests.unit.embedded.check_back_stage import Stage
from tests.unit.embedded.raw_client import TOPIC

COMMIT, ROLLBACK = 8, 12


def shop_of(folder: Path, play: Stage, *, halves: int) -> None:
    """As many paid orders as orders that were never written, each with its half."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, status TEXT)")
        shop.executemany("INSERT INTO orders VALUES (?, 'PAID')", [(f"c{number}",) for number in range(halves)])
    for number in range(halves):
        play.end(play.half(f"C{number}", KEYS=f"c{number}"), COMMIT)
        play.end(play.half(f"R{number}", KEYS=f"r{number}"), ROLLBACK)
    play.write_ends()


def settings_of(play: Stage, folder: Path, *, of_subscription: str = "") -> Path:
    """The file of a deployment that reads the halves of the topic. Its ledger has no tables."""
    return settings_file(
        folder,
        "repairs.enabled = false",
        name_servers=play.broker.address,
        topic=TOPIC,
        of_producers=f'commit_queries = "{commit_queries_file(folder, TOPIC)}"',
        of_subscription=f'announcements = "half_topic"\n{of_subscription}',
    )
