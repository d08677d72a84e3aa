"""Whether a world has come to rest: everything delivered, nothing pending, no repair open, no outage open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.unique_key import member_of
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.policy.judging.suspect import undecided_by
from tests.simulation.clock_steps import waits_for_a_clock

if TYPE_CHECKING:
    from tests.simulation.world import World


def unrest(world: World) -> str:
    """Why the world is not quiet yet; empty when it is."""
    if world.is_producing():
        return "messages are still sent"
    if any(database.open_rows for database in world.outboxes):
        return "a local transaction is open"
    if world.renaming is not None and world.renaming.is_stopped:
        return "a group gets another name"
    untold = next(iter(world.checkers.acts.untold()), "")
    return _missing_effect(world) or untold or world.since_judged.left_out() or _unfinished(world)


def _missing_effect(world: World) -> str:
    for group, inbox in world.inboxes.items():
        for key in world.orders:
            if (
                not inbox.has_row(key)
                and world.is_committed(key)
                and world.owes(group, key)
                and not world.excuses.is_told(group, key)
                and not (_is_open(world, group, key) and waits_for_a_clock(world, key))
            ):
                return f"{key} has no effect in {group}"
        for key in inbox.doubled():
            if not world.excuses.is_double_told(group, key):
                return f"{key} has two effects in {group}"
    return ""


def _is_open(world: World, group: str, key: str) -> bool:
    row = world.candidate(group, key)
    return row is None or row.state is CandidateState.OPEN


def _waiting(world: World) -> set[bytes]:
    """What may stay open for good."""
    waiting = {member_of(place[3]) for place in world.ledger.rows.repairs if waits_for_a_clock(world, place[3])}
    # Whether a message comes again that a group has skipped is not known where an index has too many hits of its key.
    waiting |= {
        member_of(key)
        for group, keys in world.troubles.reset_over.items()
        for key in keys
        if (row := world.candidate(group, key)) is not None and row.verdict is Verdict.UNKNOWN
    }
    if world.business_queues.is_on:
        told = world.business_queues.is_told
        waiting |= {member_of(key) for key in world.orders for group in world.inboxes if told(group, key)}
    return waiting


def _unfinished(world: World) -> str:
    # Who took effect twice is never settled: the sweeper announces it again and again, for every group.
    doubled = {member_of(key) for inbox in world.inboxes.values() for key in inbox.doubled()}
    # A half names its outbox, which has no row, because there was no commit: a person ends that, nobody else.
    contradicted = {
        member_of(key)
        for (_, key), row in world.ledger.rows.candidates.items()
        if undecided_by(row.evidence)[0] is Undecided.CONTRADICTION and not world.is_committed(key)
    }
    waiting = _waiting(world) | world.set_ups.waiting()
    # Nobody settles what was dismissed and has no effect: the sweeper announces it again and again.
    waiting |= {
        member_of(key)
        for group, key in world.checkers.acts.dismissed
        if group in world.inboxes and not world.inboxes[group].has_row(key)
    }
    # Nor a message whose key another one has taken.
    waiting |= {member_of(key) for key in world.contradicted}
    waiting |= {member_of(key) for inbox in world.inboxes.values() for one in inbox.databases for key in one.theirs}
    for name, value in world.redis.data.values.items():
        if name.endswith((":pending", ":half")) and name.split(":")[4] in world.inboxes.former:
            continue
        if name.endswith((":pending", ":half")) and not (doubled | contradicted | waiting).issuperset(value):
            return f"{name} has {len(value)} keys"
    if world.has_open_outage():
        return "an outage is open"
    for (owner, key), row in world.ledger.rows.candidates.items():
        if owner.group in world.inboxes.former:
            continue
        if row.state is CandidateState.OPEN and row.damage is None and member_of(key) not in contradicted | waiting:
            return f"candidate {key} of {owner.group} is open: {row.verdict}"
    for place, repair in world.ledger.rows.repairs.items():
        if repair.state is RepairState.SENT and any(inbox.is_damaged(place[3]) for inbox in world.inboxes.values()):
            continue  # its effect is there, and cannot be read; its candidate says so
        if repair.state is RepairState.SENT and any(world.inboxes[group].half_since(place[3]) for group in world.added):
            continue  # the copy has reached a group that came later, and that group's handler has committed halfway
        if repair.state.value not in ("DONE", "FAILED") and place[2] == "*" and member_of(place[3]) not in waiting:
            return f"repair of {place[3]} is {repair.state}: {repair.answer}"
    return ""
