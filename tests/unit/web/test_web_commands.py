"""reconciler web user and token: what is asked, written and shown."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.web.access.passwords import PasswordComparison
from reconciler.web.access.tokens import digest_of
from reconciler.web.access.users_file import load_users
from reconciler.web.roles import WebRole

ROOT = Path(__file__).parents[3]
CONFIG = str(ROOT / "config" / "reconciler.toml")
PASSWORD = "correct horse battery"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "users.json"
    monkeypatch.setenv("RECONCILER_CONFIG", CONFIG)
    monkeypatch.setenv("RECONCILER_WEB__USERS_FILE", str(file))
    return file


def told(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return run(["web", *arguments])


def test_a_password_comes_from_standard_input_a_file_or_the_terminal(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(monkeypatch, f"{PASSWORD}1\n", "user", "add", "alice", "--role", "viewer") == 0
    (tmp_path / "password").write_text(f"{PASSWORD}2\n")
    of_file = ("--password-file", str(tmp_path / "password"))
    assert told(monkeypatch, "", "user", "add", "bob", "--role", "admin", *of_file) == 0
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return f"{PASSWORD}3"

    monkeypatch.setattr("getpass.getpass", answer)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert run(["web", "user", "add", "carol", "--role", "operator"]) == 0
    assert asked == ["Password of carol: ", "Again: "]
    users = load_users(file).users
    compare = PasswordComparison()
    for number, name in enumerate(("alice", "bob", "carol"), start=1):
        assert compare.is_right(users[name].password_hash, f"{PASSWORD}{number}")
        assert not compare.is_right(users[name].password_hash, PASSWORD)
    output = capsys.readouterr()
    assert PASSWORD not in output.out + output.err + file.read_text()


def test_a_typing_error_sets_no_password(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["correct horse battery", "correct horse batterz"])
    monkeypatch.setattr("getpass.getpass", lambda _question: next(answers))
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert run(["web", "user", "add", "alice", "--role", "viewer"]) == 2
    assert "differ" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "arguments", "why"),
    [
        ("short\n", ("user", "add", "alice", "--role", "viewer"), "12 to 1000 characters"),
        ("", ("user", "add", "alice", "--role", "viewer"), "12 to 1000 characters"),
        (f"{PASSWORD}\n", ("user", "add", "alice", "--role", "anybody"), "viewer, operator or admin"),
        (f"{PASSWORD}\n", ("user", "add", "a b", "--role", "viewer"), "characters"),
        ("", ("user", "add", "alice", "--role", "viewer", "--password-file", "/none"), "--password-file"),
        ("", ("user", "remove", "alice"), "no user has this name"),
        ("", ("token", "remove", "alice"), "no token has this name"),
        ("", ("token", "add", "ci", "--role", "viewer"), "--days"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    text: str,
    arguments: tuple[str, ...],
    why: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(monkeypatch, text, *arguments) == 2
    output = capsys.readouterr()
    assert why in output.err
    assert "short" not in output.err
    assert not file.exists()


def test_people_are_listed_and_taken_out(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bob", "alice"):
        assert told(monkeypatch, f"{PASSWORD}\n", "user", "add", name, "--role", "viewer") == 0
    assert told(monkeypatch, f"{PASSWORD}\n", "user", "add", "bob", "--role", "admin") == 0
    assert run(["web", "user", "remove", "alice"]) == 0
    capsys.readouterr()
    assert run(["web", "user", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["users"] == [{"name": "bob", "role": "admin"}]
    assert run(["web", "user", "list"]) == 0
    assert "argon2" not in capsys.readouterr().out


def test_a_token_is_shown_once_and_kept_as_a_digest(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["web", "token", "add", "ci", "--role", "operator", "--days", "30"]) == 0
    token = capsys.readouterr().out.strip()
    kept = load_users(file).tokens["ci"]
    assert (kept.digest, kept.role) == (digest_of(token), WebRole.OPERATOR)
    assert len(token) >= 43
    assert token not in file.read_text()
    assert run(["web", "token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ci" in listed
    assert token not in listed
    assert kept.digest not in listed
    assert run(["web", "token", "remove", "ci"]) == 0
    assert not load_users(file).tokens


def test_settings_may_be_named_before_the_command_or_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RECONCILER_CONFIG", raising=False)
    monkeypatch.setenv("RECONCILER_WEB__USERS_FILE", str(tmp_path / "users.json"))
    monkeypatch.chdir(tmp_path)
    assert told(monkeypatch, f"{PASSWORD}\n", "--config", CONFIG, "user", "add", "alice", "--role", "viewer") == 0
    assert run(["web", "user", "list", "--config", CONFIG]) == 0
    assert "alice" in capsys.readouterr().out


def test_without_a_place_for_users_nobody_is_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECONCILER_CONFIG", CONFIG)
    monkeypatch.delenv("RECONCILER_WEB__USERS_FILE", raising=False)
    assert told(monkeypatch, f"{PASSWORD}\n", "user", "add", "alice", "--role", "viewer") == 2
    assert "web.users_file is not set" in capsys.readouterr().err


@pytest.mark.parametrize("listen", ["::1:28379", "localhost", "localhost:0", "http://localhost:8378"])
def test_an_address_that_is_none_is_told_before_anything_is_served(
    listen: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["web", "--listen", listen]) == 2
    assert "--listen" in capsys.readouterr().err
    assert not file.exists()
