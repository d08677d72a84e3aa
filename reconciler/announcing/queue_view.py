"""What one subscription knows of one queue, and what a look sees of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.announcing.port import StepKind
from reconciler.announcing.reader import Follower, QueueReader
from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.subscription import Shard
from reconciler.policy.ports.announcing import AnnouncementQueue

NEVER = float("-inf")


@dataclass(slots=True)
class QueueView:
    """This process's view of one queue; used by one step at a time."""

    era: int = -1
    position: int | None = None
    #: The last record that was seen below the position; None: none is known, nothing is proved.
    last: QueueRecord | None = None
    #: Earlier records, oldest first.
    trail: tuple[QueueRecord, ...] = ()
    #: Above 0: the position is where the queue began, as its broker said, and nothing was seen there yet. The beginning
    #: of a queue only rises: one that begins before the position is another queue. Counts such positions in a row.
    beginnings: int = 0
    lease_renewed_at: float | None = None
    compared_at: float = 0.0
    failures: int = 0
    idle_steps: int = 0
    suspended_for: str = ""
    #: It was suspended first because its broker did not answer.
    is_broker_away: bool = False
    behind: int | None = None
    kind: StepKind | None = None
    admitted_keys: int = 0
    refused: int = 0
    rewinds: int = 0
    #: Who reads the queue for several; None: nobody does.
    reader: QueueReader | None = None
    #: Calls for the next step, from any thread.
    wake: Callable[[], None] = lambda: None
    #: What the reader collects for this subscription; None: nothing.
    follower: Follower | None = None
    #: All that comes is taken from there.
    is_joined: bool = False
    #: When the offset was moved last on what was handed out.
    moved_at: float = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedQueue:
    """A queue whose announcements are handed out to a subscription."""

    queue: AnnouncementQueue
    shard: Shard
    #: The stored offset.
    position: int
    #: When Redis had that last, in monotonic seconds.
    compared_at: float
    is_lease_due: bool
    #: There is something to do that nobody may have called for.
    is_due: bool
    #: Calls for the next step.
    wake: Callable[[], None]
