"""What one subscription knows about one queue, and what a look sees of that."""

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
    #: The last record that was seen below the position; None: no record is known, so nothing is proved.
    last: QueueRecord | None = None
    #: Earlier records, the oldest first.
    trail: tuple[QueueRecord, ...] = ()
    #: Above 0: the position is where the queue began, as its broker said, and no record was seen there yet. The
    #: beginning of a queue only rises, so a queue that begins before the position is another one. Counts such positions
    #: in a row.
    beginnings: int = 0
    lease_renewed_at: float | None = None
    compared_at: float = 0.0
    failures: int = 0
    idle_steps: int = 0
    suspended_for: str = ""
    #: True if the queue was suspended because its broker did not answer.
    is_broker_away: bool = False
    behind: int | None = None
    kind: StepKind | None = None
    admitted_keys: int = 0
    refused: int = 0
    rewinds: int = 0
    #: The common reader of the queue for several subscriptions; None: there is none.
    reader: QueueReader | None = None
    #: Calls for the next step; may be called from any thread.
    wake: Callable[[], None] = lambda: None
    #: What the common reader collects for this subscription; None: nothing.
    follower: Follower | None = None
    #: True if the subscription takes all its messages from the common reader.
    is_joined: bool = False
    #: When the offset was last moved without keys that were handed out.
    moved_at: float = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedQueue:
    """A queue whose announcements the common reader hands out to a subscription."""

    queue: AnnouncementQueue
    shard: Shard
    #: The offset that Redis should have.
    position: int
    #: When Redis was last seen with that offset, in monotonic seconds.
    compared_at: float
    is_lease_due: bool
    #: True if the step has something to do for which it may not have been called.
    is_due: bool
    #: Calls for the next step.
    wake: Callable[[], None]
