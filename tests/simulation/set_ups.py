"""Settings that leave rounds with less evidence, or with less that they may do, and what is judged otherwise then.

The first group of the topic is the one that a setting is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import BEYOND_INBOX, POSITIONS
from reconciler.contract.reasons import BY_SQL92, GROUP_UNKNOWN, KEPT_TOO_SHORT
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.unique_key import member_of
from reconciler.contract.verdicts import Verdict
from reconciler.policy.plan import INBOX_MARGIN_SECONDS
from reconciler.policy.ports.ledger import Candidate
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from tests.simulation.broker import THEIRS, Broker
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

    def correct(self) -> None:
        """All troubles are over: an operator lets repairs be sent, and corrects a URL."""
        if self._of("dry run"):
            if any(repair.state is RepairState.OPEN for repair in self._world.ledger.rows.repairs.values()):
                self._world.kernel.saw("repair not sent in a dry run")
            self._world.restart("reconciler", "operator")
        if self._of("another outbox"):
            for database in self._world.outboxes:
                database.reading.leads_elsewhere = False
            self._world.restart("reconciler", "operator")

    def filters_by_sql92(self, group: str) -> bool:
        """Brokers filter by an expression over a property."""
        return bool(self._of("filters by SQL92")) and self._is_first(group)

    def is_kept_away(self, group: str, key: str) -> bool:
        """The group's expression does not let the message through."""
        order = self._world.orders.get(key)
        return order is not None and self.filters_by_sql92(group) and order.properties.get("region") != "north"

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
        if row is None:
            return False
        if self.inbox_keep_seconds is not None and _is_kept_too_short(row):
            # A row that was closed before its time is no excuse.
            closed_at = (row.updated_at_ms - BASE_MS) / 1000
            return closed_at - self._written_at(key) > PROVES_SECONDS - 2 * self._world.swarm.skew_margin - 1
        return self.is_asked_rarely(row) and self._looks_filtered(row.subscription.group, key)

    def is_asked_rarely(self, row: Candidate) -> bool:
        """A group that filters by SQL92 may have no use for the message: its inboxes are asked again in an hour, and no
        history rests for so long."""
        is_filter = row.verdict is Verdict.UNKNOWN and reason_in(row.evidence).code is BY_SQL92
        waits_ms = row.next_at_ms - self._world.ledger_clock.now_ms()
        return self.filters_by_sql92(row.subscription.group) and is_filter and waits_ms > 0

    def _looks_filtered(self, group: str, key: str) -> bool:
        """The group was given a copy, or no broker has the first half any more."""
        brokers = self._world.cluster.brokers.values()
        if any(self._was_given(broker, group, key) for broker in brokers):
            return True
        return not any(has_first_half(broker, key) for broker in brokers)

    def has_filtered(self, key: str) -> bool:
        """A group has passed a copy that its filter keeps away: a repair climbs to its last rung for it."""
        world = self._world
        kept = [group for group in world.inboxes if self.is_kept_away(group, key)]
        return any(self._was_given(broker, group, key) for group in kept for broker in world.cluster.brokers.values())

    def _was_given(self, broker: Broker, group: str, key: str) -> bool:
        """The group has passed a copy."""
        return any(
            record.unique_key == key
            and record.body != THEIRS
            and broker.offsets.get((group, topic, queue_id), 0) > record.queue_offset
            for (topic, queue_id), queue in broker.queues.items()
            if topic == self._world.plan.topic
            for record in queue
        )

    def waits_for_filtered(self, key: str) -> bool:
        """A repair waits to know whether the message comes again to a group whose filter keeps it away, which an index
        with too many hits of its key does not tell."""
        plan = self._world.plan
        repair = self._world.ledger.rows.repairs.get((plan.environment, plan.topic, EVERY_GROUP, key))
        answer = None if repair is None or repair.state is not RepairState.SENT else repair.answer_fact
        groups = answer.fields["groups"] if answer is not None and answer.code is POSITIONS else ()
        told = [one.fields for one in groups if isinstance(one, Fact)] if isinstance(groups, tuple) else []
        unknown = [str(one["group"]) for one in told if one.get("verdict") == Verdict.UNKNOWN]
        return any(self.is_kept_away(group, key) for group in unknown)

    def waiting(self) -> set[bytes]:
        """What may stay open for good."""
        world = self._world
        if world.inboxes.unknown:  # what has its effects, rounds may not know
            return {member_of(key) for key in world.orders if not world.checkers._lacking(key)}
        if not self._of("filters by SQL92"):
            return set()
        rows = world.ledger.rows.candidates.items()
        return {
            member_of(key)
            for (owner, key), row in rows
            if self.is_asked_rarely(row) or (self.is_kept_away(owner.group, key) and _may_come_again(row))
        } | {member_of(key) for key in world.orders if self.waits_for_filtered(key)}

    def judge(self) -> None:
        """At the end."""
        world = self._world
        for (owner, key), row in world.ledger.rows.candidates.items():
            is_kept_away = self.is_kept_away(owner.group, key) and world.is_committed(key)
            if is_kept_away and row.verdict is Verdict.DELIVERED_NOT_APPLIED:
                world.checkers.judgement.other.append(
                    f"{key} is called {row.verdict} in {owner.group}, whose filter has no use for it"
                )
            if row.state is CandidateState.QUARANTINED and _is_kept_too_short(row):
                world.kernel.saw("message older than its inbox row", key[-4:])


def _is_kept_too_short(row: Candidate) -> bool:
    told = reason_in(row.evidence).fields
    why = told.get("why")
    return told.get("answer") == BEYOND_INBOX.name or (isinstance(why, Fact) and why.code is KEPT_TOO_SHORT)


def _may_come_again(row: Candidate) -> bool:
    """That is not known where an index has too many hits of the message's key."""
    return row.verdict is Verdict.UNKNOWN and reason_in(row.evidence).code is GROUP_UNKNOWN


def has_first_half(broker: Broker, key: str) -> bool:
    """The broker has a half copy that was not put back."""
    return any(
        record is not None
        and record.properties.get("UNIQ_KEY") == key
        and "TRANSACTION_CHECK_TIMES" not in record.properties
        and (record.topic == HALF_TOPIC or record.system_flag == 4)
        for record in broker.log
    )
