"""Every way a command can end has its exit code, people's text goes to standard error, bugs keep their traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer import Abort
from typer.main import get_command

from reconciler.cli import app as command_line
from reconciler.cli.app import run
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import LOSSES, Verdict
from reconciler.errors import (
    BrokerRefused,
    ConfigurationError,
    DatabaseAway,
    InvariantViolation,
    MissingDependency,
    RedisAway,
    UsageError,
)
from reconciler.evidence.watermark import CONSUMED
from reconciler.words import said
from tests.unit.web.reports import fact_of, facts_of

ROOT = Path(__file__).parents[3]
UPGRADE = ["db", "upgrade", "ledger", "--url", "sqlite:////tmp/never-opened.db"]


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def upgrade(_url: str, _tree: str) -> str:
        raise error

    monkeypatch.setattr("reconciler.commands.db.upgrade_database", upgrade)
    return run(UPGRADE)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("two ledgers"), 2),
        (MissingDependency("pip install it"), 2),
        (UsageError("say since when"), 2),
        (RedisAway("gone"), 3),
        (DatabaseAway("locked"), 3),
        (BrokerRefused(1, "no"), 1),
    ],
)
def test_error_has_its_exit_code_and_one_line(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error, monkeypatch) == code
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.strip().startswith("reconciler: ")
    assert "Traceback" not in written.err


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), InvariantViolation("two owners")])
def test_bug_is_70_with_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error, monkeypatch) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["status", "--nope"],
        ["explain"],
        ["list", "everything"],
        ["list", "--limit", "0"],
        ["db", "sql", "ledger"],
        ["status", "--output", "yaml"],
        ["replay", "--handler", "x:y"],
        ["rebuild", "--since", "yesterday"],
    ],
)
def test_usage_error_is_2_and_says_why_on_standard_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert "reconciler" in written.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dismiss", "order-13", "--reason", "seen"], "`reconciler explain` shows that of a business id"),
        (
            ["repair", "--all", "A" * 32, "--config", str(ROOT / "config" / "reconciler.toml")],
            "or give --all or --failed: one of these",
        ),
        (
            ["repair", "--all", "--failed", "--config", str(ROOT / "config" / "reconciler.toml")],
            "or give --all or --failed: one of these",
        ),
        (
            ["repair", "--failed", "--by", "hand-over", "--config", str(ROOT / "config" / "reconciler.toml")],
            "--failed = True: name the messages",
        ),
        (
            ["rebuild", "--since", "2999-01-01", "--config", str(ROOT / "config" / "reconciler.toml")],
            "--since = '2999-01-01T00:00:00Z': it is of the future: give a time before the outage",
        ),
    ],
)
def test_a_wrong_name_or_time_has_a_remedy(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert told in capsys.readouterr().err


def test_command_line_without_a_command_shows_the_help_and_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "explain" in capsys.readouterr().out


@pytest.mark.parametrize("asked_at_a_prompt", [False, True])
def test_ctrl_c_is_130_without_a_traceback(
    asked_at_a_prompt: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(Abort() if asked_at_a_prompt else KeyboardInterrupt(), monkeypatch) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_settings_nowhere_is_2_and_names_the_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reconciler.settings.file.settings_path", lambda flag: flag)
    assert run(["status"]) == 2
    assert "--config or RECONCILER_CONFIG" in capsys.readouterr().err


def test_result_goes_to_standard_output_as_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reconciler.commands.db.upgrade_database", lambda _url, _tree: "0001")
    assert run([*UPGRADE, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "tree": "ledger", "revision": "0001"}
    assert run(UPGRADE) == 0
    assert capsys.readouterr().out == "ledger tables are at revision 0001\n"


def test_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m reconciler config schema | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert ended.stdout == "0\n"
    assert ended.stderr == ""


def test_missing_extra_is_2_and_named() -> None:
    # -S: only the standard library and the source tree, as in an environment where no extra is installed.
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "reconciler", "status"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "is missing: install the extra daemon (docs/how-to/install.md#extras)" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [[], ["db"], ["db", "upgrade"], ["audit"], ["statement"], ["run"]])
def test_the_release_is_told_by_every_command_and_without_any_extra(command: list[str]) -> None:
    _tells_release("-S", "-m", "reconciler", *command, "--version")


def test_the_audit_s_own_program_tells_the_release() -> None:
    _tells_release("-m", "reconciler.audit", "--version")


def _tells_release(*arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(r"reconciler \S+ \(revision \S+\)\n", ended.stdout)


def test_help_loads_no_driver_and_no_scheduler() -> None:
    code = (
        "import sys; from reconciler.cli.app import run; assert run(['--help']) == 0; "
        "slow = 'sqlalchemy redis pydantic apscheduler structlog checkback_producers checkback_consumers'; "
        "print(*sorted(set(slow.split()) & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert ended.stderr == "\n"


def test_options_are_read_of_the_command_that_is_named_and_of_all_where_none_is() -> None:
    def names(*arguments: str) -> set[str]:
        return set(getattr(get_command(command_line._only(arguments)), "commands"))  # noqa: B009 - a group's

    assert names("status", "--help") == {"status"}
    assert names("jobs", "list") == {"jobs"}
    everything = names()
    assert everything == names("stats") == names("--help") > {"status", "jobs", "audit", "once", "dismiss"}
    assert all(names(name) == {name} for name in everything)


# ----------------------------------------------------------------- codes of reports


def test_status_code_prefers_a_missing_witness_to_a_verdict() -> None:
    from reconciler.commands.status.report import StatusReport
    from reconciler.policy.ports.ledger import HeldTopic
    from reconciler.telling.ports.reports import RepairCount, VerdictCount

    subscription = Subscription(environment="test", topic="T", group="g")
    calm = {"subscriptions": (), "verdicts": (), "repairs": (), "holds": (), "outages": (), "away": ()}

    def code(**changes: object) -> int:
        return StatusReport(**{**calm, **changes}).exit_code  # type: ignore[arg-type]  # fields by name

    def held(kind: HoldKind) -> HeldTopic:
        return HeldTopic(topic="T", kind=kind, since_ms=1, by="me", reason="")

    def judged(state: CandidateState) -> VerdictCount:
        return VerdictCount(
            subscription=subscription, state=state, verdict=Verdict.COLLISION, loss_verdict=None, count=1, oldest_ms=1
        )

    def repair(state: RepairState) -> RepairCount:
        return RepairCount(topic="T", scope="*", state=state, rung=Rung.END, attempted=1, count=1)

    assert code() == 0
    assert code(holds=(held(HoldKind.HOLD),)) == 0
    assert code(holds=(held(HoldKind.BREAKER),)) == 1
    assert code(verdicts=(judged(CandidateState.OPEN),)) == 0
    assert code(verdicts=(judged(CandidateState.QUARANTINED),)) == 1
    assert code(repairs=(repair(RepairState.SENT),)) == 0
    assert code(repairs=(repair(RepairState.FAILED),)) == 1
    assert code(repairs=(repair(RepairState.FAILED),), away=facts_of("redis: gone")) == 3
    assert code(late=facts_of("the last round is old")) == 3
    assert code(undecided=facts_of("T/g: 1 keys are UNKNOWN")) == 1
    assert code(rejected=facts_of("T/g: 1 announced keys are committed in no configured outbox")) == 0


def test_status_of_commits_that_are_not_accounted_for_is_3_and_begins_with_that() -> None:
    from reconciler.commands.status.report import NO_OUTBOX, StatusReport, SubscriptionStatus
    from reconciler.policy.evidence import Watermark, WatermarkState
    from reconciler.policy.ports.ledger import HeldTopic
    from reconciler.telling.account import Account
    from reconciler.telling.lag import Lag
    from reconciler.telling.ports.reports import VerdictCount

    of = Subscription(environment="test", topic="T", group="g")

    hold = HeldTopic(topic="T", kind=HoldKind.HOLD, since_ms=1, by="anna", reason="?")

    def report(
        *late: str,
        weaker: tuple[Fact, ...] = (),
        count: int = 0,
        holds: tuple[HeldTopic, ...] = (),
        lag: Lag | None = None,
        handed_out: tuple[Fact, ...] = (),
    ) -> StatusReport:
        told = Account(subscription=of, until_ms=1_000, cause=fact_of("nothing"), late=facts_of(*late))
        one = SubscriptionStatus(
            subscription=of,
            pending=0,
            oldest_pending_ms=None,
            watermark=Watermark(state=WatermarkState.KNOWN, at_ms=1, detail=CONSUMED()),
            last_round_ms=None,
            accounted=told,
            weaker=weaker,
            lag=lag,
        )
        kept = VerdictCount(
            subscription=of, state=CandidateState.QUARANTINED, verdict=Verdict.COLLISION, loss_verdict=None,
            count=count, oldest_ms=1,
        )  # fmt: skip
        return StatusReport(
            subscriptions=(one,), verdicts=(kept,) if count else (), repairs=(), holds=holds, outages=(), away=(),
            handed_out=handed_out,
        )  # fmt: skip

    late = report("nobody reads it", "no sweep", count=2)
    assert late.exit_code == 3
    assert [said(line) for line in late.late_lines] == ["T/g: nobody reads it", "T/g: no sweep"]
    assert late.as_dict()["late"] == ["T/g: nobody reads it", "T/g: no sweep"]
    assert said(late.summary) == (
        "Commits after 1970-01-01T00:00:01Z are not accounted for: T/g: nobody reads it (and 1 more, below)"
    )
    assert next(late.tables())[2] == [("T", "g", 1_000, "yes")]

    until = "until 1970-01-01T00:00:01Z is accounted for"
    assert (report().exit_code, said(report().summary)) == (0, f"All is well: every commit {until}")
    lagging = Lag(subscription=of, waiting=32, since_ms=2_000)
    slow, dead = report(lag=lagging), report(lag=replace(lagging, is_deserted=True))
    waits = "32 messages wait for T/g since 1970-01-01T00:00:02Z"
    assert (slow.exit_code, said(slow.summary)) == (
        0, (f"Not all is consumed: {waits}: do its consumers make progress? No act of the reconciler ends this; "
        f"every commit {until}"),
    )  # fmt: skip
    handed_out = report(handed_out=facts_of("2 messages show no effect"))
    assert (handed_out.exit_code, said(handed_out.summary)) == (
        0, f"Not all is consumed: 2 messages show no effect; every commit {until}"
    )  # fmt: skip
    assert handed_out.as_dict()["lagging"] == ["2 messages show no effect"]
    assert (dead.exit_code, said(dead.summary)) == (
        3, f"Not all is well: {waits}: nobody is connected, start its consumers; every commit {until}"
    )  # fmt: skip
    assert (
        said(report(holds=(hold,)).summary)
        == f"Repairs of T are on hold, until `reconciler resume TOPIC`; every commit {until}"
    )
    assert said(report(weaker=(NO_OUTBOX(),)).summary) == f"All is well: every announced commit {until}"
    needed = "quarantined keys: 2 (`reconciler list candidates --state QUARANTINED`)"
    assert (report(count=2).exit_code, said(report(count=2).summary)) == (
        1,
        f"A person is needed: {needed}; every commit {until}",
    )
    document = report().as_dict()
    assert document["summary"] == said(report().summary)
    assert [row["accounted_until_ms"] for row in document["subscriptions"]] == [1_000]  # type: ignore[attr-defined]  # a list


def test_keys_that_nothing_decides_need_a_person_before_the_brokers_delete_the_evidence() -> None:
    from reconciler.commands.status.standstill import undecided
    from reconciler.telling.ports.reports import VerdictCount

    subscription = Subscription(environment="test", topic="T", group="g")
    hour_ms = 3_600_000

    def told(state: CandidateState, verdict: Verdict, hours: int) -> list[str]:
        loss = verdict if verdict in LOSSES else None
        counted = VerdictCount(
            subscription=subscription, state=state, verdict=verdict, loss_verdict=loss, count=2, oldest_ms=hour_ms
        )
        return [said(line) for line in undecided([counted], (1 + hours) * hour_ms, 72 * 3_600, unknown={})]

    (line,) = told(CandidateState.OPEN, Verdict.UNKNOWN, 37)
    assert line.startswith("T/g: 2 keys are UNKNOWN, the oldest since 37 hours: `reconciler list candidates ")
    assert told(CandidateState.OPEN, Verdict.LOST_CONFIRM, 37)
    assert not told(CandidateState.OPEN, Verdict.UNKNOWN, 36)
    assert not told(CandidateState.OPEN, Verdict.LAGGING, 1_000)
    assert not told(CandidateState.SETTLED, Verdict.LOST_CONFIRM, 1_000)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], 0),
        ([("CONSUMED", "")], 0),
        ([("LOST_CONFIRM", "sent"), ("LOST_CONFIRM", "done")], 0),
        ([("LOST_CONFIRM", "planned")], 4),
        ([("LOST_CONFIRM", "held")], 4),
        ([("LOST_CONFIRM", "failed"), ("UNKNOWN", "")], 4),
        ([("UNKNOWN", ""), ("CONSUMED", "")], 2),
        ([("UNKNOWN", "done")], 0),
    ],
)
def test_repair_code_is_4_for_what_is_left_and_2_for_what_is_unknown(lines: list[tuple[str, str]], code: int) -> None:
    from reconciler.commands.acts.repair import ManualRepairReport, RepairLine

    keys = tuple(
        RepairLine(topic="T", group="g", unique_key="A" * 32, verdict=verdict, outcome=outcome, rung="")
        for verdict, outcome in lines
    )
    assert ManualRepairReport(keys=keys, dry_run=False).exit_code == code
