"""Judgements of every shape, made by hand: what output, report and statement are tested with."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import replace

from reconciler.audit.result.classes import BY_NAME, LISTED, NAMES
from reconciler.audit.result.values import (
    AuditedSubscription,
    Finding,
    HistoryGap,
    HourlyVolume,
    InputFile,
    JudgedSubscription,
    JudgedWindow,
    NoAnswer,
    Percentiles,
    UncheckedRule,
    Window,
)

HOUR_MS = 3_600_000
#: 2026-11-20 00:00:00 UTC.
START_MS = 1_795_132_800_000

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe\u202c",
    "\u0645\u062f\u0641\u0648\u0639\u0627\u062a",
    "T" * 200,
    "a--b",
    "with space & ampersand; 'quotes'",
    "../../../etc/passwd",
    "nul\x00and\x1bescape",
    "%RETRY%group",
)


def key_of(number: int, size: int = 16) -> str:
    return hashlib.sha256(str(number).encode()).digest()[:size].hex().upper()


def finding(class_name: str, number: int, topic: str, group: str, **evidence: str | int | bool | None) -> Finding:
    facts = evidence or {"created_at_ms": START_MS + number * 1_000, "state": "ANNOUNCED", "tag": "paid"}
    rule = BY_NAME[class_name].text
    size = (16, 17, 28, 32)[number % 4]
    return Finding(class_name=class_name, key=key_of(number, size), topic=topic, group=group, rule=rule, evidence=facts)


def spread(middle_ms: int, count: int = 1_000) -> Percentiles:
    return Percentiles(
        count=count,
        smallest_ms=middle_ms // 8,
        p50_ms=middle_ms,
        p90_ms=middle_ms * 3,
        p95_ms=middle_ms * 5,
        p99_ms=middle_ms * 11,
        p999_ms=middle_ms * 40,
        largest_ms=middle_ms * 90,
    )


def judged_subscription(
    topic: str, group: str, classes: dict[str, int], *, hours: int = 24, seed: int = 1, closed: bool = True
) -> JudgedSubscription:
    """Its keys spread over the first hours of the window, like a day of business."""
    random_ = random.Random(f"{topic}{group}{seed}")
    weights = [1 + 8 * max(0.0, 1 - abs((hour % 24) - 13) / 9) + random_.random() for hour in range(hours)]
    volume: dict[int, Counter[str]] = {hour: Counter() for hour in range(hours)}
    whole = sum(weights)
    for name, count in classes.items():
        if count > 1_000:
            shares = [int(count * weight / whole) for weight in weights]
            shares[hours // 2] += count - sum(shares)
            for hour, keys in enumerate(shares):
                volume[hour][name] += keys
        else:
            for hour in random_.choices(range(hours), k=count):
                volume[hour][name] += 1
    latencies = {
        "commit_to_announced": spread(180),
        "announced_to_consumed": spread(900),
        "commit_to_effect": spread(640),
    }
    if classes.get("REPAIRED") or classes.get("LOST"):
        latencies |= {
            "commit_to_detected": spread(75_000, 12),
            "detected_to_repaired": spread(1_300, 9),
        }
    return JudgedSubscription(
        subscription=AuditedSubscription(
            topic=topic,
            group=group,
            tags=("paid", "refunded"),
            producer_groups=("orders",),
            grace_period_seconds=60.0,
            late_after_seconds=300.0,
        ),
        watermark_ms=START_MS + hours * HOUR_MS + 301_000,
        as_of_ms=START_MS + hours * HOUR_MS + 301_000,
        closed=closed,
        classes={name: classes.get(name, 0) for name in NAMES},
        volume=tuple(
            HourlyVolume(hour_start_ms=START_MS + hour * HOUR_MS, classes={n: c for n, c in found.items() if c})
            for hour, found in volume.items()
            if sum(found.values())
        ),
        latencies=latencies if sum(classes.values()) else {},
    )


def judged_window(
    subscriptions: list[JudgedSubscription],
    findings: list[Finding],
    *,
    hours: int = 24,
    environment: str = "production",
) -> JudgedWindow:
    tables = ("candidate", "inbox", "outbox", "repair")
    streams = ("announced", "consumed", "gate", "left", "pending", "round", "snapshot")
    digest = hashlib.sha256
    inputs = [InputFile(path="evidence.json", sha256=digest(b"e").hexdigest(), rows=-1)]
    inputs += [
        InputFile(
            path=f"{table}/prefix={n:02d}/part-0.parquet", sha256=digest(f"{table}{n}".encode()).hexdigest(), rows=50
        )
        for table in tables
        for n in range(4)
    ]
    inputs += [
        InputFile(path=f"history/{s}/environment=production/date=2026-11-20/a.parquet", sha256="0" * 64, rows=200)
        for s in streams
    ]
    head = f"history/manifest/environment={environment}/000000000042.json"
    inputs.append(InputFile(path=head, sha256=digest(b"m").hexdigest(), rows=-1))
    return JudgedWindow(
        environment=environment,
        window=Window(start_ms=START_MS, end_ms=START_MS + hours * HOUR_MS),
        collected_at_ms=START_MS + (hours + 2) * HOUR_MS,
        skew_bound_ms=10_000,
        subscriptions=tuple(sorted(subscriptions, key=lambda s: (s.subscription.topic, s.subscription.group))),
        findings=tuple(sorted(findings, key=lambda f: (f.topic, f.group, f.key))),
        findings_omitted={},
        not_checked=(),
        gaps=(),
        notes=(),
        inputs=tuple(sorted(inputs, key=lambda file: file.path)),
        rows={"announced": 200, "outbox": 200, "inbox": 200},
        messages={
            topic: max(one.keys for one in subscriptions if one.subscription.topic == topic)
            for topic in sorted({one.subscription.topic for one in subscriptions})
        },
        no_answer=None,
    )


def clean() -> JudgedWindow:
    return judged_window(
        [
            judged_subscription("ORDERS", "billing", {"EFFECT_IN_TIME": 184_211, "REPAIRED": 9, "ROLLED_BACK": 310}),
            judged_subscription("ORDERS", "stock", {"EFFECT_IN_TIME": 120_113, "FILTERED": 64_107, "ROLLED_BACK": 310}),
        ],
        [],
    )


def violations() -> JudgedWindow:
    billing = {
        "EFFECT_WITHOUT_COMMIT": 1,
        "UNNECESSARY_REPAIR": 2,
        "LOST": 4,
        "QUARANTINED": 3,
        "REPAIRED": 12,
        "EFFECT_LATE": 5,
        "EFFECT_IN_TIME": 184_211,
        "ROLLED_BACK": 310,
        "PENDING": 7,
    }
    stock = {"UNACCOUNTED": 1, "EFFECT_IN_TIME": 120_113, "FILTERED": 64_107, "REJECTED": 2}
    found = [
        finding(name, number * 31 + len(name), "ORDERS", group)
        for group, classes in (("billing", billing), ("stock", stock))
        for name, count in classes.items()
        if name in LISTED
        for number in range(count)
    ]
    found[1] = finding(
        "UNNECESSARY_REPAIR", 7, "ORDERS", "billing",
        created_at_ms=START_MS + 36_000_000, applied_at_ms=START_MS + 36_000_740,
        first_sent_at_ms=START_MS + 36_100_000, rung="end", attempts=1, scope="*", loss_verdict=None,
        outbox_digest="5A" * 32, late_by_ms=99_260, business_id="ORDER-2026-004711",
    )  # fmt: skip
    judged = judged_window(
        [
            judged_subscription("ORDERS", "billing", billing),
            judged_subscription("ORDERS", "stock", stock),
            judged_subscription("REFUNDS", "ledger", {"EFFECT_IN_TIME": 8_120, "EFFECT_LATE": 0}),
        ],
        found,
    )
    why = "no business effects were given; --effects TOPIC/GROUP=URL#QUERY counts them"
    return replace(
        judged,
        not_checked=(
            UncheckedRule(
                topic="REFUNDS",
                group="ledger",
                class_name="EFFECT_WITHOUT_COMMIT",
                why="the outbox of producer group refunds was not given; --outbox refunds=URL",
            ),
            *(
                UncheckedRule(topic=topic, group=group, class_name="DOUBLE_EFFECT", why=why)
                for topic, group in (("ORDERS", "billing"), ("ORDERS", "stock"), ("REFUNDS", "ledger"))
            ),
        ),
        notes=("outbox: 12 rows are there twice; each counts once",),
    )


def no_answer() -> JudgedWindow:
    gap = HistoryGap(
        topic="ORDERS",
        group="billing",
        shard=3,
        from_ms=START_MS + 5 * HOUR_MS,
        to_ms=START_MS + 5 * HOUR_MS + 42_000,
        stream="announced",
        rows=None,
        why="the disk was full",
    )
    return replace(
        violations(),
        gaps=(gap,),
        no_answer=NoAnswer(reason="gap", message="The history lacks rows of ORDERS/billing; audit another window."),
    )


def empty() -> JudgedWindow:
    return judged_window([judged_subscription("ORDERS", "billing", {})], [])


def huge(findings: int = 3_000, subscriptions: int = 150, hours: int = 24 * 30) -> JudgedWindow:
    """A month, more subscriptions and violations than a page shows."""
    many = [
        judged_subscription(
            f"TOPIC_{n % 37:02d}", f"group_{n:03d}", {"EFFECT_IN_TIME": 60_000 + n, "LOST": n % 3}, hours=hours
        )
        for n in range(subscriptions - 1)
    ]
    many.append(judged_subscription("ORDERS", "billing", {"EFFECT_IN_TIME": 9_000_000, "LOST": findings}, hours=hours))
    found = [finding("LOST", n, "ORDERS", "billing") for n in range(findings)]
    return judged_window(many, found, hours=hours)


def bad_day() -> JudgedWindow:
    """16 000 violations of three classes in two subscriptions of one topic."""
    billing = {"EFFECT_WITHOUT_COMMIT": 3_000, "LOST": 5_000, "QUARANTINED": 300, "EFFECT_IN_TIME": 184_211}
    stock = {"DOUBLE_EFFECT": 4_000, "LOST": 4_000, "EFFECT_IN_TIME": 92_000}
    found: list[Finding] = []
    for group, classes in (("billing", billing), ("stock", stock)):
        for name, count in classes.items():
            if name in LISTED:
                found += [finding(name, len(found) + number, "ORDERS", group) for number in range(count)]
    subscriptions = [judged_subscription("ORDERS", group, of) for group, of in (("billing", billing), ("stock", stock))]
    return judged_window(subscriptions, found)


def hostile() -> JudgedWindow:
    """Names that want to be markup, paths, or another direction of writing."""
    subscriptions, found = [], []
    for number, text in enumerate(HOSTILE_NAMES):
        subscriptions.append(judged_subscription(text, text[::-1], {"LOST": 1, "EFFECT_IN_TIME": 40}))
        found.append(finding("LOST", number, text, text[::-1], **{text: text, "business_id": f"{text} of business"}))
    judged = judged_window(subscriptions, found, environment=HOSTILE_NAMES[0])
    return replace(judged, notes=HOSTILE_NAMES)


SAMPLES = {
    "clean": clean,
    "violations": violations,
    "no-answer": no_answer,
    "empty": empty,
    "hostile": hostile,
    "huge": huge,
    "bad-day": bad_day,
}
