"""The sources of secrets: a file, or the output of a command. Files and commands are read again while the process runs.

A *file* is read again after FILE_KEEP_SECONDS. A *command* runs without a shell and without input. The command's
standard error is discarded, because it may contain the secret. The command's output is kept for COMMAND_KEEP_SECONDS.
After a server has refused a secret, its source is read again at once. If a later reading fails, the secret stays
unchanged, and a warning is logged.

A text may have several lines. For settings that take a list, each line is one secret.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reconciler.contract.named_files import require_file
from reconciler.contract.secret import SecretText
from reconciler.errors import InvalidValue

logger = logging.getLogger(__name__)

FILE_KEEP_SECONDS = 1.0
COMMAND_KEEP_SECONDS = 60.0
#: A command that runs longer is killed.
COMMAND_SECONDS_MAX = 10.0
#: A source is asked again at most once in this time, because many connections may be refused at once.
ASKED_AGAIN_SECONDS_MIN = 1.0
SECRET_BYTES_MAX = 64 * 1024
_TOO_LONG = f"gives more than {SECRET_BYTES_MAX} bytes; that is no secret"


class UnreadableSecret(ValueError):
    """Says why a source gave no secret. The message never repeats the source's output."""


class KeptSecret:
    """A source whose answer is kept for a while. Threads share it: one thread asks, and the others wait for the
    answer."""

    def __init__(
        self,
        read: Callable[[], str],
        *,
        name: str,
        keep_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the secret. `name`: what people call the secret. Raises UnreadableSecret."""
        self._read = read
        self._name = name
        self._keep_seconds = keep_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._text = read()
        self._read_at = monotonic()
        self._problem = ""

    def current(self) -> str:
        """Returns the secret. Reads it again if it was kept for long enough."""
        with self._lock:
            if self._monotonic() - self._read_at >= self._keep_seconds:
                self._read_again()
            return self._text

    def ask_again(self, refused: str) -> bool:
        """Returns True if the source has another secret than the refused secret. A source that was read a moment ago is
        not read again."""
        with self._lock:
            if self._text == refused and self._monotonic() - self._read_at >= ASKED_AGAIN_SECONDS_MIN:
                self._read_again()
            return self._text != refused

    def _read_again(self) -> None:
        try:
            text, problem = self._read(), ""
            if not text:
                text, problem = self._text, "it is empty"
        except UnreadableSecret as error:
            text, problem = self._text, str(error)
        if problem and problem != self._problem:
            logger.warning("secret_unreadable: %s: %s; the one of before is used", self._name, problem)
        elif text != self._text:
            logger.info("secret_changed: %s: another one is used from now on", self._name)
        self._text, self._problem, self._read_at = text, problem, self._monotonic()


class _OneOf:
    """One of the secrets of a source with several secrets."""

    def __init__(self, source: KeptSecret, place: int) -> None:
        self._source = source
        self._place = place
        self._last = several(source.current())[place]

    def current(self) -> str:
        """Returns the secret at this place, or the last secret that was there."""
        found = several(self._source.current())
        self._last = found[self._place] if self._place < len(found) else self._last
        return self._last

    def ask_again(self, refused: str) -> bool:
        """Returns what KeptSecret.ask_again returns."""
        if self.current() == refused:
            self._source.ask_again(self._source.current())
        return self.current() != refused


def secret_from_file(path: str | os.PathLike[str], *, name: str = "") -> SecretText:
    """Returns a secret from a file, without the white space around it. Raises InvalidValue, which never repeats the
    file's content."""
    return _secret(lambda: read_secret_file(path), name or "a secret's file", os.fspath(path), FILE_KEEP_SECONDS)


def secret_from_command(command: str | Sequence[str], *, name: str = "") -> SecretText:
    """Returns a secret that a command prints. A command that is given as text is split into words like in a shell.
    Raises InvalidValue."""
    words = words_of(command)
    return _secret(
        lambda: run_secret_command(words), name or "a secret's command", words[0] if words else "", COMMAND_KEEP_SECONDS
    )


def _secret(read: Callable[[], str], name: str, shown: str, keep_seconds: float) -> SecretText:
    try:
        source = KeptSecret(read, name=name, keep_seconds=keep_seconds)
    except UnreadableSecret as error:
        raise InvalidValue(name, shown, str(error)) from None
    return SecretText(source.current(), source)


def secrets_of(secret: SecretText) -> list[SecretText]:
    """Returns each secret of a text with several secrets. The number of secrets must not change while the process
    runs."""
    source = secret._source  # noqa: SLF001 - the two files are one idea
    found = several(secret.reveal())
    if not isinstance(source, KeptSecret):
        return [SecretText(one) for one in found]
    return (
        [secret] if found == [secret.reveal()] else [SecretText(one, _OneOf(source, n)) for n, one in enumerate(found)]
    )


def signature_secrets(secret: SecretText) -> list[str]:
    """Returns the present secrets of announcements. Each line of a changing source is one secret; the first one
    signs."""
    text = secret.reveal()
    return several(text) or [text] if secret.changes else [text]


def several(text: str) -> list[str]:
    """Returns the texts of a JSON list, or of lines."""
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            listed: Any = json.loads(text)
            return [str(one) for one in listed]
    return [line.strip() for line in text.splitlines() if line.strip()]


def words_of(command: str | Sequence[str]) -> list[str]:
    """Returns the program and its arguments. Raises InvalidValue for an open quote, and never shows the text."""
    if not isinstance(command, str):
        return [*command]
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InvalidValue("command", "(hidden)", f"{error}; give program and arguments as a list") from None


def why_unreadable(error: OSError) -> str:
    """Returns why the file of a value cannot be read, and what to do."""
    if isinstance(error, PermissionError):
        return f"{error.strerror}; let the login of this process read it, with the folders above it"
    return f"{error.strerror}; name a file that holds the value"


def read_secret_file(path: str | os.PathLike[str]) -> str:
    """Returns the content of the file. Raises UnreadableSecret."""
    try:
        require_file(path)
        with Path(path).open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise UnreadableSecret(f"cannot be read: {why_unreadable(error)}") from None
    except ValueError:
        raise UnreadableSecret("cannot be read: no file's name; name a file that holds the value") from None
    return _text(content)


def run_secret_command(words: Sequence[str]) -> str:
    """Runs the command for at most COMMAND_SECONDS_MAX. Raises UnreadableSecret."""
    if not words:
        raise UnreadableSecret("names no program")
    try:
        process = subprocess.Popen(  # noqa: S603 - the settings name it, and no shell reads it
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no program's name"
        raise UnreadableSecret(f"cannot be run: {why}; name a program of this machine") from None
    with process:
        try:
            content = _bounded_output(process)
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the processes that the command started, too
    if process.returncode != 0:
        raise UnreadableSecret(f"ended with {process.returncode}; run it by hand as the user of this process")
    return _text(content)


def _bounded_output(process: subprocess.Popen[bytes]) -> bytes:
    """Returns the whole output of the process, which has ended by then. Raises UnreadableSecret."""
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    until = time.monotonic() + COMMAND_SECONDS_MAX
    too_slow = f"took longer than {COMMAND_SECONDS_MAX:g} s; it must ask no questions"
    content = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 4096)
            content += piece
            if len(content) > SECRET_BYTES_MAX:
                raise UnreadableSecret(_TOO_LONG)
            if not piece:
                break
        else:
            raise UnreadableSecret(too_slow)
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise UnreadableSecret(too_slow) from None
    return content


def _text(content: bytes) -> str:
    if len(content) > SECRET_BYTES_MAX:
        raise UnreadableSecret(_TOO_LONG)
    try:
        return content.decode("utf-8-sig").strip()  # editors of Windows write a byte-order mark
    except UnicodeDecodeError:
        raise UnreadableSecret("gives no UTF-8 text") from None
