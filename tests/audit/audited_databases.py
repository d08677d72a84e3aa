"""Databases as producers, consumers and the reconciler leave them, made from a generated evidence folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import sqlalchemy as sa

from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import Sources, parse_sources
from reconciler.audit.result.values import AuditedSubscription, Window
from reconciler.contract.unique_key import key_of
from reconciler.sql import tables

EFFECTS = sa.Table(
    "payments",
    sa.MetaData(),
    sa.Column("message_key", sa.String(64)),
    sa.Column("topic", sa.String(160)),
    sa.Column("consumer_group", sa.String(160)),
)


@dataclass(frozen=True, kw_only=True)
class Databases:
    """URLs of the three databases, and what was asked of the generated folder."""

    outbox_url: str
    inbox_url: str
    ledger_url: str
    asked: dict[str, Any]
    history: Path

    def sources(self) -> Sources:
        """As the command's options name them."""
        query = (
            "SELECT message_key, count(*) FROM payments WHERE topic = '{topic}' AND consumer_group = '{group}'"
            " GROUP BY message_key"
        )
        groups = sorted({group for s in self.asked["subscriptions"] for group in s["producer_groups"]})
        return parse_sources(
            outbox=[f"{group}={self.outbox_url}" for group in groups],
            inbox=[f"{s['topic']}/{s['group']}={self.inbox_url}" for s in self.asked["subscriptions"]],
            effects=[
                f"{s['topic']}/{s['group']}={self.inbox_url}#{query.format(**s)}" for s in self.asked["subscriptions"]
            ],
            ledger=self.ledger_url,
        )

    def request(self, sources: Sources | None = None) -> Request:
        """The same question that the folder answers."""
        asked = self.asked
        return Request(
            environment=asked["environment"],
            window=Window(**asked["window"]),
            shards=asked["shards"],
            skew_bound_ms=asked["skew_bound_ms"],
            subscriptions=tuple(
                AuditedSubscription(
                    topic=s["topic"],
                    group=s["group"],
                    tags=None if s["tags"] is None else tuple(s["tags"]),
                    producer_groups=tuple(s["producer_groups"]),
                    grace_period_seconds=s["grace_period_seconds"],
                    late_after_seconds=s["late_after_seconds"],
                    inbox=True,
                    effects=True,
                )
                for s in asked["subscriptions"]
            ),
            sources=self.sources() if sources is None else sources,
            history=str(self.history),
            collected_at_ms=asked["collected_at_ms"],
        )


def quiet(_line: str) -> None:
    """No progress."""


def load_databases(generated: Path, new_url: Callable[[], str]) -> Databases:
    """Fills fresh databases with the folder's rows, each once."""
    asked = json.loads((generated / "evidence.json").read_text())
    history = generated / asked["history"]
    outbox_url, inbox_url, ledger_url = new_url(), new_url(), new_url()
    _fill(outbox_url, [(tables.outbox, _unique(_rows(generated / "outbox"), ("unique_key",)))])
    effects = [
        {"message_key": row["unique_key"], "topic": row["topic"], "consumer_group": row["consumer_group"]}
        for row in _unique(_rows(generated / "effects"), ("unique_key", "topic", "consumer_group"))
        for _ in range(row["effects"])
    ]
    inbox = _unique(_rows(generated / "inbox"), ("consumer_group", "unique_key"))
    _fill(inbox_url, [(tables.inbox, inbox), (EFFECTS, effects)])
    environment = {"environment": asked["environment"]}
    rounds = _unique(_rows(history / "round"), ("topic", "consumer_group", "shard", "epoch", "generation"))
    numbers = ("matched", "pending_before", "pending_added", "pending_after")
    of_rounds = [
        {
            **{name: row[name] for name in ("topic", "consumer_group", "shard", "epoch", "generation", "at_ms")},
            **{name: row[name] or 0 for name in numbers},
            **environment,
            "announced": row["announced"],
            "offsets": "{}",
            "pending_matched": row["left_matched"],
            "void": 0,
            "stored_at_ms": row["at_ms"],
        }
        for row in rounds
    ]
    candidates = [
        {**row, **environment, "shard": 0, "evidence": "{}", "attempts": 1, "next_at_ms": 0}
        for row in _unique(_rows(generated / "candidate"), ("topic", "consumer_group", "unique_key"))
    ]
    known = set(tables.repair.columns.keys())
    repairs = [
        {**{name: value for name, value in row.items() if name in known}, **environment, "next_at_ms": 0}
        for row in _unique(_rows(generated / "repair"), ("topic", "scope", "unique_key"))
    ]
    _fill(ledger_url, [(tables.candidate, candidates), (tables.repair, repairs), (tables.round_row, of_rounds)])
    return Databases(
        outbox_url=outbox_url, inbox_url=inbox_url, ledger_url=ledger_url, asked=asked, history=history.resolve()
    )


def _rows(folder: Path) -> Iterable[dict[str, Any]]:
    for path in sorted(folder.rglob("*.parquet")):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            if "key" in row:
                row["unique_key"] = key_of(row.pop("key"))
            yield row


def _unique(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        found[tuple(row[name] for name in names)] = row
    return list(found.values())


def _fill(url: str, contents: Sequence[tuple[sa.Table, list[dict[str, Any]]]]) -> None:
    engine = sa.create_engine(url)
    for table, rows in contents:
        table.create(engine)
        with engine.begin() as connection:
            for first in range(0, len(rows), 1000):
                connection.execute(sa.insert(table), rows[first : first + 1000])
    engine.dispose()
