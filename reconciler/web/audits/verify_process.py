"""Runs one verification: `reconciler statement verify`, in a process without Spark that is limited in time and output.

No part of the reconciler imports the audit, because the audit judges what the reconciler has done.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any

from reconciler.clock import Clock
from reconciler.commands.audit_program import audit_program
from reconciler.web.audits.check import AuditCheck, check_of, unanswered

#: Time limit of a verification, which is enough to read an output with all its evidence.
SECONDS_MAX = 600.0
#: Maximum number of bytes of output, which are enough for a thousand differences of 4 000 characters.
OUTPUT_BYTES_MAX = 32 * 1024**2
#: Reasons of the audit that do not come from the files. An audit with such a reason is soon verified again.
_PASSING = frozenset({"engine", "configuration"})


class VerifyProcess:
    """Runs at most one process at a time. One thread uses this object, and another thread may stop the process."""

    def __init__(self, public_key: str, *, clock: Clock, seconds_max: float = SECONDS_MAX) -> None:
        self._public_key = public_key
        self._clock = clock
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def check(self, folder: str) -> AuditCheck:
        """Verifies an output. Raises nothing."""
        at_ms = self._clock.now_ms()
        try:
            told, code, is_late = self._ended(folder)
        except OSError as error:
            return unanswered(f"the verification cannot be started: {error}", at_ms=at_ms)
        if is_late:
            return unanswered(f"it takes longer than {self._seconds_max:g} seconds", at_ms=at_ms, is_lasting=True)
        if len(told) > OUTPUT_BYTES_MAX:
            return unanswered("there is more to say than is read", at_ms=at_ms, is_lasting=True)
        try:
            return _read(json.loads(told), at_ms)
        except (ValueError, KeyError, TypeError, RecursionError):
            return unanswered(f"the verification ended with {code} and gave no answer", at_ms=at_ms)

    @property
    def is_running(self) -> bool:
        """True while a process runs."""
        return self._process is not None

    def stop(self) -> None:
        """Kills the running process, and prevents a further process."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def _ended(self, folder: str) -> tuple[bytes, int, bool]:
        """Returns the output of the process, its exit code, and whether it was killed because it took too long. Can
        raise OSError."""
        program = audit_program("statement", "verify", folder, "--public-key", self._public_key, "--output", "json")
        # The process gets no secrets of the reconciler.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
        with self._lock:
            if self._is_stopped:
                raise OSError("the server stops")
            process = self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
                program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        late = threading.Event()

        def kill() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds_max, kill)
        timer.daemon = True
        timer.start()
        try:
            with process:
                told = process.stdout.read(OUTPUT_BYTES_MAX + 1) if process.stdout is not None else b""
                if len(told) > OUTPUT_BYTES_MAX:
                    process.kill()
        finally:
            timer.cancel()
            with self._lock:
                self._process = None
        return told, process.returncode, late.is_set()


def _read(document: dict[str, Any], at_ms: int) -> AuditCheck:
    """Reads the document. Raises KeyError, TypeError and ValueError for another document."""
    if "reason" in document:
        is_lasting = document["reason"] not in _PASSING
        return unanswered(f"{document['message']}", at_ms=at_ms, is_lasting=is_lasting)
    return check_of(document, at_ms=at_ms)
