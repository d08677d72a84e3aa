"""An ordinary bad night: what a person on call finds in ledger, outboxes and inboxes at half past three.

Four subscriptions; losses in every state, repairs on their way, a hold, an open breaker, an
outage that ended, refused announcements, jobs, actions, and 72 hours of rounds for the charts. The texts are those that
the product writes. Times end now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import sqlalchemy as sa

from reconciler.contract.tables import CandidateState, HoldKind, JobKind, JobState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import schema, tables
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.dismissing import DISMISS
from reconciler.web.acts.every import TOLD
from reconciler.web.acts.once import kept_key
from reconciler.web.acts.repairing import REPAIR
from reconciler.web.audits.check import AuditCheck
from reconciler.web.route import Surface
from reconciler.web.routes import ROUTES
from tests.engines import begun
from tests.unit.web.audit_cases import DAY_MS, START_MS, altered, check, statement

ENVIRONMENT = "production"
#: (topic, group), the one that is worst off first.
SUBSCRIPTIONS = (
    ("ORDERS", "billing"),
    ("ORDERS", "warehouse"),
    ("PAYMENTS", "general-ledger"),
    ("REFUNDS", "customer-notifications"),
)
SHARDS = 16
#: Who is on call, and the key of the forms that were sent.
ON_CALL, ACT_KEY = "olga", "night"
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
#: Nobody has done the rounds of PAYMENTS for so long.
_SILENT_MINUTES = 47
_SEED = 20_261_125
_SETTINGS = """
environment = "production"
[rocketmq]
name_servers = "{name_servers}"
[redis]
url = "{redis_url}"
[ledger]
url = "sqlite:///{folder}/ledger.db"
[rounds]
skew_margin_seconds = 10
[web]
users_file = "{folder}/users.json"
"""
_PRODUCER = """
[[producers]]
group = "{topic}-service"
topics = ["{name}"]
outbox_url = "sqlite:///{folder}/{topic}-outbox.db"
"""
_SUBSCRIPTION = """
[[subscriptions]]
topic = "{topic}"
group = "{group}"
inbox_url = "sqlite:///{folder}/{group}-inbox.db"
late_after_seconds = {late_after_seconds}
"""


def topics() -> Sequence[str]:
    """Those of the subscriptions."""
    return sorted({topic for topic, _ in SUBSCRIPTIONS})


def business_id(number: int) -> str:
    """Of the loss with the number."""
    return f"order-2026-{480_000 + 7 * number}"


def key(number: int) -> str:
    """Of the message with the number."""
    return f"0A2B01F400{number * 7919 + 0x4E5D00:014X}{number:08X}"


def job_ids() -> Sequence[str]:
    """A job that runs, one that waits, one that is done with messages left over, one that failed."""
    return [f"{number + 0x51:032x}" for number in range(4)]


#: Routes of which pictures are taken.
PAGES = [r for r in ROUTES if r.surface is Surface.PAGE and r.method == "GET" and r.name != "static"]
#: Path with places -> what stands in them: pages of this night (tests/unit/web/sample_addresses.py).
PLACES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "/docs/{page:path}": [("runbooks/LostMessages.md",)],
    "/messages/{name:path}": [(key(1),), (key(60),), (business_id(2),)],
    "/jobs/{job_id}": [(job_id,) for job_id in job_ids()],
    "/acts/{act}/{key}": [(act, ACT_KEY) for act in TOLD],
    "/audits/{name}": [("nightly-8",), ("nightly-6",), ("nightly-5",)],
    "/audits/{name}/report": [("nightly-8",)],
}


def make_settings(folder: Path, *, redis_url: str, name_servers: str) -> Settings:
    """Of a folder that exists; its databases are made by `make_night` or `make_quiet`."""
    text = _SETTINGS.format(folder=folder, redis_url=redis_url, name_servers=name_servers)
    for topic in topics():
        text += _PRODUCER.format(folder=folder, topic=topic.lower(), name=topic)
    for topic, group in SUBSCRIPTIONS:
        # Times in the databases stand still while pages are looked at; one subscription is late all the same.
        late = 300 if topic == "PAYMENTS" else 86_400
        text += _SUBSCRIPTION.format(folder=folder, topic=topic, group=group, late_after_seconds=late)
    (folder / "reconciler.toml").write_text(text)
    return load_settings(folder / "reconciler.toml", {})


def make_quiet(folder: Path, *, now_ms: int) -> None:
    """Nothing ever happened but rounds."""
    _write(folder, {tables.round_row: [*_newest_rounds(now_ms)]}, {}, {}, now_ms=now_ms)


def make_night(folder: Path, *, now_ms: int, broker: str) -> None:
    """Everything. `broker`: the one that answers, by its name."""
    random = Random(_SEED)  # no secret
    losses = [*_losses(random, now_ms, broker)]
    ledger: Mapping[sa.Table, list[dict[str, Any]]] = {
        tables.candidate: [*losses, *_others(random, now_ms)],
        tables.repair: [*_repairs(random, losses, now_ms)],
        tables.round_row: [*_rounds(random, now_ms), *_newest_rounds(now_ms)],
        tables.outage: [*_outages(now_ms)],
        tables.quarantine: [*_refused(now_ms)],
        tables.operator_action: [*_actions(now_ms)],
        tables.job: [*_jobs(now_ms)],
        tables.hold: [*_holds(now_ms)],
        tables.idempotency_key: [*_answers(now_ms)],
    }
    outboxes = {topic: [*_outbox(topic, losses, broker)] for topic in topics()}
    inboxes = {group: [*_inbox(topic, group, losses)] for topic, group in SUBSCRIPTIONS}
    _write(folder, ledger, outboxes, inboxes, now_ms=now_ms)


def audits(now_ms: int) -> Mapping[str, AuditCheck]:
    """Of the last nights, the newest first: one is missing, one found violations, one was altered afterwards."""
    today = (now_ms - START_MS) // DAY_MS
    found = {}
    for ago in (1, 3, 4, 5, 6, 7, 8):
        result = {"verdict": "violations", "violations": 3} if ago == 3 else {}
        told = [statement(day=today - ago, topic=topic, group=group, **result) for topic, group in SUBSCRIPTIONS]
        found[f"nightly-{9 - ago}"] = altered(*told) if ago == 4 else check(*told)
    return found


def _write(
    folder: Path,
    ledger: Mapping[sa.Table, list[dict[str, Any]]],
    outboxes: Mapping[str, list[dict[str, Any]]],
    inboxes: Mapping[str, list[dict[str, Any]]],
    *,
    now_ms: int,
) -> None:
    _fill(
        f"sqlite:///{folder}/ledger.db",
        "ledger",
        {table: [{"environment": ENVIRONMENT} | row for row in rows] for table, rows in ledger.items()},
    )
    for topic in topics():
        url = f"sqlite:///{folder}/{topic.lower()}-outbox.db"
        _fill(url, "outbox", {tables.outbox: outboxes.get(topic, [])})
        with begun(url) as connection:
            connection.execute(sa.update(tables.outbox_identity).values(swept_at_ms=now_ms - 4_000))
    for _, group in SUBSCRIPTIONS:
        _fill(f"sqlite:///{folder}/{group}-inbox.db", "inbox", {tables.inbox: inboxes.get(group, [])})


def _fill(url: str, tree: str, rows: Mapping[sa.Table, list[dict[str, Any]]]) -> None:
    schema.upgrade(url, tree)
    with begun(url) as connection:
        for table, values in rows.items():
            if values:
                connection.execute(sa.insert(table), values)


def _losses(random: Random, now_ms: int, broker: str) -> Iterator[dict[str, Any]]:
    """A burst since half past two, and now and then one before; the first ones lie in every state."""
    kinds = sorted(LOSSES)
    for number in range(160):
        age_ms = random.randrange(70 * _MINUTE_MS) if number < 110 else random.randrange(70 * _HOUR_MS)
        verdict = kinds[number % 4] if number % 3 else Verdict.LOST_CONFIRM
        topic, group = SUBSCRIPTIONS[number % 2 if number < 110 else number % 4]
        state = CandidateState.OPEN if number < 37 else CandidateState.SETTLED
        if number in (3, 11, 40):
            state = CandidateState.QUARANTINED
        is_over = state is CandidateState.SETTLED
        yield {
            "topic": topic,
            "consumer_group": group,
            "unique_key": key(number),
            "shard": number % SHARDS,
            "state": state,
            "verdict": Verdict.CONSUMED
            if is_over
            else Verdict.QUARANTINED
            if state is CandidateState.QUARANTINED
            else verdict,
            "loss_verdict": verdict,
            "evidence": json.dumps(
                {
                    "outbox": "FOUND",
                    "half": f"{broker}@{4_711_000 + number * 512}",
                    "committed": "ABSENT",
                    "inbox": "FOUND" if is_over else "ABSENT",
                    "reason": "the half is stored, no committed copy is: END_TRANSACTION was lost",
                }
            ),
            "attempts": 1 + number % 4,
            "first_seen_ms": now_ms - age_ms,
            "next_at_ms": now_ms + 20_000,
            "updated_at_ms": now_ms - age_ms + random.randrange(31_000, 58_000),
        }


def _others(random: Random, now_ms: int) -> Iterator[dict[str, Any]]:
    """Judged, and not lost."""
    kinds = (
        *((Verdict.LAGGING, CandidateState.OPEN), (Verdict.RETRYING, CandidateState.OPEN)),
        *((Verdict.UNKNOWN, CandidateState.OPEN), (Verdict.FILTERED, CandidateState.SETTLED)),
        *((Verdict.FILTERED, CandidateState.SETTLED), (Verdict.CONSUMED, CandidateState.SETTLED)),
        *((Verdict.DEAD_LETTERED, CandidateState.QUARANTINED), (Verdict.COLLISION, CandidateState.QUARANTINED)),
        (Verdict.DELIVERED_NOT_APPLIED, CandidateState.QUARANTINED),
    )
    for number in range(60):
        verdict, state = kinds[number % len(kinds)]
        topic, group = SUBSCRIPTIONS[number % 4]
        yield {
            "topic": topic,
            "consumer_group": group,
            "unique_key": key(1_000 + number),
            "shard": number % SHARDS,
            "state": state,
            "verdict": verdict,
            "loss_verdict": None,
            "evidence": json.dumps({"outbox": "FOUND", "inbox": "ABSENT"}),
            "attempts": 1 + number % 6,
            "first_seen_ms": now_ms - random.randrange(9 * _HOUR_MS),
            "next_at_ms": now_ms + 45_000,
            "updated_at_ms": now_ms - random.randrange(_HOUR_MS),
        }


def _repairs(random: Random, losses: Iterable[dict[str, Any]], now_ms: int) -> Iterator[dict[str, Any]]:
    answers = {
        RepairState.SENT: "SUCCESS",
        RepairState.DONE: "SUCCESS",
        RepairState.FAILED: "broker-b answered SYSTEM_BUSY (2): [PCBUSY_CLEAN_QUEUE]broker busy, start flow control for"
        " a while, period in queue: 206ms, size of queue: 4; given up after 8 attempts",
    }
    for number, loss in enumerate(losses):
        proved_ms = loss["updated_at_ms"]
        if loss["state"] is CandidateState.SETTLED:
            state = RepairState.DONE
        else:
            state = (RepairState.OPEN, RepairState.SENT, RepairState.SENDING, RepairState.OPEN)[number % 4]
        if loss["state"] is CandidateState.QUARANTINED:
            state = RepairState.FAILED
        rung = (Rung.END, Rung.END, Rung.REPUBLISH, Rung.HAND_OVER)[number % 4]
        is_sent = state in (RepairState.SENT, RepairState.DONE)
        yield {
            "topic": loss["topic"],
            "scope": loss["consumer_group"] if rung is Rung.HAND_OVER else "*",
            "unique_key": loss["unique_key"],
            "state": state,
            "rung": rung,
            "attempts": 8 if state is RepairState.FAILED else int(is_sent),
            "next_at_ms": now_ms + 30_000,
            "answer": answers.get(state),
            "created_at_ms": proved_ms,
            "sent_at_ms": proved_ms + 2_000 if is_sent else None,
            "done_at_ms": min(now_ms, proved_ms + random.randrange(4_000, 90_000))
            if state is RepairState.DONE
            else None,
        }


def _round(number: int, at_ms: int, shard: int, counts: Sequence[int], *, is_void: bool = False) -> dict[str, Any]:
    topic, group = SUBSCRIPTIONS[number]
    names = ("announced", "matched", "pending_before", "pending_added", "pending_matched", "pending_after")
    return {
        "topic": topic,
        "consumer_group": group,
        "shard": shard,
        "epoch": f"{ENVIRONMENT}:2026-11-22T08:00:00Z",
        "generation": at_ms // 200 - 8_970_000_000,
        "at_ms": at_ms,
        "offsets": "{}",
        "void": int(is_void),
        "stored_at_ms": at_ms + 35,
    } | dict(zip(names, counts, strict=True))


def _rounds(random: Random, now_ms: int) -> Iterator[dict[str, Any]]:
    """One in five minutes a subscription, busy by day and calm by night."""
    for minutes in range(0, 72 * 60, 5):
        at_ms = now_ms - minutes * _MINUTE_MS
        hour = at_ms // _HOUR_MS % 24
        busy = 200 + 900 * (6 < hour < 22) + random.randrange(200)
        for number, (topic, _) in enumerate(SUBSCRIPTIONS):
            if topic == "PAYMENTS" and minutes < _SILENT_MINUTES:
                continue
            announced = busy // (number + 1)
            late = announced // 14
            left = late if minutes < 75 and number < 2 else 0
            counts = (announced, announced - late, late, late, late - left, late + left)
            yield _round(number, at_ms, minutes // 5 % SHARDS, counts, is_void=minutes == 380)


def _newest_rounds(now_ms: int) -> Iterator[dict[str, Any]]:
    for number in range(len(SUBSCRIPTIONS)):
        for shard in range(SHARDS):
            is_silent = SUBSCRIPTIONS[number][0] == "PAYMENTS"
            at_ms = now_ms - 4_000 - 200 * shard - _SILENT_MINUTES * _MINUTE_MS * is_silent
            yield _round(number, at_ms, shard, (18, 17, 2, 1, 1, 2))


def _outages(now_ms: int) -> Iterator[dict[str, Any]]:
    left_out = {"REFUNDS/customer-notifications": "the inbox gave no answer: it was read 40 minutes later"}
    for hours, reason, minutes in ((6, "MEMORY_LOST", 14), (31, "AWAY", 3), (70, "UNSAFE", 55)):
        yield {
            "started_at_ms": now_ms - hours * _HOUR_MS,
            "reason": reason,
            "noticed_by": "run@checkback-7d9f6c-x2k4m:1",
            "scan_position": json.dumps({"complete": True, "left_out": left_out if hours == 6 else {}}),
            "scanned": 1_284_551 // hours,
            "closed_at_ms": now_ms - hours * _HOUR_MS + minutes * _MINUTE_MS,
        }


def _refused(now_ms: int) -> Iterator[dict[str, Any]]:
    texts = {
        "ENVIRONMENT": "the announcement is for the environment 'staging', this process serves 'production'",
        "SIGNATURE": "the announcement has no signature, and unique_key_topic.signature_secret is set",
        "MALFORMED": "Expecting value: line 1 column 1 (char 0)",
        "TOPIC": "topic 'ORDERS_TEST' has no [[subscriptions]] section",
    }
    for number, reason in enumerate([*texts] * 3):
        yield {
            "unique_key_topic": "RECONCILER_UNIQUE_KEY",
            "broker": "broker-a" if number % 2 else "broker-b",
            "queue_id": number % SHARDS,
            "queue_offset": 88_000 + number * 97,
            "reason": reason,
            "detail": texts[reason],
            "body": b"{}",
            "seen_at_ms": now_ms - number * 17 * _MINUTE_MS,
        }


def _actions(now_ms: int) -> Iterator[dict[str, Any]]:
    done: Sequence[tuple[int, str, str, str | None, int | None, str, str | None]] = (
        (2, "olga", "repair", "ORDERS", None, "120 keys, as a job: the customers wait", None),
        (9, "olga", "repair", "ORDERS", 5, "dry run before the bulk", "sent: 1"),
        (12, "olga", "hold", "REFUNDS", None, "the notification service sends twice, INC-2291", "held"),
        (63, "web:adam", "dismiss", "PAYMENTS", 41, "booked by hand, ticket PAY-118", "dismissed"),
        (380, "adam", "rebuild", None, None, "after the failover of Redis", "put back: 214091 inbox rows"),
        (1_500, "vera", "resume", "PAYMENTS", None, "", "failed: PAYMENTS is not on hold"),
    )
    for number, (minutes, by, command, topic, numbered, detail, result) in enumerate(done):
        yield {
            "action_id": f"{number:032x}",
            "by": by,
            "command": command,
            "topic": topic,
            "consumer_group": None,
            "unique_key": None if numbered is None else key(numbered),
            "detail": detail,
            "started_at_ms": now_ms - minutes * _MINUTE_MS,
            "ended_at_ms": None if result is None else now_ms - minutes * _MINUTE_MS + 2_100,
            "result": result,
        }


def _jobs(now_ms: int) -> Iterator[dict[str, Any]]:
    reasons = ("the broker answered SYSTEM_BUSY (2)", "an inbox gave no answer: the key stays as it is")
    lines = [
        {
            "unique_key": key(number),
            "topic": "ORDERS",
            "group": "billing",
            "outcome": ("failed", "unknown")[number % 2],
            "reason": reasons[number % 2],
        }
        for number in range(7)
    ]
    why = "the customers wait, INC-2290"
    request: dict[str, Any] = {"unique_keys": [], "topic": "ORDERS", "group": None, "reason": why, "seen": {}}
    states = (JobState.RUNNING, JobState.QUEUED, JobState.DONE, JobState.FAILED)
    for number, (job_id, state) in enumerate(zip(job_ids(), states, strict=True)):
        is_repair = state is not JobState.FAILED
        asked_ms = now_ms - (2, 1, 95, 380)[number] * _MINUTE_MS
        done = {JobState.RUNNING: 78, JobState.DONE: 120}.get(state, 0)
        yield {
            "job_id": job_id,
            "kind": JobKind.REPAIR if is_repair else JobKind.REBUILD,
            "request": json.dumps(request if is_repair else {"since_ms": now_ms - 6 * _HOUR_MS, "reason": why}),
            "by": ON_CALL,
            "state": state,
            "attempts": 1,
            "done": done if is_repair else 214_091,
            "total": 120 if is_repair else None,
            "counts": json.dumps({"sent": done - 7, "failed": 4, "unknown": 3}) if done else None,
            "lines": json.dumps({"lines": lines}) if done else None,
            "error": None if is_repair else "Redis is away: Connection refused; start it, or correct redis.url",
            "created_at_ms": asked_ms,
            "started_at_ms": None if state is JobState.QUEUED else asked_ms + 900,
            "ended_at_ms": asked_ms + 41_000 if state in (JobState.DONE, JobState.FAILED) else None,
        }


def _holds(now_ms: int) -> Iterator[dict[str, Any]]:
    why = "one round proved 1 312 new losses of 9 870 announced messages: more than 1000, and more than 5 %"
    yield {
        "topic": "ORDERS",
        "kind": HoldKind.BREAKER,
        "since_ms": now_ms - 38 * _MINUTE_MS,
        "by": "run@checkback-7d9f6c-x2k4m:1",
        "reason": why,
    }
    yield {
        "topic": "REFUNDS",
        "kind": HoldKind.HOLD,
        "since_ms": now_ms - 12 * _MINUTE_MS,
        "by": "olga",
        "reason": "the notification service sends twice, INC-2291",
    }


def _answers(now_ms: int) -> Iterator[dict[str, Any]]:
    """What came of acts, one of each kind."""
    words = (("planned", "", "LOST_CONFIRM", "end"), ("well", "the inbox has it since 03:12", "CONSUMED", ""))
    lines = [
        dict(zip(("outcome", "reason", "verdict", "rung"), words[number % 5 == 4], strict=True))
        | {"unique_key": key(number), "topic": "ORDERS", "group": "billing"}
        for number in range(24)
    ]
    dismissed = [
        {"unique_key": key(number), "topic": "PAYMENTS", "group": "general-ledger", "outcome": "dismissed"}
        for number in (41, 42)
    ]
    told = "its half is open on broker-a, which may deliver it until about 2026-11-22T03:47:00Z"
    halves = [
        {
            "unique_key": key(41),
            "topic": "PAYMENTS",
            "state": "open",
            "told": told,
            "can_be_closed": True,
            "closed": False,
        },
        {"unique_key": key(42), "topic": "PAYMENTS", "state": "ended", "told": "its half was rolled back"}
        | {"can_be_closed": False, "closed": False},
    ]
    chosen = {"all": False, "topic": "ORDERS", "group": None}
    answers: Mapping[WebAct[Any], Mapping[str, object]] = {
        REPAIR: {"keys": lines, "dry_run": True, "notes": [], "chosen": chosen, "lines": 24},
        DISMISS: {
            "keys": dismissed,
            "dry_run": True,
            "halves": halves,
            "seen": {key(41): "3f9a", key(42): "88c0"},
            "chosen": {"topic": None, "group": None},
        },
        HOLD: {"topic": "REFUNDS", "changed": True},
        LIFT: {"topic": "ORDERS", "held": True, "left": ["BREAKER"], "lifted": False},
    }
    for act in TOLD.values():
        yield {
            "by": f"web:{ON_CALL}",
            "idempotency_key": kept_key(act, ACT_KEY),
            "digest": bytes(32),
            "state": "ANSWERED",
            "status": 200,
            "answer": json.dumps(answers[act]),
            "created_at_ms": now_ms,
        }


def _outbox(topic: str, losses: Iterable[dict[str, Any]], broker: str) -> Iterator[dict[str, Any]]:
    """Rows of the lost messages; two messages of one business id."""
    for number, loss in enumerate(losses):
        if loss["topic"] != topic:
            continue
        committed_ms = loss["first_seen_ms"] - 1_300
        yield {
            "unique_key": loss["unique_key"],
            "topic": topic,
            "producer_group": f"{topic.lower()}-service",
            "tag": "created",
            "business_id": business_id(number % 90),
            "half_broker": broker,
            "half_commit_log_offset": 4_711_000 + number * 512,
            "half_queue_offset": 9_000 + number,
            "body": json.dumps({"order": business_id(number % 90), "amount": "1299.00", "currency": "EUR"}).encode(),
            "state": OutboxState.ANNOUNCED,
            "created_at_ms": committed_ms,
            "announced_at_ms": committed_ms + 240,
        }


def _inbox(topic: str, group: str, losses: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What has arrived: what was repaired, and what only the topic's other group has lost."""
    for loss in losses:
        is_of_group = loss["consumer_group"] == group
        is_half = is_of_group and loss["unique_key"] == key(60)
        if loss["topic"] != topic or (is_of_group and not is_half and loss["state"] is not CandidateState.SETTLED):
            continue
        yield {
            "consumer_group": group,
            "unique_key": loss["unique_key"],
            "topic": topic,
            "source": "consumer",
            "incomplete": "4711" if is_half else None,
            "applied_at_ms": loss["updated_at_ms"] if is_of_group else loss["first_seen_ms"] - 400,
        }
