"""Judges of what people do: an act rests on what they saw, and nothing that was dismissed is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState
from reconciler.contract.verdicts import VERDICTS_ON_THE_ROW, Undecided
from reconciler.policy.judging.suspect import undecided_by
from reconciler.policy.ports.closing import Closing
from reconciler.policy.ports.ledger import Candidate, HeldTopic, Repair
from tests.simulation.kernel import BASE_MS

if TYPE_CHECKING:
    from tests.simulation.checkers import Judgement
    from tests.simulation.kernel import Process
    from tests.simulation.world import World

#: A batch of repairs that was begun before a hold may still be sent, by slow brokers.
BEGUN_SECONDS = 60.0
UNDER_WAY = (RepairState.SENDING, RepairState.SENT)


class ActsJudged:
    """Watches a ledger; a row is compared as it is at the moment of the act."""

    def __init__(self, world: World, judgement: Judgement) -> None:
        self._world = world
        self._other = judgement.other
        #: Group and key -> when a person dismissed it.
        self.dismissed: dict[tuple[str, str], float] = {}
        #: Group and key, dismissed while no effect was to be seen: what reaches every group must not be sent any more.
        self.spared: set[tuple[str, str]] = set()
        #: Keys whose repair for every group was closed: of a group that lacks its effect later, a person is told.
        self.closed_for_all: set[str] = set()
        #: What waits for a person again.
        self.taken_back: set[tuple[str, str]] = set()
        ledger = world.ledger
        self._take_back = ledger.closings.take_back
        setattr(ledger.closings, "take_back", self._taken_back)  # noqa: B010 - a method
        self._close, self._lift_seen = ledger.closings.close, ledger.holds.lift_seen
        setattr(ledger.closings, "close", self._closed)  # noqa: B010 - methods
        setattr(ledger.holds, "lift_seen", self._lifted)  # noqa: B010

    def _closed(self, closing: Closing) -> bool:
        rows, key = self._world.ledger.rows, closing.unique_key
        place = (closing.environment, closing.topic)
        candidates = {owner: row for (owner, of), row in rows.candidates.items() if of == key}
        repairs = {at[2]: row for at, row in rows.repairs.items() if (at[:2], at[3]) == (place, key)}
        if not self._close(closing):
            return False
        self._as_seen(closing, candidates)
        self._nothing_under_way(closing, [row for scope, row in repairs.items() if scope in closing.scopes])
        if EVERY_GROUP in closing.scopes:
            self.closed_for_all.add(key)
        for owner in closing.verdicts:
            self.dismissed[owner.group, key] = self._world.kernel.now
            inbox = self._world.inboxes[owner.group]
            if owner.group not in self._world.removed and (not inbox.has_row(key) or inbox.is_damaged(key)):
                self.spared.add((owner.group, key))
        return True

    def _taken_back(self, closing: Closing) -> bool:
        rows, key = self._world.ledger.rows, closing.unique_key
        place = (closing.environment, closing.topic)
        repairs = [row for at, row in rows.repairs.items() if (at[:2], at[3]) == (place, key)]
        if not self._take_back(closing):
            return False
        self._nothing_under_way(closing, repairs)
        for owner in closing.verdicts:
            self.dismissed.pop((owner.group, key), None)
            self.taken_back.add((owner.group, key))
        return True

    def _as_seen(self, closing: Closing, candidates: Mapping[Subscription, Candidate]) -> None:
        seen = {row.subscription: row for row in closing.candidates}
        for owner in closing.verdicts:
            now, then = candidates[owner], seen[owner]
            is_undecided = now.state is CandidateState.OPEN and now.damage is None
            if owner.group in self._world.removed:
                continue  # no round closes it
            if is_undecided and undecided_by(now.evidence)[0] is not Undecided.CONTRADICTION:
                self._other.append(
                    f"{closing.unique_key} of {owner.group} was dismissed while it was {now.verdict}, open"
                )
            is_same = now.state is then.state and (then.state is CandidateState.OPEN or now.verdict is then.verdict)
            if not is_same:
                self._other.append(
                    f"{closing.unique_key} of {owner.group} was dismissed as {then.state} {then.verdict}, "
                    f"and was {now.state} {now.verdict}"
                )

    def _nothing_under_way(self, closing: Closing, repairs: Sequence[Repair]) -> None:
        now_ms = self._world.ledger.rows.clock.now_ms()
        for row in repairs:
            is_claimed = row.token is not None and (row.lease_until_ms or 0) >= now_ms
            if row.state in UNDER_WAY or is_claimed:
                self._other.append(f"{closing.unique_key} was dismissed while its repair was {row.state}: {row.token}")

    def _lifted(self, environment: str, *held: HeldTopic) -> frozenset[HoldKind]:
        now = {one.kind: self._world.ledger.rows.holds.get((environment, one.topic, one.kind)) for one in held}
        lifted: frozenset[HoldKind] = self._lift_seen(environment, *held)
        for one in held:
            if one.kind in lifted and now[one.kind] != one:
                self._other.append(f"a hold was lifted that nobody had seen: {now[one.kind]}")
        return lifted

    def repaired(self, process: Process, key: str, kind: str) -> None:
        """An END COMMIT or republish has reached a broker. A process that was stopped meanwhile could not know."""
        if self._world.kernel.now - process.stopped_until < 1.0:
            return
        plan, now = self._world.plan, self._world.kernel.now
        wanting = [one.group for one in plan.subscriptions if not self._world.inboxes[one.group].has_row(key)]
        reached = [group for group in wanting if (group, key) in self.dismissed]
        if len(reached) < len(wanting):  # a process whose settings leave a group out could not know
            reached = [group for group in reached if not self._world.may_be_left_out(group)]
        if reached:
            self._other.append(f"{key} was dismissed for {', '.join(reached)}, and {process.name} sends {kind}")
        hold = self._world.ledger.rows.holds.get((plan.environment, plan.topic, HoldKind.HOLD))
        if hold is not None and now - self._held_at(hold) > BEGUN_SECONDS:
            self._other.append(f"{key} is sent by {kind} although a person has stopped repairs")

    def _held_at(self, hold: HeldTopic) -> float:
        clock: Any = self._world.ledger.rows.clock
        return float(hold.since_ms - clock.skew_ms - BASE_MS) / 1000

    def untold(self) -> list[str]:
        """Messages that took effect in a group which a person has dismissed them for, and nobody is told. Excused: what
        was dismissed for its inbox row, and rows that cannot be read."""
        world = self._world
        return [
            f"{key} was dismissed for {group} and took effect there, and nobody is told"
            for group, key in self.dismissed
            if (row := world.candidate(group, key)) is not None
            and row.is_dismissed
            and row.verdict not in VERDICTS_ON_THE_ROW
            and group in world.inboxes
            and group not in world.inboxes.unknown
            and world.inboxes[group].has_row(key)
            and not world.inboxes[group].is_damaged(key)
        ]

    def handed_over(self, group: str, key: str, at: float) -> None:
        """A worker had the effect of a hand-over; one that was stopped for longer than its claim could not know."""
        if self.dismissed.get((group, key), at) < at and not self._world.swarm.of("pauses"):
            self._other.append(f"{key} was dismissed for {group}, and handed over to it")
