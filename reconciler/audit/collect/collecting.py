"""Collects a window's evidence into a folder that can be judged (contract/evidence_layout.py).

The order of reading is: ranges of outboxes and inboxes, effects, the ledger, then single keys that are still open
(lookups.py). The order replaces a common snapshot of the databases, because rows are only ever added: a row that is
absent when its key is looked up was absent when the ranges were read. Every statement is a snapshot of its own. Spark's
executors run the tasks beside each other, so all of them must reach the folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from reconciler.audit.collect.asking import Asking, Progress, Runner, Waiting
from reconciler.audit.collect.coverage import CountedTable
from reconciler.audit.collect.deleted import Lacking, ages_to_ask, earliest, missing_evidence, missing_repairs
from reconciler.audit.collect.lookups import EffectsPlace, InboxPlace, OutboxPlace, PrefixLookups
from reconciler.audit.collect.ranges import is_cut, ranges
from reconciler.audit.collect.request import Request, evidence_document
from reconciler.audit.collect.selection import Selection, export_files, is_dated
from reconciler.audit.collect.sources import Source
from reconciler.audit.collect.tasks import (
    AgeTask,
    Answer,
    CountTask,
    CutTask,
    EffectsTask,
    LookUpTask,
    RowsTask,
    Task,
    answer,
    files_of,
)
from reconciler.audit.collect.writer import WrittenFile, remove_rests
from reconciler.audit.errors import AuditError
from reconciler.audit.evidence.document import LackingColumn
from reconciler.audit.history.check import (
    CHAIN_READINGS_MAX,
    DAY_MS,
    HistoryState,
    check_history,
    without_history,
)
from reconciler.audit.result.documents import canonical
from reconciler.audit.result.not_judged import TIME_COLUMNS, RowsOf
from reconciler.audit.result.values import AuditedSubscription
from reconciler.contract.evidence_layout import (
    CANDIDATE_EVIDENCE,
    EFFECTS_EVIDENCE,
    INBOX_EVIDENCE,
    LEDGER_ROUND_EVIDENCE,
    OUTBOX_EVIDENCE,
    REPAIR_EVIDENCE,
)
from reconciler.contract.history_row import ANNOUNCED, CONSUMED, PREFIXES
from reconciler.contract.history_row import REPAIR as REPAIR_STREAM
from reconciler.contract.manifest import HistoryFile
from reconciler.contract.schema import Table
from reconciler.contract.tables import CANDIDATE, INBOX, OUTBOX, REPAIR, ROUND

#: Largest number and shortest length of the ranges of time in which rows outside of the audit are counted.
COUNTED_RANGES_MAX = 16
COUNTED_RANGE_MS_MIN = 3_600_000

#: Number of rows of ranges and history that one look-up task reads. They take some 100 MB.
LOOK_UP_ROWS = 500_000

#: Largest number of problems of the history that one error lists.
PROBLEMS_NAMED_MAX = 10


def collect(request: Request, folder: Path, run: Runner, progress: Progress, waiting: Waiting | None = None) -> None:
    """Fills an empty folder and writes evidence.json last.

    Raises AuditError. The caller removes an incomplete folder.
    """
    history = _trusted_history(request)
    try:
        _collect(request, history, folder, Asking(run=run, progress=progress, waiting=waiting or Waiting()))
    except OSError as error:
        raise AuditError("engine", f"evidence cannot be written: {error.strerror or error}") from error


def _collect(request: Request, history: HistoryState, folder: Path, asking: Asking) -> None:
    files: dict[str, WrittenFile] = {}
    not_asked: Counter[RowsOf] = Counter()
    undated: Counter[tuple[str, str]] = Counter()
    lacking: set[LackingColumn] = set()
    for what, plan in (
        ("outboxes and inboxes", lambda: chain(_outboxes(request, folder), _inboxes(request, folder))),
        # Effects are read after the outboxes, because no look-up asks for the effect of a commit.
        ("effects", lambda: _effects(request, folder)),
        ("ledger", lambda: _ledger(request, folder)),
        ("whose other rows there are", lambda: _counts(request)),
    ):
        tasks = _cut(asking.tasks(plan), asking.run)
        if tasks:
            asking.progress(f"reading {what} in {len(tasks)} pieces")
            answers = asking.answers(tasks)
            files.update(files_of(answers))
            for task, one in zip(tasks, answers, strict=True):
                not_asked.update(one.not_asked)
                lacking.update(_lacking_columns(request, task, one))
            remove_rests(folder, files)
    asking.progress("asking for single keys")
    answers = _looked_up(request, folder, history, files, asking)
    # The look-ups write effects again, one row per key.
    files = {path: file for path, file in files.items() if not path.startswith(f"{EFFECTS_EVIDENCE.name}/")}
    files.update(files_of(answers))
    for one in answers:
        undated.update(one.undated)
    undated.update({of: effects.left_out for of, effects in request.sources.effects.items()})
    _require_rows(request, earliest(one.lacking for one in answers), asking)
    remove_rests(folder, files)  # no task writes into the folder any more
    rows = sum(file.rows for file in files.values())
    asking.progress(f"evidence: {rows} rows in {len(files)} files")
    # evidence.json is written last, because it makes the folder evidence.
    (folder / "evidence.json").write_bytes(canonical(evidence_document(request, files, not_asked, undated, lacking)))


def _lacking_columns(request: Request, task: Task, found: Answer) -> Iterator[LackingColumn]:
    """Yields the columns for each subscription whose evidence the task reads."""
    if not found.lacking_columns or not isinstance(task, RowsTask):
        return
    for s in request.subscriptions:
        of = {"topic": (s.topic,), "consumer_group": (s.group,), "producer_group": s.producer_groups}
        if any(all(row[name] in of[name] for name in of.keys() & row.keys()) for row in task.selection.values):
            yield from ((s.topic, s.group, task.selection.layout.name, column) for column in found.lacking_columns)


def _trusted_history(request: Request) -> HistoryState:
    """Checks the history before databases are read for hours. Judging checks the history again.

    Raises AuditError("inputs").
    """
    if request.history is None:
        return without_history(request.environment, request.subscriptions)
    window = (request.window.start_ms, request.window.end_ms)
    about = (request.environment, request.subscriptions, request.shards, window)
    state = check_history(request.history, *about, asked_at_ms=request.collected_at_ms, after=request.history_after)
    if state.problems:
        more = f"\nand {len(state.problems) - PROBLEMS_NAMED_MAX} more" if state.problems[PROBLEMS_NAMED_MAX:] else ""
        raise AuditError("inputs", "\n".join(state.problems[:PROBLEMS_NAMED_MAX]) + more)
    return state


def _outboxes(request: Request, folder: Path) -> Iterator[Task]:
    for number, (group, source) in enumerate(request.sources.outboxes):
        (folder / OUTBOX_EVIDENCE.name).mkdir(exist_ok=True)
        since = ("created_at_ms", request.written_since_ms, request.window.end_ms)
        yield from _pieces(folder, f"outbox-{number}", source, _outbox_selection(request, group, since))


def _outbox_selection(request: Request, group: str, since: tuple[str, int, int | None] | None = None) -> Selection:
    return Selection(
        layout=OUTBOX_EVIDENCE,
        table=OUTBOX.name,
        equal=(("producer_group", group),),
        among=(("topic", request.topics_of(group)),),
        since=since,
    )


def _inboxes(request: Request, folder: Path) -> Iterator[Task]:
    for number, s in enumerate(request.subscriptions):
        for place in _inbox_places(request, number, s):
            (folder / INBOX_EVIDENCE.name).mkdir(exist_ok=True)
            since = ("applied_at_ms", request.since_ms, _closes_ms(request, s))
            yield from _pieces(folder, place.part, place.source, _inbox_selection(s, since))


def _effects(request: Request, folder: Path) -> Iterator[Task]:
    for number, s in enumerate(request.subscriptions):
        effects = request.sources.effects.get((s.topic, s.group))
        if effects is not None or len(_inbox_places(request, number, s)) > 1:
            (folder / EFFECTS_EVIDENCE.name).mkdir(exist_ok=True)
        if effects is not None:
            yield EffectsTask(
                folder=str(folder),
                part=f"effects-{number}",
                effects=effects,
                topic=s.topic,
                group=s.group,
                # Effects have the limits of inbox rows, because a key of the window's last second takes effect after
                # the end.
                between_ms=(request.since_ms, _closes_ms(request, s)),
            )


def _inbox_places(request: Request, number: int, s: AuditedSubscription) -> tuple[InboxPlace, ...]:
    return tuple(
        InboxPlace(
            topic=s.topic, group=s.group, source=source, selection=_inbox_selection(s), part=f"inbox-{number}-{place}"
        )
        for place, source in enumerate(request.sources.inboxes.get((s.topic, s.group), ()))
    )


def _inbox_selection(s: AuditedSubscription, since: tuple[str, int, int | None] | None = None) -> Selection:
    equal = (("consumer_group", s.group), ("topic", s.topic))
    return Selection(layout=INBOX_EVIDENCE, table=INBOX.name, equal=equal, since=since)


def _ledger(request: Request, folder: Path) -> Iterator[Task]:
    """Plans the reading of candidates and repairs from the window's start on, and of rounds until the window closes."""
    source = request.sources.ledger
    if source is None:
        return
    for layout in (CANDIDATE_EVIDENCE, REPAIR_EVIDENCE, LEDGER_ROUND_EVIDENCE):
        (folder / layout.name).mkdir(exist_ok=True)
    environment = ("environment", request.environment)
    for number, s in enumerate(request.subscriptions):
        equal = (environment, ("topic", s.topic), ("consumer_group", s.group))
        since = ("first_seen_ms", request.since_ms, None)
        selection = Selection(layout=CANDIDATE_EVIDENCE, table=CANDIDATE.name, equal=equal, since=since)
        yield from _pieces(folder, f"candidate-{number}", source, selection)
        selection = Selection(
            layout=LEDGER_ROUND_EVIDENCE,
            table=ROUND.name,
            equal=(*equal, ("void", 0)),
            since=("at_ms", request.window.start_ms, _closes_ms(request, s)),
        )
        yield from _pieces(folder, f"round-{number}", source, selection)
    for number, topic in enumerate(request.topics):
        since = ("created_at_ms", request.since_ms, None)
        of_topic = (environment, ("topic", topic))
        selection = Selection(layout=REPAIR_EVIDENCE, table=REPAIR.name, equal=of_topic, since=since)
        yield from _pieces(folder, f"repair-{number}", source, selection)


def _closes_ms(request: Request, s: AuditedSubscription) -> int:
    return request.window.end_ms + round(s.late_after_seconds * 1000) + 1


def _pieces(folder: Path, part: str, source: Source, selection: Selection) -> Iterator[Task]:
    """Yields one task per file of an export, and one task per database. `_cut` may divide a database's task by time."""
    if source.kind != "database":
        for number, file in enumerate(export_files(source, selection)):
            name = f"{part}-{number:04d}"
            yield RowsTask(folder=str(folder), part=name, source=source, selection=selection, file=file)
        return
    yield RowsTask(folder=str(folder), part=f"{part}-0000", source=source, selection=selection)


def _cut(tasks: Sequence[Task], run: Runner) -> list[Task]:
    """Divides tasks with many rows of a database into ranges of time."""
    long = [task for task in tasks if isinstance(task, RowsTask) and is_cut(task.source, task.selection)]
    asked = [CutTask(source=one.source, selection=one.selection) for one in long]
    cuts = dict(zip(map(id, long), run(answer, asked) if asked else [], strict=True))
    found: list[Task] = []
    for task in tasks:
        cut = cuts.get(id(task))
        if cut is None or not isinstance(task, RowsTask):
            found.append(task)
        else:
            found += [task.part_of(number, one) for number, one in enumerate(ranges(task.selection, cut.cuts_ms))]
    return found


def _counts(request: Request) -> Iterator[Task]:
    """Plans the counts of the window's rows outside of the audit, once per given place."""
    window = (request.window.start_ms, request.window.end_ms)
    chosen = frozenset((s.topic, s.group) for s in request.subscriptions)
    outboxes = [
        (source, {(topic, group) for topic in request.topics_of(group)}) for group, source in request.sources.outboxes
    ]
    inboxes = [(source, {key} & chosen) for key, several in request.sources.inboxes.items() for source in several]
    for layout, table, given in ((OUTBOX_EVIDENCE, OUTBOX, outboxes), (INBOX_EVIDENCE, INBOX, inboxes)):
        places: dict[tuple[str, str], tuple[Source, set[tuple[str, str]]]] = {}
        for source, keys in given:
            places.setdefault((source.kind, source.address), (source, set()))[1].update(keys)
        for source, asked in places.values():
            selection = Selection(layout=layout, table=table.name, since=(TIME_COLUMNS[layout.name], *window))
            cuts = _even_cuts(window) if source.kind == "database" else []
            for one in ranges(selection, cuts):
                yield from _count_tasks(source, one, frozenset(asked))
    ledger = request.sources.ledger
    if ledger is not None:
        for layout, table in ((CANDIDATE_EVIDENCE, CANDIDATE), (REPAIR_EVIDENCE, REPAIR)):
            # These tables are counted in one piece, because none of their indexes begins with a time.
            selection = Selection(
                layout=layout,
                table=table.name,
                equal=(("environment", request.environment),),
                since=(TIME_COLUMNS[layout.name], *window),
            )
            yield from _count_tasks(ledger, selection, chosen)


def _even_cuts(window_ms: tuple[int, int]) -> list[int]:
    first_ms, end_ms = window_ms
    count = max(1, min(COUNTED_RANGES_MAX, (end_ms - first_ms) // COUNTED_RANGE_MS_MIN))
    return [first_ms + (end_ms - first_ms) * number // count for number in range(1, count)]


def _count_tasks(source: Source, selection: Selection, asked: frozenset[tuple[str, str]]) -> Iterator[Task]:
    for file in export_files(source, selection) if source.kind != "database" else (None,):
        yield CountTask(table=CountedTable(source=source, selection=selection, asked=asked, file=file))


def _looked_up(
    request: Request, folder: Path, history: HistoryState, files: Mapping[str, WrittenFile], asking: Asking
) -> list[Answer]:
    """Runs the look-ups. Runs all of them again if a file of the history was merged and deleted before it was read."""
    for _ in range(CHAIN_READINGS_MAX):
        answers = asking.answers(_lookups(request, folder, history, files))
        if all(one.reason is None for one in answers):
            break
        before, history = history, _trusted_history(request)
        if before.paths <= history.paths:
            break
    return answers


def _lookups(request: Request, folder: Path, history: HistoryState, files: Mapping[str, WrittenFile]) -> list[Task]:
    """Divides the look-ups into tasks. `files` are the files of all ranges.

    Few rows take few tasks, because each task costs connections and statements.
    """
    window = (request.window.start_ms, request.window.end_ms)
    inboxes = tuple(
        place for number, s in enumerate(request.subscriptions) for place in _inbox_places(request, number, s)
    )
    outboxes = tuple(
        OutboxPlace(topics=request.topics_of(group), source=source, selection=_outbox_selection(request, group))
        for group, source in request.sources.outboxes
        if source.kind == "database"
    )
    effects = tuple(
        EffectsPlace(topic=s.topic, group=s.group, is_dated=is_dated(counted))
        for s in request.subscriptions
        if (counted := request.sources.effects.get((s.topic, s.group))) is not None
    )
    closes_ms = request.closes_ms
    given = set(request.sources.outbox_groups)
    wanted = {
        topic: {g for s in request.subscriptions if s.topic == topic for g in s.producer_groups}
        for topic in request.topics
    }

    def of(stream: Table, prefixes: Iterable[int]) -> Iterator[HistoryFile]:
        return (file for prefix in prefixes for file in history.of(stream.name, prefix))

    rows = sum(file.rows for file in files.values())
    rows += sum(file.rows for file in _between(of(ANNOUNCED, range(PREFIXES)), window[0], closes_ms))
    tasks = max(1, min(PREFIXES, -(-rows // LOOK_UP_ROWS)))
    return [
        LookUpTask(
            lookups=PrefixLookups(
                folder=str(folder),
                prefixes=prefixes,
                window_ms=window,
                topics=request.topics,
                inboxes=inboxes,
                outboxes=outboxes,
                effects=effects,
                history=request.history,
                may_count_ms=(request.written_since_ms, closes_ms),
                announced=_between(of(ANNOUNCED, prefixes), window[0], closes_ms),
                announced_before=_between(of(ANNOUNCED, prefixes), window[0] - DAY_MS, window[0]),
                consumed=_between(of(CONSUMED, prefixes), request.since_ms, closes_ms + DAY_MS),
                repaired=()
                if request.sources.ledger is None
                else tuple(file for file in of(REPAIR_STREAM, prefixes) if file.last_ms >= window[0]),
                whole_outboxes=tuple(topic for topic in request.topics if wanted[topic] <= given),
                given_inboxes=tuple(
                    (s.topic, s.group, s.tags)
                    for s in request.subscriptions
                    if (s.topic, s.group) in request.sources.inboxes
                ),
                ranges={
                    path: groups
                    for path, file in sorted(files.items())
                    if (groups := tuple(group.number for group in file.groups if group.prefix in prefixes))
                },
            )
        )
        for prefixes in (tuple(range(first, PREFIXES, tasks)) for first in range(tasks))
    ]


def _between(files: Iterable[HistoryFile], first_ms: int, end_ms: int) -> tuple[HistoryFile, ...]:
    return tuple(file for file in files if file.first_ms < end_ms and file.last_ms >= first_ms)


def _require_rows(request: Request, lacking: Mapping[Lacking, int], asking: Asking) -> None:
    """Raises AuditError("inputs") where rows of the window were deleted for their age.

    The check runs after all reading, because rows may be deleted meanwhile.
    """

    def inboxes(topic: str, group: str) -> list[tuple[Source, Selection]]:
        s = next(s for s in request.subscriptions if (s.topic, s.group) == (topic, group))
        return [(source, _inbox_selection(s)) for source in request.sources.inboxes[topic, group]]

    ages = ages_to_ask(
        lacking,
        outboxes=lambda topic: [
            (source, _outbox_selection(request, group))
            for group, source in request.sources.outboxes
            if topic in request.topics_of(group)
        ],
        inboxes=inboxes,
    )
    answers = asking.answers([AgeTask(age=age) for age in ages]) if ages else []
    files_of(answers)
    lines = missing_evidence(
        lacking,
        [(age, found.oldest_ms) for age, found in zip(ages, answers, strict=True)],
        skew_bound_ms=request.skew_bound_ms,
        collected_at_ms=request.collected_at_ms,
    )
    lines += missing_repairs(lacking, request.sources.ledger)
    if lines:
        raise AuditError("inputs", "\n".join(lines))
