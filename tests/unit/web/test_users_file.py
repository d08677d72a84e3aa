"""The file of users and tokens: what is in it, who reads it, and what two changes at once leave."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.web.access import users_file
from reconciler.web.access.users import WebUser, WebUsers, read_users, written_users
from reconciler.web.access.users_file import UsersFile, change_users, load_users
from reconciler.web.roles import WebRole
from tests.unit.web.web_world import WebWorld, with_three_users, with_token, with_user

HASH = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaGVk"
ENTRY = {"role": "viewer", "password_hash": HASH}
TOKEN = {"role": "viewer", "sha256": "0" * 64, "expires": "2030-01-01T00:00:00Z"}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = with_three_users(tmp_path)
    with_token(file, "nightly", WebRole.VIEWER, expires_at_ms=1_800_000_000_000)
    users = load_users(file)
    assert sorted(users.users) == ["admin", "operator", "viewer"]
    assert users.tokens["nightly"].expires_at_ms == 1_800_000_000_000
    assert read_users(written_users(users)) == users


def test_the_file_is_its_owners_alone_and_is_replaced_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    before = os.umask(0)
    try:
        with_user(file, "alice", WebRole.VIEWER)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o644)
        inode = file.stat().st_ino
        with file.open("rb") as reader:
            with_user(file, "bob", WebRole.VIEWER)
            assert b"bob" not in reader.read()
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_ino != inode
    assert [one.name for one in tmp_path.iterdir()] == ["users.json"]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    link = tmp_path / "users.json"
    link.symlink_to(tmp_path / "kept" / "users.json")
    with_user(link, "alice", WebRole.VIEWER)
    assert link.is_symlink()
    assert sorted(load_users(link).users) == ["alice"]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = with_three_users(tmp_path)
    before = file.read_bytes()
    with pytest.raises(InvalidValue):
        change_users(file, lambda users: users.without_user("nobody"))
    with pytest.raises(ConfigurationError, match="cannot be written"):
        change_users(tmp_path / "none" / "users.json", lambda users: users)
    assert file.read_bytes() == before
    file.write_bytes(before[:-10])
    with pytest.raises(ConfigurationError, match="no file of users"):
        with_user(file, "alice", WebRole.VIEWER)
    assert file.read_bytes() == before[:-10]


def test_two_changes_at_once_both_count(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    names = [f"user{number}" for number in range(8)]
    threads = [threading.Thread(target=with_user, args=(file, name, WebRole.VIEWER)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(load_users(file).users) == names


def test_a_folder_that_stays_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_file, "LOCK_PAUSE_SECONDS", 0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="locked"):
            with_user(tmp_path / "users.json", "alice", WebRole.VIEWER)
    finally:
        os.close(descriptor)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\nb", "../a", "x" * 101, "é", "a, b"])
def test_a_name_that_would_not_stand_well_on_record_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        WebUsers().with_entry(WebUser(name=name, role=WebRole.VIEWER, password_hash=HASH))
    with pytest.raises(ConfigurationError):
        read_users(json.dumps({"schema_version": 1, "users": {name: ENTRY}}).encode())


def test_a_user_and_a_token_do_not_have_one_name(tmp_path: Path) -> None:
    file = with_three_users(tmp_path)
    with pytest.raises(InvalidValue, match="must not have one name"):
        with_token(file, "viewer", WebRole.VIEWER, expires_at_ms=1)
    with pytest.raises(ConfigurationError, match="one name"):
        read_users(json.dumps({"schema_version": 1, "users": {"a": ENTRY}, "tokens": {"a": TOKEN}}).encode())


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema_version": 2},
        {"schema_version": 1, "user": {}},
        {"schema_version": 1, "users": {"a": ENTRY | {"role": "root"}}},
        {"schema_version": 1, "users": {"a": ENTRY | {"password_hash": "a secret in plain text"}}},
        {"schema_version": 1, "users": {"a": ENTRY | {"password": "a secret in plain text"}}},
        {"schema_version": 1, "tokens": {"a": TOKEN | {"sha256": "a secret in plain text"}}},
        {"schema_version": 1, "tokens": {"a": TOKEN | {"expires": "2030-01-01T00:00:00"}}},
        {"schema_version": 1, "tokens": {"a": {**TOKEN, "expires": "never"}}},
        [],
    ],
    ids=str,
)
def test_a_file_that_means_something_else_lets_nobody_in_and_is_not_repeated(document: object) -> None:
    with pytest.raises(ConfigurationError, match="no file of users") as refused:
        read_users(json.dumps(document).encode())
    assert "plain text" not in str(refused.value)


def test_no_hash_is_shown(tmp_path: Path) -> None:
    file = with_three_users(tmp_path)
    token = with_token(file, "nightly", WebRole.VIEWER, expires_at_ms=1)
    users = load_users(file)
    shown = repr(users) + str(users)
    assert "argon2" not in shown
    assert users.tokens["nightly"].digest not in shown
    assert token not in shown


def test_a_file_that_every_login_reads_is_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = with_three_users(tmp_path)
    WebWorld(tmp_path, users_file=str(file))
    assert "chmod o=" not in caplog.text
    file.chmod(0o604)
    WebWorld(tmp_path, users_file=str(file))
    assert "chmod o=" in caplog.text


def test_a_file_that_is_not_there_is_told_with_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="reconciler web user add"):
        WebWorld(tmp_path, users_file=str(tmp_path / "none.json"))


def test_a_damaged_file_is_told_once_and_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = with_three_users(tmp_path)
    clock = ManualClock()
    users = UsersFile(file, clock=clock)
    whole = file.read_bytes()
    for content, count in ((b"{", 1), (b"{", 1), (b"[]", 2), (whole, 3), (whole, 3)):
        file.write_bytes(content)
        clock.advance(1)
        if content == whole:
            assert len(users.current().users) == 3
        else:
            with pytest.raises(Exception, match="nobody is let in"):
                users.current()
        assert len(caplog.records) == count
