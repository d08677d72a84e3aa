"""Drives tests/brokers/java/GrpcConsumer.java, a consumer of the stock gRPC client for Java."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.brokers.jars import grpc_jars
from tests.brokers.java_client import compiled

SOURCE = Path(__file__).parent / "java" / "GrpcConsumer.java"
CLIENT = "5.2.0"
ANSWER_SECONDS = 120

Event = dict[str, Any]


class GrpcConsumer:
    """One member of a group, in a JVM of its own; use it as a context manager."""

    def __init__(self, kind: str, *, address: str, group: str, topic: str, folder: Path) -> None:
        """`kind`: simple or push. `address`: the proxy's. `folder`: for its log."""
        self._arguments = [kind, address, group, topic]
        self._folder = folder
        self._answers: queue.Queue[Event | None] = queue.Queue()
        self._came: queue.Queue[Event | None] = queue.Queue()

    def __enter__(self) -> Self:
        jars = grpc_jars(CLIENT)
        classes = compiled(jars, SOURCE, CLIENT)
        command = [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={self._folder}",
            "-cp", os.pathsep.join([str(classes), f"{jars}/*"]), "GrpcConsumer", *self._arguments,
        ]  # fmt: skip
        self._errors = (self._folder / f"grpc-{self._arguments[0]}.err").open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=self._folder, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.expect("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """kill -9: it says no farewell."""
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def do(self, *words: object) -> None:
        """As `tell`, and waits until it is done."""
        self.tell(*words)
        self.expect("done")

    def tell(self, *words: object) -> None:
        """One line of what it understands."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Event:
        """The next thing that it says to what it was told."""
        return self._next(self._answers)

    def came(self) -> Event:
        """The next message that a push consumer got."""
        return self._next(self._came)

    def _next(self, events: queue.Queue[Event | None]) -> Event:
        found = events.get(timeout=ANSWER_SECONDS)
        assert found is not None, self._said()
        return found

    def _said(self) -> str:
        return (self._folder / f"grpc-{self._arguments[0]}.err").read_text()[-4000:]

    def expect(self, kind: str) -> Event:
        found = self.answer()
        assert found["event"] == kind, (found, self._said())
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                event = json.loads(line)
                (self._came if event["event"] == "came" else self._answers).put(event)
        self._answers.put(None)
        self._came.put(None)
