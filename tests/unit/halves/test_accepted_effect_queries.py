"""`reconciler query accept` tries the effect queries of a topic, too, on messages that the group has passed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.commands.diagnosis import run_checks
from reconciler.commands.doctor.commit_queries import query_checks
from reconciler.settings.file import load_settings
from reconciler.sql.schema import upgrade
from reconciler.wiring.commit_queries import why_not_accepted
from reconciler.wiring.connections import Connections
from tests.settings_file import effect_queries_file
from tests.unit.embedded.check_back_stage import Stage, stage
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.shop_of_halves import settings_of, shop_of

HALVES = 25
TRUST = "doctor.effect-query-trust"


@pytest.fixture
def play() -> Iterator[Stage]:
    with stage("5.x") as made:
        yield made


@pytest.fixture
def config(tmp_path: Path, play: Stage) -> Path:
    """A shop whose effects are rows of `bills`; of the delivered messages all but the newest five lie below the group's
    offset."""
    upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    shop_of(tmp_path, play, halves=HALVES)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE bills (number TEXT PRIMARY KEY, status TEXT)")
        billed = [(f"c{number}",) for number in range(HALVES - 5)]
        shop.executemany("INSERT INTO bills VALUES (?, 'BILLED')", billed)
    play.client.call(200, b'{"groupName": "billing"}')
    play.client.call(15, consumerGroup="billing", topic=TOPIC, queueId=2, commitOffset=HALVES - 5)
    effects = effect_queries_file(tmp_path, "billing", topic=TOPIC)
    return settings_of(play, tmp_path, of_subscription=f'effect_query = "{effects}"')


Accept = Callable[[], tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def accept(config: Path, capsys: pytest.CaptureFixture[str]) -> Accept:
    """Exit code, and the findings about the effect query by aspect."""

    def accepted() -> tuple[int, dict[str, dict[str, str]]]:
        code = run(["query", "accept", TOPIC, "--config", str(config), "--output", "json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        checks = [(one["facts"]["check"], one) for one in findings]
        found = {c["fields"]["aspect"]: one for c, one in checks if c["code"] == "doctor.effect-query"}
        return code, found | dict.fromkeys(["trust"], next(one for c, one in checks if c["code"] == TRUST))

    return accepted


def is_accepted(config: Path) -> bool:
    with Connections(load_settings(config, {})) as connections:
        return why_not_accepted(connections, TOPIC) is None


def test_the_effects_of_what_the_group_has_passed_are_found_before_anything_is_trusted(
    config: Path, accept: Accept
) -> None:
    assert not is_accepted(config)
    code, found = accept()
    assert code == 0
    assert found["delivered-messages"]["found"] == "of 20 messages that the group has passed it finds 20 effects"
    assert is_accepted(config)


def test_a_query_that_finds_no_effect_keeps_the_topic_unaccepted(config: Path, tmp_path: Path, accept: Accept) -> None:
    effect_queries_file(tmp_path, "billing", topic=TOPIC, applied="SENT")
    code, found = accept()
    assert (code, found["trust"]["level"], is_accepted(config)) == (1, "fail", False)


def test_a_changed_effect_query_is_shadow_mode_again(config: Path, tmp_path: Path, accept: Accept) -> None:
    assert accept()[0] == 0
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "effects.toml").read_text().replace("FROM bills", "FROM bills b"))
    config.write_text(config.read_text().replace("effects.toml", "other.toml"))
    assert not is_accepted(config)


def test_doctor_looks_at_the_database_of_an_effect_query(config: Path) -> None:
    with Connections(load_settings(config, {})) as connections:
        found = run_checks([*query_checks(connections)])
    aspects = {str(one.check.fields["aspect"]) for one in found if one.check.code.name == "doctor.effect-query"}
    assert aspects == {"login", "read-only", "columns", "bounds", "role"}
