"""Judgement as plain values. judge/merge.py makes the judgement. Output, report and statement render the judgement.

Only the inputs decide content and order. A judgement does not have time of running, host, engine and duration. All
times are milliseconds UTC.
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

#: Kind of engine that judges: Spark, or the process that was asked.
EngineKind = Literal["spark", "here"]
#: Values in a finding's evidence (JSON scalars).
EvidenceValue = str | int | bool | None

#: Name of the business id in a finding's evidence, if the outbox has one.
BUSINESS_ID = "business_id"

#: Name in `JudgedSubscription.latencies` -> meaning. The order is the order on the page.
LATENCIES: Mapping[str, str] = {
    "commit_to_announced": "from the outbox row to the first round that took the announcement",
    "announced_to_consumed": "from that round to the first round that took the consumption (same round: 0)",
    "commit_to_effect": "from the outbox row to the inbox row",
    "commit_to_detected": "from the outbox row to the proof of the loss (the repair's row)",
    "detected_to_repaired": "from the proof of the loss to the inbox row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Window of times with start_ms <= time < end_ms."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        """Writes the window for people, in UTC."""
        return f"{time_text(self.start_ms)} to {time_text(self.end_ms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSubscription:
    """One subscription in the request of evidence.json."""

    topic: str
    group: str
    #: None: every tag.
    tags: tuple[str, ...] | None
    producer_groups: tuple[str, ...]
    grace_period_seconds: float
    late_after_seconds: float
    #: True: the subscription's inbox was given. Without inbox and effects the audit raises AuditError("inputs").
    inbox: bool = True
    #: True: business effects were counted.
    effects: bool = False
    #: True: half messages announce and the topic has no outbox. Then halves of the window are judged, not commits.
    of_halves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Distribution of milliseconds. A difference below 0, which differing clocks can make, counts as 0.

    `smallest_ms` and `largest_ms` are exact. The percentiles are at most 1/128 too large, and are exact below 255 ms.
    """

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
    """Keys whose time is in one UTC hour, by class. Classes without keys are left out."""

    hour_start_ms: int
    classes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncheckedRule:
    """Rule that could not be applied to a subscription, with the reason."""

    topic: str
    group: str
    class_name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One key of one subscription in a class that people look at."""

    class_name: str
    #: Text of the unique key.
    key: str
    topic: str
    group: str
    #: Text of the rule that matched, as in the documented list.
    rule: str
    #: Facts by name that made the rule match. The name of a time ends with _ms. Digests are hexadecimal.
    evidence: Mapping[str, EvidenceValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGap:
    """Rows of a stream that the history lacks."""

    topic: str
    group: str
    #: -1: several shards.
    shard: int
    from_ms: int
    to_ms: int
    stream: str
    #: None: the number is not known.
    rows: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyFile:
    """Parquet file of a subscription's judged keys that a task has written."""

    #: Place of the subscription in the order of topic and group.
    place: int
    #: Name of the file in the folder of the run's attempts.
    name: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One input of the judgement: a file that was read, evidence.json, or the newest manifest entry."""

    #: Path below the evidence folder. For a file of the history, the path is "history/" and the path below the history.
    path: str
    sha256: str
    #: -1: the file is no table.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputVersion:
    """One input of a platform's audit, with the state of the table that was copied."""

    #: Name of the input: outbox GROUP, inbox TOPIC/GROUP, effects TOPIC/GROUP, or the ledger's table.
    input: str
    #: Name of the table in the session's catalogue. None: the input is a DataFrame or an export.
    table: str | None = None
    #: Name of the format in the catalogue: iceberg, delta, parquet. None: the format is not known.
    format: str | None = None
    #: Iceberg's snapshot id or Delta's version of the copied rows. None: the format has no versions, or the version is
    #: not known.
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSubscription:
    """Result of one subscription: the keys of the window by class. Each key is in exactly one class."""

    subscription: AuditedSubscription
    #: Time until which the history has the rounds of every shard. None: no history was given, or a shard has no round.
    watermark_ms: int | None
    #: Time from which ages are measured back: the watermark or the time of collection, whichever is earlier.
    as_of_ms: int
    #: True: both watermark and collection have reached the window's end + late_after_seconds.
    closed: bool
    #: Number of keys of every class, in the order of the list.
    classes: Mapping[str, int]
    #: Keys by hour and class. Hours without keys are left out.
    volume: tuple[HourlyVolume, ...]
    #: Latencies by name (LATENCIES). A latency without a pair of times is left out.
    latencies: Mapping[str, Percentiles]

    @property
    def keys(self) -> int:
        """Number of keys that belong to the window."""
        return sum(self.classes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Reason why the verdict is withheld. Findings may be shown, but never "clean"."""

    reason: ReasonWithheld
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWindow:
    """Judgement of one evidence folder."""

    environment: str
    window: Window
    collected_at_ms: int
    skew_bound_ms: int
    #: Sorted by topic and group.
    subscriptions: tuple[JudgedSubscription, ...]
    #: Findings of violations, QUARANTINED and EFFECT_LATE, sorted by topic, group and key. There are at most
    #: `findings_max`.
    findings: tuple[Finding, ...]
    #: Class -> number of findings that were dropped beyond `findings_max`. The first findings in the order of the
    #: classes are kept.
    findings_omitted: Mapping[str, int]
    #: Unchecked rules, sorted by topic, group and the order of the list.
    not_checked: tuple[UncheckedRule, ...]
    gaps: tuple[HistoryGap, ...]
    #: Sentences for people, such as the number of doubled rows that counted once.
    notes: tuple[str, ...]
    #: Sorted by path.
    inputs: tuple[InputFile, ...]
    #: Versions of a platform's tables, sorted by input. Empty: no table of a platform was copied.
    input_versions: tuple[InputVersion, ...] = ()
    #: Table or stream ("outbox", "announced", ...) -> number of rows that were read. Doubled rows are included.
    rows: Mapping[str, int]
    #: Topic -> number of messages of the window. A message counts once, even if several of its groups were judged.
    messages: Mapping[str, int] = field(default_factory=dict)
    #: Rows of topics and groups outside of the audit. Such rows change neither classes nor verdict.
    not_judged: UnjudgedTotals = field(default_factory=UnjudgedTotals)
    #: Bytes of the file that says which part of the history's manifest was verified (history/checkpoint.py). None: no
    #: history.
    manifest: bytes | None = field(default=None, repr=False)
    #: Files of judged keys, if tables were asked for. Only this field differs from run to run.
    key_files: tuple[KeyFile, ...] = field(default=(), repr=False)
    no_answer: NoAnswer | None

    @property
    def classes(self) -> dict[str, int]:
        """Number of keys of every class over all subscriptions, in the list's order."""
        totals: Counter[str] = Counter()
        for judged in self.subscriptions:
            totals.update(judged.classes)
        return dict(totals)

    @property
    def violations(self) -> int:
        """Number of keys in violation classes."""
        return sum(count for name, count in self.classes.items() if name in VIOLATIONS)

    @property
    def verdict(self) -> Literal["clean", "violations", "no answer"]:
        """Verdict: clean, violations or no answer."""
        if self.no_answer is not None:
            return "no answer"
        return "violations" if self.violations else "clean"
