"""Each role runs on an embedded broker with exactly the rights of the table; a right that is missing is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from reconciler.embedded.access_control import BrokerUser
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import ReconcilerError
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import broker_evidence
from tests.polling import eventually
from tests.services.secured_roles import (
    ROLES,
    SECRET,
    TOPIC,
    RefusalLog,
    SecuredRoles,
    rights_of,
    settings_of,
    user_of,
)

GENERATIONS = {"4.9": True, "5.x": False}
#: Before it a broker of 4.9 has no half topic that `scan` could read.
_FIRST_ROUND_SECONDS = 1.0


def users(*, is_acl: bool, without: tuple[str, str] | None = None) -> Iterator[BrokerUser]:
    """A user a role; `without` is a role and one of its rights."""
    for role in ROLES:
        rights = [" ".join(right) for right in rights_of(role, is_acl=is_acl)]
        left = [text for text in rights if without is None or (role, text) != without]
        yield BrokerUser(
            access_key=user_of(role),
            secret_key=SECRET,
            rights=tuple(text for text in left if not text.startswith("ADMIN")),
            is_admin=any(text.startswith("ADMIN") for text in left),
        )


@contextmanager
def broker(
    family: str, known: Iterable[BrokerUser], *, check_interval_seconds: float | None = None
) -> Iterator[EmbeddedBroker]:
    settings = BrokerSettings(
        auto_create_topic=False,
        delay_levels=" ".join(["10ms"] * 18),
        check_interval_seconds=check_interval_seconds,
    )
    with EmbeddedBroker(family=family, settings=settings, users=known) as opened:
        yield opened


@pytest.mark.parametrize("family", GENERATIONS)
def test_every_role_runs_with_exactly_its_rights(family: str, tmp_path: Path) -> None:
    known = users(is_acl=GENERATIONS[family])
    with broker(family, known, check_interval_seconds=_FIRST_ROUND_SECONDS) as opened, RefusalLog() as told:
        roles = SecuredRoles(opened.name_servers, tmp_path)
        assert set(roles.steps()) == set(ROLES)
        for step in roles.steps().values():
            step()
    assert not told.lines


@pytest.mark.parametrize("family", GENERATIONS)
def test_whether_a_check_service_has_passed_a_half_is_seen_with_the_rights_of_looking_it_up(
    family: str, tmp_path: Path
) -> None:
    known = users(is_acl=GENERATIONS[family])
    with broker(family, known, check_interval_seconds=0.2) as opened, RefusalLog() as told:
        roles = SecuredRoles(opened.name_servers, tmp_path)
        for role in (*_FIRST, "run"):
            roles.steps()[role]()
        assert roles.half is not None
        with Connections(settings_of("console", opened.name_servers, tmp_path)) as connections:
            brokers = broker_evidence(connections)
            halves = brokers.half_copies(
                TOPIC, roles.half.unique_key, horizon=brokers.horizon(TOPIC), not_before_ms=0, outbox=None
            )()
            eventually(lambda: brokers.is_past_check(halves.records[0]), within_seconds=30)
    assert not told.lines


#: Topics of 5.4: the embedded broker imitates no release that has them.
_OF_5_4 = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")


def lost_rights() -> Iterator[object]:
    for family, is_acl in GENERATIONS.items():
        for role in ROLES:
            for action, kind, name in rights_of(role, is_acl=is_acl):
                if name in _OF_5_4:
                    continue
                yield pytest.param(family, role, (action, kind, name), id=f"{family}-{role}-{action}-{kind}-{name}")


_FIRST = ("topics create", "announcing service", "consuming service")


@pytest.mark.parametrize(("family", "role", "right"), list(lost_rights()))
def test_right_that_was_taken_away_is_named(
    family: str, role: str, right: tuple[str, str, str], tmp_path: Path
) -> None:
    action, kind, name = right
    without = (role, f"{action} {kind} {name}")
    known = users(is_acl=GENERATIONS[family], without=without)
    with broker(family, known, check_interval_seconds=_FIRST_ROUND_SECONDS) as opened, RefusalLog() as told:
        roles = SecuredRoles(opened.name_servers, tmp_path, is_refused=lambda: bool(told.lines))
        steps = roles.steps()
        for needed in _FIRST[: _FIRST.index(role) if role in _FIRST else None]:
            steps[needed]()
        assert not told.lines
        with suppress(AssertionError, ReconcilerError):
            steps[role]()
    named = "admin: true" if action == "ADMIN" else f" on {kind} {'' if kind == 'cluster' else name}"
    lacking = [line.partition(" lacks ")[2].partition(";")[0] for line in told.lines]
    assert any(named in text and (action in text or action == "ADMIN") for text in lacking), told.lines
