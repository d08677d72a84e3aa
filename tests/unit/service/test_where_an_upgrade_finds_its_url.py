"""`db upgrade` takes its URL from settings, a file or the environment: no password appears in a list of processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.commands.db import upgrade_database
from reconciler.commands.doctor.databases import check_revision
from reconciler.contract.tables import VERSION_TABLES
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import configured_databases
from tests.engines import begun

EXAMPLE = Path("config/reconciler.toml")
WARNING = "the password in --url is visible in the list of processes: --url @FILE or RECONCILER_DB_URL keeps it out"
#: Nobody listens there.
AWAY = "postgresql://app:s3cret@127.0.0.1:1/orders"


def test_every_database_of_the_settings_is_upgraded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("a", "b")]
    producers = [{"group": group, "topics": ["ORDERS"], "outbox_url": urls} for group in ("shop", "bazaar")]
    monkeypatch.setenv("RECONCILER_PRODUCERS", json.dumps(producers))
    monkeypatch.setenv("RECONCILER_LEDGER__URL", urls[0])
    upgrade = ["db", "upgrade", "outbox", "--config", str(EXAMPLE)]
    assert run([*upgrade, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1,
        "tree": "outbox",
        "revision": schema.head("outbox"),
        "databases": ["outbox of shop (1 of 2), bazaar (1 of 2)", "outbox of shop (2 of 2), bazaar (2 of 2)"],
    }
    assert [schema.current(url, "outbox") for url in urls] == [schema.head("outbox")] * 2
    assert run(["db", "upgrade", "ledger", "--config", str(EXAMPLE)]) == 0
    assert capsys.readouterr().out == f"ledger: ledger tables are at revision {schema.head('ledger')}\n"


def test_a_ledger_from_before_0_2_0_is_refused_with_its_revision_and_the_way_by_db_upgrade_and_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    schema.upgrade(url, "ledger")
    with begun(url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLES['ledger']} SET version_num = '0010_verified_repairs'")
    monkeypatch.setenv("RECONCILER_LEDGER__URL", url)
    assert run(["db", "upgrade", "ledger", "--config", str(EXAMPLE)]) == 2
    first = "is at revision 0010_verified_repairs, and 0011_notice of 0.2.0 is the first that is upgraded"
    assert capsys.readouterr().err == f"reconciler: {url}: its ledger {first}: upgrade to 0.2.0 first\n"
    settings = load_settings(EXAMPLE, dict(os.environ))
    with Connections(settings) as connections:
        told = check_revision(connections, configured_databases(settings)[0]).as_row()
    assert (told.check, told.level, told.remedy) == ("ledger", "fail", "upgrade to 0.2.0 first")


def test_settings_that_name_no_outbox_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECONCILER_PRODUCERS", '[{"group": "shop", "topics": ["ORDERS"]}]')
    assert run(["db", "upgrade", "outbox", "--config", str(EXAMPLE)]) == 2
    assert "the settings name no outbox_url: name the database with --url" in capsys.readouterr().err


def test_a_file_or_a_variable_holds_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "url"
    secret.write_text(f"sqlite:///{tmp_path}/a.db\n")
    assert run(["db", "upgrade", "inbox", "--url", f"@{secret}"]) == 0
    monkeypatch.setenv("RECONCILER_DB_URL", f"@{secret}")
    assert run(["db", "upgrade", "inbox"]) == 0
    monkeypatch.setenv("RECONCILER_DB_URL", AWAY)
    assert run(["db", "upgrade", "inbox"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("reconciler: postgresql://127.0.0.1:1/orders: ")
    assert len(said.splitlines()) == 1
    assert load_settings(EXAMPLE, {"RECONCILER_DB_URL": AWAY}).environment == "production"


@pytest.mark.parametrize("file", ["/nowhere/url", "postgresql://app:s3cret@h/orders", "a\0b"])
def test_a_file_that_cannot_be_read_is_2_without_what_it_might_be(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "upgrade", "inbox", "--url", f"@{file}"]) == 2
    said = capsys.readouterr().err
    assert "that should hold the URL: " in said
    assert "s3cret" not in said


def test_a_password_on_the_command_line_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "upgrade", "inbox", "--url", AWAY]) == 3
    warned, away = capsys.readouterr().err.splitlines()
    assert warned == f"reconciler: {WARNING}"
    assert away.startswith("reconciler: postgresql://127.0.0.1:1/orders: ")
    assert run(["db", "upgrade", "inbox", "--url", f"sqlite:///{tmp_path}/a.db"]) == 0
    assert capsys.readouterr().err == ""
    assert upgrade_database(f"sqlite:///{tmp_path}/a.db", "inbox") == schema.head("inbox")
