"""Units for systemd: what they start and set is what the product has. What systemd says of them: tests/packages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from reconciler.cli.app import app
from reconciler.settings.file import load_settings

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
SETTINGS = ROOT / "config/reconciler.toml"
AUDIT_DUE_DAYS = ROOT / "deploy/audit/audit-due-days.sh"
#: Stands for the product in the script's tests: answers with the day's code of a file, keeps what it was asked.
STAND_IN = """#!/bin/sh
echo "$@" >> "$0.asked"
while [ $# -gt 0 ]; do if [ "$1" = --out ]; then out=$2; fi; shift; done
code=$(sed -n "s|^${out##*/} ||p" "$0.codes")
if [ "${code:-0}" -le 1 ]; then mkdir -p "$out" && echo '{}' > "$out/result.json"; fi
exit "${code:-0}"
"""


def lines(unit: Path, name: str) -> list[str]:
    text = re.sub(r"\\\n\s*", "", unit.read_text(encoding="utf-8"))
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    for name in ("ledger_url", "outbox_url", "inbox_url"):
        (tmp_path / name).write_text("postgresql://name:password@db.example.org/orders\n")
    (tmp_path / "redis_url").write_text("redis://name:password@redis.example.org:6379/0\n")
    return tmp_path


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_gives_each_secret_that_its_settings_ask_for(unit: Path, secrets: Path) -> None:
    credentials = {line.partition(":")[0] for line in lines(unit, "LoadCredential")}
    given = dict(line.split("=", 1) for line in lines(unit, "Environment"))
    asked = {name: value for name, value in given.items() if name.startswith("RECONCILER_")}
    assert {value.removeprefix("%d/") for value in asked.values()} == credentials != set()
    environ = {name: value.replace("%d", str(secrets)) for name, value in asked.items()}
    settings = load_settings(SETTINGS, environ)
    assert all("password" in url.reveal() for url in settings.producers[0].outbox_urls)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    for start in lines(unit, "ExecStart") + lines(unit, "ExecStartPre"):
        program, *arguments = start.split()
        assert program.startswith("/opt/reconciler/bin/")
        name = Path(program).name
        assert arguments[0] in commands if name == "reconciler" else name == AUDIT_DUE_DAYS.name


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_no_unit_runs_as_root_and_each_login_is_made(unit: Path) -> None:
    text = (ROOT / "deploy/systemd/reconciler.sysusers.conf").read_text()
    made = re.findall(r'^u (\S+) +- +"[^":]+" ', text, re.MULTILINE)  # a colon ends a field of /etc/passwd
    assert [*lines(unit, "User"), *lines(unit, "Group")] == [unit.stem, unit.stem]
    assert unit.stem in made


def audit_due_days(folder: Path, *, days: int, codes: str = "") -> tuple[int, list[str]]:
    """Its exit code, and what it asked of the product: one line an audit."""
    product = folder / "product"
    product.write_text(STAND_IN)
    product.chmod(0o755)
    Path(f"{product}.codes").write_text(codes)
    asked = Path(f"{product}.asked")
    asked.write_text("")
    done = subprocess.run(
        [str(AUDIT_DUE_DAYS), str(folder / "out"), "--engine", "here"],
        env={"PATH": "/usr/bin:/bin", "AUDIT_DAYS": str(days), "RECONCILER": str(product)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, asked.read_text().splitlines()


def test_a_day_that_was_missed_is_audited_first_and_no_day_twice(tmp_path: Path) -> None:
    code, asked = audit_due_days(tmp_path, days=3)
    assert code == 0
    windows = [re.findall(r"--window (\S+)/(\S+) --timezone UTC --out \S*/(\S+) ", line)[0] for line in asked]
    assert all(start == out for start, _, out in windows)
    assert [end for _, end, _ in windows[:-1]] == [start for start, _, _ in windows[1:]]
    chain = [re.findall(r"--previous \S*/(\S+)", line) for line in asked]
    assert chain == [[], *([start] for start, _, _ in windows[:-1])]
    assert all(line.endswith("--engine here") for line in asked)
    assert audit_due_days(tmp_path, days=3) == (0, [])


def test_a_day_without_an_answer_is_asked_again_and_outweighs_violations(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    _, asked = audit_due_days(tmp_path / "first", days=3)
    oldest, middle, _ = (re.findall(r"--window (\S+)/", line)[0] for line in asked)
    code, _ = audit_due_days(tmp_path, days=3, codes=f"{oldest} 2\n{middle} 1\n")
    assert code == 2
    code, asked = audit_due_days(tmp_path, days=3)
    assert (code, [re.findall(r"--window (\S+)/", line)[0] for line in asked]) == (0, [oldest])


def test_an_audit_that_is_stopped_stops_the_days_after_it(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    _, asked = audit_due_days(tmp_path / "first", days=2)
    oldest = re.findall(r"--window (\S+)/", asked[0])[0]
    code, asked = audit_due_days(tmp_path, days=2, codes=f"{oldest} 130\n")
    assert (code, len(asked)) == (130, 1)
