"""Settings of many subscriptions in each shape that a file may have."""

from __future__ import annotations

from pathlib import Path

#: What proves commits and effects, and how topics and groups lie together.
SHAPES = ("announced only", "databases each", "databases shared", "groups of one topic", "queries")


def sections_of(shape: str, number: int, folder: Path) -> str:
    """The sections of so many subscriptions. Files of queries are written into the folder."""
    numbers = range(number)
    match shape:
        case "queries":
            commits, effects = query_files(number, folder)
            each = "".join(
                _producer([f"T{n}"], group=f"shop-{n}", more=f'commit_queries = "{commits}"')
                + _subscription(
                    f"T{n}",
                    'announcements = "half_topic"\nconsumers_are_idempotent = true\n' + f'effect_query = "{effects}"',
                )
                for n in numbers
            )
            return f"{each}[repairs.topics]\n" + "".join(f"T{n} = true\n" for n in numbers)
        case "groups of one topic":
            inboxes = "".join(
                _subscription("T0", f'inbox_url = "sqlite:///{folder}/inbox-{n}.db"', group=f"billing-{n}")
                for n in numbers
            )
            return _producer(["T0"], more=f'outbox_url = "sqlite:///{folder}/outbox.db"') + inboxes
        case "databases shared":
            inboxes = "".join(_subscription(f"T{n}", f'inbox_url = "sqlite:///{folder}/inbox.db"') for n in numbers)
            topics = [f"T{n}" for n in numbers]
            return _producer(topics, more=f'outbox_url = "sqlite:///{folder}/outbox.db"') + inboxes
        case "databases each":
            return "".join(
                _producer([f"T{n}"], group=f"shop-{n}", more=f'outbox_url = "sqlite:///{folder}/outbox-{n}.db"')
                + _subscription(f"T{n}", f'inbox_url = "sqlite:///{folder}/inbox-{n}.db"')
                for n in numbers
            )
        case _:
            return "".join(_producer([f"T{n}"], group=f"shop-{n}") + _subscription(f"T{n}") for n in numbers)


def _producer(topics: list[str], *, group: str = "shop", more: str = "") -> str:
    return f'[[producers]]\ngroup = "{group}"\ntopics = {topics}\n{more}\n'


def _subscription(topic: str, more: str = "", *, group: str = "billing") -> str:
    return f'[[subscriptions]]\ntopic = "{topic}"\ngroup = "{group}"\n{more}\n'


def query_files(number: int, folder: Path) -> tuple[Path, Path]:
    """Writes the commit queries and the effect queries of so many topics. Returns both files."""
    commits, effects = folder / f"commits-{number}.toml", folder / f"effects-{number}.toml"
    orders, bills = (
        f'database_url = "sqlite:///{folder}/shop.db"\nkey = "KEYS"\n'
        f'sql = "SELECT number, status FROM {table} WHERE number IN (:keys)"\n'
        for table in ("orders", "bills")
    )
    commits.write_text(
        "".join(
            f'[[commit_queries]]\ntopic = "T{n}"\n{orders}committed = ["PAID"]\nrolled_back = ["CANCELLED"]\n'
            for n in range(number)
        )
    )
    effects.write_text(
        "".join(
            f'[[effect_queries]]\ntopic = "T{n}"\ngroup = "billing"\n{bills}applied = ["BILLED"]\n'
            for n in range(number)
        )
    )
    return commits, effects


def settings_text(shape: str, number: int, folder: Path, *, name_servers: str, redis_url: str, shards: int = 2) -> str:
    """A whole file of settings, whose ledger lies in the folder."""
    return f"""environment = "test"
rocketmq.name_servers = "{name_servers}"
unique_key_topic.queues = {shards}
redis.url = "{redis_url}"
ledger.url = "sqlite:///{folder}/{number}.db"
{sections_of(shape, number, folder)}"""
