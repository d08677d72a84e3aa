"""Judges one prefix. The input is files. The output is counts and findings.

The judgement uses no database, no Spark and no clock. Rows become numpy columns (rows.py) and keys become dense codes
per topic (keys.py). The facts of every group are columns by code (group.py). The rules test these columns (rules.py).
Only findings become Python rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.plan import GroupPlan, JudgePlan, PlannedFile
from reconciler.audit.judge.business_ids import name_by_business
from reconciler.audit.judge.facts import NEVER, CodedRows, GroupFacts, flagged, topic_facts
from reconciler.audit.judge.findings import EvidenceOf, FoundKey, listed_codes
from reconciler.audit.judge.group import GroupRows, group_facts
from reconciler.audit.judge.judged_keys import KeySink, judged_keys
from reconciler.audit.judge.keys import KeyCodes, KeyLayout, Longs, prefixes_of_words
from reconciler.audit.judge.latency_counts import LatencyCounts
from reconciler.audit.judge.rows import places_of
from reconciler.audit.judge.rules import classify
from reconciler.audit.judge.slices import Slice, slices
from reconciler.audit.judge.unjudged import unjudged_rows
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.not_judged import KEPT_MAX, RowsOf, kept
from reconciler.audit.result.values import KeyFile, Window
from reconciler.contract.unique_key import key_of

HOUR_MS = 3_600_000

#: Names of latencies that end when a round took the key.
ACCOUNTED_LATENCIES = ("commit_to_announced", "announced_to_consumed")

#: Tables in the order of reading. The outbox is first, because it has the most keys, with one row per key.
_TABLE_ORDER = ("outbox", "inbox", "announced", "consumed", "left", "pending", "candidate", "repair", "effects")
_GROUP_TABLES = tuple(name for name in _TABLE_ORDER if name not in {"outbox", "repair"})
#: Tables with one row per key (and group). A second row of a key is a doubled row.
_ONE_ROW_A_KEY = ("inbox", "effects", "candidate")
_NOWHERE = np.empty(0, np.intp)


#: Largest number of moved keys that one note lists.
MOVED_NAMED_MAX = 20


@dataclass(slots=True)
class MovedKeys:
    """Keys that count in another window than their row."""

    count: int = 0
    #: The smallest of these keys, at most MOVED_NAMED_MAX.
    first: list[bytes] = field(default_factory=list)

    def add(self, count: int, keys: Iterable[bytes]) -> None:
        """Adds further keys."""
        self.count += count
        self.first = sorted([*self.first, *keys])[:MOVED_NAMED_MAX]


@dataclass(slots=True, kw_only=True)
class SubscriptionCounts:
    """Number of keys of one subscription, by class, and by hour and class."""

    #: Number of the class in the list (from 1) -> keys.
    classes: Counter[int] = field(default_factory=Counter)
    #: (start of the UTC hour, number of the class) -> keys.
    hours: Counter[tuple[int, int]] = field(default_factory=Counter)
    latencies: dict[str, LatencyCounts] = field(default_factory=dict)
    #: Keys that count in this window although their rows are older.
    late: MovedKeys = field(default_factory=MovedKeys)
    #: Keys with a row of this window that no witness has seen yet. Such keys count in the next window.
    unseen: MovedKeys = field(default_factory=MovedKeys)
    #: Halves of this window in no class, because no outbox says whether they were committed.
    unproved: int = 0
    #: Keys of this window that the inbox has.
    applied: int = 0
    #: Of these, the keys without a row among the business effects.
    not_shown: int = 0


@dataclass(slots=True, kw_only=True)
class PrefixResult:
    """Result of one prefix, or of several prefixes together."""

    subscriptions: list[SubscriptionCounts]
    findings: list[FoundKey] = field(default_factory=list)
    #: Topic -> number of keys that belong to the window of any group of the topic. A key counts once.
    messages: Counter[str] = field(default_factory=Counter)
    #: Table -> number of rows that were read.
    rows: Counter[str] = field(default_factory=Counter)
    #: Table -> number of doubled rows.
    doubled: Counter[str] = field(default_factory=Counter)
    #: Rows of the window that no subscription judges.
    unjudged: Counter[RowsOf] = field(default_factory=Counter)
    #: Files of judged keys that tasks wrote. Empty: the audit writes no such files.
    key_files: list[KeyFile] = field(default_factory=list)

    def keep_first(self, findings_max: int) -> None:
        """Keeps the first findings by class, subscription and key."""
        self.findings.sort(key=lambda found: (found.number, found.subscription, found.key))
        del self.findings[findings_max:]


def judge_prefix(
    plan: JudgePlan, prefix: int, files: Sequence[PlannedFile], keys: KeySink | None = None
) -> PrefixResult:
    """Puts every key of the prefix in one class per subscription.

    `keys` gets each judged key. `keys` None: keys are only counted.
    The memory is about 160 bytes per row, for at most `plan.rows_at_once_max` rows and the largest row group.
    Raises AuditError("inputs") for a file that fails a check.
    """
    result = PrefixResult(subscriptions=[SubscriptionCounts() for _ in plan.subscriptions])
    for part in slices(files, plan.rows_at_once_max):
        result.rows.update(part.read)
        _judge_slice(plan, prefix, part, result, keys)
        result.keep_first(plan.findings_max)
    result.unjudged = kept(result.unjudged, KEPT_MAX)
    name_by_business(plan, files, result.findings)
    return result


def _judge_slice(plan: JudgePlan, prefix: int, part: Slice, result: PrefixResult, keys: KeySink | None) -> None:
    vocabulary = part.vocabulary
    topics = {vocabulary.number(asked.topic): asked.topic for asked in plan.subscriptions}
    places = {name: places_of(rows.names["topic"], topics) for name, rows in part.tables.items()}
    judged: Counter[str] = Counter()
    for number, topic in topics.items():
        tables = {name: part.tables[name].take(places[name].get(number, _NOWHERE)) for name in _TABLE_ORDER}
        index = KeyCodes(part.layout.width)
        coded = {name: CodedRows(rows=tables[name], codes=index.add(tables[name].words)) for name in _TABLE_ORDER}
        if len(index):
            _check_prefix(prefix, index, part.layout, coded)
            judged.update(_judge_topic(plan, topic, coded, index, part, result, keys))
    result.unjudged.update(unjudged_rows(plan, part.tables, vocabulary, judged))


def _check_prefix(prefix: int, index: KeyCodes, layout: KeyLayout, coded: Mapping[str, CodedRows]) -> None:
    """Raises AuditError("inputs") for a key of another prefix. Such a key would be judged without its other rows."""
    prefixes = prefixes_of_words(layout, index.words)
    wrong = np.flatnonzero(prefixes != prefix)
    if len(wrong):
        key = key_of(min(layout.key_bytes(index.words[wrong])))
        tables = sorted(name for name in coded if np.isin(coded[name].codes, wrong).any())
        raise AuditError(
            "inputs",
            f"{' and '.join(tables)}: files of prefix={prefix:02d} hold {len(wrong)} keys of other prefixes, the first "
            f"is {key}: not where it belongs; collect again",
        )


def _judge_topic(
    plan: JudgePlan,
    topic: str,
    coded: Mapping[str, CodedRows],
    index: KeyCodes,
    part: Slice,
    result: PrefixResult,
    keys: KeySink | None,
) -> Counter[str]:
    """Judges a topic and adds to the result. Returns the number of judged rows of each table, without repairs."""
    layout, vocabulary = part.layout, part.vocabulary
    facts = topic_facts(coded["outbox"], len(index), vocabulary)
    result.doubled["outbox"] += len(coded["outbox"].codes) - int((facts.created_at != NEVER).sum())
    judged = Counter({"outbox": len(coded["outbox"].codes)})
    asked_here = [(place, asked) for place, asked in enumerate(plan.subscriptions) if asked.topic == topic]
    groups = {vocabulary.number(asked.group) for _, asked in asked_here}
    places = {name: places_of(coded[name].rows.names["consumer_group"], groups) for name in _GROUP_TABLES}
    present = np.zeros(len(index), np.bool_)
    for place, asked in asked_here:
        number = vocabulary.number(asked.group)
        mine = {name: coded[name].take(places[name].get(number, _NOWHERE)) for name in _GROUP_TABLES}
        judged.update({name: len(rows.codes) for name, rows in mine.items()})
        for name in _ONE_ROW_A_KEY:
            result.doubled[name] += len(mine[name].codes) - int(flagged(mine[name].codes, len(index)).sum())
        rows = GroupRows(**mine, repair=coded["repair"])
        found = group_facts(facts, rows, asked, plan, vocabulary)
        present |= found.present
        classes = classify(found)
        if keys is not None and found.present.any():
            keys.add(place, judged_keys(found, classes, rows.candidate, index.words, layout, vocabulary))
        _count(result.subscriptions[place], found, classes, asked)
        _count_moved(result.subscriptions[place], found, plan.window, index, layout)
        result.subscriptions[place].unproved += int(found.unproved.sum())
        applied = found.present & (found.applied_at != NEVER)
        result.subscriptions[place].applied += int(applied.sum())
        result.subscriptions[place].not_shown += int((applied & (found.effects <= 0)).sum())
        codes = listed_codes(classes, index.words, layout, plan.findings_max)
        evidence = EvidenceOf(facts, rows, found, vocabulary).of(codes, classes, asked.as_of_ms)
        for code, key, why in zip(codes, layout.key_bytes(index.words[codes]), evidence, strict=True):
            result.findings.append(FoundKey(subscription=place, number=int(classes[code]), key=key, evidence=why))
    result.messages[topic] += int(present.sum())
    return judged


def _count(counts: SubscriptionCounts, facts: GroupFacts, classes: npt.NDArray[np.uint8], asked: GroupPlan) -> None:
    """Adds classes, hours and latencies of the keys that belong to the window.

    A latency that ends with a round is left out if Redis lost rounds in between, because a lost round may have taken
    the key earlier.
    """
    present = np.flatnonzero(facts.present)
    if not len(present):
        return
    of_present = classes[present].astype(np.int64)
    hours = facts.key_time[present] // HOUR_MS
    first = int(hours.min())
    cells = np.bincount((hours - first) * (len(RULES) + 1) + of_present)
    for cell in np.flatnonzero(cells).tolist():
        hour, number = divmod(cell, len(RULES) + 1)
        counts.hours[(first + hour) * HOUR_MS, number] += int(cells[cell])
        counts.classes[number] += int(cells[cell])
    for name, (start, end) in _latency_times(facts).items():
        start, end = start[present], end[present]
        if name in ACCOUNTED_LATENCIES:
            for reread_ms in asked.reread_ms:
                start = np.where((start < reread_ms) & (reread_ms <= end), NEVER, start)
        both = (start != NEVER) & (end != NEVER)
        counts.latencies.setdefault(name, LatencyCounts()).add(end[both] - start[both])


def _count_moved(
    counts: SubscriptionCounts, facts: GroupFacts, window: Window, index: KeyCodes, layout: KeyLayout
) -> None:
    late = facts.present & facts.committed & (facts.created_at < window.start_ms)
    unseen = facts.committed & (facts.seen_at == NEVER) & (facts.key_time >= window.end_ms)
    unseen &= (facts.created_at >= window.start_ms) & (facts.created_at < window.end_ms)
    for moved, flags in ((counts.late, late), (counts.unseen, unseen)):
        codes = np.flatnonzero(flags)
        if len(codes):
            moved.add(len(codes), layout.key_bytes(index.words[codes]))


def _latency_times(facts: GroupFacts) -> dict[str, tuple[Longs, Longs]]:
    """Finds start and end of each latency (result.LATENCIES). NEVER: a time is missing."""
    committed_at = np.where(facts.committed, facts.created_at, NEVER)
    applied_at = np.where(facts.incomplete, NEVER, facts.applied_at)
    proved_at = np.where(facts.repair.sent, facts.repair.created_at, NEVER)
    return {
        "commit_to_announced": (committed_at, facts.announced_at),
        "announced_to_consumed": (facts.announced_at, facts.consumed_at),
        "commit_to_effect": (committed_at, applied_at),
        "commit_to_detected": (committed_at, facts.repair.created_at),
        "detected_to_repaired": (proved_at, applied_at),
    }
