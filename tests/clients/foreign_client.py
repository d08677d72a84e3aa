"""A service in another language, as a process. Each program of this folder is one, and understands the same lines:

    send BODY                an ordinary message: "sent"
    half BODY MARK [KEY]     a half with this mark of an outbox: "half", once the broker has it. Go can be given a key
    answer KEY commit WORD   ends the half (or rollback, or unknown, for which nothing need be sent): "ended".
                             It answers questions of the broker (checks) with WORD; before, with unknown

Its arguments: address, topic, group that sends, group that receives. It receives from its start on, and prints one
JSON object a line: {"event": "received", "key": the unique key, "body": ...}; "check" tells a question of the broker.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.polling import eventually

START_SECONDS = 120
ANSWER_SECONDS = 60


class ForeignClient:
    """One process; use it as a context manager. Its end is kill -9: it says no farewell."""

    def __init__(self, command: Sequence[str], *arguments: str, folder: Path) -> None:
        """`folder`: for its output, and its home."""
        self._command = [*command, *arguments]
        self._folder = folder
        self._lock = threading.Lock()
        self._events: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=self._folder, env=os.environ | {"HOME": str(self._folder), "user.home": str(self._folder)},
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.expect("ready", "", within_seconds=START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def errors(self) -> Path:
        """What it and its client write beside the events."""
        return self._folder / "client.err"

    def kill(self) -> None:
        """Ends it, if it lives."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def send(self, body: str) -> str:
        """An ordinary message; returns its key."""
        self._tell("send", body)
        return self.expect("sent", body)

    def half(self, body: str, *, mark: str, key: str | None = None) -> str:
        """A half message, whose transaction is open when this returns; returns its key. `key`: the service's own."""
        self._tell("half", body, mark, *([] if key is None else [key]))
        return self.expect("half", body)

    def answer(self, key: str, word: str, *, to_checks: str | None = None) -> None:
        """commit, rollback or unknown (`to_checks`: another one); returns when the client has said so to the broker."""
        body = next(body for event, of, body in self.events if (event, of) == ("half", key))
        self._tell("answer", key, word, to_checks or word)
        assert self.expect("ended", body) == key

    def expect(self, event: str, body: str, *, within_seconds: float = ANSWER_SECONDS) -> str:
        """The key of the first such event, as soon as it has come."""

        def found() -> list[str]:
            assert self._process.poll() is None, f"it ended with {self._process.poll()}"
            keys = [key for one, key, of in self.events if (one, of) == (event, body)]
            assert keys, f"{self.events}\n{self.errors.read_text(errors='replace')[-4000:]}"
            return keys

        return eventually(found, within_seconds=within_seconds, message=f"{event} {body}")[0]

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """Event, key, body: all that have come."""
        with self._lock:
            return list(self._events)

    def received(self) -> dict[str, str]:
        """Key -> body of what it received."""
        return {key: body for event, key, body in self.events if event == "received"}

    def _tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"'):
                event = json.loads(line)
                with self._lock:
                    self._events.append((event["event"], event.get("key", ""), event.get("body", "")))
