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
from reconciler.policy.commit_query import BusinessQuery, CommitQuery, KeyType
from reconciler.policy.effect_query import EffectQuery
from reconciler.sql.witness_database import DatabaseRole
from reconciler.wiring.commit_queries import OpenQueries
from reconciler.wiring.effect_queries import OpenEffectQueries
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

BILLED = "BILLED"


def effects_of(group: str) -> EffectQuery:
    """The effect query of a group."""
    return EffectQuery(
        topic=TOPIC, group=group, sql="SELECT message, state FROM bills WHERE message IN :keys", key="UNIQ_KEY",
        key_type=KeyType.TEXT, applied=(BILLED,), not_applied=(),
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


class _ReadEffects:
    """The same over the table of a consuming group, which has the key of each message that took effect."""

    def __init__(self, world: HalvesWorld, process: Process, group: str) -> None:
        self._world = world
        self._process = process
        self._group = group

    def ask(self, _sql: str, keys: Sequence[str], *, rows_max: int) -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
        inbox, judged = self._world.inboxes[self._group], self._world.checkers

        def select() -> tuple[DatabaseRole, list[tuple[Any, ...]]]:
            found = [key for key in keys if inbox.has_row(key)]
            judged.asked_effects(self._process, self._group, dict.fromkeys(keys, False) | dict.fromkeys(found, True))
            return PRIMARY, [(key, BILLED) for key in found]

        judged.asked_effects(self._process, self._group, dict.fromkeys(keys))
        role, rows = inbox.databases[0].link.call(self._process, select, DatabaseAway, what="SELECT bills")
        return role, rows[:rows_max]


class _QuerySeen(SqlBusinessQuery):
    """The product's adapter over a simulated table."""

    def __init__(self, query: BusinessQuery, database: object, process: Process) -> None:
        fields: dict[str, object] = {
            "_query": query, "_clock": process.clock, "_database": database,
            "_engine": SimpleNamespace(dispose=lambda: None), "_deadline": 0.0, "_next_at": 0.0, "_misses": 0,
            "_halved_at": deque(maxlen=1), "_strange": {},
        }  # fmt: skip
        self.__dict__.update(fields)


class EffectsSeen(OpenEffectQueries):
    """The product's effect queries of one process."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        self._clock = process.clock
        self._opened = {(TOPIC, group): self._open(world, process, group) for group in world.by_effect_query}
        self._inspected_until = dict.fromkeys(self._opened, float("inf"))

    @staticmethod
    def _open(world: HalvesWorld, process: Process, group: str) -> OpenQuery[EffectQuery]:
        query = effects_of(group)
        return OpenQuery(query, _QuerySeen(query, _ReadEffects(world, process, group), process))


class QueriesSeen(OpenQueries):
    """The product's queries of one process."""

    def __init__(self, world: HalvesWorld, process: Process) -> None:
        self.why_not_accepted = world.why_not_accepted
        self._clock = process.clock
        self._opened = {TOPIC: OpenQuery(QUERY, _QuerySeen(QUERY, _ReadTable(world, process), process))}
        self._effects = EffectsSeen(world, process)
