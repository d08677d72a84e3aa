"""What a service of 0.2.0 left, brought back: tables, Redis keys and what the broker has, as old as they were.

`release_0_2_0` is what record_0_2_0.py wrote. All times are moved by one difference, so that what was recorded minutes
before the end lies minutes before now, and retention finds nothing old. Offsets of halves are those of the new broker.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from redis import Redis

from reconciler.clock import SystemClock
from reconciler.contract.properties import OUTBOX_MARK, user_properties
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.producer.ending import EndDecision, EndStatus
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from tests.engines import begun, disposed
from tests.services.patient_instance import end_half

FOLDER = Path(__file__).parent / "release_0_2_0"
TREES = ("outbox", "inbox", "ledger")
#: So long ago the recording ended: the claims in it are over.
AGE_MS = 120_000
#: As old as the recording let retention find the rows, and what it kept of them.
OLD_MS = 1_000 * 86_400_000


@dataclass(kw_only=True)
class RecordedWorld:
    """Databases by tree, and what `world.json` and `answers.json` say."""

    urls: Mapping[str, str]
    #: How long ago the recording ended; None: when it did.
    age_ms: int | None = AGE_MS
    document: dict[str, Any] = field(default_factory=lambda: json.loads((FOLDER / "world.json").read_text()))
    topic: str = "ORDERS"
    group: str = "billing"
    producer_group: str = "order-service"
    unique_key_topic: str = "RECONCILER_UNIQUE_KEY"

    def __post_init__(self) -> None:
        """Nothing is loaded yet."""
        ended_ms = self.document["recorded_at_ms"]
        self.later_ms = 0 if self.age_ms is None else SystemClock().now_ms() - ended_ms - self.age_ms
        self.answers: dict[str, Any] = json.loads((FOLDER / "answers.json").read_text())

    def keys_of(self, *stories: str) -> list[str]:
        """Keys by what had become of them; without a name all."""
        return [key for story, keys in self.document["keys"].items() if not stories or story in stories for key in keys]

    def load_tables(self, trees: Collection[str] = TREES) -> None:
        """Tables by the DDL of that release, and the rows of each tree."""
        rows = json.loads((FOLDER / "rows.json").read_text())
        for tree in trees:
            engine = open_engine(self.urls[tree])
            kind = "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name
            statements = (FOLDER / f"{tree}.{kind}.sql").read_text().split(";\n")
            with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                for statement in map(str.strip, statements):
                    if statement not in {"", "BEGIN", "COMMIT"}:
                        connection.exec_driver_sql(statement.replace("%", "%%"), ())
                connection.commit()
            with engine.begin() as connection:
                for name, found in rows[tree].items():
                    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
                    connection.execute(sa.delete(table))  # the DDL has drawn another identity
                    if found:
                        connection.execute(sa.insert(table), [self.moved(row) for row in found])
            engine.dispose()

    def moved(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """With times as old as they were, and bytes where they were told in hexadecimal."""
        return {
            name: bytes.fromhex(value["hex"])
            if isinstance(value, dict)
            else value + self.later_ms
            if name.endswith("_ms") and value is not None
            else value
            for name, value in row.items()
        }

    def load_redis(self, client: Redis) -> None:
        """Every key."""
        for words in self.document["redis"]:
            command, *rest = map(bytes.fromhex, words)
            if command == b"ZADD":
                name, *pairs = rest
                scores = [b"%d" % (int(score) + self.later_ms) for score in pairs[::2]]
                rest = [name, *(part for pair in zip(scores, pairs[1::2], strict=True) for part in pair)]
            client.execute_command(command.decode(), *rest)  # type: ignore[no-untyped-call]  # redis-py has no type there

    def load_broker(self, name_servers: str) -> None:
        """Committed copies and announcements queue by queue, halves without an end, and where the group is."""
        with ClientInstance(name_servers) as instance:
            for address in instance.cluster_addresses():
                for topic in (self.topic, self.unique_key_topic):
                    Admin(instance.client).create_topic(address, topic, queues=4)
                Admin(instance.client).create_group(address, self.group)
            halves = [self._half(instance, copy) for copy in self.document["copies"]]
            for half in halves:
                self._commit(instance, half)
            there = {half.unique_key for half in halves}
            halves += [self._half(instance, row) for row in self._outbox_rows() if row["unique_key"] not in there]
            self._update_places(halves)
            for announcement in self.document["announcements"]:
                message = Message(
                    topic=self.unique_key_topic, body=bytes.fromhex(announcement["body"]), tags=self.topic
                )
                queue = _queue(instance, self.unique_key_topic, announcement["queue_id"])
                instance.sender(self.producer_group).send(message, queue=queue)
            for number, offset in self.document["group_offsets"].items():
                queue = _queue(instance, self.topic, int(number))
                if offset is not None:
                    address = instance.routes.masters(self.topic)[queue.broker_name]
                    Offsets(instance.client).store(address, queue, self.group, offset)

    def _half(self, instance: ClientInstance, copy: Mapping[str, Any]) -> SendResult:
        message = Message(
            topic=self.topic,
            body=bytes.fromhex(copy["body"]),
            unique_key=copy["unique_key"],
            properties=user_properties(copy["properties"]),
        )
        queue = _queue(instance, self.topic, copy["queue_id"])
        return instance.sender(self.producer_group).send(message, queue=queue, is_half=True)

    def _commit(self, instance: ClientInstance, half: SendResult) -> None:
        address, group = instance.routes.masters(self.topic)[half.broker_name], self.producer_group
        answer = end_half(instance.client, half, EndDecision.COMMIT, address=address, group=group)
        assert answer.status is EndStatus.DONE

    def _outbox_rows(self) -> list[dict[str, Any]]:
        """As copies: the recorded producer's bodies are the keys, and its halves carry the mark of their outbox."""
        mark = self.document["copies"][0]["properties"][OUTBOX_MARK]
        query = "SELECT unique_key, business_id FROM reconciler_outbox WHERE state <> 'ROLLED_BACK' ORDER BY unique_key"
        return [
            {
                "unique_key": key,
                "body": key.encode().hex(),
                "properties": {"BUSINESS_ID": business_id, OUTBOX_MARK: mark},
                "queue_id": number % 4,
            }
            for number, (key, business_id) in enumerate(self.rows("outbox", query))
        ]

    def _update_places(self, halves: list[SendResult]) -> None:
        with begun(self.urls["outbox"]) as connection:
            for half in halves:
                connection.execute(
                    sa.text(
                        "UPDATE reconciler_outbox SET half_commit_log_offset = :log, half_queue_offset = :queue"
                        " WHERE unique_key = :key"
                    ),
                    {"log": half.commit_log_offset, "queue": half.queue_offset, "key": half.unique_key},
                )

    def rows(self, tree: str, query: str) -> list[tuple[Any, ...]]:
        """Of one database."""
        with disposed(open_engine(self.urls[tree])) as engine, engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]


def _queue(instance: ClientInstance, topic: str, number: int) -> Any:
    (queue,) = (one for one in instance.routes.write_queues(topic) if one.queue_id == number)
    return queue
