"""What a judge excuses: messages that nothing could deliver, and whether a person is told of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.reasons import DAMAGED
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.stored_facts import reason_in
from reconciler.contract.tables import EVERY_GROUP, CandidateState, Rung
from reconciler.contract.verdicts import VERDICTS_ON_THE_ROW, Verdict
from reconciler.policy.ports.ledger import Candidate
from reconciler.rocketmq.wire.codes import HALF_TOPIC
from tests.simulation.kernel import BASE_MS
from tests.simulation.outbox_database import TOPIC
from tests.simulation.producing import ENVIRONMENT

if TYPE_CHECKING:
    from tests.simulation.world import World


class Excuses:
    """By the truth of the world; only whether a person is told is read from the ledger."""

    def __init__(self, world: World) -> None:
        self._world = world

    def is_excused(self, group: str, key: str) -> bool:
        """It could not be delivered: the handler never takes it, or every copy was deleted and no body was kept."""
        world = self._world
        order, acts, place = world.orders[key], world.checkers.acts, (group, key)
        is_ended_by_hand = any(place in of for of in (acts.dismissed, acts.taken_back, world.undone))
        is_ended_by_hand |= key in acts.closed_for_all
        if order.is_poison or is_ended_by_hand or world.inboxes[group].is_taken(key) or key in world.contradicted:
            return True
        if key in world.troubles.reset_over.get(group, ()) or self._is_handed_to_others(group, key):
            return True
        if self._would_reach_dismissed(group, key):
            return True
        if self._hides_a_dismissal(key) or world.set_ups.is_excused(key, world.candidate(group, key)):
            return True
        if world.swarm.keep_bodies or not (world.swarm.of("retention") or world.swarm.of("broker tail")):
            return False
        return not any(broker.has_copy(key, (TOPIC, HALF_TOPIC)) for broker in world.cluster.brokers.values())

    def _would_reach_dismissed(self, group: str, key: str) -> bool:
        """A person has dismissed another group that lacked it, and the settings have only repairs that reach both."""
        world = self._world
        is_spared = any(of == key and other != group for other, of in world.checkers.acts.spared)
        return is_spared and Rung.HAND_OVER not in world.plan.repair_order

    def _hides_a_dismissal(self, key: str) -> bool:
        """A verdict on the message that nobody can read may say that a person has dismissed it."""
        world = self._world
        rows = world.ledger.rows.candidates.items() if world.swarm.of("ledger damage") else ()
        return any(of == key and row.damage is not None for (_, of), row in rows)

    def _is_handed_to_others(self, group: str, key: str) -> bool:
        """Its repair was done by hand-overs while a setting left the group out: nothing is repaired a second time."""
        world = self._world
        repairs, topic = world.ledger.rows.repairs, (ENVIRONMENT, TOPIC)
        repair = repairs.get((*topic, EVERY_GROUP, key))
        is_done = repair is not None and repair.rung is Rung.HAND_OVER and repair.state in FINISHED_REPAIRS
        return is_done and world.may_be_left_out(group) and (*topic, group, key) not in repairs

    def is_told(self, group: str, key: str) -> bool:
        """A person can see that a message has no effect: of one that could not be delivered by a closed ledger row; of
        one whose outbox row cannot be read because it is damaged, by the ledger, or by the sweeper: before it could
        be announced, and while a rejection waits to be asked again that a replica in disguise caused before; of half
        an effect whose inbox row cannot be read, by the ledger."""
        world = self._world
        row, is_unreadable = world.candidate(group, key), key in world.troubles.unreadable
        is_half_unreadable = world.inboxes[group].has_unreadable_half(key)
        is_closed = row is not None and row.state is not CandidateState.OPEN and row.verdict is not Verdict.CONSUMED
        is_undecided = (
            row is not None and row.verdict is Verdict.UNKNOWN and key in world.troubles.reset_over.get(group, ())
        )
        is_undecided |= row is not None and (
            world.set_ups.is_excused(key, row) or world.set_ups.waits_for_filtered(key)
        )
        if (is_closed or is_undecided) and self.is_excused(group, key):
            return True
        if world.business_queues.is_told(group, key):
            return True
        # A match in Redis hides it from rounds while the commit set has the key.
        if row is None and world.inboxes[group].is_taken(key) and world.differing_told > 0:
            return True
        is_misled = row is not None and row.verdict is Verdict.REJECTED and self._is_withheld(key)
        if row is None or row.damage is not None or is_misled:
            return is_unreadable and world.damaged_rows_told > 0
        is_quarantined = row.state is CandidateState.QUARANTINED and reason_in(row.evidence).code is DAMAGED
        return (is_unreadable or is_half_unreadable) and is_quarantined

    def _is_withheld(self, key: str) -> bool:
        return any(key in database.reading.withheld for database in self._world.outboxes)

    def is_double_told(self, group: str, key: str) -> bool:
        """The ledger says that the message had two effects. Excused: rows that cannot be read, messages without an
        outbox, those that a person has dismissed for an inbox row that is there, those that are asked about once an
        hour, and those that were settled before the last effect, as far as a sweeper that was stopped could know."""
        world = self._world
        row = world.candidate(group, key)
        if row is not None and (row.verdict is Verdict.COLLISION or _was_dismissed_for_its_row(row)):
            return True
        if world.inboxes[group].is_damaged(key) or key in world.troubles.unreadable or key in world.strangers_commits:
            return True
        doubled_at = world.inboxes[group].doubled()[key]
        known_at = doubled_at + (100.0 if world.swarm.of("pauses") else 10.0)
        if row is not None and world.set_ups.is_asked_rarely(row):
            asked_at = (row.updated_at_ms - BASE_MS) / 1000
            if asked_at < doubled_at + world.swarm.skew_margin:
                return True
        return any(database.settled.get(key, known_at) < known_at for database in world.outboxes)


def _was_dismissed_for_its_row(row: Candidate) -> bool:
    return row.is_dismissed and row.verdict in VERDICTS_ON_THE_ROW
