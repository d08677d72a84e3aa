"""Drives tests/brokers/java/GrpcConsumer.java, a consumer of the stock gRPC client for Java."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
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
        self._events: queue.Queue[Event | None] = queue.Queue()

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
        threading.Thread(target=self._read, daemon=True).start()
        self.expect("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        self._errors.close()

    def tell(self, *words: object) -> None:
        """One line of what it understands."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def event(self) -> Event:
        """The next thing that it says."""
        found = self._events.get(timeout=ANSWER_SECONDS)
        assert found is not None, (self._folder / f"grpc-{self._arguments[0]}.err").read_text()[-4000:]
        return found

    def expect(self, kind: str) -> Event:
        found = self.event()
        assert found["event"] == kind, (found, (self._folder / f"grpc-{self._arguments[0]}.err").read_text()[-4000:])
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                self._events.put(json.loads(line))
        self._events.put(None)
