"""Decides which databases prove an absence. The login must see every row. Primaries prove absences, and so do outboxes
on replicas while signs of life of a sweep arrive."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import ReconcilerError
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import reading
from reconciler.sql.identity import SIGN_OF_LIFE_ID
from reconciler.sql.products import THE_SERVER, Product, product_of
from reconciler.sql.table_shapes import is_unlogged
from reconciler.sql.tables import inbox, is_view, outbox, outbox_identity
from reconciler.sql.witness_database import DatabaseRole, WitnessDatabase, rows_hidden

PRIMARY = Code("evidence.primary")
ROLE_UNREAD = Code("evidence.role-unread", unread=Field.TEXT)
NOT_PRIMARY = Code("evidence.not-primary", kind=Field.FACT)
NO_SIGN_OF_LIFE = Code("evidence.no-sign-of-life", kind=Field.FACT)
OLD_SIGN_OF_LIFE = Code("evidence.old-sign-of-life", kind=Field.FACT, seconds=Field.NUMBER)
SIGN_OF_LIFE_AHEAD = Code("evidence.sign-of-life-ahead", kind=Field.FACT, seconds=Field.NUMBER)
NO_SWEEP = Code("evidence.no-sweep")
VIEW = Code("evidence.view")
UNLOGGED = Code("evidence.unlogged")
SHOW_EVERY_ROW = Code("evidence.show-every-row", tree=Field.NAME)
INBOX_AT_PRIMARY = Code("evidence.inbox-at-primary")
OUTBOX_AT_PRIMARY = Code("evidence.outbox-at-primary")
LEAD_TO_TABLE = Code("evidence.lead-to-table", tree=Field.NAME)
SET_LOGGED = Code("evidence.set-logged", tree=Field.NAME)
NO_REPLICA = Code("evidence.no-replica")
LIFE_COMES = Code("evidence.life-comes")
LET_SWEEP_RUN = Code("evidence.let-sweep-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRole:
    """The present role of one database of evidence."""

    #: Names the database by the groups whose outboxes or inboxes it has.
    database: Fact
    #: "outbox" or "inbox".
    tree: str
    role: DatabaseRole
    #: The age of an outbox's sign of life, by the database's clock. Negative if it lies in the future. None for an
    #: inbox, and if no sign of life can be read.
    swept_seconds: float | None = None
    #: The proofs of a primary that the login may not read, each with its remedy.
    unread: tuple[str, ...] = ()
    #: The acts that would make the database a primary.
    remedies: tuple[Fact, ...] = ()
    #: The product of the server. THE_SERVER for the protocol's own server.
    product: Product = THE_SERVER
    #: True if a view is read instead of a table.
    is_view: bool = False
    #: True if a crash of the server empties the table (PostgreSQL).
    is_unlogged: bool = False

    @property
    def is_doubted(self) -> bool:
        """True unless the database provably shows every existing row."""
        is_unswept = self.tree == "outbox" and self.swept_seconds is None
        is_primary = self.role.is_primary is True and not self.unread
        return not is_primary or self.role.hides_rows or self.is_view or self.is_unlogged or is_unswept

    def is_swept(self, within_seconds: float) -> bool:
        """Returns True if a sweep wrote a sign of life within this time. A sign of life that lies a minute in the
        future counts as a minute old, because a clock may have been set back."""
        return self.swept_seconds is not None and abs(self.swept_seconds) <= within_seconds

    def is_blind(self, within_seconds: float) -> bool:
        """Returns True if the database proves no absence. A row that a blind database lacks may be committed, but gets
        no verdict and no repair. An inbox that may hide rows is not blind, because without this inbox nothing would be
        repaired."""
        if self.is_unlogged or (self.role.hides_rows and self.tree == "outbox"):
            return True
        return self.role.is_primary is False and (self.role.swept_at_ms is None or not self.is_swept(within_seconds))

    @property
    def found(self) -> tuple[Fact, ...]:
        """The facts about the role: primary, or why this is not proved, and whether rows may be hidden."""
        found = [self._place]
        if self.role.is_primary is not False and self.tree == "outbox" and self.swept_seconds is None:
            found.append(no_sweep())
        if self.is_view:
            found.append(VIEW())
        if self.is_unlogged:
            found.append(UNLOGGED())
        return (*found, rows_hidden()) if self.role.hides_rows else tuple(found)

    @property
    def _place(self) -> Fact:
        if self.role.is_primary is not False:
            return ROLE_UNREAD(unread="; ".join(self.unread)) if self.unread else PRIMARY()
        kind = self.role.kind
        if self.tree == "inbox":
            return not_primary(kind)
        if self.role.swept_at_ms is None or self.swept_seconds is None:
            return NO_SIGN_OF_LIFE(kind=kind)
        life = OLD_SIGN_OF_LIFE if self.swept_seconds >= 0 else SIGN_OF_LIFE_AHEAD
        return life(kind=kind, seconds=round(abs(self.swept_seconds)))

    def what_proves(self, within_seconds: float) -> tuple[Fact, ...]:
        """Returns the acts after which a doubted database proves absences."""
        if self.is_unlogged:
            return (SET_LOGGED(tree=self.tree),)
        if self.role.hides_rows:
            return (SHOW_EVERY_ROW(tree=self.tree),)
        if self.is_blind(within_seconds):
            return (INBOX_AT_PRIMARY() if self.tree == "inbox" else OUTBOX_AT_PRIMARY(), *self.remedies)
        if self.is_view:
            return (LEAD_TO_TABLE(tree=self.tree),)
        if self.unread or self.role.is_primary is None:
            return (NO_REPLICA(),)
        return (LET_SWEEP_RUN() if self.role.is_primary else LIFE_COMES(),)


def not_primary(kind: Fact) -> Fact:
    """Returns the fact that a database is not a primary. `kind`: the role that the database has."""
    return NOT_PRIMARY(kind=kind)


def no_sweep() -> Fact:
    """Returns the fact that an outbox has no sign of life. Without a sign of life, unannounced commits cannot be
    seen."""
    return NO_SWEEP()


def read_role(engine: sa.Engine, *, database: Fact, tree: str) -> WitnessRole:
    """Asks one database for its role. Raises DatabaseAway, or ConfigurationError if the tables are missing."""
    is_outbox = tree == "outbox"
    witness = WitnessDatabase(engine, outbox if is_outbox else inbox, is_outbox=is_outbox)
    role, table = witness.role(), (outbox if is_outbox else inbox).name
    return WitnessRole(
        database=database,
        tree=tree,
        role=role,
        swept_seconds=_swept_seconds(engine) if is_outbox else None,
        unread=witness.unread(),
        remedies=() if role.is_primary is not False else witness.remedies(is_node=role.is_node),
        product=product_of(engine),
        is_view=_is_view(engine, table),
        is_unlogged=is_unlogged(engine, table),
    )


def _is_view(engine: sa.Engine, table: str) -> bool:
    try:
        with reading(engine) as connection:
            return is_view(connection, table)
    except ReconcilerError:
        return False  # if the catalogue cannot be read, the table does not count as a view


def _swept_seconds(engine: sa.Engine) -> float | None:
    find = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == SIGN_OF_LIFE_ID)
    try:
        with reading(engine) as connection:
            swept_at_ms = connection.scalar(find)
            return None if swept_at_ms is None else (database_now_ms(connection) - swept_at_ms) / 1000
    except ReconcilerError:
        return None  # not upgraded, or this login may not read it
