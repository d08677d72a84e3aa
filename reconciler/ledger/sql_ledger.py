"""The SQL part of the ledger as one value: SqlLedger(engine)."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from reconciler.clock import Clock
from reconciler.contract.announcement import SignatureSecret
from reconciler.contract.defaults import CLAIM_LEASE_SECONDS
from reconciler.contract.facts import Fact
from reconciler.ledger.activity import SqlActivities
from reconciler.ledger.announcement_ledger import SqlAnnouncementLedger
from reconciler.ledger.candidates import SqlCandidates
from reconciler.ledger.closings import SqlClosings
from reconciler.ledger.database import LedgerDatabase, no_english
from reconciler.ledger.environment_uses import SqlEnvironmentUses
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.holds import SqlHolds
from reconciler.ledger.idempotency_keys import SqlIdempotencyKeys
from reconciler.ledger.jobs import SqlJobs
from reconciler.ledger.known_brokers import SqlKnownBrokers
from reconciler.ledger.noted_halves import SqlNotedHalves
from reconciler.ledger.notices import SqlNotices
from reconciler.ledger.operator_actions import SqlOperatorActions
from reconciler.ledger.outages import SqlOutages
from reconciler.ledger.repairs import SqlHandOvers, SqlRepairs
from reconciler.ledger.reports import SqlReports
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.rounds import SqlRounds
from reconciler.ledger.seen_queues import SqlSeenQueues
from reconciler.sql.database_time import now_ms


class SqlLedger:
    """ports.Ledger over one engine (reconciler.sql.engines.open_engine). The caller disposes the engine. The value also
    has jobs, idempotency keys, activities, notices and uses of environments.

    Thread-safe. `now` makes the SQL expression of database time for a dialect: only the simulator passes one.
    `signature_secret` signs the messages of hand-overs. `claim_lease_seconds` is the length of a claim on a repair.
    `clock` is the host's. `english` writes the texts of stored facts, for releases that read only texts.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        now: Callable[[str], sa.ColumnElement[int]] = now_ms,
        signature_secret: SignatureSecret | None = None,
        claim_lease_seconds: float = CLAIM_LEASE_SECONDS,
        clock: Clock | None = None,
        english: Callable[[Fact], str] = no_english,
    ) -> None:
        self.database = LedgerDatabase(engine, now=now, clock=clock, english=english)
        self.candidates = SqlCandidates(self.database)
        self.repairs = SqlRepairs(self.database, signature_secret=signature_secret, lease_seconds=claim_lease_seconds)
        self.hand_overs = SqlHandOvers(self.database, self.repairs)
        self.closings = SqlClosings(self.database, self.candidates, self.hand_overs)
        # One value for all users, so that a missing column is asked for once, and logged once.
        floors = SqlFloors(self.database)
        rests = SqlRests(self.database, clock=clock)
        self.rounds = SqlRounds(self.database, floors, rests)
        self.seen_queues = SqlSeenQueues(self.database, floors)
        self.holds = SqlHolds(self.database)
        self.brokers = SqlKnownBrokers(self.database)
        self.halves = SqlNotedHalves(self.database)
        self.environment_uses = SqlEnvironmentUses(self.database)
        self.outages = SqlOutages(self.database)
        self.announcements = SqlAnnouncementLedger(self.database, self.outages, floors)
        self.actions = SqlOperatorActions(self.database)
        self.jobs = SqlJobs(self.database)
        self.idempotency_keys = SqlIdempotencyKeys(self.database)
        self.notices = SqlNotices(self.database, self.holds)
        self.reports = SqlReports(self.database, floors, self.actions, self.holds, rests)
        self.activities = SqlActivities(self.database)
