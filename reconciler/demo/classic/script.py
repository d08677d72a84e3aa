"""Shows what the original design finds and loses: one script on a broker of 4.2, then on one of 5.x, then the audit.

1. Some messages lose their END_TRANSACTION. A turn of the original's job looks for them. On 4.2 the job finds their
   halves under the real topic, and hands them over. From 4.3 on, halves are in a topic of their own.
2. A producer group dies with a committed message. A turn finds it missing, and the job's process dies after EXEC.
3. The next turn finds nothing missing, because no process and no set has the key any more.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ulid import ULID

from reconciler.clock import Clock, SystemClock
from reconciler.commands.topics import create_topics
from reconciler.demo.audit_step import audit, window_of
from reconciler.demo.broker_view import BrokerView
from reconciler.demo.classic.process import DIES, LIVES
from reconciler.demo.job import LATE_AFTER_SECONDS, DemoJob, settings_toml
from reconciler.demo.patience import Patience
from reconciler.demo.plan import PRODUCERS
from reconciler.demo.processes import Child, Children, DemoFailed, start_redis
from reconciler.demo.run import demo_folder, start_broker
from reconciler.demo.truth import REFERENCE, DemoFiles, connect, create_effects, create_orders, create_truth
from reconciler.instrumentation.console import remark
from reconciler.settings.file import load_settings
from reconciler.sql import schema

FAMILIES = ("4.2", "5.x")
MESSAGES = 12
#: Lost messages: two of a living producer, one of a group that dies.
LOSE = 3
SEED = 1

_LATE_MS = round(LATE_AFTER_SECONDS * 1000)
_JOB = "reconciler.demo.classic.process"

_Wait = Callable[[Callable[[], bool], str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyOutcome:
    """One run of the script."""

    family: str
    #: Of the losses of a living producer: the number found and handed over, and the number not found.
    handed_over: int
    not_found: int
    #: Number of keys that the turn after the crash calls missing.
    missing_after_crash: int
    #: Class of the audit -> its keys. Classes without keys are left out.
    classes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicOutcome:
    """The outcomes of both runs."""

    families: tuple[FamilyOutcome, ...]

    @property
    def exit_code(self) -> int:
        """0 if the original design behaves as known: on 4.2 it loses the message of the crash, on 5.x all lost
        messages."""
        return 0 if [self._facts(one) for one in self.families] == [(2, 0, 0, 1), (0, 2, 0, 3)] else 1

    @staticmethod
    def _facts(one: FamilyOutcome) -> tuple[int, int, int, int]:
        return one.handed_over, one.not_found, one.missing_after_crash, one.classes.get("LOST", 0)

    def as_dict(self) -> dict[str, object]:
        """Returns plain data for JSON."""
        return {
            one.family: {
                "committed": MESSAGES,
                "without_end": LOSE,
                "handed_over": one.handed_over,
                "not_found": one.not_found,
                "missing_after_crash": one.missing_after_crash,
                "audit": dict(one.classes),
            }
            for one in self.families
        }

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yields rows about the job's turns, for people."""
        yield ("committed, END_TRANSACTION lost", *(LOSE for _ in self.families))
        yield ("found under the real topic and handed over", *(one.handed_over for one in self.families))
        yield ("looked for, not found, forgotten", *(one.not_found for one in self.families))
        yield ("missing in the turn after the crash", *(one.missing_after_crash for one in self.families))

    def audit_rows(self) -> Iterator[tuple[object, ...]]:
        """Returns the rows of the audit's table, one per class of either run."""
        names = dict.fromkeys(name for one in self.families for name in one.classes)
        return ((name, *(one.classes.get(name, 0) for one in self.families)) for name in names)


def run_classic_demo(*, keep: Path | None, redis_url: str | None) -> ClassicOutcome:
    """Runs the script on both families. Raises DemoFailed, with the end of a child's output, if a part fails."""
    clock = SystemClock()
    with demo_folder(keep) as folder:
        children = Children(files=DemoFiles(folder), clock=clock)
        try:
            if redis_url is None:
                _, redis_url, _ = start_redis(children)
            played = [_play(folder / family, family, redis_url, clock) for family in FAMILIES]
            return ClassicOutcome(families=tuple(_judged(one, children, clock) for one in played))
        finally:
            children.stop_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    family: str
    job: DemoJob
    #: Answers of the turns before and after the crash.
    before: Mapping[str, int]
    after: Mapping[str, int]


def _play(folder: Path, family: str, redis_url: str, clock: Clock) -> _Played:
    remark(f"the original on {family}")
    folder.mkdir()
    children = Children(files=DemoFiles(folder), clock=clock)
    wait = Patience(clock).wait
    try:
        job = DemoJob(
            run=str(ULID())[-10:],
            folder=str(folder),
            name_servers=start_broker(children, family),
            redis_url=redis_url,
            messages=MESSAGES,
            lose=LOSE,
            seed=SEED,
            shards=1,
            repair_order=(),
            accept_unverified_redis=True,
        )
        with BrokerView(job, clock) as broker:
            _prepare(job, broker)
            children.fork("consumer", "reconciler.demo.consumer", job.path, REFERENCE, "0")
            for producer in [_producer(children, job, number) for number in range(PRODUCERS)]:
                _ended(children, producer, wait)
            wait(partial(_is_consumed, job, broker), "the group has read everything")
        before = _turn(children, job, wait)
        _ended(children, _producer(children, job, PRODUCERS), wait, expected=-signal.SIGKILL)
        dying = children.start_module("job-dies", _JOB, job.path, DIES)
        _ended(children, dying, wait, expected=-signal.SIGKILL)
        return _Played(family=family, job=job, before=before, after=_turn(children, job, wait))
    finally:
        children.stop_all()


def _producer(children: Children, job: DemoJob, number: int) -> Child:
    return children.fork(f"producer-{number}", "reconciler.demo.producer", job.path, str(number))


def _prepare(job: DemoJob, broker: BrokerView) -> None:
    files = job.files
    job.write()
    files.settings.write_text(settings_toml(job, groups=[REFERENCE]))
    create_truth(files.truth)
    create_orders(files.outbox)
    create_effects(files.inbox(REFERENCE))
    schema.upgrade(f"sqlite:///{files.outbox}", "outbox")
    schema.upgrade(f"sqlite:///{files.inbox(REFERENCE)}", "inbox")
    broker.create_business_topic()
    schema.upgrade(f"sqlite:///{files.ledger}", "ledger")
    create_topics(load_settings(files.settings, {}))


def _is_consumed(job: DemoJob, broker: BrokerView) -> bool:
    with closing(connect(job.files.inbox(REFERENCE))) as db:
        (effects,) = db.execute("SELECT count(*) FROM effects").fetchone()
    return effects == MESSAGES - LOSE and broker.is_at_end(job.consumer_group(REFERENCE))


def _turn(children: Children, job: DemoJob, wait: _Wait) -> dict[str, int]:
    child = children.start_module("job", _JOB, job.path, LIVES)
    _ended(children, child, wait)
    answer: dict[str, int] = json.loads(child.tail(1))
    return answer


def _ended(children: Children, child: Child, wait: _Wait, *, expected: int = 0) -> None:
    wait(lambda: child.exit_code is not None, f"{child.name} has ended")
    children.forget(child)
    if child.exit_code != expected:
        raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")


def _judged(played: _Played, children: Children, clock: Clock) -> FamilyOutcome:
    start_ms, end_ms = window_of(played.job)
    # Without a history, the audit counts a key without an effect later than its row, so the window ends later.
    window = (start_ms - 1000, end_ms + 2 * _LATE_MS)
    wait = Patience(clock).wait
    wait(lambda: clock.now_ms() > window[1] + _LATE_MS, "the window of the audit is closed")
    answer = audit(played.job, children, window, wait, groups=[REFERENCE], more=["--no-history", "--engine", "here"])
    return FamilyOutcome(
        family=played.family,
        handed_over=played.before["handed_over"],
        not_found=played.before["not_found"],
        missing_after_crash=played.after["missing"],
        classes=answer.classes,
    )
