"""People who act on what they saw some time ago: dismiss, repair, stop and resume.

Each runs the product's own procedures, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState
from reconciler.errors import ChangedMeanwhile, TransientError
from reconciler.policy.dismissal import (
    CHANGED,
    CLOSED,
    TAKEN_BACK,
    Dismissals,
    EffectFound,
    effect_found,
    meaning_of,
)
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import Candidate, HeldTopic
from tests.simulation.kernel import Process
from tests.simulation.reconciling import rounds_of
from tests.simulation.tables_seen import InboxSeen

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How long people go on after the last trouble: verdicts that need them often come then.
GOES_ON_SECONDS = 90.0
#: One who stops repairs and is away stays away for longer than two grace periods.
AWAY_SECONDS = 300.0
#: Repairs by hand of one person: a key that nobody can repair is soon left alone.
REPAIRS_MAX = 6


class Operator:
    """One person."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._plan = world.plan
        self._process = process
        self._ledger = world.ledger_of(process)
        self._rounds = rounds_of(world, process)
        self._dismissals = Dismissals(
            closings=self._ledger.closings, configured=[plan.subscription for plan in self._plan.subscriptions]
        )
        self._repairs_left = REPAIRS_MAX
        #: Whoever acts on anything looks into inboxes first.
        self._acts_on_anything = bool(world.swarm.of("acts on anything"))
        self._inbox = InboxSeen(process, world.inboxes)
        process.spawn(self._run)

    def _run(self) -> None:
        acts: Sequence[Callable[[], None]] = (self._dismiss, self._dismiss, self._repair, self._hold, self._resume)
        acts = (*acts, self._take_back) if self._acts_on_anything else acts
        world, dice = self._world, self._world.kernel.dice
        while not world.is_healed or world.kernel.now < world.healed_at + GOES_ON_SECONDS:
            self._process.sleep((2 + 10 * dice.random()) * (0.3 if self._acts_on_anything else 1.0))
            self._try(acts[world.kernel.any_of(len(acts))])
        while world.ledger.rows.holds:
            self._try(self._resume)
            self._process.sleep(1.0)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TransientError as error:
            self._world.kernel.tell(f"{self._process.name} could not: {error}")

    def _think(self) -> None:
        self._process.sleep(30 * self._world.kernel.dice.random() ** 2)

    def _any_key(self) -> str | None:
        """A key that needs a person, from a list: reading it is no port call (an economy of the simulator)."""
        rows = self._world.ledger.rows
        found = [key for (_, key), row in rows.candidates.items() if self._may_act(row)]
        found += [place[3] for place, repair in rows.repairs.items() if repair.state is RepairState.FAILED]
        return found[self._world.kernel.any_of(len(found))] if found else None

    def _may_act(self, row: Candidate) -> bool:
        is_given_up = row.state is CandidateState.QUARANTINED or row.subscription in self._removed()
        return is_given_up or (self._acts_on_anything and self._world.kernel.dice.random() < 0.2)

    def _removed(self) -> list[Subscription]:
        """Those that the settings do not have any more."""
        configured = {plan.group for plan in self._plan.subscriptions}
        groups = [group for group in self._world.removed if group not in configured]
        return [Subscription(environment=self._plan.environment, topic=self._plan.topic, group=g) for g in groups]

    def _look(self, key: str) -> KeyInLedger:
        topic, ledger = self._plan, self._ledger
        owners = [plan.subscription for plan in topic.subscriptions]
        owners += [owner for owner in self._removed() if (owner, key) in self._world.ledger.rows.candidates]
        rows = [ledger.candidates.of_keys(owner, [key]).get(key) for owner in owners]
        repairs = ledger.repairs.of_keys(topic.environment, topic.topic, [key])
        return KeyInLedger(candidates=[row for row in rows if row is not None], repairs=repairs.get(key, ()))

    def _dismiss(self) -> None:
        key = self._any_key()
        if key is None:
            return
        seen = self._look(key)
        self._think()
        dice = self._world.kernel.dice
        groups = [row.subscription.group for row in seen.candidates]
        group = groups[dice.randrange(len(groups))] if groups and dice.random() < 0.3 else None
        effects = self._effects(seen) if self._acts_on_anything else None
        outcomes = self._dismissals.dismiss(
            seen, group=group, by=self._process.name, reason="paid by hand", effects=effects
        )
        for of, outcome in outcomes.items():
            if effects is not None:
                row = next(row for row in seen.candidates if row.subscription.group == of)
                self._tell(key, meaning_of(outcome, row, effects.get(of, EffectFound())))
            said = outcome if outcome in {CHANGED, *CLOSED} else "refused"
            if said == "refused" and of in {owner.group for owner in self._removed()} and "claimed" not in outcome:
                self._world.checkers.judgement.other.append(
                    f"{key} of {of}, which was removed, is not closed: {outcome}"
                )
            self._world.kernel.saw(f"operator's dismissal: {said}", f"{key[-4:]} {of}")

    def _effects(self, seen: KeyInLedger) -> dict[str, EffectFound]:
        """As `reconciler dismiss` looks: of each group's inboxes, right before the act."""
        found: dict[str, EffectFound] = {}
        for row in seen.candidates:
            key, owner = row.unique_key, row.subscription
            if owner.group in self._world.inboxes:
                found[owner.group] = effect_found(self._inbox.look_up(owner, [key])[key], None)
        return found

    def _tell(self, key: str, what: Fact | None) -> None:
        if what is not None:
            self._world.kernel.saw("operator is told what an act on a message came to", f"{key[-4:]}: {what.code.name}")

    def _take_back(self) -> None:
        dismissed = sorted({key for _, key in self._world.checkers.acts.dismissed})
        if not dismissed:
            return
        key = dismissed[self._world.kernel.any_of(len(dismissed))]
        seen = self._look(key)
        self._think()
        outcomes = self._dismissals.take_back(seen, group=None, by=self._process.name, reason="not paid")
        for of, outcome in outcomes.items():
            if outcome == TAKEN_BACK:
                self._world.kernel.saw("operator's dismissal taken back", f"{key[-4:]} {of}")

    def _repair(self) -> None:
        key = self._any_key()
        if key is None or self._repairs_left == 0:
            return
        self._think()
        self._repairs_left -= 1
        for plan in self._plan.subscriptions:
            if self._world.candidate(plan.group, key) is None:
                continue
            try:
                if self._acts_on_anything:
                    self._rounds.keys_by_hand.repair_one(plan.subscription, key, dry_run=True)
                self._rounds.keys_by_hand.repair_one(plan.subscription, key)
                self._world.kernel.saw("operator repaired", f"{key[-4:]} {plan.group}")
            except ChangedMeanwhile:
                self._world.kernel.saw("operator's repair: changed", key[-4:])

    def _hold(self) -> None:
        plan = self._world.plan
        if self._world.is_healed:
            return
        reason = f"number {self._world.kernel.seen['operator stopped repairs']}"
        if self._ledger.holds.place(plan.environment, plan.topic, HoldKind.HOLD, by=self._process.name, reason=reason):
            self._world.kernel.saw("operator stopped repairs")

    def _resume(self) -> None:
        plan = self._world.plan
        found: HeldTopic | None = self._world.ledger.rows.holds.get((plan.environment, plan.topic, HoldKind.HOLD))
        if found is None:
            return
        self._think()
        is_lifted = self._ledger.holds.lift_seen(plan.environment, found)
        self._world.kernel.saw("operator resumed repairs" if is_lifted else "operator's resumption: changed")


def hold_for_long(world: World) -> None:
    """A person stops repairs, and nobody else looks for longer than two grace periods."""
    plan, holds, kernel = world.plan, world.ledger.holds, world.kernel

    def lift() -> None:
        found: HeldTopic | None = world.ledger.rows.holds.get((plan.environment, plan.topic, HoldKind.HOLD))
        if found is not None and found.by == "one who is away":
            holds.lift_seen(plan.environment, found)
            if any(repair.state is RepairState.OPEN for repair in world.ledger.rows.repairs.values()):
                kernel.saw("repairs held for long")

    if holds.place(plan.environment, plan.topic, HoldKind.HOLD, by="one who is away", reason="until I am back"):
        kernel.after(AWAY_SECONDS + 60 * kernel.dice.random(), lift)
