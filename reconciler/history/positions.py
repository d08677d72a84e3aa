"""Where the history stands for every shard, from its own rounds: the only memory that survives a kill -9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from reconciler.contract.history_row import ROUND
from reconciler.contract.subscription import Shard, Subscription
from reconciler.history.chain import ManifestChain
from reconciler.history.sealing import read_segment
from reconciler.history.store import HistoryStore
from reconciler.ports import RoundMark

#: Days with rounds that are looked at, newest first: a shard that ran in none of them begins anew.
DAYS_MAX = 8


def newest_marks(environment: str, rows: Iterable[Mapping[str, Any]]) -> dict[Shard, RoundMark]:
    """The newest round of every shard in rows of the stream `round`."""
    newest: dict[Shard, RoundMark] = {}
    for row in rows:
        subscription = Subscription(environment=environment, topic=row["topic"], group=row["consumer_group"])
        shard = Shard(subscription=subscription, number=row["shard"])
        mark = RoundMark(epoch=row["epoch"], generation=row["generation"], at_ms=row["at_ms"])
        known = newest.get(shard)
        if known is None or (known.at_ms, known.generation) < (mark.at_ms, mark.generation):
            newest[shard] = mark
    return newest


def marks_in_segments(environment: str, segments: Iterable[Path]) -> dict[Shard, RoundMark]:
    """From segments that are not sealed yet. Raises OSError."""
    rows = (b.shared for s in segments for b in read_segment(s).batches if b.stream == ROUND.name)
    return newest_marks(environment, rows)


def marks_in_history(store: HistoryStore, chain: ManifestChain, wanted: Iterable[Shard]) -> dict[Shard, RoundMark]:
    """From the sealed files, newest day first, until every wanted shard is found. Raises OSError, MalformedInput."""
    chain.refresh()
    files = sorted((f for f in chain.files().values() if f.stream == ROUND.name), key=lambda f: f.date, reverse=True)
    missing, found = set(wanted), dict[Shard, RoundMark]()
    for number, (_, of_day) in enumerate(groupby(files, key=lambda f: f.date)):
        if number >= DAYS_MAX or not missing:
            break
        rows = (row for file in of_day for row in store.read(file).to_pylist())
        for shard, mark in newest_marks(store.environment, rows).items():
            found.setdefault(shard, mark)
        missing -= found.keys()
    return found
