"""Audits one window: from sources or collected evidence to OUT and tables.

The command and the platform use this module. Evidence is collected beside OUT. The step that puts the new OUT in its
place also makes the evidence OUT/evidence. If anything fails, the evidence is removed, and OUT stays as it was.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.request import Request
from reconciler.audit.engines.engine import Engine
from reconciler.audit.errors import AuditError, ReasonWithheld, unwritable
from reconciler.audit.evidence.folder import read_document
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.output.evidence import FOLDER as EVIDENCE
from reconciler.audit.output.folder import ClaimedOutput, claim_output
from reconciler.audit.output.judged_tables import ClaimedTables, claim_tables
from reconciler.audit.output.writing import write_output
from reconciler.audit.result.classes import NAMES
from reconciler.audit.result.values import EngineKind, JudgedSubscription, JudgedWindow, NoAnswer
from reconciler.audit.statement.keys import SigningKey
from reconciler.contract.release import release


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWindow:
    """Window to audit, and the places for the answer."""

    #: Request for the evidence to collect. None: `evidence` is given.
    request: Request | None
    #: Place of evidence that was collected earlier. None: `request` is given.
    evidence: Path | str | None = None
    #: Place of the history of given evidence. None: evidence.json names it.
    history: str | None = None
    #: Chain of the history that an older audit has verified. None: the whole manifest is read.
    after: HistoryChain | None = None
    out: Path
    tables: Path | None
    signing_key: SigningKey | None
    #: Function that returns the older OUT that the statements follow, or None. It is called after everything was
    #: judged.
    previous: Callable[[], Path | None]
    #: IANA name of the time zone in which people read the window.
    zone: str
    #: Language of the report, one of REPORT_LANGUAGES.
    language: str
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """Result of an audit of one window."""

    judged: JudgedWindow
    engine: str
    #: Name of the run in the rows of the tables. None: no tables.
    run: str | None
    #: Seconds of judging. They include the time in which tasks wrote judged keys. 0: nothing was judged.
    judging_seconds: float = 0.0


def audit_window(
    asked: AskedWindow,
    opened: Callable[[], AbstractContextManager[Engine]],
    say: Callable[[str], None],
    judged_parts: Callable[[int], None] | None = None,
) -> JudgedRun:
    """Claims OUT, collects evidence unless evidence is given, judges, and writes OUT. Raises AuditError.

    `opened` opens the engine after OUT was claimed.
    `say` gets the name of each step before the step begins.
    `judged_parts` gets the number of finished prefixes from another thread.
    """
    request = asked.request
    with (
        claim_output(asked.out) as claimed,
        _claimed_tables(asked) as tables,
        _evidence_folder(asked, claimed) as evidence,
    ):
        with opened() as engine:
            if request is not None:
                engine.require_seen(Path(evidence))
                collect(request, Path(evidence), engine.run, say)
            if tables is not None:
                engine.require_seen(tables.attempts)
            say("judging")
            began = time.perf_counter()
            judged = engine.judge(
                evidence,
                history=asked.history,
                after=asked.after,
                keys=None if tables is None else tables.target,
                progress=judged_parts,
            )
            judging_seconds = time.perf_counter() - began
        say("writing the result")
        write_output(
            judged,
            claimed,
            engine=engine.kind,
            zone=asked.zone,
            language=asked.language,
            signing_key=asked.signing_key,
            previous=asked.previous(),
            evidence=evidence,
            keep_evidence=request is not None,
        )
        if tables is not None:
            say("putting rows into the tables")
            tables.replace(judged, asked.out, release=release(), now_ms=asked.now_ms)
    run = None if tables is None else tables.target.run
    return JudgedRun(judged=judged, engine=engine.name, run=run, judging_seconds=judging_seconds)


def write_unanswered(asked: AskedWindow, request: Request, error: AuditError, engine: EngineKind) -> JudgedRun | None:
    """Writes a result without keys. The statements of the result say the reason, so the chain has no hole.

    Raises AuditError. The tables get the run unless they already have an answer. Returns None if OUT has an older
    answer with evidence. That answer stays.
    """
    with claim_output(asked.out) as claimed, _claimed_tables(asked) as tables:
        if (claimed.path / EVIDENCE).exists():
            return None
        judged = _unanswered(request, error)
        key, previous = asked.signing_key, asked.previous()
        write_output(
            judged,
            claimed,
            engine=engine,
            zone=asked.zone,
            language=asked.language,
            signing_key=key,
            previous=previous,
        )
        if tables is None or tables.was_judged():
            return JudgedRun(judged=judged, engine=engine, run=None)
        tables.replace(judged, asked.out, release=release(), now_ms=asked.now_ms)
    return JudgedRun(judged=judged, engine=engine, run=tables.target.run)


def _unanswered(request: Request, error: AuditError) -> JudgedWindow:
    return JudgedWindow(
        environment=request.environment,
        window=request.window,
        collected_at_ms=request.collected_at_ms,
        skew_bound_ms=request.skew_bound_ms,
        subscriptions=tuple(
            JudgedSubscription(
                subscription=one,
                watermark_ms=None,
                as_of_ms=request.collected_at_ms,
                closed=False,
                classes=dict.fromkeys(NAMES, 0),
                volume=(),
                latencies={},
            )
            for one in request.subscriptions
        ),
        findings=(),
        findings_omitted={},
        not_checked=(),
        gaps=(),
        notes=(),
        inputs=(),
        input_versions=request.input_versions,
        rows={},
        no_answer=NoAnswer(reason=cast("ReasonWithheld", error.reason), message=str(error)),
    )


@contextmanager
def _claimed_tables(asked: AskedWindow) -> Iterator[ClaimedTables | None]:
    """Claims the window of the tables. If evidence is given, evidence.json names the window."""
    if asked.tables is None:
        yield None
        return
    of = asked.request or read_document(asked.evidence or "")
    with claim_tables(
        asked.tables, asked.out, environment=of.environment, window=of.window, now_ms=asked.now_ms
    ) as tables:
        yield tables


@contextmanager
def _evidence_folder(asked: AskedWindow, claimed: ClaimedOutput) -> Iterator[Path | str]:
    """Yields the given folder or URL, or a new folder beside OUT.

    A new folder is removed unless it was moved into OUT.
    """
    if asked.evidence is not None:
        yield asked.evidence
        return
    try:
        # If this process is killed, the next audit into the same OUT removes the folder by this name.
        folder = Path(tempfile.mkdtemp(prefix=f"{claimed.partial_prefix}evidence-", dir=claimed.path.parent))
        folder.chmod(0o755)
    except OSError as error:
        raise unwritable(f"--out {asked.out}", error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
