"""One audit from options to OUT: claims OUT, collects evidence unless it is given, judges, writes.

Evidence is collected beside OUT and becomes OUT/evidence in the step that puts OUT in its place; if anything fails it
is removed, and OUT is what it was before.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as arrow_fs

from reconciler.audit.collect.collecting import collect
from reconciler.audit.collect.configuration import audited_subscriptions, read_configuration, with_configured
from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.collect.window import parse_window
from reconciler.audit.engines.engine import check_engine, opened_engine
from reconciler.audit.errors import AuditError, unwritable
from reconciler.audit.evidence.document import EVIDENCE_JSON
from reconciler.audit.evidence.folder import read_document
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.output.folder import ClaimedOutput, claim_output
from reconciler.audit.output.judged_tables import ClaimedTables, claim_tables
from reconciler.audit.output.writing import write_output
from reconciler.audit.places import open_folder, place_of
from reconciler.audit.result.values import JudgedWindow
from reconciler.audit.statement.checkpoint import believed_chain
from reconciler.audit.statement.keys import read_public_key, read_signing_key
from reconciler.contract.history_row import PREFIXES
from reconciler.contract.release import release

_START_ZONE = re.compile(r"^[^/\[]*\[([^\]]+)\]")
#: Options that say what to collect; with --evidence all of it is in the folder (and --history: where a copy lies).
_COLLECTING = (
    "window",
    "timezone",
    "subscriptions",
    "only",
    "outbox",
    "inbox",
    "ledger",
    "effects",
    "from_configuration",
    "no_history",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    """What an audit did."""

    judged: JudgedWindow
    engine: str
    seconds: float
    #: What the rows of --tables name it; None without them.
    run: str | None


def run_audit(
    options: argparse.Namespace, *, now_ms: int, seconds: Callable[[], float], say: Callable[[str], None]
) -> AuditRun:
    """Runs the audit that the options ask for. `seconds`: a clock that only goes forward. Raises AuditError."""
    began = seconds()
    check_engine(options)
    request = None if options.evidence is not None else _request(options, now_ms)
    _check_given(options)
    key = None if options.signing_key is None else read_signing_key(options.signing_key)
    after = _verified_before(options)
    if request is not None:
        request = replace(request, history_after=after)
    moved = options.history if request is None else None
    with (
        claim_output(options.out) as claimed,
        _claimed_tables(options, request, now_ms) as tables,
        _evidence_folder(options, claimed) as evidence,
    ):
        with opened_engine(options, say) as engine:
            if request is not None:
                engine.require_seen(Path(evidence))
                collect(request, Path(evidence), engine.run, say)
            if tables is not None:
                engine.require_seen(tables.attempts)
            say("judging")
            judged = engine.judge(
                evidence,
                history=moved,
                after=after,
                keys=None if tables is None else tables.target,
                progress=lambda done: say(f"judged {done} of {PREFIXES} parts"),
            )
        say("writing the result")
        write_output(
            judged,
            claimed,
            engine=engine.kind,
            zone=_zone(options),
            signing_key=key,
            previous=options.previous,
            evidence=evidence,
            keep_evidence=request is not None,
        )
        if tables is not None:
            say("putting rows into the tables")
            tables.replace(judged, options.out, release=release(), now_ms=now_ms)
    run = None if tables is None else tables.target.run
    return AuditRun(judged=judged, engine=engine.name, seconds=seconds() - began, run=run)


@contextmanager
def _claimed_tables(
    options: argparse.Namespace, request: Request | None, now_ms: int
) -> Iterator[ClaimedTables | None]:
    """The window of --tables, which evidence.json names where evidence is given."""
    if options.tables is None:
        yield None
        return
    asked = read_document(options.evidence) if request is None else request
    with claim_tables(
        options.tables, options.out, environment=asked.environment, window=asked.window, now_ms=now_ms
    ) as tables:
        yield tables


def _request(options: argparse.Namespace, now_ms: int) -> Request:
    """Everything that can be wrong with the options is found before anything is started."""
    missing = [f"--{name}" for name in ("window", "subscriptions") if getattr(options, name) is None]
    if options.history is None and not options.no_history:
        missing.append("--history (or --no-history)")
    if missing:
        raise AuditError("usage", f"{', '.join(missing)} is missing: needed unless --evidence names what was collected")
    window = parse_window(options.window, options.timezone)
    configuration = read_configuration(options.subscriptions, os.environ)
    sources = parse_sources(outbox=options.outbox, inbox=options.inbox, effects=options.effects, ledger=options.ledger)
    if options.from_configuration:
        sources = with_configured(sources, configuration)
    return Request(
        environment=configuration.environment,
        window=window,
        shards=configuration.shards,
        skew_bound_ms=configuration.skew_bound_ms,
        subscriptions=audited_subscriptions(configuration, sources, options.only),
        sources=sources,
        history=None if options.no_history else place_of(options.history),
        collected_at_ms=now_ms,
    )


def _verified_before(options: argparse.Namespace) -> HistoryChain | None:
    """The chain that the audit of --previous has verified, where --public-key says who signed it. The first audit of a
    series has no --previous, and reads all."""
    if options.public_key is None or options.previous is None or options.whole_chain:
        return None
    return believed_chain(options.previous, read_public_key(options.public_key))


def _check_given(options: argparse.Namespace) -> None:
    if options.evidence is None:
        return
    beside = [f"--{name.replace('_', '-')}" for name in _COLLECTING if getattr(options, name)]
    if beside:
        raise AuditError(
            "usage",
            f"{', '.join(beside)} beside --evidence: evidence.json in that folder says what was asked; leave them out, "
            "or leave out --evidence to collect evidence again",
        )
    try:
        filesystem, base = open_folder(options.evidence)
        is_there = filesystem.get_file_info(f"{base}/{EVIDENCE_JSON}").type == arrow_fs.FileType.File
    except (OSError, ValueError, pa.ArrowException) as error:
        raise AuditError("inputs", f"--evidence {options.evidence}: cannot be read: {error}") from error
    if not is_there:
        raise AuditError("inputs", f"--evidence {options.evidence}: there is no {EVIDENCE_JSON} in it")


@contextmanager
def _evidence_folder(options: argparse.Namespace, claimed: ClaimedOutput) -> Iterator[Path | str]:
    """The given folder or URL, or a new one beside OUT that goes if it was not moved into it."""
    if options.evidence is not None:
        yield options.evidence
        return
    try:
        # The name is one that the next audit into this OUT clears away, should we be killed.
        folder = Path(tempfile.mkdtemp(prefix=f"{claimed.partial_prefix}evidence-", dir=claimed.path.parent))
        folder.chmod(0o755)
    except OSError as error:
        raise unwritable(f"--out {options.out}", error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _zone(options: argparse.Namespace) -> str:
    """How people meant the window: --timezone, the zone in START, or UTC."""
    if options.timezone:
        return str(options.timezone)
    found = _START_ZONE.match(options.window or "")
    return found[1] if found else "UTC"
