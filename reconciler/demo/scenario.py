"""The demo's acts in order: prepare, load with losses, mark, repair, release the lagging group, count, audit."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from reconciler.clock import Clock
from reconciler.commands.acts.hold import lift_hold, place_hold
from reconciler.commands.topics import create_topics
from reconciler.contract.tables import Rung
from reconciler.demo.audit_step import AuditAnswer, audit, is_closed, window_of
from reconciler.demo.broker_view import BrokerView
from reconciler.demo.job import DemoJob, settings_toml
from reconciler.demo.patience import Patience
from reconciler.demo.plan import PRODUCERS
from reconciler.demo.processes import Child, Children, DemoFailed
from reconciler.demo.truth import (
    LAGGING,
    LOAD_ENDED,
    REFERENCE,
    DemoCounts,
    connect,
    count,
    create_effects,
    create_orders,
    create_truth,
    set_mark,
    write_copies,
)
from reconciler.errors import ChangedMeanwhile
from reconciler.instrumentation.console import people, remark
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections

#: Time that the audit gets beyond the usual limit, so that a slow machine can start Spark.
AUDIT_SECONDS = 480.0
#: Consumers of the reference group.
CONSUMERS = 2
#: The person that the ledger names for the demo's holds.
DEMO = "demo"
_FIRST_LOSS = (
    "SELECT unique_key, loss_verdict FROM reconciler_candidate WHERE loss_verdict IS NOT NULL"
    " ORDER BY first_seen_ms, unique_key LIMIT 1"
)


class Scenario:
    """One run of the demo. One thread uses this object."""

    def __init__(self, job: DemoJob, children: Children, clock: Clock) -> None:
        self._job = job
        self._files = job.files
        self._children = children
        self._clock = clock
        self._patience = Patience(clock)
        #: Name -> consumer that should run. The demo restarts a consumer that was killed.
        self._consumers: dict[str, Child] = {}
        #: The daemon and the sweeper.
        self._services: list[Child] = []
        self._has_told_first = False
        console = people()
        described = TextColumn("{task.description:36}", markup=False)
        columns = (described, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)

    def run(self) -> tuple[DemoCounts, AuditAnswer]:
        """Runs all acts. Raises DemoFailed, or the error for a child's exit code."""
        with self._progress, BrokerView(self._job, self._clock) as broker:
            self._prepare(broker)
            self._load()
            self._await_consumers(broker)
            self._mark()
            self._await_verdicts()
            if self._job.repair_order:
                self._repair()
            self._release_lagging(broker)
            write_copies(self._files.truth, broker.copies())
            self._stop()
            return count(self._files), self._audit()

    # ----------------------------------------------------------------- acts

    def _prepare(self, broker: BrokerView) -> None:
        task = self._act("databases and topics", 1)
        files = self._files
        self._job.write()
        files.settings.write_text(settings_toml(self._job, groups=[REFERENCE, LAGGING]))
        create_truth(files.truth)
        create_orders(files.outbox)
        schema.upgrade(f"sqlite:///{files.outbox}", "outbox")
        schema.upgrade(f"sqlite:///{files.ledger}", "ledger")
        for group in (REFERENCE, LAGGING):
            create_effects(files.inbox(group))
            schema.upgrade(f"sqlite:///{files.inbox(group)}", "inbox")
        broker.create_business_topic()
        settings = self._settings()
        create_topics(settings)
        with Connections.for_one_answer(settings) as connections:
            place_hold(connections, self._job.topic, reason="demo: load", by=DEMO)
        self._count(task, 1)

    def _load(self) -> None:
        total = self._job.messages + max(1, self._job.messages // 20)
        task = self._act("transactions", total)
        # The consumers' recorder needs the number of shards, which the reconciler writes first.
        service = self._children.start_module("run", "reconciler", "run", "--config", self._files.settings)
        sweeper = self._children.start_module("sweep", "reconciler", "sweep", "--config", self._files.settings)
        for number in range(CONSUMERS):
            self._start_consumer(REFERENCE, number)
        self._start_consumer(LAGGING, 0)
        self._wait(self._has_begun, "the reconciler has had its first rounds")
        producers = {number: self._start_producer(number) for number in range(PRODUCERS + 1)}
        self._wait(lambda: self._tend_producers(producers, task), "producers have finished")
        self._services = [service, sweeper]
        for child in self._services:
            if child.exit_code is not None:
                raise DemoFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")

    def _has_begun(self) -> bool:
        """Returns True if every group has had a round, because the audit has no answer for the time before."""
        self._children.require_alive()
        return self._ledger("SELECT count(DISTINCT consumer_group) FROM reconciler_round") == len((REFERENCE, LAGGING))

    def _await_consumers(self, broker: BrokerView) -> None:
        task = self._act("consumed before repairs", self._job.messages - self._job.lose)
        group = self._job.consumer_group(REFERENCE)

        def reached() -> bool:
            self._tend_consumers()
            self._count(task, self._effects(REFERENCE))
            return broker.is_at_end(group)

        self._wait(reached, "the reference group has read everything")

    def _mark(self) -> None:
        set_mark(self._files.truth, LOAD_ENDED, self._clock.now_ms())

    def _await_verdicts(self) -> None:
        task = self._act("losses found", self._job.lose)

        def found() -> bool:
            self._tend_consumers()
            self._children.require_alive()
            self._tell_first()
            sql = "SELECT count(DISTINCT unique_key) FROM reconciler_candidate WHERE loss_verdict IS NOT NULL"
            number = self._ledger(sql)
            self._count(task, number)
            return number >= self._job.lose

        self._wait(found, "every loss is found")

    def _repair(self) -> None:
        task = self._act("lost messages repaired", self._job.lose)
        if Rung.HAND_OVER.value in self._job.repair_order:
            for group in (REFERENCE, LAGGING):
                self._start_replay(group)
        self._lift_brakes()
        before = self._job.messages - self._job.lose

        def repaired() -> bool:
            self._tend_consumers()
            self._children.require_alive()
            if self._ledger("SELECT count(*) FROM reconciler_hold"):
                self._lift_brakes()  # the demo's losses come at once, so they rightly open the breaker
            effects = self._effects(REFERENCE)
            self._count(task, max(0, effects - before))
            return effects >= self._job.messages

        self._wait(repaired, "every lost message has taken effect in the reference group")

    def _lift_brakes(self) -> None:
        # If the breaker opens meanwhile, the next call closes it.
        with Connections.for_one_answer(self._settings()) as connections, suppress(ChangedMeanwhile):
            for breaker in (False, True):
                lift_hold(connections, self._job.topic, breaker=breaker, by=DEMO)

    def _release_lagging(self, broker: BrokerView) -> None:
        expected = self._job.messages - (0 if self._job.repair_order else self._job.lose)
        task = self._act("lagging group catches up", expected)
        self._files.released.touch()
        group = self._job.consumer_group(LAGGING)

        def caught_up() -> bool:
            self._tend_consumers()
            self._children.require_alive()
            effects = self._effects(LAGGING)
            self._count(task, effects)
            return effects >= expected and broker.is_at_end(group)

        self._wait(caught_up, "the lagging group has caught up")
        if self._job.repair_order:
            self._wait(self._no_repair_open, "every repair is verified")

    def _stop(self) -> None:
        for child in list(self._consumers.values()):
            # A consumer that was restarted a moment ago may not have its handler for SIGTERM yet.
            self._children.stop(child, expected=(0, -signal.SIGTERM))
        self._consumers.clear()

    def _audit(self) -> AuditAnswer:
        if not self._job.is_audited:
            return AuditAnswer(verdict=None, classes={})
        task = self._act("audit", 1)
        window = window_of(self._job)
        self._wait(lambda: is_closed(self._job, window[1]), "the window of the audit is closed")
        for child in self._services:
            self._children.stop(child)  # the daemon seals its history
        wait = partial(self._wait, beyond_seconds=AUDIT_SECONDS)
        history: list[str | Path] = ["--history", self._files.history]
        said = audit(self._job, self._children, window, wait, groups=[REFERENCE, LAGGING], more=history)
        self._count(task, 1)
        return said

    # ----------------------------------------------------------------- tending processes

    def _start_producer(self, number: int) -> Child:
        return self._children.fork(f"producer-{number}", "reconciler.demo.producer", self._job.path, str(number))

    def _tend_producers(self, producers: dict[int, Child], task: TaskID) -> bool:
        self._tend_consumers()
        self._children.require_alive()
        for number, child in list(producers.items()):
            match child.exit_code:
                case None:
                    continue
                case 0:
                    del producers[number]
                case code if code == -signal.SIGKILL and number == PRODUCERS:
                    del producers[number]  # the doomed group stays dead
                case code if code == -signal.SIGKILL:
                    producers[number] = self._start_producer(number)
                case code:
                    raise DemoFailed(f"{child.name} ended with {code}:\n{child.tail()}")
            self._children.forget(child)
        with closing(connect(self._files.truth)) as db:
            (attempts,) = db.execute("SELECT count(*) FROM attempts").fetchone()
        self._count(task, attempts)
        self._tell_first()
        return not producers

    def _start_consumer(self, group: str, number: int) -> None:
        name = f"consumer-{group}-{number}"
        self._consumers[name] = self._children.fork(
            name, "reconciler.demo.consumer", self._job.path, group, str(number)
        )

    def _tend_consumers(self) -> None:
        for name, child in list(self._consumers.items()):
            if child.exit_code == -signal.SIGKILL:
                self._children.forget(child)
                _, group, number = name.split("-")
                self._start_consumer(group, int(number))
            elif child.exit_code is not None:
                raise DemoFailed(f"{name} ended with {child.exit_code}:\n{child.tail()}")

    def _start_replay(self, group: str) -> None:
        self._children.start_module(
            f"replay-{group}",
            "reconciler",
            "replay",
            *("--handler", "reconciler.demo.effect:apply_effect", "--topic", self._job.topic),
            *("--group", self._job.consumer_group(group), "--config", self._files.settings),
        )

    # ----------------------------------------------------------------- looking

    def _settings(self) -> Settings:
        return load_settings(self._files.settings, {})

    def _tell_first(self) -> None:
        """Prints once which message is the first proved loss, and the next step for it."""
        if self._has_told_first:
            return
        with closing(connect(self._files.ledger)) as db:
            row = db.execute(_FIRST_LOSS).fetchone()
        if row is None:
            return
        self._has_told_first = True
        key, verdict = row
        line = f"the first loss is proved: {key} is {verdict}; all are repaired when the load has ended"
        if self._progress.console.is_terminal:
            self._progress.console.print(line)
        else:
            remark(line)

    def _effects(self, group: str) -> int:
        with closing(connect(self._files.inbox(group))) as db:
            return int(db.execute("SELECT count(DISTINCT key) FROM effects").fetchone()[0])

    def _no_repair_open(self) -> bool:
        self._tend_consumers()
        self._children.require_alive()
        return self._ledger("SELECT count(*) FROM reconciler_repair WHERE state NOT IN ('DONE', 'FAILED')") == 0

    def _ledger(self, sql: str) -> int:
        with closing(connect(self._files.ledger)) as db:
            return int(db.execute(sql).fetchone()[0])

    def _act(self, title: str, total: int) -> TaskID:
        if not sys.stderr.isatty():
            remark(title)
        self._patience.begin()
        return self._progress.add_task(title, total=total)

    def _count(self, task: TaskID, number: int) -> None:
        self._progress.update(task, completed=number)
        self._patience.count(number)

    def _wait(self, reached: Callable[[], bool], what: str, *, beyond_seconds: float = 0.0) -> None:
        self._patience.wait(reached, what, beyond_seconds=beyond_seconds)
