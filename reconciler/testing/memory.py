"""The ledger in memory, for policy tests and the simulator. `MemoryLedger(clock)` makes a ledger.

This ledger exists beside the SQL ledger, because SQLite in memory takes 22 times as much processor time. Database time
is the clock's wall time. Every call is one transaction. The contents of Redis are in memory_shards.py.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.errors import warn_of_former_paths
from reconciler.testing.memory_candidates import MemoryCandidates, code_name
from reconciler.testing.memory_halves import MemoryNotedHalves
from reconciler.testing.memory_repairs import MemoryClosings, MemoryHandOvers, MemoryRepairs
from reconciler.testing.memory_reports import MemoryReports
from reconciler.testing.memory_rounds import (
    MemoryAnnouncementLedger,
    MemoryHolds,
    MemoryKnownBrokers,
    MemoryLedgerRows,
    MemoryOperatorActions,
    MemoryOutages,
    MemoryRounds,
)


class MemoryLedger:
    """ports.Ledger over dictionaries. Thread-safe by one lock. The contents are lost with the object."""

    def __init__(
        self, clock: Clock, *, host_clock: Clock | None = None, english: Callable[[Fact], str] = code_name
    ) -> None:
        """`clock` is the clock of the ledger. `host_clock` is the clock of the processes that claim repairs, or None if
        they have no clock of their own. `english` makes the texts of the facts that are kept."""
        self.rows = MemoryLedgerRows(clock, host_clock=host_clock, english=english)
        self.candidates = MemoryCandidates(self.rows)
        self.repairs = MemoryRepairs(self.rows)
        self.hand_overs = MemoryHandOvers(self.rows, self.repairs)
        self.closings = MemoryClosings(self.rows, self.candidates, self.repairs, self.hand_overs)
        self.rounds = MemoryRounds(self.rows)
        self.holds = MemoryHolds(self.rows)
        self.brokers = MemoryKnownBrokers(self.rows)
        self.halves = MemoryNotedHalves(self.rows)
        self.outages = MemoryOutages(self.rows)
        self.announcements = MemoryAnnouncementLedger(self.rows, self.outages)
        self.actions = MemoryOperatorActions(self.rows)
        self.reports = MemoryReports(self.rows)


warn_of_former_paths(__name__, {"MemoryLedger": "reconciler.testing"})
