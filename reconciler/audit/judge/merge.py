"""Turns results of prefixes into Arrow rows and back, and merges the results to one judged window.

The order of prefixes changes nothing, because counts add up and findings are sorted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from reconciler.audit.errors import AuditError, Reason
from reconciler.audit.evidence.folder import Evidence
from reconciler.audit.history.checkpoint import checkpoint_of
from reconciler.audit.judge.findings import FoundKey
from reconciler.audit.judge.latency_counts import LatencyCounts
from reconciler.audit.judge.prefix import PrefixResult, SubscriptionCounts
from reconciler.audit.judge.unjudged import overlooked
from reconciler.audit.result.classes import NAMES, NUMBERS, RULES, KeyClass
from reconciler.audit.result.not_judged import RowsOf, listed
from reconciler.audit.result.sentences import sentence
from reconciler.audit.result.values import (
    LATENCIES,
    Finding,
    HourlyVolume,
    JudgedSubscription,
    JudgedWindow,
    KeyFile,
    Percentiles,
    UncheckedRule,
)
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import key_of
from reconciler.contract.verdicts import STILL_DELIVERED

#: Columns of a task's answer: one row per count, latency, finding or error. `place` is the subscription's place in the
#: plan.
RESULT_SCHEMA = pa.schema(
    [
        pa.field("prefix", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
#: Columns of a task's answer, as DDL of Spark.
RESULT_DDL = (
    "prefix int not null, kind string not null, place int not null, name string not null, number bigint not null, "
    "count bigint not null, payload binary not null"
)
#: Largest number of subscriptions that a note lists one by one.
_NAMED_MAX = 20
#: Numbers of SubscriptionCounts that add up.
_SUMS = ("unproved", "applied", "not_shown")
_Row = tuple[int, str, int, str, int, int, bytes]


def error_rows(prefix: int, error: AuditError) -> pa.RecordBatch:
    """Makes the answer of a prefix with an error. Spark neither repeats nor hides an error that is an answer."""
    return _batch([(prefix, "error", -1, error.reason, 0, 0, str(error).encode())])


def result_rows(prefix: int, result: PrefixResult) -> pa.RecordBatch:
    """Makes the answer of a prefix."""
    rows: list[_Row] = [(prefix, "judged", -1, "", 0, 0, b"")]
    rows += [(prefix, "rows", -1, name, 0, count, b"") for name, count in sorted(result.rows.items())]
    rows += [(prefix, "doubled", -1, name, 0, count, b"") for name, count in sorted(result.doubled.items()) if count]
    rows += [(prefix, "messages", -1, name, 0, count, b"") for name, count in sorted(result.messages.items())]
    rows += [(prefix, "unjudged", -1, name[0], 0, n, _packed(name)) for name, n in sorted(result.unjudged.items())]
    for place, counts in enumerate(result.subscriptions):
        rows += [
            (prefix, "keys", place, NAMES[number - 1], hour_ms, count, b"")
            for (hour_ms, number), count in sorted(counts.hours.items())
        ]
        rows += [
            (prefix, "latency", place, name, 0, found.count, found.encoded())
            for name, found in counts.latencies.items()
            if found.count
        ]
        rows += [
            (prefix, "moved", place, name, 0, moved.count, json.dumps([key.hex() for key in moved.first]).encode())
            for name, moved in (("late", counts.late), ("unseen", counts.unseen))
            if moved.count
        ]
        sums = {kind: getattr(counts, kind) for kind in _SUMS}
        rows += [(prefix, kind, place, "", 0, count, b"") for kind, count in sums.items() if count]
    rows += [
        (
            prefix,
            "finding",
            found.subscription,
            NAMES[found.number - 1],
            len(found.key),
            1,
            found.key + json.dumps(found.evidence, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        )
        for found in result.findings
    ]
    return _batch(rows)


def key_file_rows(prefix: int, files: Sequence[KeyFile]) -> pa.RecordBatch:
    """Makes rows for the files of judged keys that a task has written. `prefix` is one of the task's prefixes."""
    return _batch([(prefix, "key_file", file.place, file.name, 0, file.rows, b"") for file in files])


def _packed(name: RowsOf) -> bytes:
    return json.dumps(name[1:], ensure_ascii=False).encode("utf-8", "surrogatepass")


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RESULT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RESULT_SCHEMA)


def merged(table: pa.Table, subscriptions: int, prefixes: Iterable[int]) -> PrefixResult:
    """Merges all prefixes.

    Raises the AuditError of the lowest prefix with an error, or AuditError("engine") for a prefix without an answer.
    """
    total = PrefixResult(subscriptions=[SubscriptionCounts() for _ in range(subscriptions)])
    answered: Counter[int] = Counter()
    for row in sorted(table.to_pylist(), key=lambda row: (row["kind"] != "error", row["prefix"])):
        if row["kind"] == "error":
            reason: Reason = row["name"]
            raise AuditError(reason, row["payload"].decode())
        if row["kind"] == "judged":
            answered[row["prefix"]] += 1
        else:
            _add(total, row)
    wrong = sorted(prefix for prefix in prefixes if answered[prefix] != 1)
    if wrong:
        raise AuditError("engine", f"prefixes {wrong} were not answered once by the tasks; run the audit again")
    return total


def _add(total: PrefixResult, row: Mapping[str, Any]) -> None:
    kind, name, count = row["kind"], row["name"], row["count"]
    if kind == "key_file":
        total.key_files.append(KeyFile(place=row["place"], name=name, rows=count))
    elif kind == "rows":
        total.rows[name] += count
    elif kind == "messages":
        total.messages[name] += count
    elif kind == "doubled":
        total.doubled[name] += count
    elif kind == "unjudged":
        topic, group = json.loads(row["payload"].decode("utf-8", "surrogatepass"))
        total.unjudged[name, topic, group] += count
    elif kind == "finding":
        key, evidence = row["payload"][: row["number"]], row["payload"][row["number"] :]
        number = NAMES.index(name) + 1
        found = json.loads(evidence.decode("utf-8", "surrogatepass"))
        total.findings.append(FoundKey(subscription=row["place"], number=number, key=key, evidence=found))
    elif kind == "keys":
        counts, number = total.subscriptions[row["place"]], NAMES.index(name) + 1
        counts.classes[number] += count
        counts.hours[row["number"], number] += count
    elif kind == "latency":
        latencies = total.subscriptions[row["place"]].latencies
        latencies.setdefault(name, LatencyCounts()).merge(LatencyCounts.decoded(row["payload"]))
    elif kind in _SUMS:
        of = total.subscriptions[row["place"]]
        setattr(of, kind, getattr(of, kind) + count)
    elif kind == "moved":
        counts = total.subscriptions[row["place"]]
        moved = counts.late if name == "late" else counts.unseen
        moved.add(count, (bytes.fromhex(key) for key in json.loads(row["payload"])))
    else:
        raise AuditError(
            "engine", f"a task answered with a row of the unknown kind {kind!r}; are the versions the same?"
        )


def judged_window(evidence: Evidence, total: PrefixResult, findings_max: int) -> JudgedWindow:
    """Makes the result of the window. Reports, tables and statements are made from the result."""
    to_list: Counter[str] = Counter({rule.name: 0 for rule in RULES if rule.listed})
    for counts in total.subscriptions:
        to_list.update({NAMES[n - 1]: count for n, count in counts.classes.items() if RULES[n - 1].listed})
    total.keep_first(findings_max)
    to_list.subtract(NAMES[found.number - 1] for found in total.findings)
    document, asked = evidence.document, evidence.document.subscriptions
    findings = [
        Finding(
            class_name=NAMES[found.number - 1],
            key=key_of(found.key),
            topic=asked[found.subscription].topic,
            group=asked[found.subscription].group,
            rule=RULES[found.number - 1].text,
            evidence=found.evidence,
        )
        for found in total.findings
    ]
    not_asked = Counter(document.not_asked or {})
    no_answer = evidence.no_answer or overlooked(asked, total.messages.total(), total.unjudged, not_asked)
    return JudgedWindow(
        environment=document.environment,
        window=document.window,
        collected_at_ms=document.collected_at_ms,
        skew_bound_ms=document.skew_bound_ms,
        subscriptions=tuple(_subscription(evidence, place, counts) for place, counts in enumerate(total.subscriptions)),
        findings=tuple(sorted(findings, key=lambda f: (f.topic, f.group, f.key, f.class_name))),
        findings_omitted={str(name): to_list[name] for name in NAMES if to_list[name]},
        not_checked=_with_blind_queries(evidence, total),
        gaps=evidence.history.gaps,
        notes=(
            *_of_halves(evidence, total),
            *_without_history(evidence),
            *_verified_before(evidence),
            *_not_asked(evidence),
            *_undated(evidence),
            *_not_shown(evidence, total),
            *_moved(evidence, total),
            *_still_delivered(findings),
            *_notes(total),
        ),
        inputs=evidence.inputs,
        input_versions=document.input_versions,
        rows={name: total.rows[name] for name in sorted(total.rows)},
        messages={name: total.messages[name] for name in sorted(total.messages)},
        manifest=None if document.history is None else checkpoint_of(evidence.history),
        not_judged=listed(total.unjudged + not_asked, sources_counted=document.not_asked is not None),
        no_answer=no_answer,
        key_files=tuple(sorted(total.key_files)),
    )


def _subscription(evidence: Evidence, place: int, counts: SubscriptionCounts) -> JudgedSubscription:
    asked, plan = evidence.document.subscriptions[place], evidence.plan.subscriptions[place]
    key = (asked.topic, asked.group)
    by_hour: dict[int, dict[str, int]] = {}
    for (hour_ms, number), count in sorted(counts.hours.items()):
        by_hour.setdefault(hour_ms, {})[NAMES[number - 1]] = count
    latencies: dict[str, Percentiles] = {}
    for name in LATENCIES:
        found = counts.latencies.get(name, LatencyCounts()).percentiles()
        if found is not None:
            latencies[name] = found
    return JudgedSubscription(
        subscription=replace(asked, of_halves=plan.of_halves),
        watermark_ms=evidence.history.watermarks.get(key),
        as_of_ms=plan.as_of_ms,
        closed=evidence.closed[key],
        classes={name: counts.classes[number] for number, name in enumerate(NAMES, start=1)},
        volume=tuple(HourlyVolume(hour_start_ms=hour_ms, classes=classes) for hour_ms, classes in by_hour.items()),
        latencies=latencies,
    )


def _of_halves(evidence: Evidence, total: PrefixResult) -> Iterable[str]:
    """Writes the notes about subscriptions without an outbox that says which halves were committed."""
    for plan, counts in zip(evidence.plan.subscriptions, total.subscriptions, strict=True):
        if plan.of_halves:
            yield sentence("of-halves", subscription=f"{plan.topic}/{plan.group}", count=counts.unproved)


def _without_history(evidence: Evidence) -> tuple[str, ...]:
    if evidence.document.history is not None:
        return ()
    return (sentence("unknown-announcements"),)


def _verified_before(evidence: Evidence) -> tuple[str, ...]:
    number = evidence.history.read_from
    if not number:
        return ()
    return (sentence("verified-before", number=number),)


def _not_asked(evidence: Evidence) -> tuple[str, ...]:
    """Writes the note about subscriptions that had rounds in the window and were not audited."""
    others = [f"{topic}/{group}" for topic, group in evidence.history.others]
    if not others:
        return ()
    return (sentence("not-asked", names=_named(others[:_NAMED_MAX], len(others))),)


def _named(first: Sequence[str], count: int) -> str:
    names = ", ".join(first)
    return names if count <= len(first) else sentence("and-more", names=names, more=count - len(first))


def _undated(evidence: Evidence) -> tuple[str, ...]:
    return tuple(
        sentence("undated", subscription=f"{topic}/{group}", count=count)
        for (topic, group), count in sorted(evidence.document.undated_effects.items())
    )


def _with_blind_queries(evidence: Evidence, total: PrefixResult) -> tuple[UncheckedRule, ...]:
    """Adds DOUBLE_EFFECT of subscriptions whose business effects show none of the keys that the inbox has."""
    name = KeyClass.DOUBLE_EFFECT
    blind = [
        UncheckedRule(
            topic=asked.topic, group=asked.group, class_name=str(name), why=sentence("shows-none", count=counts.applied)
        )
        for asked, counts in zip(evidence.document.subscriptions, total.subscriptions, strict=True)
        if asked.effects and counts.applied and counts.not_shown == counts.applied
    ]
    return tuple(
        sorted(
            (*evidence.not_checked, *blind), key=lambda one: (one.topic, one.group, NUMBERS[KeyClass(one.class_name)])
        )
    )


def _not_shown(evidence: Evidence, total: PrefixResult) -> Iterable[str]:
    """Writes the notes about business effects that show some of the keys that the inbox has."""
    for asked, counts in zip(evidence.document.subscriptions, total.subscriptions, strict=True):
        if asked.effects and 0 < counts.not_shown < counts.applied:
            subscription = f"{asked.topic}/{asked.group}"
            yield sentence("not-shown", subscription=subscription, count=counts.not_shown, of=counts.applied)


def _moved(evidence: Evidence, total: PrefixResult) -> Iterable[str]:
    """Writes the notes about commits that count in another window than their rows."""
    for asked, counts in zip(evidence.document.subscriptions, total.subscriptions, strict=True):
        for moved, code in ((counts.late, "counted-late"), (counts.unseen, "counted-next")):
            if moved.count:
                names = _named([key_of(key) for key in moved.first], moved.count)
                yield sentence(code, subscription=f"{asked.topic}/{asked.group}", count=moved.count, names=names)


def _still_delivered(findings: Iterable[Finding]) -> Iterable[str]:
    """Writes the notes about losses that `explain` calls LAGGING or RETRYING.

    The note says how both statements can be true.
    """
    found = Counter(
        (one.topic, one.group, str(one.evidence["verdict"]))
        for one in findings
        if one.class_name == KeyClass.LOST
        and one.evidence.get("candidate_state") == CandidateState.OPEN
        and one.evidence.get("verdict") in STILL_DELIVERED
    )
    for (topic, group, verdict), count in sorted(found.items()):
        yield sentence("still-delivered", subscription=f"{topic}/{group}", count=count, verdict=verdict)


def _notes(total: PrefixResult) -> tuple[str, ...]:
    return tuple(sentence("doubled", table=name, count=count) for name, count in sorted(total.doubled.items()) if count)
