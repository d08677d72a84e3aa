"""All ports: what the policy (rounds, gate, verification, repair, outage) asks of the outside world.

Every call has one effect and says what a crash in its middle leaves. Ports raise only TransientError (nothing is
lost, the next round tries again) or PermanentError; "not found" and "don't know" are values (evidence.py).
Adapters: reconciler/shards (Redis), reconciler/ledger (SQL), reconciler/evidence (brokers, outboxes, inboxes).
reconciler/wiring puts them together.
"""

from reconciler.policy.ports.actions import Intent, OperatorAction, OperatorActions
from reconciler.policy.ports.activity import Activities, Activity, ActivityBucket
from reconciler.policy.ports.announcing import (
    Admission,
    AnnouncementLedger,
    AnnouncementQueue,
    CommitSets,
    HalfSets,
    RefusedAnnouncement,
)
from reconciler.policy.ports.environment import USE_SECONDS, EnvironmentUse, EnvironmentUses, RedisIdentity
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundCapture, RoundMark
from reconciler.policy.ports.idempotency import IdempotencyKeys, KeyAnswer, KeyedRequest, KeyUse
from reconciler.policy.ports.jobs import (
    ATTEMPTS_MAX,
    ENDED_JOBS,
    ClaimedJob,
    Job,
    JobChange,
    Jobs,
    WantedJob,
)
from reconciler.policy.ports.ledger import (
    Candidate,
    Candidates,
    HandOvers,
    Holds,
    KnownBrokers,
    Outage,
    Outages,
    Repair,
    RepairChange,
    Repairs,
    Verification,
)
from reconciler.policy.ports.notices import Notice, NoticeChannel
from reconciler.policy.ports.paging import EVERY_ROW, LedgerFilter, Page, Position, all_rows
from reconciler.policy.ports.reports import (
    COUNTED_MAX,
    Floor,
    HeldTopic,
    Ledger,
    LedgerLife,
    LedgerReports,
    QuarantinedAnnouncement,
    RepairCount,
    StoredRound,
    VerdictCount,
    count_text,
)
from reconciler.policy.ports.rounds import (
    KeyPlaces,
    PendingKey,
    RoundCounts,
    RoundDone,
    RoundLeases,
    Rounds,
    ShardMemory,
    ShardState,
)
from reconciler.policy.ports.witnesses import (
    WHENEVER_COMMITTED_MS,
    BrokerEvidence,
    BrokerRepairs,
    Horizon,
    InboxEvidence,
    OutboxEvidence,
)
from reconciler.policy.ports.workers import OneByOne, Workers

__all__ = [
    "ATTEMPTS_MAX",
    "COUNTED_MAX",
    "ENDED_JOBS",
    "EVERY_ROW",
    "USE_SECONDS",
    "WHENEVER_COMMITTED_MS",
    "Activities",
    "Activity",
    "ActivityBucket",
    "Admission",
    "AnnouncementLedger",
    "AnnouncementQueue",
    "BrokerEvidence",
    "BrokerRepairs",
    "Candidate",
    "Candidates",
    "Capture",
    "CapturedRound",
    "ClaimedJob",
    "CommitSets",
    "EnvironmentUse",
    "EnvironmentUses",
    "Floor",
    "HalfSets",
    "HandOvers",
    "HeldTopic",
    "Holds",
    "Horizon",
    "IdempotencyKeys",
    "InboxEvidence",
    "Intent",
    "Job",
    "JobChange",
    "Jobs",
    "KeyAnswer",
    "KeyPlaces",
    "KeyUse",
    "KeyedRequest",
    "KnownBrokers",
    "Ledger",
    "LedgerFilter",
    "LedgerLife",
    "LedgerReports",
    "Notice",
    "NoticeChannel",
    "OneByOne",
    "OperatorAction",
    "OperatorActions",
    "Outage",
    "Outages",
    "OutboxEvidence",
    "Page",
    "PendingKey",
    "PendingSnapshot",
    "Position",
    "QuarantinedAnnouncement",
    "RedisIdentity",
    "RefusedAnnouncement",
    "Repair",
    "RepairChange",
    "RepairCount",
    "Repairs",
    "RoundCapture",
    "RoundCounts",
    "RoundDone",
    "RoundLeases",
    "RoundMark",
    "Rounds",
    "ShardMemory",
    "ShardState",
    "StoredRound",
    "VerdictCount",
    "Verification",
    "WantedJob",
    "Workers",
    "all_rows",
    "count_text",
]
