"""What `status` says about databases that may lack or hide rows. A missing row proves nothing there."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.asking.witness_roles import witness_roles
from reconciler.contract.facts import Code, Fact, Field
from reconciler.evidence.witness_role import WitnessRole
from reconciler.wiring.connections import Connections

UNPROVED = Code("status.unproved", database=Field.FACT, why=Field.FACTS, remedy=Field.FACTS)
BLIND_WITNESS = Code("status.blind-witness", database=Field.FACT, why=Field.FACTS, remedy=Field.FACTS)


def unproved(connections: Connections) -> Sequence[WitnessRole]:
    """Returns the databases that are not proved to show every row."""
    return [witness for witness in witness_roles(connections) if witness.is_doubted]


def doubted_witnesses(doubted: Sequence[WitnessRole], *, within_seconds: float) -> list[Fact]:
    """Returns one line for each doubted database."""
    return [UNPROVED(database=one.database, why=one.found, remedy=one.what_proves(within_seconds)) for one in doubted]


def blind_witnesses(doubted: Sequence[WitnessRole], *, within_seconds: float) -> list[Fact]:
    """Returns one line for each doubted database that proves nothing now."""
    return [
        BLIND_WITNESS(database=one.database, why=one.found, remedy=one.what_proves(within_seconds))
        for one in doubted
        if one.is_blind(within_seconds)
    ]
