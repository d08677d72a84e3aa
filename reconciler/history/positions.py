"""Finds the newest round of every shard in spool and history. No other record of the positions survives a kill -9."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from reconciler.contract.history_row import ROUND
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import MalformedInput, TransientError
from reconciler.history.chain import ManifestChain
from reconciler.history.chain_head import missing_entry
from reconciler.history.maintenance import HistoryMaintenance
from reconciler.history.sealer import read_segment
from reconciler.history.spool import adoptable
from reconciler.history.store import HistoryStore
from reconciler.policy.ports.history import RoundMark
from reconciler.policy.ports.rounds import RoundDone

logger = logging.getLogger(__name__)

#: Number of newest days with rounds that are read. A shard without a round on these days starts without a position.
DAYS_MAX = 8


def newest_marks(environment: str, rows: Iterable[Mapping[str, Any]]) -> dict[Shard, RoundMark]:
    """Finds the newest round of every shard in rows of the stream `round`."""
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
    """Finds the newest rounds in segments that are not sealed yet. Raises OSError."""
    rows = (b.shared for s in segments for b in read_segment(s).batches if b.stream == ROUND.name)
    return newest_marks(environment, rows)


def marks_in_history(store: HistoryStore, chain: ManifestChain, wanted: Iterable[Shard]) -> dict[Shard, RoundMark]:
    """Finds the newest rounds in sealed files. Reads from the newest day back, until every wanted shard is found.

    Raises OSError and MalformedInput.
    """
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


@dataclass(slots=True)
class HistoryPositions:
    """Positions of the shards when the process begins."""

    #: Newest round of each shard in spool and history. Empty: spool and history could not be read.
    marks: dict[Shard, RoundMark]
    #: Newest round of each shard that the ledger knows.
    stored: dict[Shard, RoundDone] = field(default_factory=dict)


class PositionsReader:
    """Reader of positions. It adopts dead writers' folders of the spool, and reads these folders and the history."""

    def __init__(
        self,
        store: HistoryStore,
        chain: ManifestChain,
        *,
        spool: Path,
        shards: Sequence[Shard],
        maintenance: HistoryMaintenance,
        last_stored: Callable[[Shard], RoundDone | None],
    ) -> None:
        self._store = store
        self._chain = chain
        self._spool = spool
        self._shards = shards
        self._maintenance = maintenance
        self._last_stored = last_stored

    def __call__(self) -> HistoryPositions:
        """Reads the positions. Raises no error. Positions that cannot be read are left out, and a warning is logged.

        A history that begins although the ledger has rounds is logged, too: its file system may not be mounted.
        """
        marks: dict[Shard, RoundMark] = {}
        is_read, lost = False, None
        try:
            adopted = adoptable(self._spool)
            self._maintenance.adopt(adopted)
            segments = [segment for folder in adopted for segment in folder.segments()]
            marks = marks_in_segments(self._store.environment, segments)
        except OSError as error:
            logger.warning("history_spool_unreadable", extra={"error": str(error)})
        try:
            # The history is newer than the spool if another writer continued a shard.
            for shard, mark in marks_in_history(self._store, self._chain, self._shards).items():
                known = marks.get(shard)
                if known is None or known.at_ms < mark.at_ms:
                    marks[shard] = mark
            is_read = True
            lost = missing_entry(self._spool, self._store.root, self._store.environment)
        except (OSError, MalformedInput) as error:
            logger.warning("history_unreadable", extra={"error": str(error)})
        stored = self._stored()
        if lost is not None:
            about = {"environment": self._store.environment, "problem": lost}
            logger.error("history_manifest_damaged", extra=about)
        elif is_read and stored and not marks and not self._chain.sequence:
            newest_ms = max(done.at_ms for done in stored.values())
            logger.warning("history_begins", extra={"folder": str(self._store.root), "rounds_until_ms": newest_ms})
        return HistoryPositions(marks=marks, stored=stored)

    def _stored(self) -> dict[Shard, RoundDone]:
        """Reads the newest rounds from before this process, so that rounds lost with Redis' memory become a gap."""
        found: dict[Shard, RoundDone] = {}
        try:
            for shard in self._shards:
                last = self._last_stored(shard)
                if last is not None:
                    found[shard] = last
        except TransientError as error:
            logger.warning("history_ledger_unreadable", extra={"error": str(error)})
        return found
