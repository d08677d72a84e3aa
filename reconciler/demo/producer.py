"""A producer process of the demo. `main` runs in a forked process.

The process sends its share of the plan by producers.TransactionalProducer. To lose a message, the process' transport
drops END_TRANSACTION on the way out, and the broker's check-backs on the way in. So the demo also works with a real
broker.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage, AnnouncementSender
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import RemotingAnnouncements, RemotingHalves
from reconciler.clock import SystemClock
from reconciler.contract.announcement import decode_announcement
from reconciler.demo.effect import die
from reconciler.demo.job import DemoJob
from reconciler.demo.plan import PRODUCERS, MessageFate, PlannedMessage, plan_messages
from reconciler.demo.truth import attempted_numbers, connect, is_loss, write_attempt
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator
from reconciler.sql.engines import open_engine

_ORDERS = sa.table("orders", sa.column("number"), sa.column("tag"))


class RolledBackOnPurpose(Exception):
    """The business rolls back on purpose."""


class LossyTransport:
    """Drops END_TRANSACTION and check-backs of keys whose fate is a loss. Shared by threads."""

    def __init__(self, truth: Path) -> None:
        self._lock = threading.Lock()
        self._db: sqlite3.Connection = sqlite3.connect(truth, timeout=30, check_same_thread=False)

    def outgoing(self, _address: str, command: Command) -> Command | None:
        """Returns the frame, or None to drop it. The sender of a dropped frame gets a time-out at once."""
        return None if command.code == RequestCode.END_TRANSACTION and self._is_loss(command) else command

    def incoming(self, _address: str, command: Command) -> Command | None:
        """Returns the frame, or None to drop a check-back."""
        return None if command.code == RequestCode.CHECK_TRANSACTION_STATE and self._is_loss(command) else command

    def _is_loss(self, command: Command) -> bool:
        with self._lock:
            return is_loss(self._db, command.fields.get("msgId", ""))

    def close(self) -> None:
        """Closes the connection to the demo's records."""
        self._db.close()


class DeadlyAnnouncements:
    """Kills the process instead of sending one key's announcement. Only the producing thread uses this object."""

    def __init__(self, sender: AnnouncementSender) -> None:
        self._sender = sender
        self.dies_for: str | None = None

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Sends the announcement, or kills the process."""
        if self.dies_for in {key.unique_key for key in decode_announcement(message.body).keys}:
            die()
        self._sender.send_announcement(message)


class DemoProducer:
    """Sends one process' share of the plan's messages."""

    def __init__(
        self, job: DemoJob, number: int, producer: TransactionalProducer, announcements: DeadlyAnnouncements
    ) -> None:
        self._job = job
        self._number = number
        self._producer = producer
        self._announcements = announcements
        self._keys = UniqueKeyGenerator(SystemClock())

    def run(self, truth: sqlite3.Connection, engine: sa.Engine) -> None:
        """Sends every message that was not tried before. After a kill, the restarted process continues with the
        others."""
        job = self._job
        plan = [p for p in plan_messages(job.messages, job.lose, job.seed) if p.producer == self._number]
        done = attempted_numbers(truth)
        for planned in plan:
            if planned.number not in done:
                key = self._keys.next_key()
                write_attempt(truth, planned.number, key, planned.fate)
                with suppress(RolledBackOnPurpose):
                    self._send(planned, key, engine)
        if plan and self._number == PRODUCERS:
            die()  # the doomed group dies as a whole, after its last commit

    def _send(self, planned: PlannedMessage, key: str, engine: sa.Engine) -> None:
        message = Message(
            topic=self._job.topic,
            body=json.dumps({"number": planned.number, "fate": planned.fate.value}).encode(),
            tags=planned.tag,
            keys=(f"order-{planned.number}",),
            unique_key=key,
        )
        if planned.fate is MessageFate.KILLED_BEFORE_ANNOUNCING:
            self._announcements.dies_for = key
        with self._producer.transaction(message) as tx, engine.connect() as connection:
            with connection.begin():
                tx.record(connection)
                connection.execute(
                    sa.insert(_ORDERS).values(number=planned.number, tag=planned.tag),
                )
                _change_mind(planned)
            if planned.fate is MessageFate.KILLED_BEFORE_END:
                die()


def _change_mind(planned: PlannedMessage) -> None:
    if planned.fate is MessageFate.ROLL_BACK:
        raise RolledBackOnPurpose


def main(job_path: str, producer_number: str) -> int:
    """Sends the share of one process, then returns 0."""
    job, number = DemoJob.read(Path(job_path)), int(producer_number)
    with ExitStack() as stack:
        transport = LossyTransport(job.files.truth)
        stack.callback(transport.close)
        engine = open_engine(f"sqlite:///{job.files.outbox}", lock_timeout_seconds=30)
        stack.callback(engine.dispose)
        client = stack.enter_context(RemotingClient(outgoing=transport.outgoing, incoming=transport.incoming))
        instance = stack.enter_context(ClientInstance(job.name_servers, client=client))
        group = job.dead_producer_group if number == PRODUCERS else job.producer_group
        announcements = DeadlyAnnouncements(RemotingAnnouncements(group, instance))
        route = AnnouncementRoute(environment=job.environment, unique_key_topic=job.unique_key_topic, queues=job.shards)
        producer = stack.enter_context(
            TransactionalProducer(
                group=group,
                halves=RemotingHalves(group, instance),
                announcer=Announcer(announcements, route),
                outbox=SqlOutbox(f"sqlite:///{job.files.outbox}"),
            )
        )
        truth = stack.enter_context(closing(connect(job.files.truth)))
        DemoProducer(job, number, producer, announcements).run(truth, engine)
    return 0
