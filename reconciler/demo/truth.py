"""The demo's own records: tables that the product neither writes nor guards, and the counts over them.

`attempts`, `marks` and `copies` are in truth.db. `effects` is in each consumer's database, because an effect must be
written in the transaction of its inbox row. No unique index forbids a second effect, so the demo could count it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.demo.plan import LOSSES, MessageFate

#: Consumer group in which the demo counts effects before and after the repairs.
REFERENCE = "reference"
LAGGING = "lagging"

LOAD_ENDED = "load_ended"


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Paths of the demo's databases and files. With `--keep` they stay after the demo."""

    folder: Path

    @property
    def truth(self) -> Path:
        """Database of attempts, marks and copies."""
        return self.folder / "truth.db"

    @property
    def outbox(self) -> Path:
        """The producers' business database."""
        return self.folder / "orders.db"

    @property
    def ledger(self) -> Path:
        """The reconciler's ledger."""
        return self.folder / "ledger.db"

    def inbox(self, group: str) -> Path:
        """The business database of a consumer group."""
        return self.folder / f"{group}.db"

    @property
    def settings(self) -> Path:
        """The reconciler's settings file."""
        return self.folder / "reconciler.toml"

    @property
    def history(self) -> Path:
        """The history that the reconciler writes for the audit."""
        return self.folder / "history"

    @property
    def audit(self) -> Path:
        """Folder of the audit's findings and page."""
        return self.folder / "audit"

    @property
    def released(self) -> Path:
        """File whose existence releases the lagging group."""
        return self.folder / "released"

    def log(self, process: str) -> Path:
        """Returns the file with the output of one process."""
        return self.folder / f"{process}.log"


def connect(path: Path) -> sqlite3.Connection:
    """Opens a connection that waits for locks. The caller closes the connection."""
    return sqlite3.connect(path, timeout=30, isolation_level=None)


def create(path: Path) -> sqlite3.Connection:
    """Opens a connection to a new database in WAL mode, which the file keeps.

    connect() does not set the mode again: setting it does not wait for locks, and would fail after a process was
    killed.
    """
    connection = connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


def create_truth(path: Path) -> None:
    """Creates the tables attempts, marks and copies."""
    with closing(create(path)) as db:
        db.execute("CREATE TABLE attempts (number INTEGER NOT NULL, key TEXT NOT NULL, fate TEXT NOT NULL)")
        db.execute("CREATE INDEX attempts_key ON attempts (key)")
        db.execute("CREATE TABLE marks (name TEXT NOT NULL, at_ms INTEGER NOT NULL)")
        db.execute("CREATE TABLE copies (key TEXT NOT NULL, broker TEXT, queue INTEGER, queue_offset INTEGER)")


def create_effects(path: Path) -> None:
    """Creates the consumer's business table."""
    with closing(create(path)) as db:
        db.execute(
            "CREATE TABLE effects (consumer_group TEXT NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL,"
            " applied_at_ms INTEGER NOT NULL)"
        )


def create_orders(path: Path) -> None:
    """Creates the producer's business table."""
    with closing(create(path)) as db:
        db.execute("CREATE TABLE orders (number INTEGER NOT NULL, tag TEXT NOT NULL)")


def write_attempt(db: sqlite3.Connection, number: int, key: str, fate: MessageFate) -> None:
    """Writes the attempt in a transaction of its own, before the half is sent."""
    db.execute("INSERT INTO attempts VALUES (?, ?, ?)", (number, key, fate.value))


def attempted_numbers(db: sqlite3.Connection) -> set[int]:
    """Returns the numbers of messages that were tried already. A restarted producer continues with the others."""
    return {number for (number,) in db.execute("SELECT number FROM attempts")}


def is_loss(db: sqlite3.Connection, key: str) -> bool:
    """Returns True if the demo must lose this key."""
    row = db.execute("SELECT fate FROM attempts WHERE key = ?", (key,)).fetchone()
    return row is not None and MessageFate(row[0]) in LOSSES


def set_mark(path: Path, name: str, at_ms: int) -> None:
    """Records a moment of the demo."""
    with closing(connect(path)) as db:
        db.execute("INSERT INTO marks VALUES (?, ?)", (name, at_ms))


def write_copies(path: Path, copies: Iterable[tuple[str, str, int, int]]) -> None:
    """Writes the copies that a PULL of the whole topic found: key, broker, queue, offset."""
    with closing(connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO copies VALUES (?, ?, ?, ?)", copies)
        db.execute("COMMIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCounts:
    """The demo's result. run.py prints each number with its meaning."""

    committed: int
    rolled_back: int
    lost: int
    delivered_before: int
    healed_by_broker: int
    found: int
    repaired: int
    delivered_after: int
    double_effects: int
    unnecessary_repairs: int
    rolled_back_delivered: int

    def holds(self, *, messages: int, lose: int) -> bool:
        """Returns True if every count is as promised."""
        return (
            self.committed == self.delivered_after == messages
            and self.lost == self.found == lose
            and self.repaired + self.healed_by_broker == lose
            and self.double_effects == self.unnecessary_repairs == self.rolled_back_delivered == 0
        )

    def as_dict(self) -> dict[str, int]:
        """Returns plain data."""
        return asdict(self)


_VIEWS = """
CREATE TEMP VIEW committed AS SELECT unique_key AS key FROM orders.reconciler_outbox WHERE state <> 'ROLLED_BACK';
CREATE TEMP VIEW effects AS SELECT * FROM reference.effects UNION ALL SELECT * FROM lagging.effects;
CREATE TEMP VIEW lost AS SELECT key FROM committed WHERE key NOT IN (
  SELECT key FROM reference.effects WHERE applied_at_ms <= (SELECT at_ms FROM marks WHERE name = 'load_ended'));
CREATE TEMP VIEW sent AS SELECT unique_key AS key, rung FROM ledger.reconciler_repair WHERE attempts > 0;
CREATE TEMP VIEW taken AS SELECT DISTINCT key FROM reference.effects;
"""

_COUNTS: Mapping[str, str] = {
    "committed": "SELECT count(*) FROM committed",
    "rolled_back": "SELECT count(*) FROM attempts WHERE fate = 'roll-back'",
    "lost": "SELECT count(*) FROM lost",
    "delivered_before": "SELECT (SELECT count(*) FROM committed) - (SELECT count(*) FROM lost)",
    "healed_by_broker": "SELECT count(*) FROM lost WHERE key IN taken AND key NOT IN (SELECT key FROM sent)",
    "found": "SELECT count(DISTINCT unique_key) FROM ledger.reconciler_candidate WHERE loss_verdict IS NOT NULL",
    "repaired": "SELECT count(*) FROM lost WHERE key IN taken AND key IN (SELECT key FROM sent)",
    "delivered_after": "SELECT count(*) FROM committed WHERE key IN taken AND key IN (SELECT key FROM lagging.effects)",
    "double_effects": "SELECT (SELECT count(*) FROM effects)"
    " - (SELECT count(*) FROM (SELECT DISTINCT consumer_group, key FROM effects))",
    # The row for every group counts a hand-over as an attempt, too. So the condition names the rung and not the scope.
    "unnecessary_repairs": "SELECT (SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM copies"
    " WHERE key IN (SELECT key FROM sent) AND key NOT IN (SELECT key FROM sent WHERE rung = 'hand-over') GROUP BY key))"
    " + (SELECT count(DISTINCT key) FROM sent WHERE rung = 'hand-over' AND key IN (SELECT key FROM copies))",
    "rolled_back_delivered": "SELECT count(DISTINCT key) FROM effects"
    " WHERE key IN (SELECT key FROM attempts WHERE fate = 'roll-back')",
}


def count(files: DemoFiles) -> DemoCounts:
    """Counts all numbers by SQL over the demo's five databases."""
    with closing(connect(files.truth)) as db:
        db.execute("ATTACH ? AS orders", (str(files.outbox),))
        db.execute("ATTACH ? AS ledger", (str(files.ledger),))
        db.execute("ATTACH ? AS reference", (str(files.inbox(REFERENCE)),))
        db.execute("ATTACH ? AS lagging", (str(files.inbox(LAGGING)),))
        db.executescript(_VIEWS)
        return DemoCounts(**{name: db.execute(sql).fetchone()[0] for name, sql in _COUNTS.items()})
