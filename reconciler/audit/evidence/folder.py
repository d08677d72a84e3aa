"""Makes an evidence folder ready for judging.

Reads the facts that hold for all prefixes, and plans the files of each prefix. A collector wrote the folder
(contract/evidence_layout.py), and the reconciler wrote the history. This module reads evidence.json, the manifest,
rounds, gaps and snapshots. engines/job.py sends the plan and the files of a prefix to each task. The task checks the
files of the prefix.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs as arrow_fs

from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.document import EVIDENCE_JSON, EvidenceDocument, EvidenceFile, parse_evidence
from reconciler.audit.evidence.files import VerifiedFile
from reconciler.audit.evidence.plan import (
    ROWS_AT_ONCE_MAX,
    GroupPlan,
    JudgePlan,
    PartOfFile,
    PlannedFile,
    RowGroup,
    Snapshot,
)
from reconciler.audit.evidence.tables import LEDGER_ROUND_TABLE, STREAM_NAMES
from reconciler.audit.evidence.unchecked import not_checked
from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.history.check import DAY_MS, HistoryState, check_history, without_history
from reconciler.audit.history.table import read_stream_file, rests_by_round, trusted_bytes
from reconciler.audit.places import bytes_at, open_folder, place_of
from reconciler.audit.result.sentences import sentence
from reconciler.audit.result.times import time_text
from reconciler.audit.result.values import AuditedSubscription, HistoryGap, InputFile, NoAnswer, UncheckedRule
from reconciler.contract.evidence_layout import LEDGER_ROUND_EVIDENCE
from reconciler.contract.history_row import HISTORY_STREAMS, PREFIXES, SNAPSHOT, SnapshotKind
from reconciler.contract.manifest import HistoryFile, entry_name, manifest_folder

#: Largest number of problems that one message lists.
_PROBLEMS_NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence in the form that judging needs: plan and files."""

    document: EvidenceDocument
    history: HistoryState
    plan: JudgePlan
    #: Planned files by prefix, 0 to 63.
    files: Mapping[int, tuple[PlannedFile, ...]]
    #: All files of the evidence and the history that are read, sorted by path.
    inputs: tuple[InputFile, ...]
    closed: Mapping[tuple[str, str], bool]
    not_checked: tuple[UncheckedRule, ...]
    no_answer: NoAnswer | None


def load_evidence(
    folder: Path | str,
    *,
    findings_a_prefix: int,
    rows_at_once_max: int = ROWS_AT_ONCE_MAX,
    history: str | None = None,
    after: HistoryChain | None = None,
) -> Evidence:
    """Reads the evidence except the files of the prefixes. Raises AuditError("inputs").

    `history` is the history's place, if evidence.json names another place. `after` is the history's chain that an older
    audit has verified.
    """
    root = _root(folder)
    document = read_document(root)
    history_root, state = _history(root, document, history, after)
    problems = list(state.problems)
    used = _used_history(state, document)
    snapshots = _snapshots(history_root, used, problems)
    _look_at_the_rest(history_root, used, state.read, problems)
    if problems:
        more = len(problems) - _PROBLEMS_NAMED_MAX
        named = "; ".join(problems[:_PROBLEMS_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
        raise AuditError("inputs", f"{named}. Bring the history back from a copy, or audit another window")
    _check_given(document)
    subscriptions = tuple(_planned(asked, document, state, snapshots) for asked in document.subscriptions)
    plan = JudgePlan(
        window=document.window,
        skew_bound_ms=document.skew_bound_ms,
        ledger=document.ledger,
        history=document.history is not None,
        subscriptions=subscriptions,
        findings_max=findings_a_prefix,
        rows_at_once_max=rows_at_once_max,
    )
    closed = {(s.topic, s.group): _is_closed(s, document, state) for s in document.subscriptions}
    return Evidence(
        document=document,
        history=state,
        plan=plan,
        files=_by_prefix(root, document, history_root, used),
        inputs=_inputs(document, state, used),
        closed=closed,
        not_checked=not_checked(document, subscriptions, state.reread),
        no_answer=_no_answer(document, state, closed),
    )


def read_document(folder: Path | str) -> EvidenceDocument:
    """Reads the folder's evidence.json. Raises AuditError("inputs")."""
    return parse_evidence(_document_bytes(_root(folder)))


def _root(folder: Path | str) -> str:
    # A worker may have another working directory.
    return str(folder).rstrip("/") if "://" in str(folder) else os.path.abspath(folder)


def _document_bytes(root: str) -> bytes:
    try:
        filesystem, base = open_folder(root)
        return bytes_at(filesystem, f"{base}/{EVIDENCE_JSON}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise AuditError(
            "inputs", f"{root}/{EVIDENCE_JSON}: cannot be read ({error}); name an evidence folder"
        ) from error


def _history(
    root: str, document: EvidenceDocument, moved: str | None, after: HistoryChain | None
) -> tuple[str, HistoryState]:
    """Finds the history's place and checks the history. `moved` is the place if the document names another place."""
    if document.history is None:
        if moved is not None:
            raise AuditError(
                "usage", f"--history {moved}: the evidence was collected with --no-history; collect again with it"
            )
        return root, without_history(document.environment, document.subscriptions)
    history_root = _history_root(root, document.history if moved is None else place_of(moved))
    window_ms = (document.window.start_ms, document.window.end_ms)
    stored = _ledger_rounds(root, document)
    about = (document.environment, document.subscriptions, document.shards, window_ms)
    state = check_history(history_root, *about, asked_at_ms=document.collected_at_ms, ledger_rounds=stored, after=after)
    return history_root, state


def _history_root(root: str, history: str) -> str:
    if "://" in history or history.startswith("/"):
        return history.rstrip("/")
    return f"{root}/{history}".rstrip("/")


def _ledger_rounds(root: str, document: EvidenceDocument) -> pa.Table | None:
    """Reads the ledger's rounds. None: no ledger was given, or the rounds were not collected."""
    files = [file for file in document.files if file.table == LEDGER_ROUND_EVIDENCE.name]
    if not document.ledger or not files:
        return None
    tables: list[pa.Table] = []
    for file in files:
        verified = VerifiedFile(_planned_file(root, file), LEDGER_ROUND_TABLE)
        tables += verified.batches(LEDGER_ROUND_TABLE.used)
    return pa.concat_tables(tables, promote_options="permissive")


def _used_history(
    history: HistoryState, document: EvidenceDocument
) -> Mapping[str, Mapping[int | None, list[HistoryFile]]]:
    """Chooses the files from a day before the window until a day after the window's close.

    So later rows change no old answer.
    """
    late_ms = max(round(asked.late_after_seconds * 1000) for asked in document.subscriptions)
    first_ms, last_ms = document.window.start_ms - DAY_MS, document.window.end_ms + late_ms + DAY_MS
    return {
        stream: {
            prefix: [file for file in of if file.last_ms >= first_ms and file.first_ms <= last_ms]
            for prefix, of in by_prefix.items()
        }
        for stream, by_prefix in history.files.items()
    }


def _snapshots(
    history_root: str, used: Mapping[str, Mapping[int | None, list[HistoryFile]]], problems: list[str]
) -> Mapping[tuple[str, str], Mapping[int, tuple[Snapshot, ...]]]:
    """Reads snapshots by subscription and shard, sorted by time.

    Of the snapshots AT_REST after a round only the first is kept.
    """
    found: dict[tuple[str, str], dict[int, set[tuple[int, str, int]]]] = defaultdict(lambda: defaultdict(set))
    files = used.get(SNAPSHOT.name, {}).get(None, [])
    filesystem, base = open_folder(history_root) if files else (arrow_fs.LocalFileSystem(), "")
    for file in files:
        table = read_stream_file(filesystem, base, file, SNAPSHOT, problems)
        if table is None:
            continue
        for (topic, group, shard, epoch), generation, first_ms, _ in rests_by_round(table):
            found[topic, group][shard].add((first_ms, epoch, generation))
        for row in table.filter(pc.not_equal(table["kind"], str(SnapshotKind.AT_REST))).to_pylist():
            by_shard = found[row["topic"], row["consumer_group"]]
            by_shard[row["shard"]].add((row["at_ms"], row["epoch"], row["generation"]))
    return {
        key: {
            shard: tuple(Snapshot(at_ms=at, epoch=epoch, generation=number) for at, epoch, number in sorted(of))
            for shard, of in by_shard.items()
        }
        for key, by_shard in found.items()
    }


def _look_at_the_rest(
    history_root: str,
    used: Mapping[str, Mapping[int | None, list[HistoryFile]]],
    read: frozenset[str],
    problems: list[str],
) -> None:
    """Checks digests of files that no rule needs, such as files of the gate, or of rounds long before the window."""
    streams = (by_prefix.get(None, []) for name, by_prefix in used.items() if name != SNAPSHOT.name)
    files = [file for of in streams for file in of if file.path not in read]
    filesystem, base = open_folder(history_root) if files else (arrow_fs.LocalFileSystem(), "")
    for file in files:
        trusted_bytes(filesystem, base, file, problems)


def _check_given(document: EvidenceDocument) -> None:
    """Raises AuditError if evidence is missing that every judgement needs."""
    for asked in document.subscriptions:
        name = f"{asked.topic}/{asked.group}"
        if _is_of_halves(asked, document):
            if not (asked.inbox or asked.effects or document.ledger):
                raise AuditError(
                    "inputs",
                    f"{name}: neither the ledger nor its inbox nor its effects were given, so nothing says what became "
                    "of its halves; collect again with one of them",
                )
            continue
        if not document.outboxes & set(asked.producer_groups):
            wanted = ", ".join(asked.producer_groups)
            raise AuditError(
                "inputs",
                f"{name}: no outbox of its producer groups ({wanted}) was given, so nothing says what was "
                "committed; collect again with one",
            )
        if not asked.inbox and not asked.effects:
            raise AuditError(
                "inputs",
                f"{name}: neither its inbox nor its effects were given, so nothing says what took effect; "
                "collect again with one of them",
            )


def _is_of_halves(asked: AuditedSubscription, document: EvidenceDocument) -> bool:
    """True if half messages announce, and no outbox says what was committed."""
    return asked.of_halves and not document.outboxes & set(asked.producer_groups)


def _planned(
    asked: AuditedSubscription,
    document: EvidenceDocument,
    history: HistoryState,
    snapshots: Mapping[tuple[str, str], Mapping[int, tuple[Snapshot, ...]]],
) -> GroupPlan:
    watermark_ms = history.watermarks.get((asked.topic, asked.group))
    reread = [lost for lost in history.reread if (lost.topic, lost.group) == (asked.topic, asked.group)]
    return GroupPlan(
        topic=asked.topic,
        group=asked.group,
        tags=None if asked.tags is None else frozenset(asked.tags),
        grace_ms=round(asked.grace_period_seconds * 1000),
        late_after_ms=round(asked.late_after_seconds * 1000),
        # The evidence ends at the time when the databases were read. Later events make no key lost.
        as_of_ms=document.collected_at_ms if watermark_ms is None else min(watermark_ms, document.collected_at_ms),
        outboxes_complete=document.outboxes.issuperset(asked.producer_groups),
        of_halves=_is_of_halves(asked, document),
        snapshots={
            shard: tuple(one for one in of if not any(_went_with(one, shard, lost) for lost in reread))
            for shard, of in snapshots.get((asked.topic, asked.group), {}).items()
        },
        reread_ms=tuple(sorted({lost.to_ms for lost in reread})),
    )


def _went_with(snapshot: Snapshot, shard: int, lost: HistoryGap) -> bool:
    """True if the history lacks rounds that ran at that time.

    Such rounds may have matched keys that the snapshot lacks.
    """
    return shard == lost.shard and lost.from_ms < snapshot.at_ms <= lost.to_ms


def _is_closed(asked: AuditedSubscription, document: EvidenceDocument, history: HistoryState) -> bool:
    """True if databases and history (if any) reach beyond the window's end and the time for late effects."""
    watermark_ms = history.watermarks.get((asked.topic, asked.group))
    closes_ms = _closes_ms(asked, document)
    if document.history is None:
        return document.collected_at_ms >= closes_ms
    return watermark_ms is not None and min(watermark_ms, document.collected_at_ms) >= closes_ms


def _closes_ms(asked: AuditedSubscription, document: EvidenceDocument) -> int:
    return document.window.end_ms + round(asked.late_after_seconds * 1000)


def _no_answer(
    document: EvidenceDocument, history: HistoryState, closed: Mapping[tuple[str, str], bool]
) -> NoAnswer | None:
    """Chooses the reason for no answer. A gap comes before an open window, because a gap may keep the window open."""
    if history.gaps:
        first = history.gaps[0]
        more: dict[str, object] = {"more": len(history.gaps) - 1} if len(history.gaps) > 1 else {}
        message = sentence(
            "gaps" if more else "gap",
            subscription=f"{first.topic}/{first.group}",
            stream=first.stream,
            start=time_text(first.from_ms),
            end=time_text(first.to_ms),
            why=first.why,
            **more,
        )
        return NoAnswer(reason="gap", message=message)
    for asked in document.subscriptions:
        topic, group = asked.topic, asked.group
        if closed[topic, group]:
            continue
        watermark_ms = history.watermarks.get((topic, group))
        about: dict[str, object] = {
            "subscription": f"{topic}/{group}",
            "collected": time_text(document.collected_at_ms),
            "closes": time_text(_closes_ms(asked, document)),
        }
        if document.history is None:
            message = sentence("open", **about)
        elif watermark_ms is None:
            message = sentence("open-no-round", **about)
        else:
            message = sentence("open-history", reached=time_text(watermark_ms), **about)
        return NoAnswer(reason="window", message=message)
    return None


def _by_prefix(
    root: str,
    document: EvidenceDocument,
    history_root: str,
    used: Mapping[str, Mapping[int | None, list[HistoryFile]]],
) -> Mapping[int, tuple[PlannedFile, ...]]:
    found: dict[int, list[PlannedFile]] = {prefix: [] for prefix in range(PREFIXES)}
    for file in document.files:
        if file.prefix is not None:
            found[file.prefix].append(_planned_file(root, file))
        for prefix, part in _parts(root, file):
            found[prefix].append(part)
    for stream in (one for one in HISTORY_STREAMS if one.has_key):
        # Files of the other streams are only checked, so that an altered file is reported even if no rule needs the
        # file.
        table = stream.name if stream.name in STREAM_NAMES else f"history.{stream.name}"
        for prefix in range(PREFIXES):
            for one in used.get(stream.name, {}).get(prefix, ()):
                found[prefix].append(
                    PlannedFile(
                        root=history_root,
                        path=one.path,
                        shown=f"history/{one.path}",
                        table=table,
                        rows=one.rows,
                        sha256=one.sha256,
                    )
                )
    return {prefix: tuple(files) for prefix, files in found.items()}


def _parts(root: str, file: EvidenceFile) -> Iterator[tuple[int, PlannedFile]]:
    by_prefix: dict[int, list[RowGroup]] = defaultdict(list)
    for group in file.groups:
        by_prefix[group.prefix].append(group)
    for prefix, groups in by_prefix.items():
        part = PartOfFile(groups=tuple(groups), rows_of_file=file.rows, footer_sha256=file.footer_sha256)
        yield prefix, replace(_planned_file(root, file), rows=sum(group.rows for group in groups), part=part)


def _planned_file(root: str, file: EvidenceFile) -> PlannedFile:
    return PlannedFile(root=root, path=file.path, shown=file.path, table=file.table, rows=file.rows, sha256=file.sha256)


def _inputs(
    document: EvidenceDocument,
    history: HistoryState,
    used: Mapping[str, Mapping[int | None, Sequence[HistoryFile]]],
) -> tuple[InputFile, ...]:
    files = [InputFile(path=EVIDENCE_JSON, sha256=document.sha256, rows=-1)]
    files += [InputFile(path=file.path, sha256=file.sha256, rows=file.rows) for file in document.files]
    if document.history is not None:
        manifest = f"history/{manifest_folder(history.environment)}/{entry_name(history.sequence)}"
        files.append(InputFile(path=manifest, sha256=history.digest, rows=-1))
    of_history: Iterable[HistoryFile] = (one for by in used.values() for of in by.values() for one in of)
    files += [InputFile(path=f"history/{one.path}", sha256=one.sha256, rows=one.rows) for one in of_history]
    return tuple(sorted(files, key=lambda file: file.path))
