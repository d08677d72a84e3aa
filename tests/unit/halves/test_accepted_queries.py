"""A person accepts a commit query: `reconciler query accept`, with the halves of the embedded broker."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.commands.diagnosis import run_checks
from reconciler.commands.doctor.commit_queries import query_checks
from reconciler.commands.doctor.databases import database_checks
from reconciler.contract.row_rules import QUERY_ACCEPTANCE, QUERY_WITHDRAWAL
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.commit_queries import accepted_query, read_commit_queries
from reconciler.wiring.connections import Connections
from tests.settings_file import ORDERS_SQL, commit_queries_file, settings_file
from tests.unit.embedded.check_back_stage import Stage, stage
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.shop_of_halves import shop_of

#: A row that says PAID of every key: what no half was committed for is called committed, too.
OF_EVERYBODY = "SELECT number, 'PAID' FROM orders WHERE number IN (:keys)"


@pytest.fixture
def play() -> Iterator[Stage]:
    with stage("5.x") as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path, play: Stage) -> Settings:
    """Its file is reconciler.toml in the folder of the test."""
    file = settings_file(tmp_path, name_servers=play.broker.address, topic=TOPIC, has_ledger=True)
    return load_settings(file, {})


def declared(folder: Path, sql: str = ORDERS_SQL) -> str:
    return str(commit_queries_file(folder, TOPIC, sql=sql))


Accept = Callable[..., tuple[int, str]]


@pytest.fixture
def accept(tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]) -> Accept:
    """Exit code, and the code of what was told."""
    config = str(tmp_path / "reconciler.toml")

    def accepted(file: str, *options: str, topic: str = TOPIC) -> tuple[int, str]:
        given = ["query", "accept", topic, "--commit-query", file, "--config", config, "--output", "json"]
        code = run([*given, *options])
        told = capsys.readouterr().out
        document = json.loads(told) if told else {"told": ""}
        assert document.get("accepted", False) is (code == 0)
        return code, document["told"]

    return accepted


def on_record(settings: Settings, command: str = QUERY_ACCEPTANCE) -> list[OperatorAction]:
    with Connections(settings) as connections:
        only = LedgerFilter(command=command)
        return list(connections.ledger.reports.actions("test", only=only, limit=9).rows)


def is_accepted(settings: Settings, file: str) -> bool:
    (one,) = read_commit_queries(Path(file))
    with Connections(settings) as connections:
        return accepted_query(connections, one) is not None


def test_a_query_that_is_not_disproved_is_accepted_once_on_record(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept
) -> None:
    shop_of(tmp_path, play, halves=20)
    file = declared(tmp_path)
    assert not is_accepted(settings, file)
    assert accept(file) == (0, f"the commit query of {TOPIC} is accepted from now on")
    (act,) = on_record(settings)
    assert (act.intent.topic, act.result) == (TOPIC, "accepted")
    assert is_accepted(settings, file)
    code, told = accept(file)
    assert code == 0
    assert told.startswith(f"the commit query of {TOPIC} was accepted by {act.intent.by} at 20")
    assert on_record(settings) == [act]


def test_what_is_not_proved_needs_the_reason_of_a_person(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept
) -> None:
    shop_of(tmp_path, play, halves=19)
    file = declared(tmp_path)
    code, told = accept(file, "--reason", "  ")
    assert (code, on_record(settings)) == (1, [])
    assert "--reason" in told
    assert accept(file, "--reason", "few orders are cancelled")[0] == 0
    (act,) = on_record(settings)
    assert act.intent.detail == "few orders are cancelled"
    assert act.fact is not None
    assert act.fact.fields["unproved"] == ("committed-halves", "rolled-back-halves")


def test_what_a_person_accepts_is_told_by_name_and_fails_no_more(
    tmp_path: Path, play: Stage, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_of(tmp_path, play, halves=19)
    config = str(tmp_path / "reconciler.toml")
    given = ["query", "accept", TOPIC, "--commit-query", declared(tmp_path), "--config", config, "--output", "json"]

    def findings(*options: str) -> tuple[dict[str, dict[str, str]], str]:
        run([*given, *options])
        document = json.loads(capsys.readouterr().out)
        return {one["facts"]["check"]["code"]: one for one in document["findings"]}, document["told"]

    unproved = ("doctor.query-trust", "doctor.query-committed-halves", "doctor.query-rolled-back-halves")
    before, _ = findings()
    assert [before[code]["level"] for code in unproved] == ["fail"] * 3
    after, told = findings("--reason", "few orders are cancelled")
    assert told.endswith("accepted without proof, by a person: committed-halves, rolled-back-halves")
    assert {one["level"] for one in after.values()} == {"note", "ok"}
    assert [after[code]["remedy"] for code in unproved] == [""] * 3
    assert "accepted by a person: committed-halves, rolled-back-halves" in after["doctor.query-trust"]["found"]
    assert [after[code]["found"] for code in unproved[1:]] == [before[code]["found"] for code in unproved[1:]]


def test_what_is_disproved_nobody_accepts(tmp_path: Path, play: Stage, settings: Settings, accept: Accept) -> None:
    shop_of(tmp_path, play, halves=20)
    blind = declared(tmp_path, f"{ORDERS_SQL} AND number > 'x'")
    assert accept(blind, "--reason", "it must be right")[0] == 1
    assert on_record(settings) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("number, status", "number, 'PAID'"),
        ('["PAID"]', '["PAID", "SENT"]'),
        ('key = "KEYS"', 'key = "UNIQ_KEY"'),
        ("shop.db", "other.db"),
    ],
)
def test_a_changed_query_is_not_accepted(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept, before: str, after: str
) -> None:
    shop_of(tmp_path, play, halves=20)
    file = declared(tmp_path)
    accept(file)
    text = Path(file).read_text()
    Path(file).write_text(text.replace(before, after))
    assert not is_accepted(settings, file)
    Path(file).write_text(text)
    assert is_accepted(settings, file)


def test_of_two_queries_of_a_topic_the_one_that_was_accepted_last_counts(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept
) -> None:
    shop_of(tmp_path, play, halves=20)
    accept(declared(tmp_path))
    assert accept(declared(tmp_path, OF_EVERYBODY))[0] == 0
    assert is_accepted(settings, declared(tmp_path, OF_EVERYBODY))
    assert not is_accepted(settings, declared(tmp_path))


def test_a_topic_without_a_query_or_a_section_is_a_usage_error(tmp_path: Path, accept: Accept) -> None:
    file = declared(tmp_path)
    Path(file).write_text(Path(file).read_text().replace(f'topic = "{TOPIC}"', 'topic = "OTHERS"'))
    assert accept(file) == (2, "")
    assert accept(file, topic="OTHERS") == (2, "")


def test_what_cannot_be_written_down_is_not_accepted(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept
) -> None:
    shop_of(tmp_path, play, halves=20)
    (tmp_path / "ledger.db").unlink()
    assert accept(declared(tmp_path)) == (3, "")


def test_the_query_of_the_settings_is_accepted_without_naming_its_file_and_doctor_tells_of_it(
    tmp_path: Path, play: Stage, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_of(tmp_path, play, halves=20)
    named = tmp_path / "reconciler.toml"
    text = named.read_text().replace('group = "shop"', f'group = "shop"\ncommit_queries = "{declared(tmp_path)}"')
    named.write_text(f"{text}\n[repairs]\nenabled = false\n")
    judging = load_settings(named, {})

    def told() -> dict[str, tuple[str, str]]:
        with Connections(judging) as connections:
            found = run_checks([*query_checks(connections), *database_checks(connections)])
        return {one.check.code.name: (one.level, one.found.code.name) for one in found}

    before = told()
    assert before["doctor.query-acceptance"] == ("note", "doctor.nobody-accepted")
    assert before["doctor.query-columns"][0] == "note"
    assert "wiring.outbox" not in before, "a query stands in its place"
    assert run(["query", "accept", TOPIC, "--config", str(named)]) == 0
    assert "is accepted from now on" in capsys.readouterr().out
    assert told()["doctor.query-acceptance"] == ("ok", "doctor.accepted-by")


def withdraw(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Exit code, and what was told."""
    config = str(tmp_path / "reconciler.toml")
    code = run(["query", "withdraw", TOPIC, "--config", config, "--output", "json", *options])
    document = json.loads(capsys.readouterr().out)
    assert document["withdrawn"] is (code == 0)
    return code, document["told"]


def test_what_was_accepted_is_taken_back_on_record_until_it_is_accepted_again(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_of(tmp_path, play, halves=20)
    file = declared(tmp_path)
    assert withdraw(tmp_path, capsys) == (
        0,
        f"no commit query of {TOPIC} is accepted: there is nothing to withdraw",
    )
    accept(file)
    code, told = withdraw(tmp_path, capsys, "--reason", "orders may be cancelled now")
    assert (code, is_accepted(settings, file)) == (0, False)
    assert told.startswith(f"no commit query of {TOPIC} is accepted any more; ")
    (act,) = on_record(settings, QUERY_WITHDRAWAL)
    assert (act.intent.topic, act.intent.detail, act.result) == (TOPIC, "orders may be cancelled now", "withdrawn")
    assert accept(file)[0] == 0
    assert is_accepted(settings, file)
    assert len(on_record(settings)) == 2


def test_a_query_that_is_accepted_in_the_millisecond_of_a_withdrawal_is_not_accepted(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_of(tmp_path, play, halves=20)
    file = declared(tmp_path)
    accept(file)
    withdraw(tmp_path, capsys)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE reconciler_operator_action SET started_at_ms = 1000")
    assert not is_accepted(settings, file)


def test_a_withdrawal_that_a_clock_set_back_leaves_without_effect_says_so(
    tmp_path: Path, play: Stage, settings: Settings, accept: Accept, capsys: pytest.CaptureFixture[str]
) -> None:
    shop_of(tmp_path, play, halves=20)
    file = declared(tmp_path)
    accept(file)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE reconciler_operator_action SET started_at_ms = started_at_ms + 3600000")
    assert withdraw(tmp_path, capsys)[0] == 1
    assert is_accepted(settings, file)
