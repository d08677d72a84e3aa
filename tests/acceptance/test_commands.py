"""Every command as people run it: the installed program, settings in a file, results on standard output."""

from __future__ import annotations

import itertools
import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command import RECONCILER, one_object, reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.ended import Ended
from tests.polling import eventually
from tests.services.broadcasting_member import broadcasting_member
from tests.services.embedded_broker import EmbeddedBroker

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

NOBODYS_KEY = "F" * 32


def test_parked_message_is_told_and_comes_back(deployed: Deployment) -> None:
    deployed.consume()
    (key,) = deployed.commit(1, lose=True)
    eventually(
        lambda: any(
            "parked" in event["what"] for event in deployed.command("explain", key, "-o", "json").document["events"]
        ),
        within_seconds=60,
    )
    assert deployed.command("once").exit_code == 0
    assert deployed.effects() == [key]
    (listed,) = one_object(deployed.command("list", "-o", "json"))["candidates"]
    assert (
        listed["loss_verdict"] == "LOST_CONFIRM"
    )  # the half is still there as well; PARKED is for halves that are gone


def test_hold_freezes_repairs_until_resume(deployed: Deployment) -> None:
    assert one_object(deployed.command("hold", deployed.topic, "--reason", "drill", "-o", "json"))["changed"] is True
    assert "already" in deployed.command("hold", deployed.topic).stdout
    assert deployed.command("hold", "NO_SUCH_TOPIC").exit_code == 2
    deployed.consume()
    lost = deployed.commit(3, lose=True)

    def all_are_held() -> bool:
        """A slow machine may need a second pass until the losses are proved."""
        ended = deployed.command("once", "--wait", "8", "--output", "json")
        return bool(one_object(ended, code=4)["repairs_unfinished"] == 3)

    eventually(all_are_held, within_seconds=120)
    assert deployed.effects() == []
    (held,) = one_object(deployed.command("status", "-o", "json"))["holds"]
    assert held["kind"] == "HOLD"
    assert "drill" in held["reason"].split("; "), "the words of the first hold are kept"

    for arguments in (("repair", lost[0], "--dry-run"), ("repair", lost[0])):
        one = one_object(deployed.command(*arguments, "-o", "json"), code=4)
        assert [(k["verdict"], k["outcome"]) for k in one["keys"]] == [("LOST_CONFIRM", "held")]
        assert "HOLD" in one["keys"][0]["reason"]

    resumed = one_object(deployed.command("resume", deployed.topic, "-o", "json"))
    assert (resumed["lifted"], resumed["left"]) == (["HOLD"], [])
    assert "were not on hold" in deployed.command("resume", deployed.topic).stdout

    before = ledger_of(deployed)
    planned = one_object(deployed.command("repair", "--all", "--dry-run", "-o", "json"), code=4)
    assert sorted(k["unique_key"] for k in planned["keys"]) == sorted(lost)
    assert {k["outcome"] for k in planned["keys"]} == {"planned"}
    unanswered = deployed.command("repair", "--all", "-o", "json")
    assert (unanswered.exit_code, unanswered.stdout) == (2, "")
    assert "--yes" in unanswered.stderr
    declined = answered(deployed, "n\n")
    assert (declined.exit_code, declined.stdout) == (4, "")
    assert lost[0] in declined.stderr
    assert ledger_of(deployed) == before

    (first, *_) = lost
    sent = one_object(deployed.command("repair", first, "-o", "json"))
    assert [k["outcome"] for k in sent["keys"]] == ["sent"]
    eventually(lambda: deployed.effects() == [first], within_seconds=60)
    agreed = answered(deployed, "y\n")
    assert agreed.exit_code in {0, 4}, agreed.stderr  # 4: the first one's verification is not yet due
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=60)
    assert deployed.command("once").exit_code == 0
    again = one_object(deployed.command("repair", first, "-o", "json"))
    assert [(k["verdict"], k["outcome"]) for k in again["keys"]] == [("CONSUMED", "done")]
    nobody = deployed.command("repair", NOBODYS_KEY)
    assert nobody.exit_code == 2
    assert_all_is_written_down(deployed, lost)
    assert "no outbox and no verdict has it" in nobody.stderr
    assert deployed.command("repair").exit_code == 2


def test_run_lifts_a_hold_whose_end_has_passed(deployed: Deployment) -> None:
    deployed.run("run")
    seconds = itertools.count(6, 6)  # a command may take seconds to start, and refuses an end that has passed

    def is_held() -> bool:
        until = datetime.now(UTC) + timedelta(seconds=next(seconds))
        held = deployed.command("hold", deployed.topic, "--until", until.strftime("%Y-%m-%dT%H:%M:%S"), "-o", "json")
        return bool(one_object(held)["until_ms"] == int(until.timestamp()) * 1000)

    eventually(is_held, within_seconds=60)
    eventually(lambda: deployed.command("status", "-o", "json").document["holds"] == [], within_seconds=60)
    rows = one_object(deployed.command("list", "actions", "-o", "json"))["actions"]
    assert [(row["command"], row["result"]) for row in rows] == [("resume", "lifted HOLD"), ("hold", "held")]


def assert_all_is_written_down(deployed: Deployment, lost: list[str]) -> None:
    """Every command that changed something, in order; none of those that looked, asked or were refused."""
    rows = one_object(deployed.command("list", "actions", "-o", "json"))["actions"][::-1]
    assert [(r["command"], r["detail"], r["result"]) for r in rows[:2]] == [
        ("hold", "drill", "held"),
        ("hold", "by hand", "was on hold already"),
    ]
    assert [(r["command"], r["unique_key"]) for r in rows[2:6]] == [
        ("repair", lost[0]),
        ("resume", None),
        ("resume", None),
        ("repair", lost[0]),
    ]
    assert rows[2]["result"].startswith("LOST_CONFIRM: held end: ")
    assert [r["result"] for r in rows[3:5]] == ["lifted HOLD", "was not on hold"]
    assert rows[5]["result"].startswith("LOST_CONFIRM: sent end")
    assert {(r["command"], r["detail"]) for r in rows[6:-1]} == {("repair", "--all")}
    assert {r["unique_key"] for r in rows[6:-1]} >= set(lost[1:])
    assert (rows[-1]["unique_key"], rows[-1]["result"].split(":")[0]) == (lost[0], "CONSUMED")
    assert all(r["by"].startswith("operator ") and r["ended_at_ms"] >= r["started_at_ms"] for r in rows)
    told = one_object(deployed.command("explain", lost[0], "-o", "json"))["events"]
    assert [e["what"].split(":")[0] for e in told if e["witness"] == "operator"] == [
        f"{r['command']} by hand" for r in rows if r["unique_key"] == lost[0]
    ]


def ledger_of(deployed: Deployment) -> list[Any]:
    with closing(sqlite3.connect(deployed.ledger)) as db:
        candidates = db.execute("SELECT * FROM reconciler_candidate ORDER BY unique_key").fetchall()
        return candidates + db.execute("SELECT * FROM reconciler_repair ORDER BY unique_key, scope").fetchall()


def answered(deployed: Deployment, answer: str) -> Ended:
    return reconciler("repair", "--all", "-o", "json", "--config", deployed.config, answer=answer)


def test_open_breaker_freezes_repairs_while_verification_goes_on(tmp_path: Path, services: tuple[str, str]) -> None:
    settings = """
[rounds]
interval_seconds = 8
skew_margin_seconds = 0.5
[repairs]
check_back_wait_seconds = 0
breaker_candidates_min = 1
breaker_share = 0.01
"""
    with Deployment(
        tmp_path,
        redis_url=services[0],
        name_servers=services[1],
        has_marked_secrets=True,
        settings=settings,
        grace_period_seconds=8,
    ) as deployed:
        service = deployed.run("run")
        deployed.consume()
        lost = deployed.commit(4, lose=True)
        eventually(lambda: sorted(deployed.repairs()) == sorted(lost), within_seconds=120)
        # Three calm rounds would close it again; without a service it stays open for as long as the commands take.
        assert service.end() == 0
        status = one_object(deployed.command("status", "-o", "json"), code=1)
        assert [h["kind"] for h in status["holds"]] == ["BREAKER"]
        assert status["needs_a_person"] is True
        assert deployed.effects() == []
        assert set(deployed.verdicts().values()) <= {"LOST_CONFIRM", "PARKED"}
        left = deployed.command("resume", deployed.topic)
        assert "close it with --breaker" in left.stdout
        closed = one_object(deployed.command("resume", deployed.topic, "--breaker", "-o", "json"))
        assert closed["lifted"] == ["BREAKER"]
        service = deployed.run("run")
        eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
        assert service.end() == 0


# ----------------------------------------------------------------- preparing


def test_settings_are_checked_shown_and_described(deployed: Deployment) -> None:
    checked = one_object(deployed.command("config", "check", "-o", "json"))
    assert (checked["valid"], checked["producers"], checked["subscriptions"]) == (True, 1, 1)
    shown = one_object(deployed.command("config", "show", "-o", "json"))["settings"]
    assert shown["environment"] == deployed.environment
    assert shown["redis"]["url"] == "**********"
    table = deployed.command("config", "show").stdout
    assert "rounds.interval_seconds" in table
    assert str(deployed.ledger) not in table
    schema = one_object(reconciler("config", "schema"))
    assert "environment" in schema["properties"]
    described = reconciler("config", "schema", "--output", "table").stdout
    assert "subscriptions[].repair_order" in described
    malformed = reconciler(
        "config",
        "check",
        "--config",
        deployed.config,
        environment={"RECONCILER_REDIS__URL": "ftp://user:hunter2@h", "RECONCILER_TYPO": "1"},
    )
    assert malformed.exit_code == 2
    assert malformed.stdout == ""
    assert "2 problem(s)" in malformed.stderr
    assert "hunter2" not in malformed.stderr


def test_tables_are_printed_and_made_twice_without_harm(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'own.db'}"
    for _ in range(2):
        made = one_object(reconciler("db", "upgrade", "inbox", "--url", url, "--output", "json"))
        assert made["tree"] == "inbox"
    printed = reconciler("db", "sql", "ledger", "--dialect", "postgresql")
    assert "CREATE TABLE reconciler_repair" in printed.stdout
    document = one_object(reconciler("db", "sql", "ledger", "--dialect", "postgresql", "-o", "json"))
    assert document["sql"] == printed.stdout


def test_broker_tells_where_it_listens_and_ends_with_0() -> None:
    process = subprocess.Popen([str(RECONCILER), "broker", "--family", "4.9"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        ready = json.loads(process.stdout.readline())
    assert ready["family"] == "4.9"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", ready["listen"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_module_and_command_are_the_same() -> None:
    by_module = subprocess.run(
        [sys.executable, "-m", "reconciler", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert by_module.stdout == reconciler("--version").stdout
    assert re.fullmatch(r"reconciler \d+\.\d+\.\d+\S* \(revision checkout\)\n", by_module.stdout)


def test_the_half_of_a_dismissed_key_is_told_before_and_closed_on_request(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    embedded_broker.configure({"transactionCheckMax": "1000", "transactionCheckInterval": "1000"})
    deployed = new_deployment()
    (key,) = deployed.commit(1, lose=True)
    deployed.note_verdict(key, "DEAD_LETTERED")

    def preview() -> dict[str, Any]:
        (half,) = one_object(deployed.command("dismiss", key, "--dry-run", "-o", "json"))["halves"]
        return dict(half)

    half = eventually(lambda: found if (found := preview())["state"] == "open" else None, within_seconds=60)
    assert (half["can_be_closed"], half["closed"], bool(half["until"])) == (True, False, True)
    assert "its producer answers COMMIT" in half["told"]
    assert deployed.command("status", "-o", "json").document["needs_a_person"] is True
    with broadcasting_member(embedded_broker.name_servers, group="prices", topic=deployed.topic):
        half = preview()
        assert (half["can_be_closed"], "group prices reads the topic" in half["told"]) == (False, True)
    eventually(lambda: preview()["can_be_closed"], within_seconds=60)
    shown = " ".join(deployed.command("dismiss", key, "--dry-run").stdout.split())
    assert "END ROLLBACK may close it: --roll-back-half, unless a broadcasting group needs it" in shown
    plain = one_object(deployed.command("dismiss", key, "--reason", "paid by hand", "-o", "json"))
    assert [half["state"] for half in plain["halves"]] == ["open"], "a dismissal that leaves the half tells of it, too"
    done = deployed.command("dismiss", key, "--reason", "paid by hand", "--roll-back-half", "-o", "json")
    (half,) = one_object(done)["halves"]
    assert (done.exit_code, half["closed"]) == (0, True)
    assert deployed.copies() == {}
    told = one_object(deployed.command("list", "actions", "-o", "json"))["actions"]
    assert {(one["command"], one["unique_key"]) for one in told} == {("dismiss", key), ("roll-back", key)}
    again = deployed.command("dismiss", key, "--reason", "paid by hand", "--roll-back-half")
    assert again.exit_code == 0


def test_a_key_that_check_back_delivered_meanwhile_is_not_dismissed_as_paid_by_hand(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    (key,) = deployed.commit(1)
    deployed.note_verdict(key, "QUARANTINED")

    def outcome(*options: str) -> tuple[int, str, str]:
        done = deployed.command("dismiss", key, *options, "-o", "json")
        (line,), (half,) = done.document["keys"], done.document["halves"]
        return done.exit_code, line["outcome"], half["state"]

    act = ("--reason", "paid by hand", "--roll-back-half")
    preview = ("--dry-run", "--roll-back-half")
    eventually(lambda: outcome(*preview) == (5, "changed", "committed"), within_seconds=60)
    assert outcome(*act) == (5, "changed", "committed"), "no group has the effect, and it is on its way"
    deployed.consume()
    eventually(lambda: deployed.effects() == [key], within_seconds=60)
    assert outcome(*preview) == outcome(*act) == (5, "has its effect", "committed")
    assert "a payment made by hand is a second one" in deployed.command("dismiss", key, *act).stdout
    told = one_object(deployed.command("list", "actions", "-o", "json"))["actions"]
    assert {one["command"] for one in told} == {"dismiss"}, "nothing was rolled back"
    assert deployed.command("status", "-o", "json").document["needs_a_person"] is True


def test_a_dismissed_key_leaves_status_and_stays_in_the_ledger_with_its_reason(deployed: Deployment) -> None:
    given_up, open_one = "A" * 32, "B" * 32
    deployed.note_verdict(given_up, "DEAD_LETTERED")
    deployed.note_verdict(open_one, "LAGGING", state="OPEN")
    assert deployed.command("status", "-o", "json").document["needs_a_person"] is True
    assert deployed.command("dismiss", given_up, "--reason", " ").exit_code == 2
    assert deployed.command("dismiss", NOBODYS_KEY, "--reason", "no").exit_code == 2
    done = one_object(deployed.command("dismiss", given_up, "--reason", "paid by hand", "-o", "json"))
    assert [(k["unique_key"], k["outcome"]) for k in done["keys"]] == [(given_up, "dismissed")]
    left = deployed.command("dismiss", open_one, "--reason", "too early")
    assert left.exit_code == 4
    assert "OPEN" in left.stdout
    assert deployed.command("status", "-o", "json").document["needs_a_person"] is False
    (listed,) = one_object(deployed.command("list", "candidates", "--state", "SETTLED", "-o", "json"))["candidates"]
    assert (listed["unique_key"], listed["verdict"]) == (given_up, "DEAD_LETTERED")
    assert "paid by hand" in deployed.command("explain", given_up, "-o", "json").stdout
