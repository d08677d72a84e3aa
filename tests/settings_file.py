"""Files that a person writes: settings of one topic, one producer group and one subscription, and the queries that
settings name. A test names what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reconciler.sql import schema

__all__ = ["NOWHERE", "NO_REDIS", "ORDERS_SQL", "commit_queries_file", "effect_queries_file", "settings_file"]

#: Nothing listens there.
NOWHERE = "127.0.0.1:1"
NO_REDIS = f"redis://{NOWHERE}/0"

ORDERS_SQL = "SELECT number, status FROM orders WHERE number IN (:keys)"


def settings_file(
    folder: Path,
    *lines: str,
    environment: str = "test",
    name_servers: str = NOWHERE,
    redis_url: str = NO_REDIS,
    ledger_url: str = "",
    topic: str = "ORDERS",
    producer_group: str = "shop",
    of_producers: str = "",
    group: str = "billing",
    of_subscription: str = "",
    sections: str = "",
    has_ledger: bool = False,
) -> Path:
    """Writes reconciler.toml into the folder.

    `lines`: settings outside of any section, such as "unique_key_topic.queues = 1". `of_producers`, `of_subscription`:
    further lines of these sections; one whose group has no name is left out. `sections`: what follows them. Unless its
    URL is given, the ledger is ledger.db of the folder; `has_ledger`: with its tables.
    """
    ledger_url = ledger_url or f"sqlite:///{folder}/ledger.db"
    if has_ledger:
        schema.upgrade(ledger_url, "ledger")
    file = folder / "reconciler.toml"
    written = [
        f'environment = "{environment}"',
        f'rocketmq.name_servers = "{name_servers}"',
        f'redis.url = "{redis_url}"',
        f'ledger.url = "{ledger_url}"',
        *lines,
    ]
    if producer_group:
        written += ["[[producers]]", f'group = "{producer_group}"', f'topics = ["{topic}"]', of_producers]
    if group:
        written += ["[[subscriptions]]", f'topic = "{topic}"', f'group = "{group}"', of_subscription]
    file.write_text("\n".join([*written, sections]))
    return file


def commit_queries_file(
    folder: Path,
    *topics: str,
    database_url: str = "",
    sql: str = ORDERS_SQL,
    key: str = "KEYS",
    seconds: float = 600.0,
) -> Path:
    """Writes queries.toml into the folder: one query for each topic. `seconds`: longest_transaction_seconds.

    Unless its URL is given, the database of the orders is shop.db of the folder.
    """
    return _queries_file(
        folder / "queries.toml",
        "commit_queries",
        [
            f"""topic = "{topic}"
database_url = "{database_url or f"sqlite:///{folder}/shop.db"}"
sql = '''{sql}'''
key = "{key}"
committed = ["PAID"]
rolled_back = ["CANCELLED"]
longest_transaction_seconds = {seconds}
"""
            for topic in topics
        ],
    )


def effect_queries_file(
    folder: Path,
    *groups: str,
    topic: str = "ORDERS",
    name: str = "effects.toml",
    database_url: str = "",
    sql: str = "SELECT number, status FROM bills WHERE number IN (:keys)",
    key: str = "KEYS",
    applied: str = "BILLED",
    more: str = "",
) -> Path:
    """Writes a file of this name into the folder: one query for each group of the topic. `more`: lines of each.

    Unless its URL is given, the database of the bills is shop.db of the folder.
    """
    return _queries_file(
        folder / name,
        "effect_queries",
        [
            f"""topic = "{topic}"
group = "{group}"
database_url = "{database_url or f"sqlite:///{folder}/shop.db"}"
sql = '''{sql}'''
key = "{key}"
applied = ["{applied}"]
not_applied = ["NEW"]
{more}
"""
            for group in groups
        ],
    )


def _queries_file(file: Path, section: str, queries: Iterable[str]) -> Path:
    file.write_text("".join(f"[[{section}]]\n{query}" for query in queries))
    return file
