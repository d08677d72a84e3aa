"""A terminal obeys what it is shown: nothing that brokers, databases or strangers said reaches it as it is."""

from __future__ import annotations

import io
import json
import logging
import re
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.app import run
from reconciler.cli.output import print_json
from reconciler.cli.report_commands import ListingName
from reconciler.cli.scan_command import progress_bars
from reconciler.commands.acts.dismiss import DismissalLine, DismissalReport
from reconciler.commands.acts.hold import LiftedHolds
from reconciler.commands.acts.repair import ManualRepairReport, RepairLine
from reconciler.commands.diagnosis import Diagnosis, as_told
from reconciler.commands.topics import CreatedTopic
from reconciler.contract.outcomes import KEY_FAILED
from reconciler.contract.schema import Column, Table
from reconciler.contract.tables import INBOX_TABLES, LEDGER_TABLES, OUTBOX_TABLES
from reconciler.contract.visible_text import visible, visible_json, visible_line
from reconciler.errors import DatabaseAway, InvariantViolation
from reconciler.instrumentation.log import configure_logging
from reconciler.sql import schema
from tests.settings_file import settings_file

#: Clears the screen, fills the clipboard, turns the line around, hides, and passes for a line of ours.
HOSTILE = "a\x1b[2J\x1b]52;c;cm0=\x07\x9b31m\x7f\u202eb\u200b\u00ad\u2060\r\nreconciler: all is well\x85\u2028c\ufe0f"
#: What a column of 32 characters has room for.
SHORT = "\x1b[2J\x9b\u202e\u200b\r\nreconciler: ok"
KEY, TOPIC, GROUP = f"{1:032X}", "ORDERS", "billing"
MINE = {"environment": "test", "topic": TOPIC, "consumer_group": GROUP, "producer_group": "shop", "scope": "*"}
ROWS = 8

Captured = pytest.CaptureFixture[str]


def shown(capsys: Captured) -> str:
    """What was printed, of which nothing moves, turns or hides anything, or begins a line that is not ours."""
    told = capsys.readouterr()
    text = told.out + told.err
    seen = {letter for letter in text if unicodedata.category(letter)[0] == "C" or letter in "\u2028\ufe0f"}
    assert seen <= {"\n"}, sorted(map(ascii, seen))
    assert "\nreconciler: all is well" not in text
    assert "\nreconciler: ok" not in text
    return text


def texts(value: Any) -> str:
    """All texts of a document."""
    match value:
        case dict():
            return " ".join(texts(part) for pair in value.items() for part in pair)
        case list():
            return " ".join(map(texts, value))
        case _:
            return str(value)


# ----------------------------------------------------------------- what the databases hold


def value(column: Column, number: int, *, is_mine: bool) -> Any:
    if column.name == "environment" or (is_mine and column.name in MINE):
        return MINE[column.name]
    match column.kind:
        case "integer" | "bigint":
            return number
        case "digest":
            return bytes(32)
        case "bytes":
            return HOSTILE.encode()
        case "json":
            return json.dumps({HOSTILE: 5 if column.members == "number" else HOSTILE, "reason": HOSTILE})
        case "short" if is_mine and column.words:
            return column.words[number % len(column.words)]
        case "short":
            return f"{SHORT}{number}"
        case _ if is_mine and column.name == "unique_key":
            return f"{number:032X}"
        case _:
            return f"{HOSTILE}{number}"


def fill(path: Path, tables: tuple[Table, ...]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in tables:
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            marks = ", ".join("?" for _ in table.columns)
            rows = [
                [value(column, number, is_mine=is_mine) for column in table.columns]
                for is_mine in (True, False)
                for number in range(1, ROWS)
            ]
            connection.executemany(f"INSERT OR REPLACE INTO {table.name} ({names}) VALUES ({marks})", rows)
    connection.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for tree, tables in (("ledger", LEDGER_TABLES), ("outbox", OUTBOX_TABLES), ("inbox", INBOX_TABLES)):
        schema.upgrade(f"sqlite:///{folder}/{tree}.db", tree)
        fill(folder / f"{tree}.db", tables)
    return settings_file(
        folder,
        topic=TOPIC,
        group=GROUP,
        of_producers=f'outbox_url = "sqlite:///{folder}/outbox.db"',
        of_subscription=f'inbox_url = "sqlite:///{folder}/inbox.db"',
    )


@pytest.mark.parametrize(("output", "columns"), [("table", "80"), ("table", "400"), ("json", "80")])
@pytest.mark.parametrize(
    "command", [["status"], *(["list", what] for what in ListingName), ["explain", KEY]], ids=" ".join
)
def test_rows_that_strangers_wrote_are_shown_and_not_obeyed(
    config: Path, command: list[str], output: str, columns: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code = run([*command, "--config", str(config), "--output", output])
    text = shown(capsys)
    assert code in {0, 3}, text
    assert ("u001b[2J" if output == "json" else "\\u{001B}[2J") in text
    if output == "json":
        said = texts(json.loads(text.partition("\n")[0]))
        assert any(name in said for name in (HOSTILE, SHORT)), said[:200]


@pytest.mark.parametrize("command", [["doctor"], ["repair", KEY, "--dry-run"]], ids=" ".join)
def test_what_a_command_says_of_rows_that_strangers_wrote_is_not_obeyed(
    config: Path, command: list[str], capsys: Captured
) -> None:
    assert run([*command, "--config", str(config)]) in {1, 3}
    assert "redis" in shown(capsys).lower()


@pytest.mark.parametrize(
    "command",
    [
        ["list", "candidates", "--topic"], ["list", "rounds", "--group"], ["jobs", "show"], ["jobs", "cancel"],
        ["explain"], ["hold"], ["dismiss", "--reason", "done"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_name_that_no_database_keeps_is_refused_before_one_is_asked(
    config: Path, command: list[str], capsys: Captured
) -> None:
    assert run([*command, "\udcff\x1b[2J", "--config", str(config)]) == 2
    assert "\\udcff" in shown(capsys)


@pytest.mark.parametrize("columns", ["80", "400"])
def test_a_terminal_is_sent_styles_and_nothing_else(
    config: Path, columns: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["list", "candidates", "--config", str(config)]) == 0
    told = capsys.readouterr().out
    without = re.sub(r"\x1b\[[\d;]*m", "", told)
    assert without != told
    assert {letter for letter in without if unicodedata.category(letter)[0] == "C"} == {"\n"}


def test_the_name_of_a_broker_beside_its_bar_is_shown_and_not_obeyed(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars() as progress:
        progress(f"[/red]{HOSTILE}", 1, 2)
    told = capsys.readouterr().err
    assert "[/red]a\\u{001B}[2J" in told
    assert "\x1b[2J" not in told
    assert "\nreconciler: all is well" not in told


# ----------------------------------------------------------------- what commands and errors say


def repaired() -> ManualRepairReport:
    key = RepairLine(
        topic=HOSTILE, group=HOSTILE, unique_key=KEY, verdict="LOST_CONFIRM", outcome="planned", rung="end",
        reason=KEY_FAILED(error=HOSTILE),
    )  # fmt: skip
    return ManualRepairReport(keys=(key,), dry_run=True)


@pytest.mark.parametrize("columns", ["80", "400"])
def test_the_table_above_a_question_and_the_question_are_shown_and_not_obeyed(
    config: Path, columns: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("reconciler.commands.acts.repair.repair_now", lambda *_args, **_options: repaired())
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["repair", "--all", "--config", str(config)]) == 4
    assert "Repair this message? [y/N]: " in shown(capsys)


@pytest.mark.parametrize(
    ("function", "answer", "command"),
    [
        ("acts.repair.repair_now", repaired(), ["repair", KEY]),
        (
            "acts.dismiss.dismiss_keys",
            DismissalReport(keys=(DismissalLine(topic=HOSTILE, group=HOSTILE, unique_key=KEY, outcome=HOSTILE),)),
            ["dismiss", KEY, "--reason", HOSTILE],
        ),
        ("acts.hold.place_hold", True, ["hold", HOSTILE]),
        ("acts.hold.lift_hold", LiftedHolds(lifted=(), left=()), ["resume", HOSTILE]),
        ("topics.create_topics", [CreatedTopic(topic=HOSTILE, broker=HOSTILE, queues=1)], ["topics", "create"]),
        (
            "doctor.checks.examine",
            [Diagnosis(check=as_told(HOSTILE), level="fail", found=as_told(HOSTILE), remedy=as_told(HOSTILE))],
            ["doctor"],
        ),
    ],
    ids=["repair", "dismiss", "hold", "resume", "topics", "doctor"],
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_what_a_command_did_is_shown_and_not_obeyed(
    config: Path,
    function: str,
    answer: object,
    command: list[str],
    output: str,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"reconciler.commands.{function}", lambda *_args, **_options: answer)
    assert run([*command, "--config", str(config), "--output", output]) in {0, 1, 4}
    assert ("u001b[2J" if output == "json" else "\\u{001B}[2J") in shown(capsys)


@pytest.mark.parametrize("error", [DatabaseAway(HOSTILE), InvariantViolation(HOSTILE), ValueError(HOSTILE)])
def test_the_text_of_an_error_is_shown_and_not_obeyed(
    error: Exception, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade(_url: str, _tree: str) -> str:
        raise error

    monkeypatch.setattr("reconciler.commands.db.upgrade_database", upgrade)
    run(["db", "upgrade", "ledger", "--url", "sqlite:////tmp/never-opened.db"])
    assert "\\u{001B}[2J" in shown(capsys)


@pytest.mark.parametrize(
    "arguments",
    [[HOSTILE], ["status", f"--{HOSTILE}"], ["explain", HOSTILE], ["list", HOSTILE], ["hold", HOSTILE]],
)
def test_an_argument_from_somebody_s_message_is_shown_and_not_obeyed(
    config: Path, arguments: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONCILER_CONFIG", str(config))
    assert run(arguments) == 2
    assert shown(capsys)


@pytest.mark.parametrize("name", ["environment", "redis.url"])
def test_a_settings_file_is_shown_and_not_obeyed(name: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(f"{name} = {json.dumps(HOSTILE)}\n[{json.dumps(HOSTILE)}]\n")
    assert run(["config", "check", "--config", str(path)]) == 2
    assert shown(capsys)


# ----------------------------------------------------------------- the log and the letters


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_log_that_people_read_is_shown_and_not_obeyed(
    style: Any, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    configure_logging("info", style)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("reconciler").exception(HOSTILE, extra={"topic": HOSTILE, "seen": [HOSTILE], "keys": 3})
    told = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().err)  # the renderer's own colours
    assert not {letter for letter in told if unicodedata.category(letter)[0] == "C"} - {"\n"}
    assert "ValueError" in told
    assert "\nreconciler: all is well" not in told


@pytest.mark.parametrize(
    "letter",
    [*"\0\x1b\x7f\x9b\u200d\u2066\u2029\ue000\u3164\ufe0f\ufeff\U000e0041\U000e0101", "\ud800"],
    ids=lambda letter: f"{ord(letter):04X}",
)
def test_a_letter_that_one_cannot_see_is_a_number_and_the_same_value_in_json(letter: str) -> None:
    number = f"\\u{{{ord(letter):04X}}}"
    assert visible(f"a{letter}b") == f"a{number}b"
    document = visible_json(json.dumps([f"a{letter}b", "支付"], ensure_ascii=False))
    assert document.isprintable()
    assert json.loads(document) == [f"a{letter}b", "支付"]
    assert "支付" in document


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("utf-8", "支付"), ("UTF-16", "支付"), ("ascii", r"\u652f\u4ed8"), ("latin-1", r"\u652f\u4ed8")],
)
def test_json_has_an_escape_for_what_its_stream_cannot_show_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    print_json({"topic": "支付"})
    assert f'"topic": "{shown}"' in written.getvalue().decode(encoding)


def test_letters_of_the_world_stay_and_a_line_stays_one() -> None:
    assert visible("مدف Zürich 支付 🔥 e\u0301") == "مدف Zürich 支付 🔥 e\u0301"
    assert visible_line("first\nsecond\n  third\n\nfourth\n") == "first\n  second\n  third\n\n  fourth"


def test_marks_over_one_letter_cover_no_other_line() -> None:
    mark = "\u0301"
    assert visible(f"e{mark * 4}o") == f"e{mark * 4}o"
    flood = f"e{mark * 1_000}o{mark}"
    assert visible(flood) == f"e{mark * 4}" + "\\u{0301}" * 996 + f"o{mark}"
    document = visible_json(json.dumps(flood, ensure_ascii=False))
    assert document.count(mark) == 5
    assert json.loads(document) == flood
