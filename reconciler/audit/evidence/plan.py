"""Plan of every task, made of plain values that can be pickled.

folder.py makes the plan. The modules of judge/ read the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.audit.result.values import Window

#: Largest number of rows of a prefix, in all tables, that are judged at once. A row takes about 160 bytes. A prefix
#: with more rows is judged in slices of keys.
ROWS_AT_ONCE_MAX = 5_000_000
#: Longest time after a row's window in which the commit may be seen. The history is read from a day before a window on.
#: A key that was announced earlier, and again in the window, must not count as new.
LATE_COMMIT_MS_MAX = 86_400_000
#: Number of times `late_after_seconds` after its row at which an unseen commit counts. An audit waits once more
#: `late_after_seconds`, so the audit has seen a commit whose transaction lasted that long.
UNSEEN_LATES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a shard's pending."""

    at_ms: int
    epoch: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """Plan by which one subscription is judged."""

    topic: str
    group: str
    #: Tags that the group takes. None: every tag.
    tags: frozenset[str] | None
    grace_ms: int
    late_after_ms: int
    as_of_ms: int
    #: True: an outbox was given for every producer group.
    outboxes_complete: bool
    #: True: half messages announce, and no outbox was given. A half without a known effect may have been rolled back,
    #: so the half is in no class.
    of_halves: bool = False
    #: Snapshots by shard, in the order of at_ms.
    snapshots: Mapping[int, tuple[Snapshot, ...]] = field(default_factory=dict)
    #: Times of the first rounds after Redis lost rounds that the history lacks. Before these times not all rounds are
    #: known.
    reread_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePlan:
    """Plan that holds for all prefixes."""

    window: Window
    skew_bound_ms: int
    #: True: the ledger was given. Without it only the history shows which keys were quarantined.
    ledger: bool
    #: True: a history was given. Without it the announcements are not known.
    history: bool
    subscriptions: tuple[GroupPlan, ...]
    #: Largest number of findings that a prefix returns.
    findings_max: int
    rows_at_once_max: int = ROWS_AT_ONCE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group of a file of all prefixes."""

    number: int
    prefix: int
    rows: int
    #: SHA-256 of the row group's bytes in the file.
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfFile:
    """The row groups of a file that a task reads."""

    groups: tuple[RowGroup, ...]
    #: Rows of the whole file.
    rows_of_file: int
    #: SHA-256 of the file's last bytes, from the metadata on.
    footer_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One Parquet file, or part of one, that a task reads."""

    #: Folder or URL.
    root: str
    #: Path below `root`.
    path: str
    #: Name of the file in messages.
    shown: str
    table: str
    #: Rows that the task reads.
    rows: int
    #: SHA-256 of the whole file.
    sha256: str
    #: Part of the file that the task reads. None: the whole file.
    part: PartOfFile | None = None
