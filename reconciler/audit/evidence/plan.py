"""The plan of every task: plain values that can be pickled. folder.py makes it, and judge/ reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.audit.result.values import Window

#: Rows of all tables of a prefix that are judged at once, about 160 bytes each; more are judged in slices of keys.
ROWS_AT_ONCE_MAX = 5_000_000
#: How long after its row's window a commit may be seen: history is read from a day before a window on, and a key that
#: was announced before that and again in the window must not be taken for new.
LATE_COMMIT_MS_MAX = 86_400_000
#: An unseen commit counts this many times `late_after_seconds` after its row: an audit that waits for one more has seen
#: it if its transaction lasted that long.
UNSEEN_LATES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot of a shard's pending."""

    at_ms: int
    epoch: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """How one subscription is judged."""

    topic: str
    group: str
    #: None: every tag.
    tags: frozenset[str] | None
    grace_ms: int
    late_after_ms: int
    as_of_ms: int
    #: An outbox was given for every producer group.
    outboxes_complete: bool
    #: Its half messages announce, and no outbox was given: a half without a known effect may be one that was rolled
    #: back, and is in no class.
    of_halves: bool = False
    #: By shard, in the order of at_ms.
    snapshots: Mapping[int, tuple[Snapshot, ...]] = field(default_factory=dict)
    #: Times of the first rounds after Redis lost rounds that history has not: what rounds took before is not all known.
    reread_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePlan:
    """What holds for all prefixes."""

    window: Window
    skew_bound_ms: int
    #: The ledger was given: without it only history shows which keys were quarantined.
    ledger: bool
    #: A history was given: without it the announcements are not known.
    history: bool
    subscriptions: tuple[GroupPlan, ...]
    #: Findings that a prefix gives back at most.
    findings_max: int
    rows_at_once_max: int = ROWS_AT_ONCE_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """One row group of a file of all prefixes."""

    number: int
    prefix: int
    rows: int
    #: Of its bytes in the file.
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfFile:
    """The row groups of a file that a task reads."""

    groups: tuple[RowGroup, ...]
    #: Of the whole file.
    rows_of_file: int
    #: Of the file's last bytes, from the metadata on.
    footer_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One Parquet file that a task reads, or its part of one."""

    #: Folder or URL.
    root: str
    #: Below `root`.
    path: str
    #: What messages call it.
    shown: str
    table: str
    #: Those that the task reads.
    rows: int
    #: Of the whole file.
    sha256: str
    #: None: the whole file is read.
    part: PartOfFile | None = None
