"""Ledger, outbox and inbox in SQLite whose every text is hostile, as strangers may have brought it into the rows.

Rows are made from contract/tables.py: a column that is new there is hostile here, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from reconciler.contract import tables as contract
from reconciler.contract.schema import Column, Table
from reconciler.contract.tables import JobKind, JobState, OutboxState, PostState
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import tables as sql
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.brakes import HOLD, LIFT
from reconciler.web.acts.dismissing import DISMISS
from reconciler.web.acts.every import TOLD
from reconciler.web.acts.once import kept_key
from reconciler.web.acts.repairing import REPAIR
from tests.unit.web.ledger_of_cases import ENVIRONMENT, GROUP, TOPIC, key, write_database

ROOT = Path(__file__).parents[3]
#: Rows of each table that grows.
ROWS = 1_000
LONG_CHARACTERS = 100_000
#: Every this many rows a text without bounds is long.
_LONG_EVERY = 125
#: Who asked for what the pages of outcomes tell, and under which key of the form.
ADMIN, ACT_KEY = "ada", "k1"
#: Nobody listens there.
_NOWHERE = "127.0.0.1:1"
_SEED = 20_261_125

#: What each text holds at least one of; the rest of it is drawn from all of them.
PIECES: Sequence[str] = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</title></textarea></style><script>alert(1)</script>",
    "<iframe src=//evil.example></iframe>",
    '<a href="javascript:alert(1)">',
    "javascript:alert(1)//",
    '<p hx-get="//evil.example" hx-trigger="load">',
    '" hx-on:load="alert(1)" x="',
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    "{{7*7}} {% raw %} ${7*7} %(x)s {0}",
    "<!-- <![CDATA[ ]]> -->",
    "&lt;script&gt; &#60; &amp;",
    "\x00\x07\x08\x0c\x7f\x85\x9f",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\r\n\r\nSet-Cookie: a=b",
    "\u202egnp.exe\u202c",
    "\u2066\u2067\u2068\u2069\u200f\u061c",
    "\u200b\u200d\u2060\ufeff\u00ad\u3164",
    "\u2028\u2029",
    "Z" + "\u0336\u0301\u0489\u0315" * 12,
    "\ufdfd\U0001242b",
    "שלום \u0645\u0631\u062d\u0628\u0627",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \ufffe\U000e0041",
    "'; DROP TABLE reconciler_candidate; --",
    "../../../etc/passwd %00 %2e%2e%2f ?a=b#c",
    "W" * 70,
    "漢" * 50,
)


def texts(characters: int, *, seed: int = _SEED) -> Iterator[str]:
    """Without end; each has a number in front, so that none comes twice, and at most so many characters."""
    random = Random(seed)  # no secret
    number = 0
    while True:
        text = f"{number}{PIECES[number % len(PIECES)]}"
        while len(text) < characters and random.random() < 0.9:
            text += random.choice(PIECES)
        yield text[:characters]
        number += 1


@cache
def _some(characters: int) -> Sequence[str]:
    drawn = texts(characters)
    return [next(drawn) for _ in range(ROWS)]


def _long(number: int) -> str:
    return (_some(2_000)[number] * 100)[:LONG_CHARACTERS]


def _text(number: int) -> str:
    return _long(number) if number % _LONG_EVERY == 1 else _some(2_000)[number]


def _value(column: Column, number: int, at_ms: int) -> object:
    """What a stranger may have put there; a word where the column holds one of a few."""
    if column.words:
        return column.words[number % len(column.words)]
    match column.kind:
        case "key":
            return _some(64)[number]
        case "name":
            return _some(160)[number]
        case "short":
            return _some(32)[number]
        case "text":
            return _text(number)
        case "json":
            return json.dumps(_member(column, number))  # JSON spells half of a surrogate pair, too
        case "bytes":
            return _text(number).encode() + b"\xff\xfe"
        case "digest":
            return bytes([number % 256]) * 32
        case "integer" | "bigint":
            return at_ms - number * 1_000 if column.name.endswith("_ms") else number


def _member(column: Column, number: int) -> object:
    name, text = _some(160)[number], f"\ud800{_text(number)}"
    match column.members:
        case "any":
            return {name: {text: [text, None, True, 1.5]}, "reason": text, "lines": [_line(number)], "left_out": {}}
        case "text":
            return {name: text}
        case "number":
            return {name: number}
        case None:
            return [name]


def _line(number: int) -> object:
    names = ("topic", "group", "unique_key", "verdict", "rung", "outcome", "reason")
    return dict.fromkeys(names, f"\ud800{_some(160)[number]}")


def _rows(table: Table, rows: int, at_ms: int, **given: Sequence[object]) -> list[dict[str, Any]]:
    """`given`: column -> what it holds instead, one row after the other."""
    made = []
    for number in range(rows):
        row = {column.name: _value(column, number, at_ms) for column in table.columns}
        if "environment" in row:
            row["environment"] = ENVIRONMENT
        made.append(row | {name: values[number % len(values)] for name, values in given.items()})
    return made


def hostile_name(number: int) -> str:
    """Business id of the message with the number, and every other name of the row."""
    return _some(160)[number]


def job_ids() -> Mapping[str, str]:
    """State of a job -> the id of one."""
    return {state: f"{number:032x}" for number, state in enumerate(JobState)}


def make_hostile_world(folder: Path, *, now_ms: int, **variables: str) -> Settings:
    """Writes the databases; returns settings that read them. Nothing else of the settings' answers."""
    keys = [key(number) if number % 2 else _some(64)[number] for number in range(ROWS)]
    ours: dict[str, Sequence[object]] = {"topic": [TOPIC, *_some(160)], "consumer_group": [GROUP, *_some(160)]}
    write_database(
        f"sqlite:///{folder}/ledger.db",
        sql.ledger_metadata,
        {
            sql.candidate: _rows(contract.CANDIDATE, ROWS, now_ms, unique_key=keys, **ours),
            sql.repair: _rows(contract.REPAIR, ROWS, now_ms, unique_key=keys, scope=["*", GROUP, *_some(160)]),
            sql.round_row: _rows(contract.ROUND, ROWS, now_ms, **ours),
            sql.outage: _rows(contract.OUTAGE, ROWS, now_ms, closed_at_ms=[None, now_ms]),
            sql.quarantine: _rows(contract.QUARANTINE, ROWS, now_ms),
            sql.operator_action: _rows(contract.OPERATOR_ACTION, ROWS, now_ms, unique_key=keys),
            sql.job: _rows(contract.JOB, ROWS, now_ms, job_id=_job_keys(), kind=[JobKind.REPAIR, JobKind.REBUILD]),
            sql.floor: _rows(contract.FLOOR, 100, now_ms, **ours),
            sql.hold: _rows(contract.HOLD, 30, now_ms),
            sql.broker: _rows(contract.BROKER, 30, now_ms),
            sql.environment_row: _rows(contract.ENVIRONMENT, 1, now_ms),
            sql.idempotency_key: list(_kept_answers(now_ms)),
        },
    )
    everything = [OutboxState.NEW, OutboxState.ANNOUNCED, OutboxState.SETTLED, OutboxState.ROLLED_BACK]
    write_database(
        f"sqlite:///{folder}/outbox.db",
        sql.outbox_metadata,
        {
            sql.outbox: _rows(
                contract.OUTBOX,
                ROWS,
                now_ms,
                unique_key=keys,
                topic=[TOPIC],
                state=everything,
                # No digest fits these bodies; without one they are opened.
                content_digest=[bytes(32), None],
                body=[text.encode() for text in _some(2_000)],
            ),
            sql.outbox_identity: _rows(contract.OUTBOX_IDENTITY, 2, now_ms, id=[1, 2]),
        },
    )
    inbox = {sql.inbox: _rows(contract.INBOX, ROWS, now_ms, unique_key=keys, consumer_group=[GROUP], topic=[TOPIC])}
    write_database(f"sqlite:///{folder}/inbox.db", sql.inbox_metadata, inbox)
    return _settings(folder, variables)


def make_empty_world(folder: Path, *, now_ms: int, **variables: str) -> Settings:
    """The same without a row: nothing was lost yet, and nothing was done."""
    for name, metadata in (
        ("ledger", sql.ledger_metadata),
        ("outbox", sql.outbox_metadata),
        ("inbox", sql.inbox_metadata),
    ):
        write_database(f"sqlite:///{folder}/{name}.db", metadata, {})
    return _settings(folder, variables)


def _job_keys() -> list[str]:
    return [f"{number:032x}" for number in range(ROWS)]


def _kept_answers(now_ms: int) -> Iterator[dict[str, Any]]:
    """What came of acts, one of each kind, and one that nothing came of yet."""
    lines = [_line(number) for number in range(40)]
    name = hostile_name(1)
    answers: Mapping[WebAct[Any], Mapping[str, object]] = {
        REPAIR: {
            "keys": lines,
            "dry_run": True,
            "notes": [_long(3)],
            "chosen": {"all": True, "topic": name, "group": name},
            "lines": 40,
        },
        DISMISS: {"keys": lines, "notes": [_long(4)]},
        HOLD: {"topic": name, "changed": True},
        LIFT: {"topic": name, "held": True, "left": [name, hostile_name(2)], "lifted": False},
    }
    for act in TOLD.values():
        about = {"environment": ENVIRONMENT, "by": f"web:{ADMIN}", "digest": bytes(32), "created_at_ms": now_ms}
        about |= {"token": None, "lease_until_ms": now_ms + 3_600_000, "status": 200}
        yield about | {
            "idempotency_key": kept_key(act, ACT_KEY),
            "state": PostState.ANSWERED,
            "answer": json.dumps(answers[act]),
        }
        yield about | {"idempotency_key": kept_key(act, "k2"), "state": PostState.UNDER_WAY, "answer": None}


def _settings(folder: Path, variables: Mapping[str, str]) -> Settings:
    text = (ROOT / "config" / "reconciler.toml").read_text()
    for database, name in (("outbox", "orders"), ("inbox", "billing")):
        url = f"postgresql://reconciler@127.0.0.1:5432/{name}"
        assert text.count(url) == 1
        text = text.replace(url, f"sqlite:///{folder}/{database}.db")
    (folder / "reconciler.toml").write_text(text)
    given = {
        "RECONCILER_LEDGER__URL": f"sqlite:///{folder}/ledger.db",
        "RECONCILER_REDIS__URL": f"redis://{_NOWHERE}/0",
        "RECONCILER_ROCKETMQ__NAME_SERVERS": _NOWHERE,
    }
    return load_settings(folder / "reconciler.toml", {**given, **variables})
