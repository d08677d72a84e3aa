"""Which databases prove an absence: primaries, and outboxes on replicas while the sign of life keeps coming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.commands.finding import Finding
from reconciler.commands.status.standstill import limit_seconds
from reconciler.errors import ReconcilerError
from reconciler.settings.schema import Settings
from reconciler.sql.engines import database_now_ms, reading
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.tables import inbox, outbox, outbox_identity
from reconciler.sql.witness_database import NOT_PROVED, DatabaseRole, WitnessDatabase
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import inbox_databases, outbox_databases

_RIGHT = "with the right to UPDATE reconciler_outbox_identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One database of evidence now."""

    #: Whose outboxes or inboxes it has.
    name: str
    setting: str
    role: DatabaseRole
    #: Of an outbox: age of the sign of life that is in it, by its own clock; None: none, or it may not be read.
    swept_seconds: float | None = None
    #: What of being a primary the login may not read, with what mends it.
    unread: tuple[str, ...] = ()

    def is_swept(self, within_seconds: float) -> bool:
        """A sweep has shown life in that time."""
        return self.swept_seconds is not None and self.swept_seconds <= within_seconds

    def is_blind(self, within_seconds: float) -> bool:
        """A replica that proves nothing: what it lacks may be committed, is not judged, and so never repaired."""
        return self.role.is_primary is False and (self.role.swept_at_ms is None or not self.is_swept(within_seconds))

    @property
    def found(self) -> str:
        """What it is."""
        if self.role.is_primary is not False:
            return f"{NOT_PROVED}: {'; '.join(self.unread)}" if self.unread else "a primary"
        if self.setting == "inbox_url":
            return f"{NOT_PROVED}: a replica"
        if self.role.swept_at_ms is None or self.swept_seconds is None:
            return f"{NOT_PROVED}: a replica, no sign of life of a sweep has come to it"
        return f"{NOT_PROVED}: a replica, the last sign of life that has come to it is {self.swept_seconds:.0f} s old"

    @property
    def mend(self) -> str:
        """What makes a blind one see."""
        if self.setting == "inbox_url":
            return "point inbox_url at the primary: a missing effect is UNKNOWN until then, and nothing is repaired"
        return (
            "point outbox_url at the primary, or let the replica replicate and `reconciler sweep` run on the primary "
            f"{_RIGHT}: what it lacks is UNKNOWN until then"
        )


def standings(connections: Connections) -> Iterator[Standing]:
    """One for each database that answers; who is away, or has no tables, is told elsewhere."""
    for (setting, url), name in _databases(connections.settings).items():
        try:
            yield _standing(connections.engine(url, read_only=True), name=name, setting=setting)
        except ReconcilerError:
            continue


def unproved(connections: Connections) -> Sequence[Standing]:
    """Those of which `status` tells."""
    return [found for found in standings(connections) if found.role.is_primary is not True or found.unread]


def blind(doubted: Sequence[Standing], *, within_seconds: float) -> list[str]:
    """A line for each that proves nothing now."""
    return [f"{d.name}: {d.found}: {d.mend}" for d in doubted if d.is_blind(within_seconds)]


def check_primaries(connections: Connections) -> Sequence[Finding]:
    """What `doctor` says of each."""
    within_seconds = limit_seconds(connections.settings, None)
    return [_finding(standing, within_seconds) for standing in standings(connections)]


def _finding(standing: Standing, within_seconds: float) -> Finding:
    check, found = f"role of {standing.name}", standing.found
    if standing.is_blind(within_seconds):
        return Finding(check=check, level="fail", found=found, remedy=standing.mend)
    if standing.unread:
        remedy = "an absence counts all the same: make sure that the URL leads to no replica"
        return Finding(check=check, level="note", found=found, remedy=remedy)
    if standing.setting == "outbox_url" and not standing.is_swept(within_seconds):
        found = f"{found}; no sweep has shown life for {within_seconds:.0f} s"
        return Finding(check=check, level="note", found=found, remedy=f"let `reconciler sweep` run {_RIGHT}")
    return Finding(check=check, level="ok", found=found)


def _standing(engine: sa.Engine, *, name: str, setting: str) -> Standing:
    is_outbox = setting == "outbox_url"
    database = WitnessDatabase(engine, outbox if is_outbox else inbox, has_sign_of_life=is_outbox)
    return Standing(
        name=name,
        setting=setting,
        role=database.role(),
        swept_seconds=_swept_seconds(engine) if is_outbox else None,
        unread=database.unread(),
    )


def _swept_seconds(engine: sa.Engine) -> float | None:
    find = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
    try:
        with reading(engine) as connection:
            swept_at_ms = connection.scalar(find)
            return None if swept_at_ms is None else (database_now_ms(connection) - swept_at_ms) / 1000
    except ReconcilerError:
        return None  # not upgraded, or not for this login


def _databases(settings: Settings) -> dict[tuple[str, str], str]:
    """(setting, URL) -> whose: groups may share a database."""
    owners: dict[tuple[str, str], list[str]] = {}
    for found in [*outbox_databases(settings), *inbox_databases(settings)]:
        owners.setdefault((f"{found.tree}_url", found.url), []).append(found.name.removeprefix(f"{found.tree} of "))
    return {place: f"{place[0].removesuffix('_url')} of {', '.join(names)}" for place, names in owners.items()}
