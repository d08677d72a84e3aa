"""The knowledge of one subscription about one queue, and the part of it that a look needs."""

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
    """This process's view of one queue. One step at a time uses it."""

    era: int = -1
    position: int | None = None
    #: The last record that was seen below the position. None: no record is known, so nothing is proved.
    last: QueueRecord | None = None
    #: Earlier records. The list begins with the oldest record.
    trail: tuple[QueueRecord, ...] = ()
    #: Number of positions in a row at which the queue began, as its broker said, without a record seen there. Above 0:
    #: the present position is such a position. The beginning of a queue only rises, so a queue that begins before the
    #: position is another queue.
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
    #: The common reader of the queue for several subscriptions. None: the queue has no common reader.
    reader: QueueReader | None = None
    #: Calls for the next step, from any thread.
    wake: Callable[[], None] = lambda: None
    #: Messages that the common reader collects for this subscription. None: the common reader collects nothing for it.
    follower: Follower | None = None
    #: True if the subscription takes all its messages from the common reader.
    is_joined: bool = False
    #: The monotonic second at which the offset was last moved while a common reader reads the queue.
    moved_at: float = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedQueue:
    """A queue whose announcements the common reader hands out to a subscription."""

    queue: AnnouncementQueue
    shard: Shard
    #: The offset that Redis should have.
    position: int
    #: The monotonic second at which Redis was last seen with this offset.
    compared_at: float
    is_lease_due: bool
    #: True if the step has work for which nobody may have called it.
    is_due: bool
    #: Calls for the next step.
    wake: Callable[[], None]
