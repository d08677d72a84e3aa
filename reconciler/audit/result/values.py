"""What a judgement says, as plain values: made by judge/merge.py, rendered by output, report and statement.

Everything here is decided by the inputs alone: no time of running, host, engine or duration, and one order.
All times are milliseconds UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reconciler.audit.errors import ReasonWithheld
from reconciler.audit.result.classes import VIOLATIONS
from reconciler.audit.result.not_judged import UnjudgedTotals
from reconciler.audit.result.times import time_text

#: Where a judgement was computed: on Spark, or in the process that was asked.
EngineKind = Literal["spark", "here"]
#: What a finding's evidence may hold (JSON scalars).
EvidenceValue = str | int | bool | None

#: In a finding's evidence: what the business calls the message, where the outbox says it.
BUSINESS_ID = "business_id"

#: Names in `JudgedSubscription.latencies`, in the order in which they are shown.
LATENCIES: Mapping[str, str] = {
    "commit_to_announced": "from the outbox row to the first round that took the announcement",
    "announced_to_consumed": "from that round to the first round that took the consumption (same round: 0)",
    "commit_to_effect": "from the outbox row to the inbox row",
    "commit_to_detected": "from the outbox row to the proof of the loss (the repair's row)",
    "detected_to_repaired": "from the proof of the loss to the inbox row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """start_ms <= time < end_ms."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        """For people, in UTC."""
        return f"{time_text(self.start_ms)} to {time_text(self.end_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSubscription:
    """One subscription as evidence.json asks for it."""

    topic: str
    group: str
    #: None: every tag.
    tags: tuple[str, ...] | None
    producer_groups: tuple[str, ...]
    grace_period_seconds: float
    late_after_seconds: float
    #: Whether its inbox was given. Without inbox and effects nothing can be judged: AuditError("inputs").
    inbox: bool = True
    #: Whether business effects were counted.
    effects: bool = False
    #: Its half messages announce, and its topic has no outbox: halves of the window are judged, and no commits.
    of_halves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A distribution of milliseconds. `smallest_ms` and `largest_ms` are exact, the others at most 1/128 too large
    (exact below 255 ms). Differences below 0 (clocks) count as 0."""

    count: int
    smallest_ms: int
    p50_ms: int
    p90_ms: int
    p95_ms: int
    p99_ms: int
    p999_ms: int
    largest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyVolume:
    """Keys whose time lies in one UTC hour, by class; classes without keys are left out."""

    hour_start_ms: int
    classes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedRule:
    """A rule that could not be applied to a subscription, and which input would change that."""

    topic: str
    group: str
    class_name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One key of one subscription in a class that people look at."""

    class_name: str
    #: Upper-case hex of the key's bytes.
    key: str
    topic: str
    group: str
    #: The rule that matched, as in the documented list.
    rule: str
    #: Facts that made it match, by name; times end with _ms, digests are hex.
    evidence: Mapping[str, EvidenceValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGap:
    """Something that history lacks, inside the window of the subscription."""

    topic: str
    group: str
    #: -1: many.
    shard: int
    from_ms: int
    to_ms: int
    stream: str
    #: None: unknown.
    rows: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyFile:
    """A Parquet file of judged keys of one subscription, as a task has written it."""

    #: The subscription's place in the order of topic and group.
    place: int
    #: In the folder of the run's attempts.
    name: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One file that was read, or evidence.json, or the newest manifest entry."""

    #: Relative to the evidence folder; history files relative to the history, with "history/" before.
    path: str
    sha256: str
    #: -1 for files that are no table.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputVersion:
    """One input of a platform's audit, and the state of the table that was copied for it."""

    #: Which input: outbox GROUP, inbox TOPIC/GROUP, effects TOPIC/GROUP, or the ledger's table.
    input: str
    #: Its name in the session's catalogue; None: a DataFrame, or an export.
    table: str | None = None
    #: As the catalogue calls it: iceberg, delta, parquet; None: it does not say.
    format: str | None = None
    #: Iceberg's snapshot id or Delta's version, whose rows were copied; None: there is none, or it is not known.
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSubscription:
    """Every key of one subscription's window in exactly one class."""

    subscription: AuditedSubscription
    #: Up to here the history has been captured by every shard; None: no history given or no round in it.
    watermark_ms: int | None
    #: The time by which ages are measured: the earlier of the watermark and when the evidence was collected.
    as_of_ms: int
    #: Whether watermark and collection have both reached the window's end + late_after_seconds.
    closed: bool
    #: Every class of the list in its order, also those with 0 keys.
    classes: Mapping[str, int]
    #: By hour, hours without keys left out.
    volume: tuple[HourlyVolume, ...]
    #: By name (LATENCIES); a latency without any pair of times is left out.
    latencies: Mapping[str, Percentiles]

    @property
    def keys(self) -> int:
        """Keys that belong to the window."""
        return sum(self.classes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Why the verdict is withheld: what is found may be shown, never "clean"."""

    reason: ReasonWithheld
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWindow:
    """The judgement of one evidence folder."""

    environment: str
    window: Window
    collected_at_ms: int
    skew_bound_ms: int
    #: Sorted by topic and group.
    subscriptions: tuple[JudgedSubscription, ...]
    #: Violations, QUARANTINED and EFFECT_LATE, sorted by topic, group and key; at most `findings_max`.
    findings: tuple[Finding, ...]
    #: Findings beyond that, by class; the first ones in the order of the list of classes are kept.
    findings_omitted: Mapping[str, int]
    #: Sorted by topic, group and the order of the list.
    not_checked: tuple[UncheckedRule, ...]
    gaps: tuple[HistoryGap, ...]
    #: Sentences for people: doubled rows that counted once, and the like. Sorted.
    notes: tuple[str, ...]
    #: Sorted by path.
    inputs: tuple[InputFile, ...]
    #: Sorted by input; empty where nothing was copied of a platform's tables.
    input_versions: tuple[InputVersion, ...] = ()
    #: Rows read by table or stream ("outbox", "announced", ...), doubled ones included.
    rows: Mapping[str, int]
    #: Topic -> messages of the window, each counted once however many of its groups were judged.
    messages: Mapping[str, int] = field(default_factory=dict)
    #: Rows of topics and groups outside of the audit; changes neither classes nor verdict.
    not_judged: UnjudgedTotals = field(default_factory=UnjudgedTotals)
    #: What was verified of the history's manifest, as bytes (history/checkpoint.py); None: there is no history.
    manifest: bytes | None = field(default=None, repr=False)
    #: Files of judged keys, where tables were asked for: the only field that another run has otherwise.
    key_files: tuple[KeyFile, ...] = field(default=(), repr=False)
    no_answer: NoAnswer | None

    @property
    def classes(self) -> dict[str, int]:
        """Totals over all subscriptions, every class in the list's order."""
        totals: Counter[str] = Counter()
        for judged in self.subscriptions:
            totals.update(judged.classes)
        return dict(totals)

    @property
    def violations(self) -> int:
        """Keys in violation classes."""
        return sum(count for name, count in self.classes.items() if name in VIOLATIONS)

    @property
    def verdict(self) -> Literal["clean", "violations", "no answer"]:
        """The headline."""
        if self.no_answer is not None:
            return "no answer"
        return "violations" if self.violations else "clean"
