"""One pass over the repairs of a topic: what brokers are asked once, the brakes, and withdrawn hand-over rows."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.tables import HoldKind, RepairState, Rung
from reconciler.policy.inquiry.witnesses import BrokerSnapshot
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports import Holds, Repair, RepairChange, Repairs

#: Answer of a hand-over row that was withdrawn from its worker.
WITHDRAWN = "withdrawn: the effect is there"


class RepairPass:
    """Confined to the thread of the rounds."""

    def __init__(
        self, topic: TopicPlan, *, snapshot: BrokerSnapshot, repairs: Repairs, holds: Holds, is_dry_run: bool
    ) -> None:
        self.topic = topic
        self.snapshot = snapshot
        self._repairs = repairs
        self._holds = holds
        self._is_dry_run = is_dry_run
        self.holds: tuple[HoldKind, ...] = ()
        self.read_holds()

    def read_holds(self) -> None:
        """Reads the topic's holds; called before each batch of sends, so that a new hold counts within a long pass."""
        self.holds = tuple(self._holds.active(self.topic.environment).get(self.topic.topic, ()))

    @property
    def held_by(self) -> str | None:
        """Why nothing may be sent; None if something may."""
        if self._is_dry_run:
            return "dry run"
        return str(self.holds[0]) if self.holds else None

    def withdraw(self, rows: Sequence[tuple[Repair, str]], *, lease_seconds: float) -> None:
        """Ends hand-over rows, each under its token; one that a worker has taken meanwhile is left to it.

        A crash in the middle leaves rows that are claimed, and free again after the lease.
        """
        claimed = self._repairs.claim_all(rows, lease_seconds=lease_seconds)
        done = RepairChange(state=RepairState.DONE, rung=Rung.HAND_OVER, answer=WITHDRAWN)
        ours = [(row, done, token) for row, (_, token) in zip(claimed, rows, strict=True) if row is not None]
        self._repairs.change_all(ours)
