"""Secrets in settings: from a file, a command or as they are; never two of these, never shown."""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.audit.collect.configuration import read_configuration
from reconciler.contract import secret_sources
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.settings.secret_settings import SECRET_NAMES
from reconciler.wiring.connections import credentials

EXAMPLE = Path("config/reconciler.toml")
URL = "redis://:hunter2@127.0.0.1:6379/0"


def written(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def with_redis(tmp_path: Path, lines: str) -> Path:
    text = EXAMPLE.read_text().replace('url = "redis://127.0.0.1:6379/0"', lines)
    return Path(written(tmp_path, "reconciler.toml", text))


def command(text: str) -> str:
    return json.dumps([sys.executable, "-c", f"print({text!r})"])


def test_list_of_secrets_is_complete() -> None:
    def secrets(schema: object, path: str) -> set[str]:
        found = set()
        if isinstance(schema, dict):
            if schema.get("format") == "password":
                found.add(path)
            for name, inner in schema.items():
                match name:
                    case "properties":
                        for field, of_field in inner.items():
                            found |= secrets(of_field, f"{path}.{field}".lstrip("."))
                    case "items":
                        found |= secrets(inner, path if inner.get("format") == "password" else f"{path}[]")
                    case "$ref":
                        found |= secrets(definitions[inner.rpartition("/")[2]], path)
                    case "anyOf" | "allOf":
                        for one in inner:
                            found |= secrets(one, path)
        return found

    whole = Settings.model_json_schema()
    definitions = whole.pop("$defs")
    assert secrets(whole, "") == set(SECRET_NAMES)


@pytest.mark.parametrize("place", ["toml", "variable"])
@pytest.mark.parametrize("kind", ["file", "command"])
def test_secret_of_a_file_or_command_is_read_and_never_shown(place: str, kind: str, tmp_path: Path) -> None:
    value = json.dumps(written(tmp_path, "url", f"{URL}\n")) if kind == "file" else command(URL)
    if place == "toml":
        settings = load_settings(with_redis(tmp_path, f"url_{kind} = {value}"), {})
    else:
        settings = load_settings(EXAMPLE, {f"RECONCILER_REDIS__URL_{kind.upper()}": value.strip('"')})
    assert settings.redis.url.reveal() == URL
    assert "hunter2" not in f"{settings!r} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('url = "redis://h:1"\nurl_file = "/x"', "redis.url and redis.url_file: two sources of one secret; remove one"),
        ('url_file = "/x"\nurl_command = "x"', "redis.url_file and redis.url_command: two sources"),
        ('url_file = "/no/such/file"', "redis.url_file = '/no/such/file': cannot be read: No such file"),
        ("url_file = 7", "redis.url_file = (hidden): expected a file's name"),
        ('url_file = "hunter2"', "redis.url_file = (hidden): cannot be read"),
        ('url_command = "/no/such/program hunter2"', "redis.url_command = (hidden): cannot be run: No such file"),
        ('url_command = "sh \'hunter2"', "redis.url_command = (hidden): No closing quotation"),
        ("url_command = []", "redis.url_command = (hidden): names no program"),
        ("url_command = [7]", "redis.url_command = (hidden): expected a command"),
        ("accept_unverified_file = 7", "redis.accept_unverified_file: unknown setting"),
    ],
)
def test_source_that_cannot_be_used_is_told_by_name(lines: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings(with_redis(tmp_path, lines), {})
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("setting", ["redis.url", "metrics.listen"])
def test_file_that_the_login_may_not_read_is_not_blamed_for_its_name(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, opened = Path(written(tmp_path, "closed", "")), Path.open

    def refuse(path: Path, *how: Any, **more: Any) -> Any:
        if path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *how, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(EXAMPLE, {f"RECONCILER_{setting.upper().replace('.', '__')}_FILE": str(closed)})
    assert "Permission denied; let the login of this process read it" in str(refused.value)


def test_secret_that_cannot_be_read_is_not_called_missing_too_nor_blamed_for_what_it_would_have_allowed(
    tmp_path: Path,
) -> None:
    text = EXAMPLE.read_text().replace("answer_checks = false", "answer_checks = true")
    path = tmp_path / "reconciler.toml"
    path.write_text(re.sub(r"^outbox_url = .*$", 'outbox_url_file = "/no/outbox"', text, flags=re.MULTILINE))
    files = {"RECONCILER_REDIS__URL_FILE": "/no/redis", "RECONCILER_LEDGER__URL_FILE": "/no/ledger"}
    with pytest.raises(ConfigurationError, match=r"problem\(s\)") as refused:
        load_settings(path, files | {"RECONCILER_LEDGER__KEEP_DAYS": "none"})
    first, *lines = str(refused.value).splitlines()
    said = sorted(line.split(" = ")[0].strip() for line in lines)
    assert said == [
        "RECONCILER_LEDGER__KEEP_DAYS: ledger.keep_days",
        "RECONCILER_LEDGER__URL_FILE",
        "RECONCILER_REDIS__URL_FILE",
        "producers[0].outbox_url_file",
    ]
    assert f"{len(lines)} problem(s)" in first


def test_two_variables_of_one_secret_are_refused_and_one_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "url", URL)
    for in_toml in ('url_command = "never run"', 'url = "redis://h:1"', 'url_file = "/no/such/file"'):
        settings = load_settings(with_redis(tmp_path, in_toml), {"RECONCILER_REDIS__URL_FILE": file})
        assert settings.redis.url.reveal() == URL
    with pytest.raises(ConfigurationError, match=r"redis\.url and redis\.url_file: two sources"):
        load_settings(EXAMPLE, {"RECONCILER_REDIS__URL_FILE": file, "RECONCILER_REDIS__URL": URL})


def test_wrong_url_of_a_file_names_the_variable_and_hides_the_password(tmp_path: Path) -> None:
    file = written(tmp_path, "url", "oracle://u:hunter2@db/orders")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(EXAMPLE, {"RECONCILER_LEDGER__URL_FILE": file})
    assert "RECONCILER_LEDGER__URL_FILE: ledger.url = oracle://db/orders: expected a SQLAlchemy" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("form", ["lines", "json", "files"])
def test_several_databases_of_a_secret_change_one_by_one(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.settings.secret_settings.FILE_KEEP_SECONDS", 0.0)
    urls = ["postgresql://u:one@a/x", "postgresql://u:two@b/x"]

    def write() -> str:
        if form == "files":
            return json.dumps([written(tmp_path, f"url{n}", url) for n, url in enumerate(urls)])
        return written(tmp_path, "urls", "\n".join(urls) if form == "lines" else json.dumps(urls))

    settings = load_settings(EXAMPLE, {"RECONCILER_PRODUCERS__0__OUTBOX_URL_FILE": write()})
    assert [url.reveal() for url in settings.producers[0].outbox_urls] == urls
    urls[1] = "postgresql://u:three@b/x"
    write()
    assert [url.reveal() for url in settings.producers[0].outbox_urls] == urls
    assert [url.ask_again("postgresql://u:two@b/x") for url in settings.producers[0].outbox_urls] == [True, True]


def test_signature_secrets_of_a_file_change_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.settings.secret_settings.FILE_KEEP_SECONDS", 0.0)
    file = written(tmp_path, "secret", "old\n")
    settings = load_settings(EXAMPLE, {"RECONCILER_UNIQUE_KEY_TOPIC__SIGNATURE_SECRET_FILE": file})
    keys = settings.unique_key_topic.signature_key
    assert keys is not None
    assert keys() == [b"old"]
    written(tmp_path, "secret", "new\nold\n")
    assert keys() == [b"new", b"old"]
    written(tmp_path, "secret", "")
    assert keys() == [b"new", b"old"], "a file that is being written takes nothing away"
    listed = load_settings(EXAMPLE, {"RECONCILER_UNIQUE_KEY_TOPIC__SIGNATURE_SECRET": '["new", "o l d"]'})
    assert listed.unique_key_topic.signature_key is not None
    assert listed.unique_key_topic.signature_key() == [b"new", b"o l d"]


def test_key_of_the_brokers_is_asked_at_each_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.settings.secret_settings.FILE_KEEP_SECONDS", 0.0)
    file = written(tmp_path, "key", "one")
    environ = {"RECONCILER_ROCKETMQ__ACL__ACCESS_KEY": "us", "RECONCILER_ROCKETMQ__ACL__SECRET_KEY_FILE": file}
    keys = credentials(load_settings(EXAMPLE, environ).rocketmq.acl)
    assert keys is not None
    assert keys.current_secret_key() == "one"
    written(tmp_path, "key", "two")
    assert keys.current_secret_key() == "two"


def test_file_names_of_tls_are_settings_and_no_sources() -> None:
    settings = load_settings(EXAMPLE, {"RECONCILER_ROCKETMQ__TLS__KEY_FILE": "/etc/key.pem"})
    assert settings.rocketmq.tls.key_file == "/etc/key.pem"


def test_audit_reads_secrets_from_files_and_commands_too(tmp_path: Path) -> None:
    environ = {
        "RECONCILER_LEDGER__URL_COMMAND": command("postgresql://u:hunter2@db/ledger"),
        "RECONCILER_SUBSCRIPTIONS__0__INBOX_URL_FILE": written(tmp_path, "url", "sqlite:////a\nsqlite:////b"),
    }
    found = read_configuration(EXAMPLE, environ)
    assert found.ledger_url == "postgresql://u:hunter2@db/ledger"
    assert [*found.inbox_urls.values()] == [("sqlite:////a", "sqlite:////b")]
    assert "hunter2" not in repr(found)


def test_commands_of_the_settings_have_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS_MAX", 0.2)
    hangs = json.dumps([sys.executable, "-c", "import signal; signal.pause()"])
    with pytest.raises(ConfigurationError, match="took longer than"):
        load_settings(EXAMPLE, {"RECONCILER_REDIS__URL_COMMAND": hangs})
