"""A producer process of the demo: `python -m reconciler.demo.producer JOB.json NUMBER`.

It sends its share of the plan through producers.TransactionalProducer. A message that is to get lost has its
END_TRANSACTION dropped on the way out, and the broker's check-backs for it on the way in, by two functions that sit in
the transport of this process only; so the same demo runs against a real broker.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from producers.transaction import TransactionalProducer
from reconciler.demo.effect import die
from reconciler.demo.job import Job
from reconciler.demo.plan import PRODUCERS, Intent, PlannedMessage, plan_messages
from reconciler.demo.truth import attempted_numbers, connect, is_loss, write_attempt
from reconciler.rocketmq.client import RemotingClient
from reconciler.rocketmq.codes import RequestCode
from reconciler.rocketmq.frame import Command
from reconciler.rocketmq.message import Message
from reconciler.rocketmq.unique_keys import UniqueKeyGenerator
from reconciler.sql.engines import open_engine


class OnPurpose(Exception):  # noqa: N818 - what the business would raise
    """The business changes its mind."""


class LossyTransport:
    """Drops END_TRANSACTION and check-backs of keys whose intent is a loss. Called by several threads."""

    def __init__(self, truth: Path) -> None:
        self._truth = truth
        self._lock = threading.Lock()
        self._db: sqlite3.Connection = sqlite3.connect(truth, timeout=30, check_same_thread=False)

    def outgoing(self, _address: str, command: Command) -> Command | None:
        """None drops the frame; the sender is told of a time-out at once."""
        return None if command.code == RequestCode.END_TRANSACTION and self._is_loss(command) else command

    def incoming(self, _address: str, command: Command) -> Command | None:
        """None drops the broker's question."""
        return None if command.code == RequestCode.CHECK_TRANSACTION_STATE and self._is_loss(command) else command

    def _is_loss(self, command: Command) -> bool:
        with self._lock:
            return is_loss(self._db, command.fields.get("msgId", ""))

    def close(self) -> None:
        """Closes its database."""
        self._db.close()


class DemoProducer:
    """Sends what the plan wants of one process."""

    def __init__(self, job: Job, number: int, producer: TransactionalProducer, engine: sa.Engine) -> None:
        self._job = job
        self._number = number
        self._producer = producer
        self._engine = engine
        self._keys = UniqueKeyGenerator()
        #: Unique key whose announcement must kill this process.
        self.dies_announcing: str | None = None

    def run(self, truth: sqlite3.Connection) -> None:
        """Everything that was not tried before; a process that was killed is started again and goes on here."""
        job = self._job
        plan = [p for p in plan_messages(job.messages, job.lose, job.seed) if p.producer == self._number]
        done = attempted_numbers(truth)
        for planned in plan:
            if planned.number not in done:
                self._send(planned, truth)
        if self._number == PRODUCERS:
            die()  # the doomed group goes as a whole, after its last commit

    def _send(self, planned: PlannedMessage, truth: sqlite3.Connection) -> None:
        key = self._keys.next()
        write_attempt(truth, planned.number, key, planned.intent)
        message = Message(
            topic=self._job.topic,
            body=json.dumps({"number": planned.number, "intent": planned.intent.value}).encode(),
            tags=planned.tag,
            keys=(f"order-{planned.number}",),
            unique_key=key,
        )
        if planned.intent is Intent.KILLED_BEFORE_ANNOUNCING:
            self.dies_announcing = key
        try:
            with self._producer.transaction(message) as tx, self._engine.connect() as connection:
                with connection.begin():
                    tx.record(connection)
                    connection.execute(
                        sa.text("INSERT INTO orders (number, tag) VALUES (:number, :tag)"),
                        {"number": planned.number, "tag": planned.tag},
                    )
                    if planned.intent is Intent.ROLL_BACK:
                        raise OnPurpose
                if planned.intent is Intent.KILLED_BEFORE_END:
                    die()
        except OnPurpose:
            return


def main(job_path: str, number: int) -> int:
    """Runs one process; 0 when its share is sent."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    job = Job.read(Path(job_path))
    transport = LossyTransport(job.files.truth)
    engine = open_engine(f"sqlite:///{job.files.outbox}", lock_timeout_seconds=30)
    client = RemotingClient(outgoing=transport.outgoing, incoming=transport.incoming)
    group = job.dead_producer_group if number == PRODUCERS else job.producer_group
    try:
        with closing(connect(job.files.truth)) as truth:
            run_producer(job, number, group, client, engine, truth)
    finally:
        client.close()
        engine.dispose()
        transport.close()
    return 0
