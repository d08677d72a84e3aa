"""Every metric: name, kind, labels, meaning. Standard library only; docs/reference/metrics.md is written from it.

A *metric* is a number that a process shows at /metrics. Labels are bounded: topics and groups of the settings, closed
lists of the code, jobs of the process. A unique key, a shard or a business id is never a label. A value that is not
known is absent, and a metric ending in `_up` says so; 0 is never a stand-in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

#: Upper bounds in seconds. Detection and repair take a grace period and a check-back wait, up to days.
QUICK_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TURN_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LOSS_SECONDS = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)


class MetricKind(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class NumberSource(StrEnum):
    """Where a number comes from, and so how it behaves after a restart."""

    EVENTS = "counted here since the process began"
    PROCESS = "read from this process at the scrape"
    LEDGER = "read from ledger, Redis, brokers and outboxes, as `reconciler status` does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name, as a scrape shows it: that of a counter ends in `_total`."""

    name: str
    kind: MetricKind
    #: By which commands: run, sweep, replay.
    shown_by: tuple[str, ...]
    source: NumberSource
    meaning: str
    labels: tuple[str, ...] = ()
    #: Upper bounds of a histogram.
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """The last word of the name that is a unit; empty for a plain number."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in _UNITS else ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric at a scrape."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_UNITS = frozenset({"seconds", "bytes", "ids", "rows", "messages", "queues", "shards", "keys", "repairs", "rounds"})
SUBSCRIPTION = ("topic", "consumer_group")
#: What each label can be; a test compares the catalogue with it.
LABELS: Mapping[str, str] = {
    "topic": "business topic of the settings",
    "consumer_group": "consumer group of the settings",
    "verdict": "a verdict, in lower case",
    "outcome": "what became of it; the meaning lists the words",
    "reason": "why; the meaning lists the words",
    "rung": "rung of the repair ladder",
    "state": "state; the meaning lists the words",
    "job": "job of the process's schedule: `rounds TOPIC`, outage, safety, retention, sweep",
    "dependency": "ledger, redis, rocketmq, and each database of the settings by its owner",
    "kind": "kind of evidence or brake; the meaning lists the words",
    "version": "release",
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
    "Until when every commit is accounted for, as `status` says it. Absent: not known.",
    *SUBSCRIPTION,
)
STATE_UP = _gauge(
    "reconciler_state_up",
    "1: what is read from ledger, Redis, brokers and outboxes is shown; 0: the ledger is away or the reading took too "
    "long, and all of it is absent.",
)
STATE_READ = _gauge("reconciler_state_read_duration_seconds", "How long the last reading took.")
DEPENDENCY_UP = _gauge(
    "reconciler_dependency_up",
    "1: it answered at the last reading; 0: it did not.",
    "dependency",
    by="run sweep replay",
)
PENDING = _gauge("reconciler_pending_ids", "Announced keys without a recorded consumption.", *SUBSCRIPTION)
OLDEST_PENDING = _gauge(
    "reconciler_oldest_pending_age_seconds", "Age of the oldest of them by the ledger's clock; 0: there is none.",
    *SUBSCRIPTION,
)  # fmt: skip
WATERMARK = _gauge(
    "reconciler_watermark_timestamp_seconds",
    "The group has passed every message that brokers stored until then. Absent: not known.",
    *SUBSCRIPTION,
)
LAST_ROUND = _gauge(
    "reconciler_last_round_timestamp_seconds", "Redis' time of the newest round of any process.", *SUBSCRIPTION
)
OPEN = _gauge("reconciler_open_ids", "Keys with a verdict that are not settled.", *SUBSCRIPTION, "verdict")
LOST = _gauge(
    "reconciler_lost_ids", "Of these, keys whose loss was proved and that have not arrived yet.", *SUBSCRIPTION
)
REPAIRED = _gauge(
    "reconciler_repaired_ids", "Settled keys in the ledger whose loss had been proved (kept for ledger.keep_days).",
    *SUBSCRIPTION,
)  # fmt: skip
QUARANTINED = _gauge("reconciler_quarantined_ids", "Keys that wait for a person.", *SUBSCRIPTION)
REPAIR_ROWS = _gauge(
    "reconciler_ledger_repairs",
    "Rows of repairs by state: open, sending, sent, done, failed.",
    "topic",
    "rung",
    "state",
)
HOLD = _gauge("reconciler_hold", "1: a person holds the topic's repairs.", "topic")
BREAKER_OPEN = _gauge("reconciler_breaker_open", "1: the circuit breaker holds the topic's repairs.", "topic")
OUTAGE_OPEN = _gauge("reconciler_outage_open", "1: an outage of Redis is open, and no round runs.")
HISTORY_SPOOL = _gauge("reconciler_history_spool_bytes", "Rows of the history that wait to be sealed.")
HISTORY_UNTIL = _gauge(
    "reconciler_history_captured_until_timestamp_seconds", "Until when rounds are in the history.", *SUBSCRIPTION
)

# ----------------------------------------------------------------- announcements and rounds

ADMITTED = _counter(
    "reconciler_announced_keys_admitted_total",
    "Announced keys that were put into a half set.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
REFUSED = _counter(
    "reconciler_announcements_refused_total", "Announcements that were quarantined.", *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)  # fmt: skip
REWINDS = _counter(
    "reconciler_rewinds_total",
    "Announcement queues that were read again from an older offset, because Redis had lost a newer one.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
ANNOUNCEMENT_QUEUES = _gauge(
    "reconciler_announcement_queues",
    "Queues of the unique-key topic by the kind of this process's last step: moved_on, idle, not_mine, suspended.",
    *SUBSCRIPTION,
    "state",
    source=NumberSource.PROCESS,
)
ANNOUNCEMENTS_BEHIND = _gauge(
    "reconciler_announcements_behind_messages",
    "Messages of the unique-key topic that this process has not read, as of its last pulls.",
    *SUBSCRIPTION,
    source=NumberSource.PROCESS,
)
ROUNDS = _counter(
    "reconciler_rounds_total",
    "Rounds of this process: clean, problems (it ended early in part), suspended (an outage is open).",
    *SUBSCRIPTION,
    "outcome",
)
ROUND_DURATION = _histogram(
    "reconciler_round_duration_seconds", "Time of a round over all its shards.", *SUBSCRIPTION, buckets=TURN_SECONDS
)
SHARDS_OWNED = _gauge(
    "reconciler_shards_owned",
    "Shards whose round ran here at the last round; the others have another owner, or did not run.",
    *SUBSCRIPTION,
    source=NumberSource.EVENTS,
)
ANNOUNCED = _counter("reconciler_announced_ids_total", "Announced keys that rounds took.", *SUBSCRIPTION)
MATCHED = _counter("reconciler_matched_ids_total", "Keys that rounds matched with a consumption.", *SUBSCRIPTION)
NOT_TAKEN = _counter(
    "reconciler_not_taken_ids_total", "Keys that left pending because the group does not take their tag.", *SUBSCRIPTION
)
SHARDS_STOPPED = _counter(
    "reconciler_shard_stops_total", "Times that a shard's memory was not what it must be.", *SUBSCRIPTION
)
ROUNDS_VOIDED = _counter(
    "reconciler_voided_rounds_total", "Rounds that Redis fell back behind: it lost what it had acknowledged.",
    *SUBSCRIPTION,
)  # fmt: skip
OUTAGES = _counter("reconciler_outages_total", "Outages that this process opened: away, memory_lost, unsafe.", "reason")
RECOVERED = _counter(
    "reconciler_recovered_ids_total", "Inbox rows that were put back into commit sets after an outage.", *SUBSCRIPTION
)
TURNS_MISSED = _counter(
    "reconciler_schedule_missed_total",
    "Turns that did no work: still running, missed, away, or the class of an unexpected error.",
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
    "reconciler_verdicts_total", "Verdicts that were written; a key can get several.", *SUBSCRIPTION, "verdict"
)
LOSSES = _counter("reconciler_losses_total", "Keys whose loss was proved for the first time.", *SUBSCRIPTION, "verdict")
DETECTION = _histogram(
    "reconciler_time_to_detection_seconds",
    "From the round that first saw a key to the proof of its loss, both by Redis' clock.",
    *SUBSCRIPTION,
    buckets=LOSS_SECONDS,
)
LOOK_UPS = _counter(
    "reconciler_lookups_total",
    "Questions to brokers about one key: found, absent, unknown; kind: committed, half, parked, group.",
    "topic",
    "kind",
    "outcome",
)
LOOK_UP_DURATION = _histogram(
    "reconciler_lookup_duration_seconds", "Time of such a question over all brokers.", "kind", buckets=QUICK_SECONDS
)
REPAIR_STEPS = _counter(
    "reconciler_repairs_total",
    "Repairs that came into a state by this process: sending, sent, open (another rung follows), done, failed.",
    "topic",
    "rung",
    "outcome",
)
REPAIR_TIME = _histogram(
    "reconciler_time_to_verified_repair_seconds",
    "From the proof of a loss to its verified repair, by the ledger's clock.",
    "topic",
    buckets=LOSS_SECONDS,
)
BREAKER_OPENINGS = _counter("reconciler_breaker_openings_total", "Times that this process opened the breaker.", "topic")

# ----------------------------------------------------------------- history, sweep, replay

HISTORY_WRITTEN = _counter(
    "reconciler_history_rows_written_total", "Rows that went into the spool.", source=NumberSource.PROCESS
)
HISTORY_DROPPED = _counter(
    "reconciler_history_rows_dropped_total", "Rows that found no room, and became a gap.", source=NumberSource.PROCESS
)
HISTORY_MISSED = _counter(
    "reconciler_history_rounds_missed_total", "Rounds whose sets were gone before they were captured.",
    source=NumberSource.PROCESS,
)  # fmt: skip
SWEEPS = _counter(
    "reconciler_sweeps_total", "Sweeps of this process: clean, problems (the log names them).", "outcome", by="sweep"
)
SWEEP_DURATION = _histogram(
    "reconciler_sweep_duration_seconds", "Time of a sweep over all outboxes.", buckets=TURN_SECONDS, by="sweep"
)
LAST_SWEEP = _gauge(
    "reconciler_last_sweep_timestamp_seconds",
    "When this process last ended a sweep that finished every outbox.",
    by="sweep",
    source=NumberSource.EVENTS,
)
SWEPT_ROWS = _counter(
    "reconciler_swept_rows_total",
    "Outbox rows: announced, settled, announced_again, unsettled, differing, unprovable, deleted, doubled, damaged, "
    "reopened.",
    "outcome",
    by="sweep",
)
HAND_OVERS = _counter(
    "reconciler_hand_overs_total",
    "Hand-overs by what came of each look: applied, already_applied, postponed, unreached, failed, lost_claims, held.",
    *SUBSCRIPTION,
    "outcome",
    by="replay",
    source=NumberSource.PROCESS,
)
BUILD_INFO = _gauge(
    "reconciler_build_info", "1; the labels say which release runs.", "version", "python", by="run sweep replay",
    source=NumberSource.PROCESS,
)  # fmt: skip


def _all() -> Iterator[Metric]:
    yield from (value for value in tuple(globals().values()) if isinstance(value, Metric))


#: In the order of this file.
METRICS: tuple[Metric, ...] = tuple(_all())
