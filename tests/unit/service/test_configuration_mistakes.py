"""Mistakes that people make in the settings: `config check` names field, value and remedy, and never a traceback."""

from __future__ import annotations

import importlib.util
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.commands.run import run_service
from reconciler.settings.file import load_settings
from reconciler.sql import engines

EXAMPLE = Path("config/reconciler.toml")
SECRET = "hunter2"
REDIS = 'url = "redis://127.0.0.1:6379/0"'
LEDGER = 'url = "sqlite:////var/lib/reconciler/ledger.db"'

#: What is written in the file instead of what, and what has to be told: field, value, remedy.
IN_THE_FILE: list[tuple[str, str, str]] = [
    ('environment = "production"', "", "environment: missing; config/reconciler.toml shows an example"),
    ('environment = "production"', 'environment = "pro duction"', "environment = 'pro duction': String should match"),
    ('environment = "production"', "environment = production", "no valid TOML: Invalid value (at line"),
    ('environment = "production"', 'environment = "a"\nenvironment = "b"', "no valid TOML: Cannot overwrite a value"),
    ("[redis]", "[reddis]", "reddis: unknown setting; remove it or correct its spelling"),
    ("[redis]", "[[redis]]", "redis = a list: Input should be a valid"),
    ("[[producers]]", "[producers]", "producers = a table: Input should be a valid list"),
    ("[[subscriptions]]", "[[subscribtions]]", "subscribtions: unknown setting; remove it or correct its spelling"),
    (REDIS, "", "redis.url: missing; config/reconciler.toml shows an example"),
    (REDIS, 'url = "127.0.0.1:6379"', "redis.url = (hidden): expected scheme://user:password@host:port"),
    (
        REDIS,
        'url = "redis://127.0.0.1/zero"',
        "redis.url = redis://127.0.0.1/zero: expected the number of a database behind the host",
    ),
    (REDIS, f'url = "redis://:{SECRET}@h/0?foo=bar"', "redis.url = redis://h/0: unknown parameter 'foo'"),
    (REDIS, f'url = "redis://:{SECRET}@h1:6379,h2:6379/0"', "redis.url = redis://h1:6379,h2:6379/0: several hosts are"),
    (REDIS, f'url = "redis://:{SECRET}#1@h/0"', "redis.url = (hidden): expected scheme://user:password@host:port"),
    (REDIS, 'url = ["redis://h/0"]', "redis.url = a list: expected a text"),
    (LEDGER, f'url = "postgresql://u:{SECRET}@h/d?foo=bar"', "ledger.url = postgresql://h/d: unknown parameter 'foo'"),
    (LEDGER, f'url = "postgresql+asyncpg://u:{SECRET}@h/d"', "ledger.url = postgresql://h/d: the driver asyncpg is"),
    (LEDGER, f'url = "postgresql+psycop://u:{SECRET}@h/d"', "ledger.url = postgresql://h/d: unknown driver; write"),
    (LEDGER, f'url = "postgres://u:{SECRET}@h/d"', "ledger.url = postgres://h/d: expected a SQLAlchemy URL of sqlite,"),
    (LEDGER, f'url = "postgresql://u:a@{SECRET}@h/d"', "ledger.url = (hidden): expected scheme://user:password@host"),
    (LEDGER, f'url = "postgresql://u:1/{SECRET}@h/d"', "ledger.url = (hidden): percent-encode special characters"),
    (LEDGER, f'url = "postgresql://u@h/d?password={SECRET}"', "ledger.url = postgresql://h/d: put the password before"),
    (LEDGER, 'url = "postgresql://u@h:5432"', "ledger.url = postgresql://h:5432: the URL names no database"),
    (LEDGER, 'url = "sqlite://ledger.db"', "ledger.url = sqlite://ledger.db: expected sqlite:////absolute/path"),
    (LEDGER, "url = 5432", "ledger.url = (hidden): expected a text"),
    (LEDGER, f'url = "postgresql://u:{SECRET}@{"h" * 64}/d"', "ledger.url = (hidden): a host is malformed, or a port"),
    (LEDGER, f'url = "postgresql://u:{SECRET}@db..local/d"', "ledger.url = (hidden): a host is malformed, or a port"),
    ("[ledger]", f'["redis://u:{SECRET}@h"]\n[ledger]', "(hidden): unknown setting; remove it or correct its spelling"),
    ("keep_days = 90", f"keep_days = {'9' * 5_000}", "no valid TOML: Exceeds the limit"),
    ('tags = "*"', 'tags = " || "', "tags = ' || ': names no tag: the group would take nothing; write '*' for all"),
    ("[history]", f'[history]\npath = "s3://u:{SECRET}@b"', "history.path = s3://b: expected a folder of this machine"),
    ("[history]", '[history]\npath = "/a\\u0000"', "history.path = '/a\\x00': expected a folder of this machine"),
    ("[history]", '[history]\nspool_path = "/spool"', "history.spool_path is set and history.path is not: no history"),
    (
        "[repairs]",
        "[repairs]\ncheck_back_wait_seconds = inf",
        "check_back_wait_seconds = inf: Input should be less than",
    ),
    ("keep_days = 90", "keep_days = -1", "ledger.keep_days = -1: Input should be greater than or equal to 1"),
]

#: Variables, and what has to be told.
IN_THE_ENVIRONMENT: list[tuple[str, str, str]] = [
    (
        "RECONCILER_ROCKETMQ__NAME_SERVERS",
        f"http://u:{SECRET}@h:9876",
        "name_servers = http://h:9876: entry 1 of 1 is no",
    ),
    ("RECONCILER_ROCKETMQ__NAME_SERVERS", "a:9876;b", "name_servers = 'a:9876;b': entry 2 of 2 is no host:port"),
    ("RECONCILER_ROCKETMQ__NAME_SERVERS", "", "rocketmq.name_servers = '': expected host:port, several separated by"),
    (
        "RECONCILER_ROCKETMQ__RETIRED_BROKERS",
        "broker-a",
        "rocketmq.retired_brokers = 'broker-a': Input should be a valid",
    ),
    ("RECONCILER_ROUNDS__INTERVAL_SECONDS", "5s", "rounds.interval_seconds = '5s': Input should be a valid number"),
    ("RECONCILER_ROUNDS_INTERVAL_SECONDS", "5", "rounds_interval_seconds: unknown setting; remove it or correct"),
    ("RECONCILER_LEGER__URL", "sqlite://", "RECONCILER_LEGER__URL: leger: unknown setting; remove it or correct"),
    ("RECONCILER_REPAIRS__ENABLED", "maybe", "repairs.enabled = 'maybe': Input should be a valid boolean"),
    (
        "RECONCILER_REDIS__URL_FILE",
        f"redis://:{SECRET}@h/0",
        "RECONCILER_REDIS__URL_FILE = redis://h/0: cannot be read",
    ),
    (
        "RECONCILER_REDIS__URL_FILE",
        "/nowhere/url",
        "RECONCILER_REDIS__URL_FILE = '/nowhere/url': cannot be read: No such",
    ),
    (
        "RECONCILER_UNIQUE_KEY_TOPIC__SIGNATURE_SECRET_FILE",
        SECRET,
        "SIGNATURE_SECRET_FILE = (hidden): cannot be read: No such file or directory; name a file that holds the value",
    ),
    ("RECONCILER_", "a", "'RECONCILER_': names no setting; remove it or correct its spelling"),
    ("RECONCILER_REDIS__\udcff", "a", "'RECONCILER_REDIS__\\udcff': names no setting; remove it or correct its"),
    ("RECONCILER_SUBSCRIPTIONS__²__TAGS", "a", "RECONCILER_SUBSCRIPTIONS__²__TAGS: there is no entry ² in the file"),
    (
        f"RECONCILER_UNIQUE_KEY_TOPIC__TOPICS__redis://u:{SECRET}@h",
        "X",
        "unique_key_topic.topics has redis://h, which no producer sends; correct the name",
    ),
    ("RECONCILER_SUBSCRIPTIONS__7__TAGS", "a", "RECONCILER_SUBSCRIPTIONS__7__TAGS: there is no entry 7 in the file"),
    ("RECONCILER_SUBSCRIPTIONS__0__TOPIC", "ORDRES", "topic = 'ORDRES': no producer sends it; add it to topics of a"),
    ("RECONCILER_SUBSCRIPTIONS__0__GROUP", "bill ing", "group = 'bill ing': a group has 1 to 160 of the characters"),
    (
        "RECONCILER_SUBSCRIPTIONS__0__REPAIR_ORDER",
        '["end", "pray"]',
        "repair_order[1] = 'pray': Input should be 'end',",
    ),
    ("RECONCILER_PRODUCERS", "[not json", "producers = '[not json': Input should be a valid list"),
    ("RECONCILER_LOGGING__LEVEL", "verbose", "logging.level = 'verbose': Input should be 'debug', 'info', 'warning'"),
]


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("RECONCILER_"):
            monkeypatch.delenv(name)


def check(config: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """What `config check` says of settings that cannot work."""
    assert run(["config", "check", "--config", str(config)]) == 2
    written = capfd.readouterr()
    assert written.out == ""
    assert "Traceback" not in written.err
    assert SECRET not in written.err
    return written.err


@pytest.mark.parametrize(("right", "wrong", "told"), IN_THE_FILE)
def test_a_mistake_in_the_file(
    right: str, wrong: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = EXAMPLE.read_text()
    assert right in text, "the example has changed: change the mistake with it"
    path = tmp_path / "reconciler.toml"
    path.write_text(text.replace(right, wrong, 1))
    assert told in check(path, capfd)


@pytest.mark.parametrize(("name", "value", "told"), IN_THE_ENVIRONMENT)
def test_a_mistake_in_the_environment(
    name: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert told in check(EXAMPLE, capfd)


def since_set(folder: Path, ahead: timedelta) -> tuple[Path, str]:
    """Settings with a `since` that is ahead of now, and its text."""
    path, since = folder / "reconciler.toml", (datetime.now(UTC) + ahead).isoformat()
    group = 'group = "billing"'
    assert group in EXAMPLE.read_text()
    path.write_text(EXAMPLE.read_text().replace(group, f"{group}\nsince = {since}", 1))
    return path, since


@pytest.mark.parametrize("command", ["config check", "run", "once"])
@pytest.mark.parametrize("ahead", [timedelta(days=365), timedelta(minutes=2)])
def test_a_since_of_the_future_is_refused_before_anything_is_connected_to(
    command: str, ahead: timedelta, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, since = since_set(tmp_path, ahead)
    assert run([*command.split(), "--config", str(path)]) == 2
    assert f"subscriptions.since = '{since}': it lies in the future" in capfd.readouterr().err


def test_a_since_that_has_passed_is_taken(tmp_path: Path) -> None:
    path, _ = since_set(tmp_path, timedelta(seconds=-5))
    assert run(["config", "check", "--config", str(path)]) == 0


def test_the_mode_full_is_accepted_and_both_config_check_and_run_say_that_it_is_not_needed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, told = tmp_path / "reconciler.toml", 'rounds.mode = "full" is not needed'
    for text, is_told in ((EXAMPLE.read_text(), False), (EXAMPLE.read_text().replace("# mode =", "mode ="), True)):
        path.write_text(text)
        assert run(["config", "check", "--config", str(path)]) == 0
        assert (told in capfd.readouterr().err) is is_told
        stop = threading.Event()
        stop.set()
        run_service(load_settings(path, {}), stop)
        assert [r.detail.startswith(told) for r in caplog.records if r.message == "setting_not_needed"] == (  # type: ignore[attr-defined]  # a field of the line
            [True] if is_told else []
        )


def test_passwords_in_a_file_that_everybody_may_read_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, url = tmp_path / "reconciler.toml", 'url = "redis://127.0.0.1:6379/0"'
    text = EXAMPLE.read_text()
    assert url in text, "the example has changed: change the mistake with it"
    with_password = text.replace(url, f'url = "redis://u:{SECRET}@127.0.0.1:6379/0"')
    for content, mode, is_told in ((text, 0o644, False), (with_password, 0o644, True), (with_password, 0o640, False)):
        path.write_text(content)
        path.chmod(mode)
        assert run(["config", "check", "--config", str(path)]) == 0
        told = capfd.readouterr().err
        assert ("which holds the password of redis.url: chmod o= " in told) is is_told
        assert SECRET not in told


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(EXAMPLE.read_text(), encoding="utf-8-sig")
    assert run(["config", "check", "--config", str(path)]) == 0


@pytest.mark.parametrize("kind", ["folder", "binary", "missing"])
def test_a_file_that_holds_no_settings(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    assert f"{path}: " in check(path, capfd)


def test_a_driver_that_is_not_installed_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def find_spec(name: str) -> object:
        return None if name in ("psycopg", "pymysql") else importlib.util.find_spec(name)

    monkeypatch.setattr(engines, "find_spec", find_spec)
    monkeypatch.setenv("RECONCILER_SUBSCRIPTIONS__0__INBOX_URL", "mysql://h/billing")
    told = check(EXAMPLE, capfd)
    page = "(docs/how-to/install.md#extras)"
    assert f"producers[0].outbox_url: postgresql:// needs psycopg: install the extra postgres {page}" in told
    assert f"subscriptions[0].inbox_url: mysql:// needs pymysql: install the extra mysql {page}" in told
