"""When a database that has no row of a key proves that there is none."""

from __future__ import annotations

import pytest

from reconciler.policy.evidence import Presence
from reconciler.sql.witness_database import NOT_PROVED, DatabaseRole, absence

PRIMARY, UNREADABLE = DatabaseRole(is_primary=True), DatabaseRole(is_primary=None)
REPLICA, LIVELY = DatabaseRole(is_primary=False), DatabaseRole(is_primary=False, swept_at_ms=1_000)


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
    ],
)
def test_absence_needs_a_primary_or_a_later_sign_of_life(
    role: DatabaseRole, not_before_ms: int | None, *, is_proved: bool
) -> None:
    answer = absence("outbox", role, not_before_ms)
    assert answer.presence is (Presence.ABSENT if is_proved else Presence.UNKNOWN)
    assert (NOT_PROVED in answer.detail) is not is_proved
