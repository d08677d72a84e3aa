"""Which databases prove an absence to a login that sees every row: primaries, and outboxes on replicas as long as signs
of life of a sweep arrive."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.errors import ReconcilerError
from reconciler.sql.engines import database_now_ms, reading
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.products import THE_SERVER, Product, product_of
from reconciler.sql.tables import inbox, is_view, outbox, outbox_identity
from reconciler.sql.witness_database import HIDES_ROWS, NOT_PROVED, DatabaseRole, WitnessDatabase

NO_SWEEP = "no sweep on record"
SWEEP_RIGHT = "with the right to UPDATE reconciler_outbox_identity"
A_VIEW = "a view: it may hide rows, or show those of another table"


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRole:
    """What one database of evidence is now."""

    #: Whose outboxes or inboxes it has.
    name: str
    #: outbox or inbox.
    tree: str
    role: DatabaseRole
    #: Outbox: age of the sign of life that it holds, by its own clock; negative: it is of the future. None: there is
    #: none, or it may not be read.
    swept_seconds: float | None = None
    #: Proofs of being a primary that the login may not read, each with its remedy.
    unread: tuple[str, ...] = ()
    #: What would make a primary of it, as far as one of its own variables says so.
    remedies: tuple[str, ...] = ()
    #: Another product than the protocol's own server.
    product: Product = THE_SERVER
    #: What is read is no table of its own.
    is_view: bool = False

    @property
    def is_doubted(self) -> bool:
        """It is not proved that it shows every row that there is."""
        is_unswept = self.tree == "outbox" and self.swept_seconds is None
        is_primary = self.role.is_primary is True and not self.unread
        return not is_primary or self.role.hides_rows or self.is_view or is_unswept

    def is_swept(self, within_seconds: float) -> bool:
        """A sweep has shown life in that time. One of the future may be as old as it lies ahead: a clock was set
        back."""
        return self.swept_seconds is not None and abs(self.swept_seconds) <= within_seconds

    def is_blind(self, within_seconds: float) -> bool:
        """It proves nothing: what it lacks may be committed, gets no verdict, and is never repaired. An inbox that may
        hide rows counts all the same, since nothing would be repaired without it."""
        if self.role.hides_rows and self.tree == "outbox":
            return True
        return self.role.is_primary is False and (self.role.swept_at_ms is None or not self.is_swept(within_seconds))

    @property
    def found(self) -> str:
        """The role in words: a primary, or why that is not proved; and whether rows may be hidden."""
        hidden = [A_VIEW] if self.is_view else []
        return "; ".join((self._place, *hidden, *([HIDES_ROWS] if self.role.hides_rows else [])))

    @property
    def _place(self) -> str:
        if self.role.is_primary is not False:
            primary = f"{NOT_PROVED}: {'; '.join(self.unread)}" if self.unread else "a primary"
            return f"{primary}; {NO_SWEEP}" if self.tree == "outbox" and self.swept_seconds is None else primary
        kind = self.role.kind
        if self.tree == "inbox":
            return f"{NOT_PROVED}: {kind}"
        if self.role.swept_at_ms is None or self.swept_seconds is None:
            return f"{NOT_PROVED}: {kind}, no sign of life of a sweep has come to it"
        where = "old" if self.swept_seconds >= 0 else "ahead of its clock"
        seconds = f"{abs(self.swept_seconds):.0f} s"
        return f"{NOT_PROVED}: {kind}, the last sign of life that has come to it is {seconds} {where}"

    @property
    def remedy(self) -> str:
        """What to do so that the database proves absences."""
        if self.role.hides_rows:
            return (
                "let the login see every row: ALTER ROLE ... BYPASSRLS, or CREATE POLICY ... ON reconciler_"
                f"{self.tree} FOR SELECT TO ... USING (true)"
            )
        if self.tree == "inbox":
            first = "point inbox_url at the primary: a missing effect is UNKNOWN until then, and nothing is repaired"
        else:
            first = (
                "point outbox_url at the primary, or let the replica replicate and `reconciler sweep` run on the "
                f"primary {SWEEP_RIGHT}: what it lacks is UNKNOWN until then"
            )
        return "; ".join((first, *self.remedies))


def read_role(engine: sa.Engine, *, name: str, tree: str) -> WitnessRole:
    """Asks one database. Raises DatabaseAway, or ConfigurationError where the tables are missing."""
    is_outbox = tree == "outbox"
    database = WitnessDatabase(engine, outbox if is_outbox else inbox, is_outbox=is_outbox)
    role = database.role()
    return WitnessRole(
        name=name,
        tree=tree,
        role=role,
        swept_seconds=_swept_seconds(engine) if is_outbox else None,
        unread=database.unread(),
        remedies=() if role.is_primary is not False else database.remedies(is_node=role.is_node),
        product=product_of(engine),
        is_view=_is_view(engine, (outbox if is_outbox else inbox).name),
    )


def _is_view(engine: sa.Engine, table: str) -> bool:
    try:
        with reading(engine) as connection:
            return is_view(connection, table)
    except ReconcilerError:
        return False  # nothing is known of it


def _swept_seconds(engine: sa.Engine) -> float | None:
    find = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
    try:
        with reading(engine) as connection:
            swept_at_ms = connection.scalar(find)
            return None if swept_at_ms is None else (database_now_ms(connection) - swept_at_ms) / 1000
    except ReconcilerError:
        return None  # not upgraded, or not for this login
