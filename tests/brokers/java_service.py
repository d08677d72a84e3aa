"""Processes of a shop of stock Java clients: one that sells, one that bills."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.brokers import java_client
from tests.brokers.jars import client_jars, jdbc_jars
from tests.polling import eventually
from tests.services.requirements import downloaded

SECONDS = 150
#: Release of the broker -> release of its clients.
CLIENTS = {"4.2.0": "4.9.7", "4.4.0": "4.9.7", "4.9.7": "4.9.7", "5.1.4": "5.3.3", "5.3.3": "5.3.3", "5.5.0": "5.3.3"}

#: Name of a try, its order, what becomes of it (Shop.java).
Try = tuple[str, str, str]


def names(some: Iterable[Try]) -> set[str]:
    return {name for name, _, _ in some}


class JavaService:
    """A process of Shop.java."""

    def __init__(self, service: str, name_servers: str, topic: str, folder: Path, *, version: str) -> None:
        jars = [downloaded(lambda: client_jars(version)), downloaded(jdbc_jars)]
        database = folder / ("shop.db" if service == "sell" else "bills.db")
        command = java_client.command_of(
            java_client.SOURCE.with_name("Shop.java"), jars, version=version, folder=folder
        )
        self._log = folder / f"{service}-{len(list(folder.glob('*.log')))}.log"
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, service, name_servers, topic, str(database)],
                stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
            )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        if self.process.stdin is not None:
            self.process.stdin.close()

    def printed(self, what: str) -> list[str]:
        """What stands behind the word; of lines that are whole."""
        assert self.process.poll() is None, self._log.read_text(errors="replace")[-3000:]
        return [line.removeprefix(f"{what} ").strip() for line in self._lines() if line.startswith(f"{what} ")]

    def keys(self) -> dict[str, str]:
        """Unique key -> name of the try, also of a process that is dead."""
        words = [line.split() for line in self._lines() if line.startswith("half ")]
        return {key: name for _, key, name in words}

    def _lines(self) -> list[str]:
        lines = self._log.read_text(errors="replace").splitlines(keepends=True)
        return [line for line in lines if line.endswith("\n")]

    def sell(self, some: Sequence[Try], *, until: str = "sold") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{' '.join(one)}\n" for one in some).encode())
        self.process.stdin.flush()
        eventually(lambda: names(some) <= set(self.printed(until)), within_seconds=SECONDS, message=f"{until}: {some}")
