"""docs/how-to/try-with-compose.md, with try-an-alert.md before its end, run as they are: from nothing to a watched,
alerting reconciler, without an engine.

Other than for a person: a password is typed into the standard input, durations of rounds, sweeps, scrapes and of the
rules' `for` are short, and Grafana is not there (what it would read is looked at).
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
from pathlib import Path

import pytest
import yaml

from tests.alerts.scaled_rules import FACTOR
from tests.compose.machine import machine, require_machines
from tests.pages import Shell, run_step, steps_of
from tests.services import postgres, prometheus, redis_server
from tests.services.prometheus import milliseconds
from tests.services.requirements import auditor_tools_missing, java_missing, require

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
NAME = "how-to/try-with-compose.md"
PAGE = (ROOT / "docs" / NAME).read_text(encoding="utf-8")
ALERT = "how-to/try-an-alert.md"
PASSWORD = "correct horse battery staple"
#: Of the health checks, and of this test.
_PROGRAMS = {"wget": "wget", "curl": "curl", "psql": "postgresql-client", "redis-cli": "redis-tools"}
#: Addresses of the page -> a path that is there in every build of the program.
_ANSWERING = {"https://localhost:8378": "/login", "http://localhost:9090": "/api/v1/alerts"}
_QUICK = """
[rounds]
interval_seconds = 3.0
skew_margin_seconds = 1.0

[sweep]
interval_seconds = 2.0
sweep_after_seconds = 2.0

[metrics]
read_interval_seconds = 5.0
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy whose compose file waits for less."""
    for missing in (
        java_missing(), redis_server.missing(), postgres.missing(), prometheus.missing(), auditor_tools_missing(),
    ):  # fmt: skip
        require(missing)
    for program, package in _PROGRAMS.items():
        require(None if shutil.which(program) else f"{program} is missing: apt-get install {package} (Debian, Ubuntu)")
    require_machines()
    tmp_path.chmod(0o755)
    repository = tmp_path / "repository"
    shutil.copytree(ROOT / "deploy", repository / "deploy", ignore=shutil.ignore_patterns("secrets", ".env"))
    (repository / "docs").symlink_to(ROOT / "docs")
    folder = repository / "deploy/compose"
    _change(folder / "prometheus.yml", "_interval: 15s", "_interval: 1s", times=2)
    _change(folder / "reconciler.toml", 'group = "billing"\n', 'group = "billing"\ngrace_period_seconds = 3.0\n')
    _change(folder / "reconciler.toml", "\n[history]", f"{_QUICK}\n[history]")
    # A JVM that lives for a minute spends half of it on the wheel of messages with a delay, of which there are none.
    _change(folder / "broker.conf", "fileReservedTime=72\n", "fileReservedTime=72\ntimerWheelEnable=false\n")
    _hurry(repository / "deploy/prometheus/rules.yml")
    return repository


def _change(file: Path, old: str, new: str, *, times: int = 1) -> None:
    text = file.read_text()
    assert text.count(old) == times, f"{file.name}: {old!r}"
    file.write_text(text.replace(old, new))


def _hurry(file: Path) -> None:
    """Divides the rules' `for`; their thresholds stay."""
    document = yaml.safe_load(file.read_text())
    for rule in document["groups"][0]["rules"]:
        minutes = int(rule["for"].removesuffix("m"))
        rule["for"] = milliseconds(60 * minutes / FACTOR)
    file.write_text(yaml.safe_dump(document))


def test_every_command_of_the_page_works_as_written(repository: Path, tmp_path: Path) -> None:
    first, stops, last = PAGE.partition("## 8.")
    assert stops
    alert = (ROOT / "docs" / ALERT).read_text(encoding="utf-8")
    with machine(repository, state=tmp_path / "machine", typed=PASSWORD) as shell:
        try:
            for step, outputs in [*steps_of(NAME, first), *steps_of(ALERT, alert)]:
                run_step(shell, step, outputs)
            _the_console_shows_the_loss(shell)
            _the_published_addresses_answer(shell)
            _grafana_would_find_its_numbers(shell, repository / "deploy/compose")
            _an_audit_of_a_day_before_the_first_is_no_answer(shell)
        except AssertionError as error:
            error.add_note(shell.run("docker compose ps; tail -n 30 $COMPOSE_STATE/logs/*")[1])
            raise
        for step, outputs in steps_of(NAME, last):
            run_step(shell, step, outputs)
        left = _asked(shell, "ls $COMPOSE_STATE/volumes; ps -e -o comm=").split()
        assert set(left) <= {"bash", "ps", "ls", "python"}, "the shell, and what publishes ports"


def _asked(shell: Shell, words: str) -> str:
    code, said = shell.run(words)
    assert code == 0, f"{words}\n{said}"
    return said


def _the_console_shows_the_loss(shell: Shell) -> None:
    curl = "curl --silent --show-error --insecure --cookie-jar cookies --cookie cookies"
    form = urllib.parse.urlencode({"name": "alice", "password": PASSWORD})
    _asked(
        shell, f"{curl} --fail --header 'Origin: https://localhost:8378' --data '{form}' https://localhost:8378/login"
    )
    found = json.loads(_asked(shell, f"{curl} https://localhost:8378/api/v1/candidates"))
    assert [(one["topic"], one["loss_verdict"], one["state"]) for one in found["items"]] == [
        ("ORDERS", "LOST_CONFIRM", "SETTLED")
    ]
    assert "LOST_CONFIRM" in _asked(shell, f"{curl} https://localhost:8378/losses")
    _asked(shell, "rm cookies")


def _the_published_addresses_answer(shell: Shell) -> None:
    """Those that the page names, but Grafana's."""
    assert set(re.findall(r"<(https?://localhost:\d+)[^>]*>", PAGE)) == {*_ANSWERING, "http://localhost:3000"}
    for address, path in _ANSWERING.items():
        _asked(shell, f"curl --silent --show-error --fail --insecure --output /dev/null {address}{path}")


def _grafana_would_find_its_numbers(shell: Shell, folder: Path) -> None:
    """Its data source answers under the name of the file, and knows what the dashboard's first variable asks for."""
    (source,) = yaml.safe_load((folder / "grafana/datasource.yml").read_text())["datasources"]
    board = json.loads((folder / "../grafana/reconciler.json").read_text())
    variable = next(one for one in board["templating"]["list"] if one["name"] == "job")
    (metric,) = re.findall(r"label_values\((\w+), job\)", variable["query"]["query"])
    said = _asked(shell, f"docker compose exec web wget -q -O - '{source['url']}/api/v1/query?query={metric}'")
    jobs = {(one["metric"]["job"], one["metric"]["instance"]) for one in json.loads(said)["data"]["result"]}
    assert jobs == {("compose", "run:9378"), ("compose", "sweep:9378")}


def _an_audit_of_a_day_before_the_first_is_no_answer(shell: Shell) -> None:
    code, said = shell.run("docker compose run --rm --env AUDIT_DAYS=1 audit")
    assert code == 2, said
    assert json.loads(said.splitlines()[-1])["reason"] in ("gap", "window", "inputs"), said
