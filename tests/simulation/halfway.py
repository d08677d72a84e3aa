"""Handlers that commit before they have done everything, and a person who ends what they left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway, TransientError
from reconciler.policy.ports.ledger import Candidate
from tests.simulation.inbox_database import Effect, InboxConnection, InboxDatabase
from tests.simulation.kernel import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


class HandlerFailed(Exception):
    """The rest of the effect cannot be done now."""


def commit_halfway(world: World, connection: InboxConnection, effect: Effect) -> None:
    """The handler's first half, durable at once. Half of such handlers raise afterwards, the others go on."""
    effect.is_half = True
    connection.effect(effect)
    connection.commit()
    world.kernel.saw("handler committed halfway", effect.unique_key[-4:])
    if world.kernel.dice.random() < 0.5:
        raise HandlerFailed(effect.unique_key)


class EndsHalves:
    """Looks at what the ledger calls INCOMPLETE, and accepts it or deletes it some time later, if it is so still."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._ledger = world.ledger_of(process)
        process.spawn(self._run)

    def _run(self) -> None:
        while True:
            self._process.sleep(4 + 8 * self._world.kernel.dice.random())
            try:
                self._look()
            except TransientError as error:
                self._world.kernel.tell(f"{self._process.name} could not: {error}")

    def _look(self) -> None:
        for (owner, key), row in list(self._world.ledger.rows.candidates.items()):
            if _waits_for_a_person(row):
                for database in self._world.inboxes[owner.group].databases:
                    self._end(database, owner.group, key)
                self._judge_again(owner, key)

    def _judge_again(self, owner: Subscription, key: str) -> None:
        """As `reconciler incomplete` does: a key that was dismissed meanwhile stays so."""
        found = self._ledger.candidates.of_keys(owner, [key]).get(key)
        if found is not None and _waits_for_a_person(found):
            self._ledger.candidates.reopen(found)

    def _end(self, database: InboxDatabase, group: str, key: str) -> None:
        world, process = self._world, self._process
        if key not in database.halves:
            return
        mark = str(database.rows[key]["incomplete"])
        process.sleep(30 * world.kernel.dice.random() ** 2)
        is_accepted = world.kernel.dice.random() < 0.5

        def end() -> bool:
            is_ended = database.end(key, mark, is_accepted=is_accepted)
            if is_ended and not is_accepted:
                world.undone.add((group, key))
            return is_ended

        if database.link.call(process, end, DatabaseAway, what="UPDATE incomplete"):
            world.kernel.saw(f"half of an effect was {'accepted' if is_accepted else 'undone'}", key[-4:])


def _waits_for_a_person(row: Candidate) -> bool:
    return row.state is CandidateState.QUARANTINED and row.verdict is Verdict.INCOMPLETE
