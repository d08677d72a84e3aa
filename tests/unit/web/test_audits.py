"""The folder of audits: what a hostile folder cannot do, and when something is verified again."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import ConfigurationError
from reconciler.web.audits import check as checks
from reconciler.web.audits import folder as folders
from reconciler.web.audits.check import AuditCheck, AuditState, unanswered
from reconciler.web.audits.folder import AuditEntry, look_at, read_report
from reconciler.web.audits.shelf import LASTING_SECONDS, PASSING_SECONDS
from tests.polling import eventually
from tests.unit.web import audit_cases as cases
from tests.unit.web.audit_cases import known
from tests.unit.web.console_world import settings_of

REPORT_SHA256 = hashlib.sha256(b"<h1>Report</h1>").hexdigest()


def looked(audits: Path, key: Path) -> dict[str, AuditEntry]:
    return {one.name: one for one in look_at(str(audits), str(key)).entries}


def test_what_is_no_output_is_no_audit_and_a_link_is_told_and_not_followed(tmp_path: Path) -> None:
    audits, key = cases.folder_with(tmp_path, "2026-11-20", "2026-11-21", ".2026-11-22.draft")
    (audits / "notes.txt").write_text("x")
    os.mkfifo(audits / "fifo")
    (audits / "latest").symlink_to("2026-11-21")
    (audits / "gone").symlink_to("nowhere")
    found = looked(audits, key)
    assert list(found) == ["latest", "gone", "2026-11-21", "2026-11-20"]
    assert {name for name, one in found.items() if one.problem} == {"latest", "gone"}
    assert found["latest"].problem == "is a symbolic link: not followed"


@pytest.mark.parametrize(
    ("place", "why"), [("none", "No such file"), ("auditor.pem.pub", "Not a directory"), ("audits/day", "one audit")]
)
def test_a_folder_that_is_none_is_told(tmp_path: Path, place: str, why: str) -> None:
    _, key = cases.folder_with(tmp_path, "day")
    look = look_at(str(tmp_path / place), str(key))
    assert look.entries == ()
    assert why in look.problem


def test_a_key_that_is_not_there_starts_no_verification(tmp_path: Path) -> None:
    audits, _ = cases.folder_with(tmp_path, "day")
    look = look_at(str(audits), str(tmp_path / "none.pem"))
    assert (look.entries, "audits_public_key" in look.problem) == ((), True)


def test_a_folder_with_more_names_than_are_read_shows_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audits, key = cases.folder_with(tmp_path, *(f"{n:02}" for n in range(12)))
    monkeypatch.setattr(folders, "AUDITS_MAX", 5)
    look = look_at(str(audits), str(key))
    assert ([one.name for one in look.entries], look.left_out) == (["11", "10", "09", "08", "07"], 7)
    monkeypatch.setattr(folders, "NAMES_MAX", 3)
    assert len(look_at(str(audits), str(key)).entries) == 3


def test_names_that_are_no_text_have_a_row_of_their_own(tmp_path: Path) -> None:
    audits, key = cases.folder_with(tmp_path)
    for name in (b"\xff\xfe", b"..x", b"a\nb", "\u202egnp".encode()):
        os.makedirs(os.path.join(os.fsencode(audits), name))
    assert len(looked(audits, key)) == 3  # that with a dot is hidden


@pytest.mark.parametrize("change", ["altered", "added", "removed", "replaced", "statement", "key"])
def test_a_change_keeps_an_old_answer_alive(tmp_path: Path, change: str) -> None:
    audits, key = cases.folder_with(tmp_path, "day", "other")
    before = looked(audits, key)
    assert looked(audits, key) == before
    day = audits / "day"
    match change:
        case "altered":
            times = (day / "report.html").stat()
            (day / "report.html").write_text("<h1>Rep0rt</h1>")
            os.utime(day / "report.html", ns=(times.st_atime_ns, times.st_mtime_ns))
        case "added":
            (day / "more.json").write_text("")
        case "removed":
            (day / "report.html").unlink()
        case "replaced":
            (day / "statement" / "a.json").unlink()
            (day / "statement" / "a.json").symlink_to(key)
        case "statement":
            (day / "statement" / "a.json").write_text("[]")
        case "key":
            key.write_text("another key")
    after = looked(audits, key)
    assert after["day"].identity != before["day"].identity
    assert (after["other"] == before["other"]) is (change != "key")


def test_a_report_that_nobody_signed_or_that_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    audits, _ = cases.folder_with(tmp_path, "day", "linked", "piped", "huge")
    (audits / "latest").symlink_to("day")
    (audits / "linked" / "report.html").unlink()
    (audits / "linked" / "report.html").symlink_to("../day/report.html")
    (audits / "piped" / "report.html").unlink()
    os.mkfifo(audits / "piped" / "report.html")
    os.truncate(audits / "huge" / "report.html", folders.REPORT_BYTES_MAX + 1)
    assert read_report(str(audits), "day", REPORT_SHA256) == b"<h1>Report</h1>"
    assert read_report(str(audits), "day", "00" * 32) is None
    assert read_report(str(audits), "piped", REPORT_SHA256) is None
    assert read_report(str(audits), "huge", REPORT_SHA256) is None
    for name in ("latest", "linked"):
        with pytest.raises(OSError, match=r"symbolic link|directory"):
            read_report(str(audits), name, REPORT_SHA256)


def test_a_report_is_vouched_for_by_an_audit_with_a_difference_or_by_two_that_disagree() -> None:
    signed, other = cases.statement(report_sha256="aa"), cases.statement(group="stock", report_sha256="bb")
    unsigned = cases.statement(signature_holds=False, report_sha256="cc")
    assert cases.check(signed).report_sha256 == "aa"
    assert cases.check(signed, unsigned).report_sha256 == "aa"
    assert cases.check(unsigned).report_sha256 is None
    assert cases.check(signed, other).report_sha256 is None
    assert cases.altered(signed).report_sha256 is None


def test_a_hostile_statement_fills_the_memory() -> None:
    long = cases.statement(topic="T" * 4_000, verdict="x" * 4_000, signed_by="y" * 4_000)
    many = [{"file": "f" * 4_000, "row": "", "message": "m" * 4_000}] * 1_000
    found = cases.check(*[long] * 2_000, verdict="differences", differences=many, not_checked=["n" * 4_000] * 1_000)
    assert (len(found.statements), found.more_statements) == (checks.STATEMENTS_MAX, 1_500)
    assert (len(found.differences), found.more_differences) == (checks.LINES_MAX, 900)
    assert found.keys == 2_000 * 1_200
    assert found.verdict is None
    assert len(repr(found)) < 2_000_000


class Verifier:
    """Counts what it is asked for, and answers when it may."""

    def __init__(self, answer: AuditCheck) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, name: str) -> AuditCheck:
        self.asked.append(name)
        assert self.may_answer.wait(30)
        return self.answer


ENTRIES = [AuditEntry(name=name, identity="1") for name in ("c", "b", "a")]


def test_a_page_waits_for_a_verification_and_two_run_at_once(tmp_path: Path) -> None:
    verify = Verifier(cases.check(cases.statement()))
    verify.may_answer.clear()
    shelf = cases.shelf_of(tmp_path, tmp_path, verify, clock=ManualClock())
    assert [one.state for one in shelf.checks(ENTRIES)] == [AuditState.WAITING] * 3
    eventually(lambda: verify.asked == ["c"], within_seconds=60)
    shelf.checks(ENTRIES[2:])  # the page of one: it goes first
    verify.may_answer.set()
    known(shelf, ENTRIES[2:])
    assert verify.asked[:2] == ["c", "a"]
    known(shelf, ENTRIES)
    assert sorted(verify.asked) == ["a", "b", "c"]


def test_an_audit_is_verified_again_only_when_it_is_another_one_or_old(tmp_path: Path) -> None:
    clock, verify = ManualClock(), Verifier(cases.check(cases.statement()))
    shelf = cases.shelf_of(tmp_path, tmp_path, verify, clock=clock)
    one = ENTRIES[:1]
    known(shelf, one)
    clock.advance(LASTING_SECONDS - 1)
    known(shelf, one)
    assert verify.asked == ["c"]
    clock.advance(2)
    assert shelf.checks(one)[0].state is AuditState.VERIFIED, "what was known is told meanwhile"
    eventually(lambda: verify.asked == ["c", "c"], within_seconds=60)
    altered = [AuditEntry(name="c", identity="2")]
    assert shelf.checks(altered)[0].state is AuditState.WAITING, "what was known is of other files"
    known(shelf, altered)
    assert verify.asked == ["c", "c", "c"]


def test_a_verification_that_failed_is_kept_for_a_day(tmp_path: Path) -> None:
    clock, verify = ManualClock(), Verifier(unanswered("killed", at_ms=0))
    shelf = cases.shelf_of(tmp_path, tmp_path, verify, clock=clock)
    known(shelf, ENTRIES[:1])
    clock.advance(PASSING_SECONDS + 1)
    shelf.checks(ENTRIES[:1])
    eventually(lambda: verify.asked == ["c", "c"], within_seconds=60)


def test_a_bug_in_one_verification_ends_all_of_them(tmp_path: Path) -> None:
    def verify(name: str) -> AuditCheck:
        if name == "c":
            raise KeyError(name)
        return cases.check(cases.statement())

    shelf = cases.shelf_of(tmp_path, tmp_path, verify, clock=ManualClock())
    states = [one.state for one in known(shelf, ENTRIES)]
    assert states == [AuditState.NO_ANSWER, AuditState.VERIFIED, AuditState.VERIFIED]


def test_a_link_is_verified(tmp_path: Path) -> None:
    verify = Verifier(cases.check(cases.statement()))
    shelf = cases.shelf_of(tmp_path, tmp_path, verify)
    (found,) = shelf.checks([AuditEntry(name="latest", problem="is a symbolic link: not followed")])
    assert (found.state, found.why, verify.asked) == (
        AuditState.NO_ANSWER,
        "is a symbolic link: not followed",
        [],
    )


def test_a_folder_without_a_key_is_taken_for_a_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set both"):
        settings_of(tmp_path, RECONCILER_WEB__AUDITS_FOLDER=str(tmp_path))
