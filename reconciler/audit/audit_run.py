"""Runs one audit, from the command's options to OUT. window_run.py collects, judges and writes."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyarrow import fs as arrow_fs

from reconciler.audit.collect.configuration import audited_subscriptions, read_configuration, with_configured
from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.collect.window import parse_window
from reconciler.audit.engines.engine import check_engine, opened_engine
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.document import EVIDENCE_JSON
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.places import open_folder, place_of
from reconciler.audit.result.values import JudgedWindow
from reconciler.audit.statement.checkpoint import believed_chain
from reconciler.audit.statement.keys import read_public_key, read_signing_key
from reconciler.audit.window_run import AskedWindow, audit_window
from reconciler.contract.history_row import PREFIXES

_START_ZONE = re.compile(r"^[^/\[]*\[([^\]]+)\]")
#: Options that say what to collect. `--evidence` excludes these options, because evidence.json has the same facts.
#: `--history` may stand beside `--evidence`, where it names a copy of the history.
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
    """Result of one audit."""

    judged: JudgedWindow
    engine: str
    seconds: float
    #: Id of the run in the rows of `--tables`. None: the command has no `--tables`.
    run: str | None


def run_audit(
    options: argparse.Namespace, *, now_ms: int, seconds: Callable[[], float], say: Callable[[str], None]
) -> AuditRun:
    """Runs the audit that the options ask for. `seconds` is a monotonic clock. Raises AuditError."""
    began = seconds()
    check_engine(options)
    request = None if options.evidence is not None else _request(options, now_ms)
    _check_given(options)
    key = None if options.signing_key is None else read_signing_key(options.signing_key)
    after = _verified_before(options)
    if request is not None:
        request = replace(request, history_after=after)
    asked = AskedWindow(
        request=request,
        evidence=options.evidence,
        history=options.history if request is None else None,
        after=after,
        out=options.out,
        tables=options.tables,
        signing_key=key,
        previous=lambda: options.previous,
        zone=_zone(options),
        language=options.language,
        now_ms=now_ms,
    )
    done = audit_window(
        asked, partial(opened_engine, options, say), say, lambda parts: say(f"judged {parts} of {PREFIXES} parts")
    )
    return AuditRun(judged=done.judged, engine=done.engine, seconds=seconds() - began, run=done.run)


def _request(options: argparse.Namespace, now_ms: int) -> Request:
    """Makes the request from the options. Raises AuditError for a wrong option before any source is read."""
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
    """Reads the chain that the audit of `--previous` has verified and that `--public-key` proves.

    None: the audit reads the manifest from its first entry.
    """
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


def _zone(options: argparse.Namespace) -> str:
    """Finds the time zone of the window. `--timezone` comes first, then the zone in START, then UTC."""
    if options.timezone:
        return str(options.timezone)
    found = _START_ZONE.match(options.window or "")
    return found[1] if found else "UTC"
