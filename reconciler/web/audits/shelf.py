"""The audits of the folder, and their checks. A check is kept while the files stay the same. Audits are verified one
after another."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.settings.web import WebSettings
from reconciler.web.audits.check import WAITING, AuditCheck, AuditState, unanswered
from reconciler.web.audits.folder import AUDITS_MAX, AuditEntry, FolderLook, look_at, read_report
from reconciler.web.audits.verify_process import VerifyProcess

logger = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
#: Time after which every check is repeated. Altered evidence may leave an audit's identity unchanged.
LASTING_SECONDS = 24 * 3600.0
#: Pause before an interrupted verification is tried again.
PASSING_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class _Kept:
    identity: str
    check: AuditCheck
    until_seconds: float


class AuditShelf:
    """Checks of audits. The threads of all requests share this object and never wait for a verification. A thread of
    its own verifies while audits wait."""

    def __init__(
        self,
        folder: str,
        *,
        look: Callable[[], FolderLook],
        verify: Callable[[str], AuditCheck],
        stop: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`verify` takes the path of an output and raises nothing. `stop` ends it early."""
        self.folder = folder
        self._look = LatestReading(look, clock=clock, interval_seconds=LOOK_SECONDS)
        self._verify = verify
        self._stop = stop
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        #: Audits that wait for verification, in the order in which they are verified.
        self._wanted: dict[str, AuditEntry] = {}
        self._is_working = False

    def look(self) -> FolderLook:
        """Returns the contents of the folder, as read within the last seconds."""
        found = self._look.get()
        return found or FolderLook(problem=f"web.audits_folder = {self.folder}: it gives no answer in time")

    def checks(self, entries: Sequence[AuditEntry]) -> Sequence[AuditCheck]:
        """Returns the checks of these audits, in the order of `entries`. An outdated check is returned until the next
        verification has ended.

        Audits without a current check are verified from now on. They come before the audits of earlier requests.
        """
        now_seconds = self._clock.monotonic_seconds()
        with self._lock:
            found, wanted = [], {}
            for entry in entries:
                kept = self._kept.get(entry.name)
                is_same = kept is not None and kept.identity == entry.identity
                if entry.problem:
                    found.append(AuditCheck(state=AuditState.NO_ANSWER, why=entry.problem))
                    continue
                found.append(kept.check if kept is not None and is_same else WAITING)
                if kept is None or not is_same or kept.until_seconds <= now_seconds:
                    wanted[entry.name] = entry
            self._wanted = dict(list((wanted | self._wanted | wanted).items())[:AUDITS_MAX])
            if self._wanted and not self._is_working:
                threading.Thread(target=self._work, name="audits", daemon=True).start()
                self._is_working = True
        return found

    def report(self, name: str, check: AuditCheck) -> bytes | None:
        """Returns the unaltered report of a verified audit. None: the audit has no such report. Raises OSError if the
        file cannot be read."""
        sha256 = check.report_sha256
        return None if sha256 is None else read_report(self.folder, name, sha256)

    def close(self) -> None:
        """Ends the running verification, and drops the audits that wait for one."""
        with self._lock:
            self._wanted = {}
        self._stop()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._is_working = False
                    return
                entry = self._wanted[next(iter(self._wanted))]
            try:
                check = self._verify(os.path.join(self.folder, entry.name))
            except Exception:  # the thread continues with the next audit
                logger.exception("audit_unverified")
                check = unanswered("this is a bug; the log has it", at_ms=self._clock.now_ms())
            self._keep(entry, check)

    def _keep(self, entry: AuditEntry, check: AuditCheck) -> None:
        seconds = LASTING_SECONDS if check.is_lasting else PASSING_SECONDS
        with self._lock:
            if self._wanted.get(entry.name) == entry:
                del self._wanted[entry.name]
            self._kept.pop(entry.name, None)
            self._kept[entry.name] = _Kept(entry.identity, check, self._clock.monotonic_seconds() + seconds)
            while len(self._kept) > AUDITS_MAX:
                del self._kept[next(iter(self._kept))]


def build_shelf(web: WebSettings, *, clock: Clock) -> AuditShelf | None:
    """Builds the shelf. None: no folder is set."""
    if web.audits_folder is None or web.audits_public_key is None:
        return None
    folder, public_key = os.path.abspath(web.audits_folder), os.path.abspath(web.audits_public_key)
    process = VerifyProcess(public_key, clock=clock)
    return AuditShelf(
        folder, look=lambda: look_at(folder, public_key), verify=process.check, stop=process.stop, clock=clock
    )
