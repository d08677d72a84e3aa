"""The orders of a stock service, and the product's commit query over them: from the primary, or from a replica that is
behind and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reconciler.errors import DatabaseAway
from reconciler.evidence.business_query import SqlBusinessQuery
from reconciler.policy.commit_query import CommitQuery, KeyType
from reconciler.sql.witness_database import DatabaseRole
from reconciler.wiring.commit_queries import OpenQueries
from reconciler.wiring.open_query import OpenQuery
from tests.simulation.kernel import Kernel, Link, Process
from tests.simulation.outbox_database import TOPIC
from tests.simulation.replicas import PRIMARY

if TYPE_CHECKING:
    from tests.simulation.halves_world import HalvesWorld

PAID, CANCELLED = "PAID", "CANCELLED"
#: Most transactions are over by then; that of a late row is not.
LONGEST_TRANSACTION_SECONDS = 60.0
QUERY = CommitQuery(
    topic=TOPIC, sql="SELECT number, state FROM orders WHERE number IN :keys", key="KEYS", key_type=KeyType.TEXT,
    committed=(PAID,), rolled_back=(CANCELLED,), longest_transaction_seconds=LONGEST_TRANSACTION_SECONDS,
)  # fmt: skip


class BusinessTable:
    """Table `orders`: number of an order -> state."""

    def __init__(self, kernel: Kernel, link: Link) -> None:
        self.kernel = kernel
        self.link = link
        #: Order -> its states since when, in order of time.
        self._states: dict[str, list[tuple[float, str]]] = {}
        #: Orders whose transaction is open.
        self.open: set[str] = set()
        self.commit_reply_lost = 0.0
        #: How far the server that is read is behind; 0: it is the primary.
        self.behind_seconds = 0.0

    def commit(self, order: str, state: str) -> None:
        """A transaction has changed the order."""
        self._states.setdefault(order, []).append((self.kernel.now, state))

    def state(self, order: str, *, behind_seconds: float = 0.0) -> str | None:
        """What the primary says, or said so long ago; None: there is no such order."""
        until = self.kernel.now - behind_seconds
        return next((state for at, state in reversed(self._states.get(order, ())) if at <= until), None)

    def select(self, orders: Sequence[str]) -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
        """Role of the server that is read, and the rows that it shows."""
        behind = self.behind_seconds
        found = [(order, self.state(order, behind_seconds=behind)) for order in orders]
        if behind and any(state != self.state(order) for order, state in found):
            self.kernel.saw("commit query read a replica")
        role = DatabaseRole(is_primary=False) if behind else PRIMARY
        return role, [(order, state) for order, state in found if state is not None]


class _ReadTable:
    """reconciler.sql.witness_database.WitnessDatabase of one process, as far as a query needs it."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        self._world = world
        self._process = process

    def ask(self, _sql: str, keys: Sequence[str], *, rows_max: int) -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
        table, judged = self._world.table, self._world.checkers

        def select() -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
            judged.asked(self._process, keys)
            return table.select(keys)

        role, rows = table.link.call(self._process, select, DatabaseAway, what="SELECT orders")
        return role, rows[:rows_max]


class _QuerySeen(SqlBusinessQuery):
    """The product's adapter over the simulated table."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        fields: dict[str, object] = {
            "_query": QUERY, "_clock": process.clock, "_database": _ReadTable(world, process),
            "_engine": SimpleNamespace(dispose=lambda: None), "_deadline": 0.0, "_next_at": 0.0, "_misses": 0,
            "_halved_at": deque(maxlen=1), "_strange": {},
        }  # fmt: skip
        self.__dict__.update(fields)


class QueriesSeen(OpenQueries):
    """The product's queries of one process."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        self.why_not_accepted = world.why_not_accepted
        self._clock = process.clock
        self._opened = {TOPIC: OpenQuery(QUERY, _QuerySeen(world, process))}
