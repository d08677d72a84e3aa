"""`reconciler demo --classic`: what the original algorithm finds and loses, judged by the databases that it leaves."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.command import reconciler

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(900)]


def keys(database: Path, sql: str) -> set[str]:
    with closing(sqlite3.connect(database)) as db:
        return {row[0] for row in db.execute(sql)}


def test_the_original_loses_a_crash_s_message_on_4_2_and_all_on_5_x_and_the_audit_names_exactly_these(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "demo"
    ended = reconciler("demo", "--classic", "--keep", folder, "--output", "json", timeout_seconds=800)
    assert ended.exit_code == 0, ended.stderr
    for family, handed_over, fates in (
        ("4.2", 2, {"group-dead"}),
        ("5.x", 0, {"group-dead", "end-dropped"}),
    ):
        told, place = ended.document[family], folder / family
        assert (told["handed_over"], told["not_found"]) == (handed_over, 2 - handed_over)
        assert told["missing_after_crash"] == 0, "EXEC emptied both sets, and the process is gone"
        committed = keys(place / "orders.db", "SELECT unique_key FROM reconciler_outbox WHERE state <> 'ROLLED_BACK'")
        lost = committed - keys(place / "reference.db", "SELECT key FROM effects")
        with closing(sqlite3.connect(place / "truth.db")) as db:
            fate_of = dict(db.execute("SELECT key, fate FROM attempts"))
        assert {fate_of[key] for key in lost} == fates
        assert told["audit"]["LOST"] == len(lost)
        findings = json.loads((place / "audit" / "findings.json").read_text())
        assert {finding["key"] for finding in findings if finding["class"] == "LOST"} == lost
        assert "there is no history" in (place / "audit" / "report.html").read_text()


@pytest.mark.parametrize("given", [("--messages", "40"), ("--family", "4.9"), ("--no-audit",), ("--namesrv", "a:9876")])
def test_the_script_of_the_original_refuses_what_it_would_ignore(given: tuple[str, ...]) -> None:
    ended = reconciler("demo", "--classic", *given, timeout_seconds=30)
    assert ended.exit_code == 2
    assert "leave it out" in ended.stderr
