"""What `status` and `doctor` say of databases that may lack, or hide, rows that there are: an absence is no proof."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.diagnosis import Diagnosis
from reconciler.commands.status.standstill import limit_seconds
from reconciler.contract.facts import Code, Fact, Field
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import SWEEP_RIGHT, WitnessRole, witness_roles

BLIND_WITNESS = Code("status.blind-witness", name=Field.NAME, why=Field.TEXT, remedy=Field.TEXT)


def unproved(connections: Connections) -> Sequence[WitnessRole]:
    """The databases of which it is not proved that they show every row; `status` names them."""
    return [witness for witness in witness_roles(connections) if witness.is_doubted]


def blind(doubted: Sequence[WitnessRole], *, within_seconds: float) -> list[Fact]:
    """A line for each that proves nothing now."""
    return [BLIND_WITNESS(name=d.name, why=d.found, remedy=d.remedy) for d in doubted if d.is_blind(within_seconds)]


def check_primaries(connections: Connections) -> Sequence[Diagnosis]:
    """One diagnosis a database, for `doctor`."""
    within_seconds = limit_seconds(connections.settings, None)
    return [_diagnosis(witness, within_seconds) for witness in witness_roles(connections)]


def _diagnosis(witness: WitnessRole, within_seconds: float) -> Diagnosis:
    check, found = f"role of {witness.name}", witness.found
    if witness.product.name:
        found = f"{found} ({witness.product.name})"
    if witness.is_blind(within_seconds):
        return Diagnosis(check=check, level="fail", found=found, remedy=witness.remedy)
    if witness.role.hides_rows:
        remedy = f"a missing effect counts all the same, and may be a hidden one: {witness.remedy}"
        return Diagnosis(check=check, level="note", found=found, remedy=remedy)
    if witness.is_view:
        remedy = f"an absence counts all the same: let {witness.tree}_url lead to the table itself"
        return Diagnosis(check=check, level="note", found=found, remedy=remedy)
    if witness.unread:
        remedy = "an absence counts all the same: make sure that the URL leads to no replica"
        return Diagnosis(check=check, level="note", found=found, remedy=remedy)
    if witness.tree == "outbox" and not witness.is_swept(within_seconds):
        if witness.swept_seconds is not None:
            found = f"{found}; no sweep has shown life for {within_seconds:.0f} s: what it lacks is UNKNOWN"
        remedy = f"let `reconciler sweep` run {SWEEP_RIGHT}; if it does run, is this a former primary, or a copy?"
        return Diagnosis(check=check, level="note", found=found, remedy=remedy)
    if not witness.product.is_tried:
        remedy = "an absence counts all the same: docs/reference/set-ups.md says what is expected of this product"
        return Diagnosis(check=check, level="note", found=found, remedy=remedy)
    return Diagnosis(check=check, level="ok", found=found)
