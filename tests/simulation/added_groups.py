"""A group that is added to the topic in mid-history, and what it owes from then on.

The settings come first, process by process, and the members soon after, or a little before. They begin at the oldest
message that brokers keep, or at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import Verdict
from reconciler.policy.plan import EVERY_MESSAGE_MS, SubscriptionPlan
from reconciler.policy.ports.ledger import VerdictEntry
from tests.simulation.inbox_database import GroupInboxes
from tests.simulation.kernel import BASE_MS
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import ENVIRONMENT

if TYPE_CHECKING:
    from tests.simulation.world import World

#: From the new settings to the start of the members, at most; by as much may the members be earlier.
STARTS_WITHIN_SECONDS = 40.0


def add_group(world: World) -> None:
    """An operator puts a group into the settings, and starts its members."""
    group, dice = f"group-{len(world.inboxes)}", world.kernel.dice
    world.inboxes[group] = GroupInboxes([world.new_inbox(group)])
    world.added.append(group)
    world.troubles.of_new(world.inboxes[group].databases[0])

    def settings() -> None:
        plan = world.subscription(group)
        _change(world, lambda plans: [*plans, plan])
        world.kernel.saw("group added", group)

    def members() -> None:
        # What was skipped is undecided for good where no index has copies of committed halves (3.2.6).
        brokers = world.cluster.brokers.values()
        if dice.random() < 0.5 and all(broker.facts.indexes_committed for broker in brokers):
            for broker in brokers:
                for queue_id in range(world.swarm.queues):
                    _, broker.offsets[group, TOPIC, queue_id] = broker.bounds(TOPIC, queue_id)
                    world.troubles.reset_over.setdefault(group, set()).update(broker.keys_of(TOPIC, queue_id))
        world.start_consumers(group)

    after = STARTS_WITHIN_SECONDS * dice.random()
    is_settings_first = dice.random() < 0.8
    world.kernel.after(0.0 if is_settings_first else after, settings)
    world.kernel.after(after if is_settings_first else 0.0, members)


def remove_group(world: World) -> None:
    """An operator takes the last group out of the settings; its members have been stopped."""
    group = list(world.inboxes)[-1]
    world.inboxes.remove(group)
    world.removed.append(group)
    for process in list(world.processes):
        if process.kind == "consumer" and process.name.rpartition("-")[0] == group:
            process.die()
    if any(owner.group == group for owner, _ in world.ledger.rows.candidates):
        world.kernel.saw("row of a group that was removed", group)
    _change(world, lambda plans: [plan for plan in plans if plan.group != group])


def move_since(world: World) -> None:
    """An operator says that the group that was added answers for every message."""
    if not world.added or world.added[0] not in [plan.group for plan in world.right_plan.subscriptions]:
        return
    group = world.added[0]
    world.since_judged.moved.add(group)
    world.kernel.saw("group answers for every message from now on", group)
    _change(world, lambda plans: [replace(p, since_ms=EVERY_MESSAGE_MS) if p.group == group else p for p in plans])


def _change(world: World, change: Callable[[Sequence[SubscriptionPlan]], Sequence[SubscriptionPlan]]) -> None:
    """The settings' subscriptions are others from now on; one process after the other is started again."""
    is_right = world.plan is world.right_plan
    world.right_plan = replace(world.right_plan, subscriptions=tuple(change(world.right_plan.subscriptions)))
    changed = replace(world.plan, subscriptions=tuple(change(world.plan.subscriptions)))
    world.plan = world.right_plan if is_right else changed
    world.restart("announcer", "operator", "reconciler", "sweeper")


class SinceJudged:
    """What a group that was added owes, by the time that the ledger noted at its first round."""

    def __init__(self, world: World, other: list[str]) -> None:
        self._world = world
        self._other = other
        #: Key -> when copies of it were stored.
        self._given: dict[str, list[float]] = {}
        #: What was noted first.
        self._noted: dict[Subscription, int] = {}
        #: Groups that answer for every message since a person has said so.
        self.moved: set[str] = set()
        #: Group -> when it was noted first.
        self._began: dict[str, float] = {}
        ledger = world.ledger
        self._record, self._insert = ledger.candidates.record, ledger.hand_overs.insert
        self._begin = ledger.rounds.begin
        setattr(ledger.candidates, "record", self._recorded)  # noqa: B010 - methods
        setattr(ledger.rounds, "begin", self._noted_first)  # noqa: B010
        setattr(ledger.hand_overs, "insert", self._handed_over)  # noqa: B010

    def given(self, key: str) -> None:
        """A committed copy was stored."""
        self._given.setdefault(key, []).append(self._world.kernel.now)

    def is_before(self, group: str, key: str) -> bool:
        """Groups were surely given the message before this one answers for messages. A half without a copy is lost for
        every group, whoever had the copy."""
        if group not in self._world.added or group in self.moved:
            return False
        brokers = self._world.cluster.brokers.values()
        is_gone = not any(broker.has_committed(key) for broker in brokers)
        # What no broker has is dated by its outbox row.
        if is_gone and (self._world.swarm.of("database clocks") or any(broker.has_half(key) for broker in brokers)):
            return False
        given, since = self._given.get(key), self._since(group)
        return given is not None and given[-1] < since - 1.5 * self._world.swarm.skew_margin - 0.1

    def is_owed(self, group: str, key: str) -> bool:
        """The group answers for the message: surely, where it was added."""
        if group not in self._world.added:
            return True
        # A clock that was set back makes the noted time an early one.
        since = max(self._since(group), self._began.get(self._world.first_name(group), float("inf")))
        committed_at, given = self._world.checkers.committed_at(key), self._given.get(key)
        if committed_at <= since + self._world.swarm.skew_margin or (given is not None and given[0] <= since):
            return False
        # What no broker has is dated by its outbox row.
        brokers = self._world.cluster.brokers.values()
        return not self._world.swarm.of("database clocks") or any(broker.has_committed(key) for broker in brokers)

    def left_out(self) -> str:
        """A message that is still BEFORE_SINCE in a group that answers for every one by now; empty: there is none."""
        for (owner, key), row in self._world.ledger.rows.candidates.items():
            if owner.group in self.moved and row.verdict is Verdict.BEFORE_SINCE:
                return f"{key} is {row.verdict} in {owner.group}, which answers for every message"
        return ""

    def judge(self) -> None:
        """At the end: what the ledger noted first is there."""
        noted = self._world.ledger.rows.since_ms
        for owner, at_ms in self._noted.items():
            if noted[owner] != at_ms:
                self._other.append(f"{owner.group} answers since {noted[owner]}, and not since {at_ms} any more")

    def _handed_over(self, environment: str, message: Any, *, groups: Sequence[str], **named: Any) -> None:
        self._insert(environment, message, groups=groups, **named)
        key = message.unique_key
        for group in groups:
            if self.is_before(group, key):
                self._other.append(f"{key} was given to groups before {group} came, and is handed over to it")

    def _noted_first(self, owner: Subscription, *, at_ms: int | None) -> int:
        since_ms: int = self._begin(owner, at_ms=at_ms)
        self._began.setdefault(owner.group, self._world.kernel.now)
        if owner not in self._noted:
            self._noted[owner] = since_ms
            if owner.group in self._world.added and since_ms == EVERY_MESSAGE_MS:
                self._other.append(f"{owner.group} was added, and answers for every message")
        return since_ms

    def _since(self, group: str) -> float:
        """Until its first round a group answers for nothing."""
        owner = Subscription(environment=ENVIRONMENT, topic=TOPIC, group=group)
        at_ms = self._world.ledger.rows.since_ms.get(owner)
        return float("inf") if at_ms is None else (at_ms - BASE_MS) / 1000

    def _recorded(self, shard: Any, entries: Sequence[VerdictEntry]) -> None:
        self._record(shard, entries)
        if not self._world.added:
            return
        owner = shard.subscription
        if owner.group not in self._world.added:
            return
        for one in entries:
            given = self._given.get(one.unique_key)
            if one.verdict is Verdict.DELIVERED_NOT_APPLIED and self.is_before(owner.group, one.unique_key):
                self._other.append(f"{one.unique_key} is called {one.verdict} in {owner.group}, which came later")
            if one.verdict is Verdict.BEFORE_SINCE and given is not None:
                since = self._since(owner.group)
                committed_at = self._world.checkers.committed_at(one.unique_key)
                if min(given[0], committed_at) > since and not self._world.swarm.of("database clocks"):
                    self._other.append(f"{one.unique_key} is called {one.verdict} in {owner.group}, which was there")
