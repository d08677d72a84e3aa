"""Settings that leave rounds with less evidence, or with less that they may do, and what is judged otherwise then.

The first group of the topic is the one that a setting is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import BEYOND_INBOX
from reconciler.contract.reasons import KEPT_TOO_SHORT
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.unique_key import member_of
from reconciler.policy.plan import INBOX_MARGIN_SECONDS
from reconciler.policy.ports import Candidate
from tests.simulation.kernel import BASE_MS, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Inbox rows are kept for so long beyond the margin of the product: of what is older a missing row proves nothing.
PROVES_SECONDS = 60.0
#: From the last look at a repair to its send, and what the clocks of databases may differ, at most.
DECIDED_WITHIN_SECONDS = 60.0


class SetUps:
    """What is peculiar to a history's settings."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of = world.swarm.of
        #: Reconcilers, and people, that must not send.
        self.dry_runs: set[Process] = set()

    def _is_first(self, group: str) -> bool:
        return self._world.first_name(group) == "group-0"

    # ---- the settings

    @property
    def inbox_keep_seconds(self) -> float | None:
        """Age at which inbox rows are deleted, as settings say: nobody does it within a history."""
        return INBOX_MARGIN_SECONDS + PROVES_SECONDS if self._of("inboxes kept short") else None

    def begins(self, process: Process) -> bool:
        """A process that may repair begins; False: by its settings it must not send."""
        is_dry_run = bool(self._of("dry run")) and not self._world.is_healed
        if is_dry_run:
            self.dry_runs.add(process)
        return not is_dry_run

    def end_dry_run(self) -> None:
        """An operator lets repairs be sent: all troubles are over."""
        if self._of("dry run"):
            if any(repair.state is RepairState.OPEN for repair in self._world.ledger.rows.repairs.values()):
                self._world.kernel.saw("repair not sent in a dry run")
            self._world.restart("reconciler", "operator")

    # ---- the judges

    def repaired(self, process: Process, key: str, kind: str) -> None:
        """END COMMIT or a republish has reached a broker."""
        world, other = self._world, self._world.checkers.judgement.other
        if process in self.dry_runs:
            other.append(f"{key} is sent by {kind} in a dry run of {process.name}")
        if any(group in world.inboxes.unknown for group in world.inboxes):
            world.kernel.saw("repair without a known inbox", key[-4:])
        late = world.kernel.now - self._written_at(key) - PROVES_SECONDS - DECIDED_WITHIN_SECONDS
        if self.inbox_keep_seconds is not None and late > 0 and world.kernel.now - process.stopped_until > 1.0:
            other.append(f"{key} is sent by {kind} {late:.0f} s after inboxes may have deleted the row of its effect")

    def _written_at(self, key: str) -> float:
        return max((database.written[key] for database in self._world.outboxes if key in database.written), default=0.0)

    def is_excused(self, key: str, row: Candidate | None) -> bool:
        """The evidence that is left cannot tell that the message was lost."""
        if row is None or self.inbox_keep_seconds is None or not _is_kept_too_short(row):
            return False
        # A row that was closed before its time is no excuse.
        closed_at = (row.updated_at_ms - BASE_MS) / 1000
        return closed_at - self._written_at(key) > PROVES_SECONDS - 2 * self._world.swarm.skew_margin - 1

    def waiting(self) -> set[bytes]:
        """What may stay open for good."""
        world = self._world
        if not world.inboxes.unknown:
            return set()
        # What has its effects, rounds may not know.
        return {member_of(key) for key in world.orders if not world.checkers._lacking(key)}

    def judge(self) -> None:
        """At the end."""
        world = self._world
        for (_, key), row in world.ledger.rows.candidates.items():
            if row.state is CandidateState.QUARANTINED and _is_kept_too_short(row):
                world.kernel.saw("message older than its inbox row", key[-4:])


def _is_kept_too_short(row: Candidate) -> bool:
    told = reason_in(row.evidence).fields
    why = told.get("why")
    return told.get("answer") == BEYOND_INBOX.name or (isinstance(why, Fact) and why.code is KEPT_TOO_SHORT)
