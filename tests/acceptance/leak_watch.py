"""Every acceptance test fails if something that was written while it ran holds a marked secret.

A plug-in of pytest, which conftest.py takes over. Searched are the files of the test's folder, what the test itself
logged and printed, and the command lines of all processes of the host, again and again for as long as tests run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.acceptance.marked_secrets import is_marked, require_no_secret_in_files

#: A process that ends before the next look is missed.
PAUSE_SECONDS = 0.1
#: Looks at one process. The first may see what forked it; reading all command lines each time took a tenth of a core.
LOOKS = 5
PRODUCT = ("checkback_consumers", "checkback_producers", "reconciler")


class ProcessLists:
    """What lists of processes have shown since the last question; looks from entry to exit, in a thread of its own."""

    def __init__(self) -> None:
        #: Process id -> program, of those that showed a secret.
        self._found: dict[int, str] = {}
        #: Process id -> looks that it had.
        self._looks: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process-lists", daemon=True)

    def require_unmarked(self) -> None:
        """Fails if a process showed a marked secret, and forgets it."""
        self._look()
        with self._lock:
            found, self._found = self._found, {}
        assert not found, f"a secret in the list of processes: {found}"

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            self._looks = {name: self._looks.get(name, 0) + 1 for name in os.listdir("/proc") if name.isdigit()}
            for name, looks in self._looks.items():
                if looks <= LOOKS:
                    self._read(name)

    def _read(self, process: str) -> None:
        try:
            line = Path("/proc", process, "cmdline").read_bytes()
        except OSError:  # it has ended
            return
        if is_marked(line):
            program, *words = line.split(b"\0")
            self._found[int(process)] = f"{program!r} with {len(words)} words"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.require_unmarked()


@pytest.fixture(scope="session")
def process_lists() -> Iterator[ProcessLists]:
    """Looked at until the last test has ended."""
    with ProcessLists() as lists:
        yield lists


@pytest.fixture(autouse=True)
def nothing_written_holds_a_secret(
    process_lists: ProcessLists, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Searches when everything that the test started has ended."""
    for name in PRODUCT:
        caplog.set_level(logging.DEBUG, logger=name)
    yield
    process_lists.require_unmarked()
    require_no_secret_in_files(tmp_path)
    records = (record for phase in ("setup", "call", "teardown") for record in caplog.get_records(phase))
    found = {record.name for record in records if is_marked(repr(vars(record)).encode())}
    assert not found, f"a secret in the log of {', '.join(sorted(found))}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the test printed is known when its report is made."""
    report = yield
    found = [title for title, text in report.sections if is_marked(text.encode())]
    if found and report.outcome != "failed":
        report.outcome, report.longrepr = "failed", f"a secret in {', '.join(found)}"
    return report
