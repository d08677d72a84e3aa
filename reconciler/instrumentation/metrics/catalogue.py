"""Every metric: name, kind, labels, meaning. Standard library only; docs/reference/metrics.md is written from it.

A *metric* is a number that a process shows at /metrics. Labels are bounded: topics and groups of the settings, closed
lists of the code, jobs of the process. A unique key, a shard or a business id is never a label. An unknown value is
absent, and a metric ending in `_up` says so. An unknown value is never shown as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import COUNTED_MAX

#: Upper bounds in seconds. Detection and repair take a grace period and a check-back wait, up to days.
QUICK_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TURN_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LOSS_SECONDS = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)


class MetricKind(StrEnum):
    """Types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class NumberSource(StrEnum):
    """Source of a number, which decides how the number behaves after a restart."""

    EVENTS = "counted here since the process began"
    PROCESS = "read from this process at the scrape"
    LEDGER = "read from ledger, Redis, brokers and outboxes, as `reconciler status` does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, by the name that a scrape shows. The name of a counter ends in `_total`."""

    name: str
    kind: MetricKind
    #: Commands that show it: run, sweep, replay.
    shown_by: tuple[str, ...]
    source: NumberSource
    meaning: str
    labels: tuple[str, ...] = ()
    #: Upper bounds of a histogram.
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric at a scrape."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


SUBSCRIPTION = ("topic", "consumer_group")
#: Values of each label. A test compares the catalogue with it.
LABELS: Mapping[str, str] = {
    "topic": "business topic of the settings",
    "consumer_group": "consumer group of the settings",
    "verdict": "a verdict, in lower case",
    "outcome": "what came of it; the metric's meaning lists the words",
    "reason": "why it happened; the metric's meaning lists the words",
    "rung": "rung of the repair ladder: a word of `repair_order`",
    "state": "state; the metric's meaning lists the words",
    "job": "job of the process's schedule: `rounds TOPIC`, environment, holds, outage, safety, retention, sweep",
    "dependency": "ledger, redis, rocketmq, and each outbox and inbox of the settings by its owner",
    "kind": "kind of copies that are looked up: committed, half, parked, group (retries and dead letters)",
    "notifier": "name of a notifier of the settings",
    "version": "release of the reconciler",
    "revision": "commit that it was built from; `checkout`: it runs from its source",
    "python": "version of Python",
}


def _counter(
    name: str, meaning: str, *labels: str, by: str = "run", source: NumberSource = NumberSource.EVENTS
) -> Metric:
    return Metric(
        name=name, kind=MetricKind.COUNTER, labels=labels, meaning=meaning, shown_by=tuple(by.split()), source=source
    )


def _gauge(
    name: str, meaning: str, *labels: str, by: str = "run", source: NumberSource = NumberSource.LEDGER
) -> Metric:
    return Metric(
        name=name, kind=MetricKind.GAUGE, labels=labels, meaning=meaning, shown_by=tuple(by.split()), source=source
    )


def _histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...], by: str = "run") -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.HISTOGRAM,
        labels=labels,
        meaning=meaning,
        buckets=buckets,
        shown_by=tuple(by.split()),
        source=NumberSource.EVENTS,
    )


# ----------------------------------------------------------------- the account

ACCOUNTED_UNTIL = _gauge(
    "reconciler_accounted_until_timestamp_seconds",
    "Time until which every commit is accounted for, as in `status`. Absent: it is not known.",
    *SUBSCRIPTION,
)
STATE_UP = _gauge(
    "reconciler_state_up",
    "1: the process has read ledger, Redis, brokers and outboxes, and shows what it read. 0: the ledger is away or "
    "the reading took too long, and every metric that is read there is absent.",
)
STATE_READ = _gauge(
    "reconciler_state_read_duration_seconds", "Time that the last reading of ledger, Redis, brokers and outboxes took."
)
DEPENDENCY_UP = _gauge(
    "reconciler_dependency_up",
    "1: the dependency answered at the last reading; 0: it did not.",
    "dependency",
    by="run sweep replay",
)
PENDING = _gauge("reconciler_pending_ids", "Announced keys without a recorded consumption.", *SUBSCRIPTION)
OLDEST_PENDING = _gauge(
    "reconciler_oldest_pending_age_seconds",
    "Age of the oldest announced key without a recorded consumption, by the ledger's clock. 0: there is none.",
    *SUBSCRIPTION,
)
WATERMARK = _gauge(
    "reconciler_watermark_timestamp_seconds",
    "The group has passed every message that brokers stored until this time. Absent: it is not known.",
    *SUBSCRIPTION,
)
LAST_ROUND = _gauge(
    "reconciler_last_round_timestamp_seconds",
    "Time of the newest round that any process ran, by Redis' clock, or of a later look that found all shards at rest, "
    "by the ledger's clock.",
    *SUBSCRIPTION,
)
OPEN = _gauge(
    "reconciler_open_ids",
    "Keys that have this verdict and are open: neither settled nor quarantined.",
    *SUBSCRIPTION,
    "verdict",
)
LOST = _gauge("reconciler_lost_ids", "Open keys whose loss was proved and that have not arrived yet.", *SUBSCRIPTION)
#: Sentence for gauges that count rows up to a limit.
UP_TO_A_LIMIT = f"{COUNTED_MAX + 1} mean more than {COUNTED_MAX}: the ledger counts up to there."
REPAIRED = _gauge(
    "reconciler_repaired_ids",
    "Keys in the ledger whose loss had been proved and that have arrived. The ledger keeps them for ledger.keep_days. "
    + UP_TO_A_LIMIT,
    *SUBSCRIPTION,
)
QUARANTINED = _gauge("reconciler_quarantined_ids", "Keys that wait for a person.", *SUBSCRIPTION)
REPAIR_ROWS = _gauge(
    "reconciler_ledger_repairs",
    "Repairs in the ledger by state: open, sending, sent, done, failed. " + UP_TO_A_LIMIT,
    "topic",
    "rung",
    "state",
)
HOLD = _gauge("reconciler_hold", "1: a person holds the topic's repairs (`reconciler hold`); 0: nobody does.", "topic")
BREAKER_OPEN = _gauge(
    "reconciler_breaker_open", "1: the circuit breaker holds the topic's repairs; 0: it is closed.", "topic"
)
OUTAGE_OPEN = _gauge("reconciler_outage_open", "1: an outage of Redis is open, and rounds wait; 0: none is open.")
UNSWEPT = _gauge(
    "reconciler_unswept_groups",
    "Producer groups that no `[[producers]]` section names, by topic and outbox, whose commits have waited for five "
    "minutes: no sweep of these settings announces them. `status` names them under `unswept`.",
)
HISTORY_SPOOL = _gauge("reconciler_history_spool_bytes", "Size of the history's rows that wait to be sealed.")
HISTORY_UNTIL = _gauge(
    "reconciler_history_captured_until_timestamp_seconds", "Time until which rounds are in the history.", *SUBSCRIPTION
)

# ----------------------------------------------------------------- announcements and rounds

ADMITTED = _counter(
    "reconciler_announced_keys_admitted_total",
    "Announced keys that were put into a half set.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
REFUSED = _counter(
    "reconciler_announcements_refused_total", "Announcements that were refused and quarantined.", *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)  # fmt: skip
REWINDS = _counter(
    "reconciler_rewinds_total",
    "Announcement queues that were read again from an older offset: Redis had lost a newer one, or the broker gave "
    "offsets a second time.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
ANNOUNCEMENT_QUEUES = _gauge(
    "reconciler_announcement_queues",
    "Queues of the unique-key topic by what this process did with them last: moved_on (it read announcements), idle "
    "(there were none), not_mine (another process has the lease), suspended (the queue must wait).",
    *SUBSCRIPTION,
    "state",
    source=NumberSource.PROCESS,
)
ANNOUNCEMENTS_BEHIND = _gauge(
    "reconciler_announcements_behind_messages",
    "Messages of the unique-key topic that this process had not read at its last pulls.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
ROUNDS = _counter(
    "reconciler_rounds_total",
    "Rounds of this process: clean, problems (a part of the round ended early), suspended (an outage is open).",
    *SUBSCRIPTION,
    "outcome",
)
ROUND_DURATION = _histogram(
    "reconciler_round_duration_seconds",
    "Time that a round took over all its shards.",
    *SUBSCRIPTION,
    buckets=TURN_SECONDS,
)
SHARDS_OWNED = _gauge(
    "reconciler_shards_owned",
    "Shards that rest or whose last round this process ran. The others are another process', or had no round.",
    *SUBSCRIPTION,
    source=NumberSource.EVENTS,
)
ANNOUNCED = _counter(
    "reconciler_announced_ids_total", "Announced keys that rounds of this process took out of half sets.", *SUBSCRIPTION
)
MATCHED = _counter("reconciler_matched_ids_total", "Keys that rounds matched with a consumption.", *SUBSCRIPTION)
NOT_TAKEN = _counter(
    "reconciler_not_taken_ids_total", "Keys that left pending because the group does not take their tag.", *SUBSCRIPTION
)
SHARDS_STOPPED = _counter(
    "reconciler_shard_stops_total",
    "Times that a shard was stopped, because its keys in Redis were not what they must be.",
    *SUBSCRIPTION,
)
ROUNDS_VOIDED = _counter(
    "reconciler_voided_rounds_total", "Rounds that were voided, because Redis had lost what it had acknowledged.",
    *SUBSCRIPTION,
)  # fmt: skip
OUTAGES = _counter(
    "reconciler_outages_total",
    "Outages of Redis that are over, by reason: away, memory_lost (it came back without what it had acknowledged), "
    "unsafe. The process that closed an outage counts it.",
    "reason",
)
RECOVERED = _counter(
    "reconciler_recovered_ids_total", "Inbox rows that were put back into commit sets after an outage.", *SUBSCRIPTION
)
TURNS_MISSED = _counter(
    "reconciler_schedule_missed_total",
    "Turns of a job that did no work: still running (the turn before was), missed (the process was stopped or had no "
    "processor time), away (a dependency was), or the class of an unexpected error.",
    "job",
    "reason",
    by="run sweep",
    source=NumberSource.PROCESS,
)
LATENESS = _gauge(
    "reconciler_schedule_lateness_seconds",
    "How long the job's next turn is overdue now; 0: it is on time.",
    "job",
    by="run sweep",
    source=NumberSource.PROCESS,
)

# ----------------------------------------------------------------- verdicts and repairs

VERDICTS = _counter(
    "reconciler_verdicts_total", "Verdicts that were written. A key can get several.", *SUBSCRIPTION, "verdict"
)
LOSSES = _counter("reconciler_losses_total", "Keys whose loss was proved for the first time.", *SUBSCRIPTION, "verdict")
DETECTION = _histogram(
    "reconciler_time_to_detection_seconds",
    "Time from the round that first saw a key to the proof of its loss, by Redis' clock.",
    *SUBSCRIPTION,
    buckets=LOSS_SECONDS,
)
LOOK_UPS = _counter(
    "reconciler_lookups_total",
    "Look-ups: questions to all brokers about the copies of one key. Outcomes: found, absent, unknown (a broker did "
    "not answer, or its index does not reach back far enough).",
    "topic",
    "kind",
    "outcome",
)
LOOK_UP_DURATION = _histogram(
    "reconciler_lookup_duration_seconds",
    "Time from a look-up's question until its answer was heard, over all brokers.",
    "kind",
    buckets=QUICK_SECONDS,
)
REPAIR_STEPS = _counter(
    "reconciler_repairs_total",
    "Repairs that this process brought into a state: sending, sent, open (another rung follows), done, failed.",
    "topic",
    "rung",
    "outcome",
)
REPAIR_TIME = _histogram(
    "reconciler_time_to_verified_repair_seconds",
    "Time from the proof of a loss to its verified repair, by the ledger's clock.",
    "topic",
    buckets=LOSS_SECONDS,
)
BREAKER_OPENINGS = _counter(
    "reconciler_breaker_openings_total", "Times that this process opened the circuit breaker.", "topic"
)

# ----------------------------------------------------------------- history, sweep, replay

HISTORY_WRITTEN = _counter(
    "reconciler_history_rows_written_total",
    "Rows of the history that went into the spool.",
    source=NumberSource.PROCESS,
)
HISTORY_DROPPED = _counter(
    "reconciler_history_rows_dropped_total",
    "Rows of the history that found no room in the spool, and became a gap.",
    source=NumberSource.PROCESS,
)
HISTORY_MISSED = _counter(
    "reconciler_history_rounds_missed_total",
    "Rounds that are missing in the history, because their sets were gone before they were captured.",
    source=NumberSource.PROCESS,
)
SPANS = _counter(
    "reconciler_spans_total",
    "Spans that were made, and of them those that were sent: the collector took them. The others wait, or are lost.",
    "outcome",
    source=NumberSource.PROCESS,
)
SWEEPS = _counter(
    "reconciler_sweeps_total", "Sweeps of this process: clean, problems (the log names them).", "outcome", by="sweep"
)
SWEEP_DURATION = _histogram(
    "reconciler_sweep_duration_seconds", "Time that a sweep took over all outboxes.", buckets=TURN_SECONDS, by="sweep"
)
LAST_SWEEP = _gauge(
    "reconciler_last_sweep_timestamp_seconds",
    "Time at which this process last ended a sweep that finished every outbox.",
    by="sweep",
    source=NumberSource.EVENTS,
)
SWEPT_ROWS = _counter(
    "reconciler_swept_rows_total",
    "Outbox rows by what a sweep did with them or found: announced, settled, announced_again, unsettled (no inbox has "
    "them yet), differing (an inbox has other content), unprovable (a group has no inbox), deleted, doubled (two "
    "inboxes have them), damaged, reopened (a group takes their tag now).",
    "outcome",
    by="sweep",
)
SWEEP_WALK = _gauge(
    "reconciler_sweep_walk_rows",
    "NEW outbox rows that a walk from the oldest to the newest leaves behind: damaged ones, and those whose "
    "announcements fail. Counted in the last whole walk, or in the present one where that is longer.",
    by="sweep",
    source=NumberSource.EVENTS,
)
HAND_OVERS = _counter(
    "reconciler_hand_overs_total",
    "Hand-overs by what came of each attempt: applied, already_applied (the inbox had the key), postponed (tried "
    "again later), unreached (the handler's database was away), failed (given up), lost_claims (another worker has "
    "it), held (the topic's repairs are on hold).",
    *SUBSCRIPTION,
    "outcome",
    by="replay",
    source=NumberSource.PROCESS,
)
NOTICES = _counter(
    "reconciler_notices_total",
    "Messages to people: sent, failed (the receiver is away, and the message is tried again), refused (a person has to "
    "mend address, secret or token).",
    "notifier",
    "outcome",
    by="run sweep",
    source=NumberSource.PROCESS,
)
OLDEST_NOTICE = _gauge(
    "reconciler_oldest_unsent_notice_age_seconds",
    "How long a message to people has been due without being sent, the longest of them. 0: none is due.",
    "notifier",
    by="run sweep",
)
BUILD_INFO = _gauge(
    "reconciler_build_info", "Always 1; the labels say which release runs.", "version", "revision", "python",
    by="run sweep replay", source=NumberSource.PROCESS,
)  # fmt: skip


def _all() -> Iterator[Metric]:
    yield from (value for value in tuple(globals().values()) if isinstance(value, Metric))


#: All metrics, in the order of this file.
METRICS: tuple[Metric, ...] = tuple(_all())
