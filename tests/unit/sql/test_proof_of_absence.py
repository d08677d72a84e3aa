"""When a database that has no row of a key proves that there is none."""

from __future__ import annotations

import pytest

from reconciler.contract.answers import NO_ROW
from reconciler.policy.evidence import Presence
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.sql.witness_database import DatabaseRole, absence
from reconciler.words import said

NOT_PROVED = "not proved to be a primary"

PRIMARY, UNREADABLE = DatabaseRole(is_primary=True), DatabaseRole(is_primary=None)
REPLICA, LIVELY = DatabaseRole(is_primary=False), DatabaseRole(is_primary=False, swept_at_ms=1_000)
SWEPT = DatabaseRole(is_primary=True, swept_at_ms=1_000)
HIDING = DatabaseRole(is_primary=True, hides_rows=True)


@pytest.mark.parametrize(
    ("role", "not_before_ms", "is_proved"),
    [
        (PRIMARY, None, True),
        (PRIMARY, 2**62, True),
        (UNREADABLE, None, True),  # a missing right stops no repairs: it counts as before, and doctor tells
        (UNREADABLE, 5_000, True),
        (REPLICA, None, False),
        (REPLICA, 0, False),
        (LIVELY, None, False),  # of an inbox: nobody shows life in it
        (LIVELY, 999, True),
        (LIVELY, 1_000, False),
        (LIVELY, 1_001, False),
        (LIVELY, WHENEVER_COMMITTED_MS, False),
        (SWEPT, None, True),
        (SWEPT, 999, True),
        (SWEPT, 1_000, False),  # a former primary calls itself one; the newest sign of life is of its time
        (SWEPT, WHENEVER_COMMITTED_MS, True),
        (HIDING, None, True),  # of an inbox: nothing would be repaired any more
        (HIDING, 0, False),
        (HIDING, WHENEVER_COMMITTED_MS, False),
    ],
)
def test_absence_needs_a_primary_a_later_sign_of_life_where_there_is_one_and_every_row(
    role: DatabaseRole, not_before_ms: int | None, *, is_proved: bool
) -> None:
    answer = absence("outbox", role, not_before_ms)
    assert answer.presence is (Presence.ABSENT if is_proved else Presence.UNKNOWN)
    assert (answer.fact.code is NO_ROW) is is_proved
    assert (NOT_PROVED in said(answer.fact)) is not (is_proved or role.hides_rows)
