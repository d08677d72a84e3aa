"""What `reconciler doctor` says about databases that may lack or hide rows. A missing row proves nothing there."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.commands.asking.witness_roles import witness_roles
from reconciler.commands.diagnosis import Diagnosis, Level
from reconciler.commands.status.standstill import limit_seconds
from reconciler.contract.facts import Code, Field
from reconciler.evidence.witness_role import WitnessRole
from reconciler.wiring.connections import Connections

ROLE_OF = Code("doctor.role-of", database=Field.FACT)
ROLE = Code("doctor.role", found=Field.FACTS)
ROLE_OF_PRODUCT = Code("doctor.role-of-product", found=Field.FACTS, product=Field.NAME)
NO_LIFE_SHOWN = Code("doctor.no-life-shown", seconds=Field.NUMBER)
MAKE_PRIMARY = Code("doctor.make-primary", remedy=Field.FACTS)
EFFECTS_MAY_BE_HIDDEN = Code("doctor.effects-may-be-hidden", remedy=Field.FACTS)
SEE_SET_UPS = Code("doctor.see-set-ups")


def check_primaries(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one finding for each outbox or inbox."""
    within_seconds = limit_seconds(connections.settings, None)
    return [_diagnosis(witness, within_seconds) for witness in witness_roles(connections)]


def _diagnosis(witness: WitnessRole, within_seconds: float) -> Diagnosis:
    check, facts = ROLE_OF(database=witness.database), witness.found
    if witness.product.name:
        facts = (ROLE_OF_PRODUCT(found=facts, product=witness.product.name),)
    is_unswept = witness.tree == "outbox" and not witness.is_swept(within_seconds)
    is_proved = not (witness.role.hides_rows or witness.is_view or witness.unread or witness.is_blind(within_seconds))
    if is_proved and is_unswept and witness.swept_seconds is not None:
        facts = (*facts, NO_LIFE_SHOWN(seconds=round(within_seconds)))
    found = ROLE(found=facts)
    is_blind, remedy = witness.is_blind(within_seconds), witness.what_proves(within_seconds)
    if witness.role.hides_rows and not is_blind:
        return Diagnosis(check=check, level="note", found=found, remedy=EFFECTS_MAY_BE_HIDDEN(remedy=remedy))
    if is_blind or is_unswept or not is_proved:
        level: Level = "fail" if is_blind else "note"
        return Diagnosis(check=check, level=level, found=found, remedy=MAKE_PRIMARY(remedy=remedy))
    if not witness.product.is_tried:
        return Diagnosis(check=check, level="note", found=found, remedy=SEE_SET_UPS())
    return Diagnosis(check=check, level="ok", found=found)
