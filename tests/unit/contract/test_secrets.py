"""Secrets that show themselves, sources that hang or lie, and a new secret that is not taken."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
from functools import partial
from pathlib import Path

import pytest

from reconciler.contract import secret_sources
from reconciler.contract.announcement import is_signed, sign
from reconciler.contract.secret import SecretText
from reconciler.contract.secret_sources import (
    KeptSecret,
    UnreadableSecret,
    read_secret_file,
    run_secret_command,
    secret_from_command,
    secret_from_file,
)
from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.acl import AclCredentials

MARK = "hunter2-MARK"


class Answers:
    """A source whose answers and clock the test sets."""

    def __init__(self, text: str) -> None:
        self.text: str | UnreadableSecret = text
        self.asked = 0
        self.now = 0.0

    def read(self) -> str:
        self.asked += 1
        if isinstance(self.text, UnreadableSecret):
            raise self.text
        return self.text

    def kept(self, keep_seconds: float = 60) -> KeptSecret:
        return KeptSecret(self.read, name="redis.url", keep_seconds=keep_seconds, monotonic=lambda: self.now)


def test_secret_is_in_no_text_that_is_made_of_it() -> None:
    secret = SecretText(MARK)
    made = f"{secret} {secret!r} {secret!s:>40} {[secret]} { ({'url': secret}) } %s" % secret
    assert MARK not in made
    assert secret.reveal() == MARK
    assert copy.deepcopy({"a": secret})["a"] is secret
    with pytest.raises(TypeError, match="written nowhere"):
        pickle.dumps(secret)


def test_two_settings_of_one_service_share_a_pool_also_after_one_of_them_changed() -> None:
    answers = Answers("redis://a")
    changing = SecretText("redis://a", answers.kept(keep_seconds=0))
    pools = {changing: 1}
    answers.text = "redis://b"
    assert changing.reveal() == "redis://b"
    assert pools[SecretText("redis://a")] == 1
    assert changing == "redis://a"


def test_keys_of_brokers_take_a_secret_as_they_take_a_function(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{MARK}\n")
    credentials = AclCredentials(access_key="a", secret_key=secret_from_file(tmp_path / "key"))
    assert credentials.current_secret_key() == MARK
    assert MARK not in repr(credentials)


def test_source_is_asked_again_when_its_time_is_over_and_not_before() -> None:
    answers = Answers("one")
    kept = answers.kept(keep_seconds=60)
    answers.text, answers.now = "two", 59.0
    assert (kept.current(), answers.asked) == ("one", 1)
    answers.now = 60.0
    assert (kept.current(), answers.asked) == ("two", 2)


def test_refused_secret_is_asked_for_at_once_and_a_storm_of_refusals_asks_once() -> None:
    answers = Answers("one")
    kept = answers.kept()
    answers.text, answers.now = "two", 1.5
    assert kept.ask_again("one")
    assert kept.current() == "two"
    assert kept.ask_again("one"), "another thread has asked already"
    assert answers.asked == 2
    assert not kept.ask_again("two"), "it was read just now"
    assert answers.asked == 2
    answers.now = 3.0
    assert not kept.ask_again("two")
    assert answers.asked == 3


@pytest.mark.parametrize("answer", [UnreadableSecret("ended with 1"), ""])
def test_source_that_fails_later_leaves_the_secret_and_says_so_once(
    answer: str | UnreadableSecret, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(MARK)
    kept = answers.kept(keep_seconds=1)
    answers.text = answer
    with caplog.at_level(logging.WARNING):
        for answers.now in (1.0, 2.0, 3.0):
            assert kept.current() == MARK
    assert answers.asked == 4
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["secret_unreadable"]
    assert MARK not in caplog.text


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_command_gives_what_it_prints_and_no_shell_reads_it(tmp_path: Path) -> None:
    assert run_secret_command(python("print('pass word')")) == "pass word"
    assert (
        secret_from_command(f"echo one $HOME ; touch {tmp_path}/made").reveal() == f"one $HOME ; touch {tmp_path}/made"
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (f"import sys; sys.stderr.write('{MARK}'); print('{MARK}'); sys.exit(3)", "ended with 3; run it by hand"),
        ("while True: print('x' * 4096)", "more than 65536 bytes"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "no UTF-8"),
        ("import sys; sys.exit(7 if sys.stdin.read() == '' else 0)", "ended with 7"),
    ],
)
def test_command_that_fails_is_told_without_what_it_wrote(
    code: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreadableSecret, match=told) as refused:
        run_secret_command(python(code))
    assert MARK not in str(refused.value)
    assert MARK not in "".join(capfd.readouterr())


def test_command_that_hangs_is_ended_with_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS_MAX", 0.3)
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import signal; signal.pause()'])"
    for code in (child, "import os, signal; os.close(1); os.close(2); signal.pause()"):
        with pytest.raises(UnreadableSecret, match="longer than"):
            run_secret_command(python(code))


def test_file_that_is_no_secret_is_told_without_its_content(tmp_path: Path) -> None:
    for name, content, told in (
        ("large", b"x" * 70_000, "more than"),
        ("binary", b"\xff\xfe", "UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableSecret, match=told):
            read_secret_file(tmp_path / name)
    with pytest.raises(InvalidValue, match="No such file"):
        secret_from_file(tmp_path / "none")
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "secret").write_text(f" {MARK}\n", encoding=encoding)
        assert secret_from_file(tmp_path / "secret").reveal() == MARK


def test_signature_of_either_secret_is_taken_while_they_change_and_the_first_one_signs() -> None:
    both = [b"new", b"old"]
    assert sign(b"body", lambda: both) == sign(b"body", b"new")
    assert is_signed(b"body", sign(b"body", b"old"), lambda: both)
    assert not is_signed(b"body", sign(b"body", b"older"), lambda: both)
    for none in ([], [b"new", b""]):
        with pytest.raises(InvalidValue, match="signature_secret"):
            is_signed(b"body", sign(b"body", b"old"), partial(list, none))
