"""A database that proves no absence, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.commands.status.primaries import doubted_witnesses
from reconciler.evidence.witness_role import WitnessRole
from reconciler.sql.witness_database import DatabaseRole
from reconciler.wiring.databases import database_fact
from reconciler.words import said

WITHIN_SECONDS = 300.0
HIDING = DatabaseRole(is_primary=True, hides_rows=True)


def witness(
    is_primary: bool | None, *, swept_seconds: float | None = None, tree: str = "outbox", unread: tuple[str, ...] = ()
) -> WitnessRole:
    swept_at_ms = None if swept_seconds is None else 1
    role = DatabaseRole(is_primary=is_primary, swept_at_ms=swept_at_ms)
    return WitnessRole(
        database=database_fact(tree, "orders"), tree=tree, role=role, swept_seconds=swept_seconds, unread=unread
    )


@pytest.mark.parametrize(
    ("one", "blind", "doubted"),
    [
        (witness(True), False, True),
        (witness(True, tree="inbox"), False, False),
        (witness(True, swept_seconds=WITHIN_SECONDS + 1), False, False),
        (witness(None), False, True),
        (witness(True, unread=("no right on pg_settings",)), False, True),
        (witness(False), True, True),
        (witness(False, swept_seconds=WITHIN_SECONDS), False, True),
        (witness(False, swept_seconds=WITHIN_SECONDS + 1), True, True),
        (witness(False, swept_seconds=-WITHIN_SECONDS), False, True),
        (witness(False, swept_seconds=-WITHIN_SECONDS - 1), True, True),
        (replace(witness(False, swept_seconds=1.0), role=DatabaseRole(is_primary=False, swept_at_ms=None)), True, True),
    ],
)
def test_a_database_that_may_lack_rows_is_doubted_and_one_that_proves_nothing_blinds(
    one: WitnessRole, blind: bool, doubted: bool
) -> None:
    assert (one.is_blind(WITHIN_SECONDS), one.is_doubted) == (blind, doubted)


@pytest.mark.parametrize(
    ("one", "found", "remedy"),
    [
        (witness(True), "a primary; no sweep on record", "let `reconciler sweep` run"),
        (witness(None, unread=("no right on pg_settings",)), "no right on pg_settings", "leads to no replica"),
        (witness(None, swept_seconds=1.0), "a primary", "leads to no replica"),
        (replace(witness(True, swept_seconds=1.0), is_view=True), "a view", "outbox_url lead to the table itself"),
        (replace(witness(True, tree="inbox"), role=HIDING), "row security", "CREATE POLICY ... ON reconciler_inbox"),
        (witness(False), "no sign of life", "sweep` run on the primary"),
        (witness(False, swept_seconds=42.0), "42 s old", "no act is needed while signs of life come"),
        (witness(False, swept_seconds=WITHIN_SECONDS + 1), "301 s old", "sweep` run on the primary"),
        (witness(False, swept_seconds=-WITHIN_SECONDS - 1), "301 s ahead of its clock", "sweep` run on the primary"),
        (witness(False, tree="inbox"), "a replica", "inbox_url at the primary"),
    ],
)
def test_the_line_of_status_names_what_makes_a_witness_of_a_doubted_database(
    one: WitnessRole, found: str, remedy: str
) -> None:
    (line,) = doubted_witnesses([one], within_seconds=WITHIN_SECONDS)
    database, why = said(line).split(": ", 1)
    assert database == said(one.database)
    assert (found in why, remedy in why, "reconciler doctor" in why) == (True, True, False)
