"""Statements follow one another: what is missing, replaced or signed with another key is reported."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.audit.errors import AuditError
from reconciler.audit.output.writing import write_output
from reconciler.audit.statement.confined import ConfinedFolder
from reconciler.audit.statement.document import StatementFile, read_statement, statement_name
from reconciler.audit.statement.keys import SigningKey, make_keys, read_public_key, read_signing_key
from reconciler.audit.statement.verification import VerifyReport
from reconciler.audit.statement.verify import verify_statements
from tests.audit import judged_samples
from tests.audit import signed_samples as samples

STATEMENT = "statement/ORDERS--billing"


class Archive:
    """Outputs of consecutive days, each following the one before."""

    def __init__(self, folder: Path, days: int = 3) -> None:
        self.folder = folder
        self.key, self.public_key = samples.new_key(folder)
        self.days: list[Path] = []
        for day in range(days):
            previous = self.days[-1] if self.days else None
            out, _ = samples.write_signed(folder, self.key, day=day, previous=previous)
            self.days.append(out)

    @property
    def outs(self) -> Path:
        return self.days[0].parent

    def verify(self, key: SigningKey | None = None) -> VerifyReport:
        return verify_statements(self.outs, (key or self.key).public)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def told(report: VerifyReport) -> str:
    return "\n".join(map(str, report.differences))


def statement(path: Path) -> StatementFile:
    found = read_statement(ConfinedFolder(path.parent), path.name)
    assert found is not None
    return found


def test_three_days_follow_one_another(archive: Archive) -> None:
    report = archive.verify()
    assert (report.verdict, told(report)) == ("verified", "")
    assert sorted({(one.group, one.sequence) for one in report.statements if one.topic == "ORDERS"}) == [
        (group, number) for group in ("billing", "stock") for number in (1, 2, 3)
    ]


def test_a_day_that_is_missing_in_the_middle_is_told_for_each_subscription(archive: Archive) -> None:
    shutil.rmtree(archive.days[1])
    report = archive.verify()
    assert report.exit_code == 1
    assert "statement 2 of ORDERS/billing is missing between day-0/" in told(report)
    assert "statement 2 of REFUNDS/ledger is missing" in told(report)


def test_days_that_are_not_in_the_folder_are_said_to_be_unseen(archive: Archive) -> None:
    shutil.rmtree(archive.days[0])
    report = archive.verify()
    assert report.exit_code == 0
    assert any("number 2 of its chain" in line for line in report.not_checked)


def test_one_statement_taken_out_of_its_output_is_missed(archive: Archive) -> None:
    for suffix in ("json", "sig"):
        (archive.days[2] / f"{STATEMENT}.{suffix}").unlink()
    report = archive.verify()
    assert f"day-2/{STATEMENT}.json: the statement of ORDERS/billing is missing" in told(report)


def test_all_statements_taken_out_of_one_output_are_missed(archive: Archive) -> None:
    shutil.rmtree(archive.days[2] / "statement")
    report = archive.verify()
    assert f"day-2/{STATEMENT}.json: the statement of ORDERS/billing is missing" in told(report)


def test_a_statement_replaced_by_that_of_another_window_is_named(archive: Archive) -> None:
    for suffix in ("json", "sig"):
        shutil.copy(archive.days[0] / f"{STATEMENT}.{suffix}", archive.days[1] / f"{STATEMENT}.{suffix}")
    report = archive.verify()
    assert report.exit_code == 1
    assert f"day-1/{STATEMENT}.json: /window: it is of the window 2026-11-20T" in told(report)
    # The other outputs of that day are not blamed.
    assert {difference.file for difference in report.differences} <= {f"day-{day}/{STATEMENT}.json" for day in range(3)}


def test_a_statement_under_the_name_of_another_is_named(archive: Archive) -> None:
    out = archive.days[0] / "statement"
    for suffix in ("json", "sig"):
        shutil.copy(out / f"ORDERS--stock.{suffix}", out / f"ORDERS--billing.{suffix}")
    report = archive.verify()
    assert "it is the statement of ORDERS/stock, under the name of another" in told(report)
    assert "the statement of ORDERS/billing is missing" in told(report)


def test_an_output_of_the_same_window_put_in_place_of_the_audited_one_breaks_the_chain(
    archive: Archive, tmp_path: Path
) -> None:
    # Signed by the right key, and yet not what day 2 followed.
    other = replace(samples.judged_of(tmp_path / "evidence-1", day=1), notes=("another answer",))
    write_output(other, archive.days[1], signing_key=archive.key, previous=archive.days[0])
    report = archive.verify()
    assert f"day-2/{STATEMENT}.json: /previous/sha256: does not follow day-1/" in told(report)


def test_another_key_verifies_nothing_and_is_named_by_its_fingerprint(archive: Archive, tmp_path: Path) -> None:
    other, _ = samples.new_key(tmp_path, "other")
    report = archive.verify(other)
    assert report.exit_code == 1
    assert not any(one.signature_holds for one in report.statements)
    assert other.public.fingerprint in told(report)
    assert archive.key.public.fingerprint in told(report)


def test_statements_that_somebody_else_signed_anew_are_not_verified(archive: Archive, tmp_path: Path) -> None:
    forger, _ = samples.new_key(tmp_path, "forger")
    judged = replace(samples.judged_of(tmp_path / "evidence-2", day=2), notes=("forged",))
    write_output(judged, archive.days[2], signing_key=forger, previous=None)
    report = archive.verify()
    assert report.exit_code == 1
    assert f"day-2/{STATEMENT}.json" in told(report)


def test_a_signature_taken_away_is_a_difference_and_no_unsigned_statement(archive: Archive) -> None:
    (archive.days[0] / f"{STATEMENT}.sig").unlink()
    report = archive.verify()
    assert (report.exit_code, f"day-0/{STATEMENT}.sig: the signature is missing" in told(report)) == (1, True)


def test_unsigned_statements_say_so_and_are_never_verified(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out = write_output(judged_samples.violations(), tmp_path / "out")
    assert statement(out / f"{STATEMENT}.json").document["signed_by"] is None
    assert not list(out.glob("statement/*.sig"))
    report = verify_statements(out, key.public)
    assert (report.exit_code, report.verdict) == (2, "no answer")
    assert "it is not signed" in report.unanswered[0]


def test_no_statement_at_all_is_no_answer(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(AuditError) as raised:
            verify_statements(folder, key.public)
        assert raised.value.reason == "usage"


def test_a_chain_is_not_hung_on_a_statement_that_this_key_did_not_sign(archive: Archive, tmp_path: Path) -> None:
    forger, _ = samples.new_key(tmp_path, "forger")
    with pytest.raises(AuditError, match="not signed by the key"):
        samples.write_signed(tmp_path / "more", forger, day=4, previous=archive.days[2])


@pytest.mark.parametrize(
    ("day", "previous", "words"),
    [(0, lambda a: a.days[2], "later window"), (4, lambda a: a.folder, "there is no statement")],
)
def test_a_previous_that_cannot_be_followed_is_refused(
    archive: Archive, tmp_path: Path, day: int, previous: Callable[[Archive], Path], words: str
) -> None:
    with pytest.raises(AuditError, match=words):
        samples.write_signed(tmp_path / "more", archive.key, day=day, previous=previous(archive))
    assert not list((tmp_path / "more").glob("outs/*"))


def test_an_auditor_verifies_with_openssl_alone(archive: Archive) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    signed = archive.days[0] / f"{STATEMENT}.json"
    command = [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", str(archive.public_key), "-rawin", "-in"]
    verified = subprocess.run([*command, signed, "-sigfile", signed.with_suffix(".sig")], capture_output=True)
    assert verified.returncode == 0, verified.stderr
    der = subprocess.run([openssl, "pkey", "-pubin", "-in", archive.public_key, "-outform", "DER"], capture_output=True)
    assert hashlib.sha256(der.stdout).hexdigest() == archive.key.public.fingerprint


def test_history_that_was_compacted_since_is_not_called_altered(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    gone = "announced/environment=production/date=2026-11-20/prefix=00/a.parquet"
    (evidence / "history" / gone).unlink()
    entry = samples.add_entry(evidence, action="compact", removed=(gone,), previous="0" * 64)
    assert "missing" in told(verify_statements(out, key.public, evidence=evidence))

    entry.unlink()
    samples.add_entry(evidence, action="compact", removed=(gone,))
    report = verify_statements(out, key.public, evidence=evidence)
    assert (report.exit_code, told(report)) == (0, "")
    assert any("removed by manifest entry 4 (compact)" in line for line in report.not_checked)


def test_every_subscription_has_a_file_name_of_its_own_that_stays_in_its_folder() -> None:
    names = [*judged_samples.HOSTILE_NAMES, "a", "b", "a--b--c", "b--c", ".", "..", "", "x" * 101, "x" * 102]
    pairs = [(topic, group) for topic in names for group in names]
    files = {statement_name(topic, group) for topic, group in pairs}
    assert len(files) == len(pairs)
    assert all("/" not in file and "\0" not in file and len(file.encode()) <= 230 for file in files)
    assert statement_name("ORDERS", "billing") == "ORDERS--billing"


def test_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    secret, public, fingerprint = make_keys(tmp_path / "key.pem")
    assert (secret.stat().st_mode & 0o777, len(fingerprint)) == (0o600, 64)
    assert read_public_key(public).fingerprint == read_signing_key(secret).public.fingerprint == fingerprint
    with pytest.raises(AuditError, match="never overwritten"):
        make_keys(secret)
    public.unlink()
    with pytest.raises(AuditError, match="never overwritten"):
        make_keys(secret)
    assert not public.exists()


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o620, 0o601])
def test_a_private_key_that_others_can_read_or_replace_is_refused(tmp_path: Path, mode: int) -> None:
    secret, _, _ = make_keys(tmp_path / "key.pem")
    secret.chmod(mode)
    with pytest.raises(AuditError, match="chmod 600"):
        read_signing_key(secret)


def test_files_that_are_no_such_key_are_told_apart(tmp_path: Path) -> None:
    secret, public, _ = make_keys(tmp_path / "key.pem")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    broken.chmod(0o600)
    for path in (broken, public.rename(tmp_path / "p"), tmp_path / "missing"):
        if path.exists():
            path.chmod(0o600)
        with pytest.raises(AuditError) as raised:
            read_signing_key(path)
        assert raised.value.reason == "usage"
    for path in (secret, broken, tmp_path / "missing"):
        with pytest.raises(AuditError) as raised:
            read_public_key(path)
        assert raised.value.reason == "usage"
