"""`reconciler scan` against the embedded broker, whose clock is stopped and whose rounds are run by hand."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.app import run
from reconciler.clock import ManualClock, SystemClock
from reconciler.commands.scan import ScanReport, run_scan
from reconciler.contract.facts import Fact
from reconciler.errors import InvalidValue
from reconciler.halves.half_topic import ReadingRate
from reconciler.halves.log_walk import LogWalk
from reconciler.halves.scan import BrokerScan
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.wiring.commit_queries import Business, read_commit_queries
from reconciler.wiring.half_scan import ScanRequest, scan_halves
from tests.polling import eventually
from tests.settings_file import commit_queries_file
from tests.unit.embedded.check_back_stage import Stage, stage, two_stages
from tests.unit.embedded.raw_client import GROUP, TOPIC

#: Between rounds that the broker begins by itself.
ROUNDS_BY_HAND_SECONDS = 10_000.0


@pytest.fixture(params=["4.9", "5.x"])
def play(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(request.param, check_interval_seconds=ROUNDS_BY_HAND_SECONDS) as made:
        yield made


def scanned(
    play: Stage,
    *,
    is_counting: bool = False,
    since_seconds: float | None = None,
    walks: bool = False,
    **chosen: Any,
) -> ScanReport:
    request = ScanRequest(
        name_servers=play.broker.address,
        clock=play.clock,
        is_counting=is_counting,
        since_seconds=since_seconds,
        walks=walks,
    )
    options = {"older_than_seconds": 60.0, "topic": None, "progress": lambda *_: None, **chosen}
    return run_scan(request, **options)


def states(report: ScanReport) -> dict[str, str]:
    return {half.copy.unique_key: half.state.value for half in report.halves}


def test_each_half_is_told_by_what_became_of_it(play: Stage) -> None:
    play.half("given-up")
    for _ in range(5):
        play.round()
    late = play.half("late")
    play.half("open")
    play.round()
    play.end(late)
    play.end(play.half("committed"))
    play.end(play.half("rolled-back"), 12)
    play.write_ends()
    play.round()
    report = scanned(play)
    assert states(report) == {"given-up": "given-up", "open": "open", "late": "delivered"}
    assert [(one.state.value, one.keys) for one in report.groups[:2]] == [("open", 1), ("given-up", 1)]
    assert report.exit_code == 1
    assert scanned(play, older_than_seconds=3600.0).exit_code == 0
    assert scanned(play, topic="OTHER").halves == []


def test_an_open_half_tells_until_when_producers_are_asked_and_what_to_do(play: Stage) -> None:
    play.half("open", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    play.round()
    play.clock.advance(10)
    (row,) = scanned(play).as_dict()["groups"]
    assert (row["topic"], row["producer_group"], row["asked_max"], row["producers"]) == (TOPIC, GROUP, 1, 0)
    assert row["questions_left"] == 2
    assert row["next"]["code"] == "scan.start-producer"
    play.join()
    (row,) = scanned(play).as_dict()["groups"]
    assert (row["producers"], row["next"]["code"]) == (1, "scan.let-it-be-asked")


def test_the_clock_of_a_producer_makes_no_half_younger_than_its_brokers_copy_of_it(play: Stage) -> None:
    play.round()
    play.half("open", ahead_seconds=86_400.0)
    assert scanned(play).exit_code == 0
    play.clock.advance(61)
    assert scanned(play).exit_code == 1


def test_a_half_with_a_number_that_no_broker_reads_is_listed_like_others(play: Stage) -> None:
    play.round()
    play.half("open", CHECK_IMMUNITY_TIME_IN_SECONDS="9" * 400)
    play.clock.advance(700)
    assert states(scanned(play)) == {"open": "open"}


@pytest.mark.parametrize("code", [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE])
def test_a_round_that_runs_meanwhile_hides_no_half(play: Stage, code: RequestCode) -> None:
    """It puts the copies behind the end that was seen, and saves an offset behind the older ones."""
    for number in range(5):
        play.half(f"K{number}")
    left = [code]

    def pass_on(_address: str, command: Command) -> Command:
        if command.code in left:
            left.clear()
            play.round()
        return command

    with RemotingClient(clock=play.clock, outgoing=pass_on, request_timeout_seconds=60.0) as client:
        found = BrokerScan(
            client,
            "embedded",
            {"embedded": play.broker.address},
            families=Families(client, clock=play.clock),
            clock=play.clock,
            records_per_second=1e6,
            progress=lambda *_: None,
        ).run()
    assert left == []
    assert {half.copy.unique_key for half in found.halves} == {f"K{number}" for number in range(5)}


def test_only_what_lies_behind_the_saved_offset_is_read(play: Stage) -> None:
    for number in range(100):
        play.end(play.half(f"K{number}"))
    play.write_ends()
    play.round()
    play.half("open")
    play.clock.advance(30)
    report = scanned(play)
    assert states(report) == {"open": "open"}
    assert report.findings[0].records_read < 110 + 2  # ends of ten minutes, one half


def test_a_half_that_was_asked_for_again_is_no_given_up_one(play: Stage) -> None:
    play.half("K1")
    for _ in range(5):
        play.round()
    (parked,) = play.broker.stored("TRANS_CHECK_MAX_TIME_TOPIC")
    play.broker.call(lambda broker: broker.store.append(_again(parked)))
    play.clock.advance(30)
    assert states(scanned(play)) == {"K1": "open"}


def _again(parked: Any) -> Any:
    half = parked.copied()
    half.topic = "RMQ_SYS_TRANS_HALF_TOPIC"
    half.put_properties(trimmed=False, TRANSACTION_CHECK_TIMES="0")
    return half


def test_a_check_service_that_stands_is_told_and_mended_first(play: Stage) -> None:
    play.half("K1")
    play.round()
    play.broker.faults.fail_check_rounds()
    play.round()
    play.clock.advance(30_000)
    report = scanned(play)
    assert states(report) == {"K1": "open"}
    assert [note.code.name for note in report.notes()] == ["scan.stands"]
    assert [group.next_step.code.name for group in report.groups] == ["scan.mend-check-service"]


def test_a_half_whose_end_may_not_be_visible_yet_is_not_called_open(play: Stage) -> None:
    play.round()
    play.end(play.half("ended"))
    play.half("young")
    report = scanned(play, older_than_seconds=0.0)
    assert set(states(report).values()) == {"fresh"}
    assert report.exit_code == 0


def test_how_all_halves_ended_is_counted_where_it_is_asked_for(play: Stage) -> None:
    for number in range(100):
        play.end(play.half(f"K{number}"), 12 if number < 7 else 8)
    twice = play.half("twice")
    play.end(twice)
    play.end(twice)
    play.half("open")
    play.round()
    play.write_ends()
    ((topic, group, outcome),) = scanned(play, is_counting=True).outcomes
    assert (topic, group) == (TOPIC, GROUP)
    assert (outcome.halves, outcome.committed, outcome.rolled_back, outcome.committed_again) == (102, 94, 7, 1)
    play.clock.advance(7_200)
    assert scanned(play, is_counting=True, since_seconds=3_600).outcomes == []
    assert scanned(play).outcomes == []


def test_where_no_op_record_can_be_read_a_half_is_open_once_two_rounds_had_the_time_to_pass_it() -> None:
    """4.3 to 4.6; up to 4.5.1 a half is given up in silence."""
    with stage("4.4", check_interval_seconds=60.0) as play:
        play.half("given-up")
        for _ in range(5):
            play.round()
        play.end(play.half("committed"))
        play.end(play.half("rolled-back"), 12)
        play.half("open")
        assert states(scanned(play)) == {"given-up": "given-up", "rolled-back": "fresh", "open": "fresh"}
        play.round()
        play.broker.faults.fail_check_rounds()  # or a round would give it up
        play.clock.advance(120)
        report = scanned(play)
        assert states(report) == {"given-up": "given-up", "open": "open"}
        assert "scan.without-ended" in {told_of(note) for note in report.notes()}


def told_of(note: Fact) -> str:
    told = note.fields.get("told")
    return told.code.name if isinstance(told, Fact) else note.code.name


def test_a_half_on_one_broker_whose_message_is_on_another_is_not_lost() -> None:
    """A send that was tried again, or a half that an acting master has sent on."""
    with two_stages() as (one, other, address):
        one.half("K1")
        one.half("K2")
        other.end(other.half("K1"))
        other.write_ends()
        one.clock.advance(60)
        request = ScanRequest(name_servers=address, clock=one.clock)
        eventually(lambda: len(scan_halves(request, progress=lambda *_: None)) == 2, within_seconds=30)
        report = run_scan(request, older_than_seconds=60.0, topic=None, progress=lambda *_: None)
        assert states(report) == {"K1": "delivered", "K2": "open"}


def test_a_scan_that_is_stopped_tells_what_it_knows(play: Stage) -> None:
    play.half("K1")
    play.round()
    play.clock.advance(60)

    def stop(_broker: str, _read: int, _of: int) -> None:
        raise KeyboardInterrupt

    report = scanned(play, progress=stop)
    assert report.exit_code == 130
    assert [(half.copy.unique_key, half.is_looked_up) for half in report.halves] == [("K1", False)]
    assert {note.code.name for note in report.notes()} == {"scan.stopped-early", "scan.not-looked-up"}


def test_up_to_4_2_it_says_that_halves_cannot_be_read() -> None:
    with stage("4.2") as play:
        report = scanned(play)
        assert report.exit_code == 3
        assert [note.fields["told"].code.name for note in report.notes()] == ["scan.in-no-queue"]  # type: ignore[union-attr]


@pytest.mark.parametrize("family", ["3.2.6", "4.2"])
def test_up_to_4_2_a_walk_through_the_log_tells_open_ones_from_those_that_were_ended(family: str) -> None:
    with stage(family) as play:
        for number in range(200):
            play.end(play.half(f"K{number}"), 12 if number % 10 == 0 else 8)
        play.half("open")
        play.clock.advance(3_600)
        play.half("young")
        report = scanned(play, walks=True, is_counting=True)
        assert states(report) == {"open": "open", "young": "fresh"}
        assert [group.next_step.code.name for group in report.groups] == ["scan.nobody-asks", "scan.look-again"]
        ((_, _, outcome),) = report.outcomes
        assert (outcome.halves, outcome.committed, outcome.rolled_back) == (202, 180, 20)
        assert report.exit_code == 1
        assert states(scanned(play, walks=True, since_seconds=60)) == {"young": "fresh"}
        assert states(scanned(play, walks=True, topic="OTHER")) == {}


def test_a_log_is_walked_by_the_size_of_files_that_brokers_up_to_4_2_obey() -> None:
    """They tell every setting of their file, also the name that newer ones have for it."""
    config = {"mappedFileSizeCommitLog": "16777216", "mapedFileSizeCommitLog": "65536"}
    clock = ManualClock()
    with RemotingClient(clock=clock) as client:
        walk = LogWalk(client, "b", "127.0.0.1:1", config=config, pace=ReadingRate(clock, 1.0))
        assert walk.starts(0, 200_000, ()) == [0, 65_536, 131_072, 196_608]


def test_before_the_first_round_of_4_9_halves_that_cannot_be_read_are_told() -> None:
    with stage("4.9") as play:
        assert (scanned(play).exit_code, states(scanned(play))) == (0, {})
        play.half("K1")
        assert scanned(play).exit_code == 3


def test_the_command_prints_a_table_for_people_and_one_object_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stage("5.x") as play:
        play.half("K1", KEYS="order")
        assert run(["scan", "-n", play.broker.address]) == 1
        told = capsys.readouterr()
        assert "K1" in told.out
        assert f"start a producer of {GROUP}" in told.out.replace("\n", " ")
        assert run(["scan", "-n", play.broker.address, "--output", "json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert document["counts"] == {"brokers": 1, "stuck": 1, "given_up": 0, "fresh": 0, "delivered": 0}
        assert [half["unique_key"] for half in document["halves"]] == ["K1"]
    assert run(["scan", "-n", play.broker.address]) == 3
    assert "no name server answers" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, 100, 120, 240])
def test_what_is_stuck_and_what_to_do_stand_in_lines_that_a_screen_has_room_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with stage("5.x") as play:
        play.half(f"{1:032X}", KEYS="order")
        assert run(["scan", "-n", play.broker.address]) == 1
    summary, *lines = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert "Halves that are open: 1;" in summary
    of_groups = lines[lines.index("By topic and producer group") + 1 : lines.index("Halves")]
    assert of_groups[0] == f"{TOPIC}  {GROUP}  open  1"
    assert all(len(line) <= min(columns, 160) for line in of_groups)
    (next_step,) = (line for line in of_groups if line.startswith("  next "))
    assert f"start a producer of {GROUP}" in " ".join(of_groups[of_groups.index(next_step) :]).replace("  ", "")


@pytest.mark.parametrize("output", ["table", "html"])
def test_a_row_names_the_order_by_the_keys_of_its_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """A person looks for the order, and a unique key is in no table of the business."""
    monkeypatch.setenv("COLUMNS", "120")
    with stage("5.x") as play:
        play.half(f"{1:032X}", KEYS="order-2026-000017")
        play.half(f"{2:032X}")
        assert run(["scan", "-n", play.broker.address, "--output", output]) == 1
        told = capsys.readouterr().out
        assert run(["scan", "-n", play.broker.address, "--output", "json"]) == 1
        halves = json.loads(capsys.readouterr().out)["halves"]
    assert [half["keys"] for half in halves] == ["order-2026-000017", None]
    if output == "html":
        assert told.count("order-2026-000017") == 2, "once in each language"
    else:
        (row,) = (line for line in told.splitlines() if "order-2026-000017" in line)
        assert f"{1:032X}" in row
        assert "keys" in told, "a table, no records"
        assert max(len(line) for line in told[told.rindex("Halves") :].splitlines()) <= 120


def test_many_small_objects_say_what_each_is(capsys: pytest.CaptureFixture[str]) -> None:
    with stage("5.x") as play:
        play.half("K1")
        assert run(["scan", "-n", play.broker.address, "--output", "jsonl"]) == 1
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["scan", "broker", "group", "half"]
    assert (lines[0]["counts"]["stuck"], lines[3]["unique_key"]) == (1, "K1")


def test_the_page_needs_nothing_from_elsewhere_and_has_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    with stage("5.x") as play:
        assert run(["scan", "-n", play.broker.address, "--output", "html"]) == 0
        assert "No half is stuck" in capsys.readouterr().out
        play.half("<script>")
        assert run(["scan", "-n", play.broker.address, "--output", "html"]) == 1
        page = capsys.readouterr().out
    assert not re.search(r"<script|https?:|src=|@import|url\(", page)
    assert page.count("&lt;script&gt;") == 2
    assert f"start a producer of {GROUP}" in page
    assert f"启动 {GROUP} 的生产者" in page
    assert [page.count(f"<{tag}") - page.count(f"</{tag}>") for tag in ("table", "section", "svg", "tr", "td")] == [
        0
    ] * 5


def test_it_looks_again_until_it_is_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(_clock: SystemClock, seconds: float) -> None:
        pauses.append(seconds)
        if pauses.count(7) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    with stage("5.x") as play:
        play.half("K1")
        assert run(["scan", "-n", play.broker.address, "--watch", "7", "--output", "json"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(["scan", "-n", "127.0.0.1:1", "--watch", "7", "--output", "html"]) == 2


@pytest.mark.parametrize("arguments", [["--access-key", "one"], ["--access-key", "one", "--secret-key-file", "/none"]])
def test_half_a_user_is_no_user(arguments: list[str]) -> None:
    assert run(["scan", "-n", "127.0.0.1:1", *arguments]) == 2


def test_a_commit_query_tells_what_is_lost_from_what_never_was(
    play: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, status TEXT)")
        shop.execute("INSERT INTO orders VALUES ('o1', 'PAID'), ('o2', 'CANCELLED'), ('o4', 'PAID'), ('twice', 'PAID')")
    queries = commit_queries_file(tmp_path, TOPIC)
    for unique_key, key in (("K1", "o1"), ("K2", "o2"), ("K3", "o3")):
        play.half(unique_key, KEYS=key)
    for _ in range(5):
        play.round()
    play.half("K4", KEYS="o4")
    play.half("first", KEYS="twice")
    play.end(play.half("second", KEYS="twice"))
    play.write_ends()
    play.round(after_seconds=700.0)
    request = ScanRequest(
        name_servers=play.broker.address,
        clock=play.clock,
        business=Business(read_commit_queries(queries), clock=play.clock),
    )
    report = run_scan(request, older_than_seconds=60.0, topic=None, progress=lambda *_: None)
    assert {
        half.copy.unique_key: (half.state.value, half.business_state and half.business_state.value)
        for half in report.halves
    } == {
        "K1": ("given-up", "committed"),
        "K2": ("given-up", "rolled-back"),
        "K3": ("given-up", "no-row"),
        "K4": ("open", "committed"),
        "first": ("open", "unknown"),  # the row is that of the second try, which was delivered
    }
    assert {group.next_step.code.name for group in report.groups} == {
        "scan.lost", "scan.rolled-back-there", "scan.no-row-there", "scan.committed-and-stuck", "scan.not-known-there",
    }  # fmt: skip
    (proved, *_) = report.notes()
    assert dict(proved.values) == {"lost": 1, "stuck": 1, "harmless": 2, "unknown": 1}
    assert report.exit_code == 1
    for form, shown in (("table", "committed"), ("html", "your database"), ("json", '"business": "rolled-back"')):
        run(["scan", "-n", play.broker.address, "--commit-query", str(queries), "--output", form])
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize("output", ["table", "html"])
def test_a_query_without_an_answer_is_told_once_and_in_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """The file of SQLite has no table. Whoever reads only the exit code learns that nothing is known."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE others (number TEXT PRIMARY KEY)")
    queries = commit_queries_file(tmp_path, TOPIC)
    given = ["--commit-query", str(queries), "--older-than", "10000000000", "--output", output]
    with stage("5.x") as play:
        play.half("K1", KEYS="o1")
        play.half("K2", KEYS="o2")
        assert run(["scan", "-n", play.broker.address, *given[:2], "--topic", "ANOTHER", *given[2:]]) == 0
        assert "no such table" not in capsys.readouterr().out
        assert run(["scan", "-n", play.broker.address, *given]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("no such table") == (1 if output == "table" else 2), "once in each language"
    assert "the notes say why" in told


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('sql = "SELECT a, b FROM t"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys); DROP TABLE t"', "sql"),
        # Asked for many keys at once: a row that is cut off would count as none.
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) limit 1"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) FETCH FIRST ROW ONLY"', "sql"),
        ("sql = \"SELECT a, b FROM (SELECT * FROM t WHERE a IN (:keys) AND c <> ')' LIMIT 9) AS u\"", "sql"),
        ('sql = "WITH u AS (SELECT * FROM t WHERE a IN (:keys)) SELECT a, b FROM u LIMIT 9"', "sql"),
        ('sql = "WITH u AS (SELECT a, b FROM t LIMIT 9) SELECT a, b FROM u WHERE a IN (:keys)"', "sql"),
        ('sql = "WITH u AS NOT MATERIALIZED (SELECT * FROM t LIMIT 9) SELECT a, b FROM u WHERE a IN (:keys)"', "sql"),
        ('sql = "WITH u(a, b) AS /* all */ (SELECT 1, 2 LIMIT 9) SELECT a, b FROM u WHERE a IN (:keys)"', "sql"),
        ('sql = "SELECT a, b FROM ((SELECT a, b FROM t LIMIT 9)) AS u WHERE a IN (:keys)"', "sql"),
        ('sql = "SELECT a, u.b FROM t JOIN (SELECT c, b FROM v LIMIT 9) AS u USING (c) WHERE a IN (:keys)"', "sql"),
        ('sql = "SELECT a, u.b FROM t STRAIGHT_JOIN (SELECT c FROM v LIMIT 9) AS u WHERE a IN (:keys)"', "sql"),
        ('sql = "SELECT t.a, u.b FROM t, (SELECT c, b FROM v LIMIT 9) AS u WHERE t.a IN (:keys) AND t.c = u.c"', "sql"),
        (
            'sql = "SELECT t.a, u.b FROM t JOIN w USING (a), /**/((SELECT b FROM v LIMIT 9)) u WHERE t.a IN (:keys)"',
            "sql",
        ),
        *(
            (f'sql = "SELECT a, h.b FROM t JOIN LATERAL ({same}) AS h ON h.c = t.c WHERE a IN (:keys)"', "sql")
            for same in (
                "SELECT c, b FROM v LIMIT 9",
                "SELECT v.* FROM s.u v ORDER BY v.at DESC FETCH FIRST 9 ROWS ONLY",
                "(SELECT c FROM v /* all */ LIMIT 9)",
            )
        ),
        ('sql = "SELECT t.a, h.b FROM t, LATERAL/**/(SELECT c, b FROM v LIMIT 9) h WHERE t.a IN (:keys)"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) AND a IN (SELECT a FROM u ORDER BY c LIMIT 9)"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) AND a NOT IN ((SELECT a FROM u LIMIT 9))"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) AND a = ANY (ARRAY(SELECT a FROM u LIMIT 9))"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) LIMIT/**/1000"', "sql"),
        # MariaDB takes it in a read-only transaction, and answers nothing of a row that a service has locked.
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) LOCK IN SHARE MODE SKIP LOCKED"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) FOR SHARE skip /**/ locked"', "sql"),
        ('sql = "SELECT a, b FROM t TABLESAMPLE SYSTEM (50) WHERE a IN (:keys)"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) ORDER BY a OFFSET 5"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) LIMIT 1, 5000"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) LIMIT ALL OFFSET 5"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) FETCH /**/ NEXT 1000 ROWS ONLY"', "sql"),
        ('sql = "SELECT a, b FROM t WHERE a IN (:keys) FETCH FIRST 5000 ROWS WITH TIES"', "sql"),
        ('sql = "SELECT a, max(b) FROM (SELECT * FROM t WHERE a IN (:keys) LIMIT 5000) AS u GROUP BY a"', "sql"),
        (r"sql = '''SELECT a, b FROM t WHERE a IN (:keys) AND c <> '\' LIMIT 9 -- ''''", "sql"),
        ('key = "body"', "key"),
        ('key_type = "number"', "key_type"),
        ("committed = []", "committed"),
        ('rolled_back = ["PAID"]', "committed"),
        ("longest_transaction_seconds = -1", "longest_transaction_seconds"),
        ('database_url_file = "/nowhere"', "commit_queries[0]"),
        ('database_url = "oracle://reader:private@db/shop"', "database_url"),
        ('outbox = "x"', "commit_queries[0]"),
    ],
)
def test_a_query_that_cannot_be_asked_is_named_before_a_broker_is(tmp_path: Path, line: str, place: str) -> None:
    good = {
        "topic": '"ORDERS"',
        "database_url": '"sqlite:///shop.db"',
        "sql": '"SELECT a, b FROM t WHERE a IN (:keys)"',
        "key": '"KEYS"',
        "committed": '["PAID"]',
    }
    name, _, value = line.partition(" = ")
    named = tmp_path / "queries.toml"
    named.write_text("[[commit_queries]]\n" + "\n".join(f"{one} = {it}" for one, it in {**good, name: value}.items()))
    with pytest.raises(InvalidValue) as refused:
        read_commit_queries(named)
    assert place in str(refused.value)
    assert "private" not in str(refused.value)


_MYSQL = "mysql://reader@db/shop"


@pytest.mark.parametrize(
    ("sql", "url"),
    [
        *((f"SELECT a, b FROM t AS o WHERE a IN (:keys) {end}", "sqlite:///shop.db") for end in (
            "AND o.limit > 0", 'AND "o".limit > 0', "AND s.o.fetch > 0", "AND fetch > 0", "AND offset > 0",
            "AND skip > locked", "AND c <> 'SKIP LOCKED' -- SKIP LOCKED",
            "AND c <> :limit", "LIMIT ALL", "LIMIT NULL OFFSET 0", "LIMIT 1001", "limit 5000 -- enough",
            "FETCH FIRST 1001 ROWS ONLY", r"AND c <> E'it\'s' AND d <> 'no LIMIT'",
        )),
        ("SELECT a, max(b) AS limit FROM t WHERE a IN (:keys) GROUP BY a", "postgresql://reader@db/shop"),
        ("SELECT a, b FROM t # no LIMIT\n WHERE a IN (:keys)", _MYSQL),
        (r"SELECT a, b FROM t WHERE a IN (:keys) AND c <> 'it\'s' AND d <> 'no LIMIT'", _MYSQL),
        (r'SELECT a, b FROM t WHERE a IN (:keys) AND c <> "\" LIMIT 1"', _MYSQL),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_limit_or_cuts_off_nothing_may_stand_in_a_query(
    tmp_path: Path, sql: str, url: str
) -> None:
    assert _read(tmp_path, sql, url) == sql.replace("(:keys)", " :keys ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b FROM t WHERE a IN (:keys) AND c = 5--1 LIMIT 3",
        r"SELECT a, b FROM t WHERE a IN (:keys) AND c <> 'it\'s' LIMIT 3 # '",
        "SELECT a, b FROM t WHERE a IN (:keys) /*!50000 LIMIT 3 */",
        "SELECT a, b FROM t WHERE a IN (:keys) /*M! LIMIT 3 */",
        "SELECT a, b FROM t WHERE a IN (:keys) FOR SHARE /*!80001 SKIP LOCKED */",
    ],
)
def test_a_limit_that_mysql_alone_would_see_is_refused(tmp_path: Path, sql: str) -> None:
    with pytest.raises(InvalidValue, match="cuts off"):
        _read(tmp_path, sql, _MYSQL)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, (SELECT b FROM u WHERE u.a = t.a ORDER BY u.at DESC LIMIT 1) FROM t WHERE a IN (:keys)",
        "SELECT a, h.b FROM t CROSS JOIN LATERAL (SELECT b FROM u WHERE u.a = t.a LIMIT 1) AS h WHERE a IN (:keys)",
        *(
            f"SELECT a, h.b FROM t LEFT JOIN LATERAL ({of_each} LIMIT 1) AS h ON TRUE WHERE a IN (:keys)"
            for of_each in (
                "SELECT b FROM u WHERE is_new",
                "SELECT u.b FROM u ORDER BY u.at <-> place",
                "SELECT b FROM unnest(items) b",
                "SELECT u.b FROM u JOIN v USING (c)",
                "SELECT max(b) AS b FROM u",
                "SELECT 'x' AS b FROM u",
                "SELECT u.b FROM u ORDER BY t.b",
                "SELECT now",
            )
        ),
        "SELECT a, b FROM t WHERE c = (SELECT max(c) FROM v LIMIT 1) AND a IN (:keys)",
        "SELECT a, b FROM t, u WHERE t.c = u.c AND (a, 1) IN (SELECT d, (SELECT 1 LIMIT 1) FROM v) AND a IN (:keys)",
        "SELECT a, max(b, (SELECT c FROM v LIMIT 1)) FROM t WHERE EXISTS (SELECT 1 FROM w LIMIT 1) AND a IN (:keys)",
        "SELECT a, b FROM t, u WHERE a IN (:keys) ORDER BY a, (SELECT c FROM v LIMIT 1)",
        "SELECT a, b FROM t WHERE a IN (:keys) AND c <> 'no LIMIT' -- LIMIT 1",
        'SELECT a, b FROM t WHERE a IN (:keys) AND "limit" > 0 /* LIMIT */',
        "SELECT a, b FROM t WHERE a IN (:keys) AND credit_limit > 0",
    ],
)
def test_a_limit_that_cuts_off_no_row_of_a_key_may_stand_in_a_query(tmp_path: Path, sql: str) -> None:
    assert _read(tmp_path, sql, "sqlite:///shop.db") == sql.replace("(:keys)", " :keys ")


def _read(tmp_path: Path, sql: str, url: str) -> str:
    (one,) = read_commit_queries(commit_queries_file(tmp_path, "ORDERS", database_url=url, sql=sql))
    return one.query.sql
