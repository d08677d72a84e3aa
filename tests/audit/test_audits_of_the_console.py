"""What the console says of an output that the audit wrote: a real process of the audit, without PySpark."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.audit.output.writing import write_output
from reconciler.clock import SystemClock
from reconciler.web.audits import verify_process
from reconciler.web.audits.check import AuditCheck, AuditState
from reconciler.web.audits.folder import read_report
from reconciler.web.audits.notices import audits_watch
from reconciler.web.audits.shelf import build_shelf
from reconciler.web.audits.verify_process import VerifyProcess
from tests.audit import judged_samples
from tests.audit import signed_samples as samples
from tests.audit.test_without_spark import NO_PYSPARK
from tests.polling import eventually
from tests.unit.channels.receiver import receiving
from tests.unit.service.notice_world import NoticeWorld, listener, webhook
from tests.unit.web.audit_cases import known
from tests.unit.web.console_world import settings_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A key, and an output of it; PySpark is not there."""
    folder = tmp_path_factory.mktemp("audits")
    key, _ = samples.new_key(folder)
    samples.write_signed(folder, key)
    (folder / "blocked").mkdir()
    (folder / "blocked" / "pyspark.py").write_text(NO_PYSPARK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "blocked"), prepend=os.pathsep)
        patch.setenv("RECONCILER_LEDGER__URL", "postgresql://secret")
        yield folder


def verified(folder: Path, name: str, key: str = "auditor.pem.pub") -> AuditCheck:
    return VerifyProcess(str(folder / key), clock=SystemClock()).check(str(folder / "outs" / name))


def test_a_signed_output_and_its_report_are_not_told_as_verified(folder: Path) -> None:
    found = verified(folder, "day-0")
    assert (found.state, found.verdict, found.why) == (AuditState.VERIFIED, "violations", "")
    assert {(one.topic, one.group) for one in found.statements} == {
        ("ORDERS", "billing"),
        ("ORDERS", "stock"),
        ("REFUNDS", "ledger"),
    }
    assert (found.start_ms, found.end_ms) == (judged_samples.START_MS, judged_samples.START_MS + samples.DAY_MS)
    assert found.statements[0].classes["LOST"] == 4
    assert found.violations == sum(one.violations for one in found.statements) > 0
    report = read_report(str(folder / "outs"), "day-0", found.report_sha256 or "")
    assert report == (folder / "outs/day-0/report.html").read_bytes()


@pytest.mark.usefixtures("folder")  # without PySpark
def test_violations_that_an_audit_has_signed_are_told_once_whoever_looks_at_them_again(tmp_path: Path) -> None:
    key, public = samples.new_key(tmp_path)
    samples.write_signed(tmp_path, key)
    folder = {"RECONCILER_WEB__AUDITS_FOLDER": str(tmp_path / "outs"), "RECONCILER_WEB__AUDITS_PUBLIC_KEY": str(public)}
    settings = settings_of(tmp_path, **folder)
    world = NoticeWorld(tmp_path)
    with receiving() as receiver:
        for _ in range(2):  # a web server, and the next one, which verifies all of them again
            shelf = build_shelf(settings.web, clock=SystemClock())
            assert shelf is not None
            service = world.service(listener(webhook(receiver.url)), watches=[audits_watch(shelf, settings)])
            world.turn(service)
            known(shelf, shelf.look().entries)
            for _ in range(20):
                world.turn(service, seconds=60)
            shelf.close()
        (told,) = (json.loads(one.body)["data"] for one in receiver.received)
    world.engine.dispose()
    assert (told["kind"], told["count"], told["is_over"]) == ("AUDIT_VIOLATION", 1, False)
    assert (told["since_ms"], told["detail"]) == (judged_samples.START_MS, "2026-11-20")


def test_an_altered_report_is_told_and_not_vouched_for(folder: Path) -> None:
    report = folder / "outs/day-0/report.html"
    before = report.read_bytes()
    report.write_bytes(before.replace(b"LOST", b"lost"))
    try:
        found = verified(folder, "day-0")
    finally:
        report.write_bytes(before)
    assert (found.state, found.report_sha256) == (AuditState.DIFFERENCES, None)
    assert [one["file"] for one in found.differences] == ["report.html"]


def test_an_output_that_nobody_signed_has_its_reason_and_no_report(folder: Path) -> None:
    write_output(judged_samples.hostile(), folder / "outs" / "unsigned")
    found = verified(folder, "unsigned")
    assert (found.state, found.signed_by, found.report_sha256) == (AuditState.NO_ANSWER, None, None)
    assert "it says that it is not signed" in found.why


@pytest.mark.parametrize("damage", ["empty", "damaged", "hostile"])
def test_a_folder_that_is_no_output_has_its_reason(folder: Path, damage: str) -> None:
    statements = folder / "outs" / damage / "statement"
    statements.mkdir(parents=True)
    if damage == "damaged":
        (statements / "ORDERS--billing.json").write_bytes(b"\xff{")
    if damage == "hostile":
        (statements / "a.json").write_text('{"kind": "checkback-reconciler statement", "window": 1, "keys": [[]]}')
    found = verified(folder, damage)
    assert found.state is not AuditState.VERIFIED
    assert found.why or found.differences
    assert found.is_lasting


def test_another_key_or_none_is_told(folder: Path) -> None:
    samples.new_key(folder, "other")
    assert verified(folder, "day-0", "other.pem.pub").state is AuditState.DIFFERENCES
    missing = verified(folder, "day-0", "none.pem.pub")
    assert (missing.state, "none.pem.pub" in missing.why) == (AuditState.NO_ANSWER, True)


def test_a_verification_without_an_end_is_killed_and_told(folder: Path) -> None:
    process = VerifyProcess(str(folder / "auditor.pem.pub"), clock=SystemClock(), seconds_max=0.01)
    found = process.check(str(folder / "outs/day-0"))
    assert (found.state, found.why) == (AuditState.NO_ANSWER, "it takes longer than 0.01 seconds")


def test_a_server_that_stops_leaves_a_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = ["sh", "-c", "exec sleep 600"]
    monkeypatch.setattr(verify_process, "audit_program", lambda *_arguments: endless)
    process = VerifyProcess("key", clock=SystemClock())
    found: list[AuditCheck] = []
    thread = threading.Thread(target=lambda: found.append(process.check("x")))
    thread.start()
    eventually(lambda: process.is_running, within_seconds=60)
    process.stop()
    thread.join(30)
    assert [(one.state, one.is_lasting) for one in found] == [(AuditState.NO_ANSWER, False)]
    assert "the server stops" in process.check("x").why


@pytest.mark.usefixtures("folder")
def test_the_secrets_of_the_service_reach_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [
        "sh",
        "-c",
        'test -z "$RECONCILER_LEDGER__URL"; echo "{\\"reason\\": \\"usage\\", \\"message\\": \\"$?\\"}"',
    ]
    monkeypatch.setattr(verify_process, "audit_program", lambda *_arguments: told)
    assert VerifyProcess("key", clock=SystemClock()).check("x").why == "0"
