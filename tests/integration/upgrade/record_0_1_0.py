"""Records tests/integration/upgrade/release_0_1_0: run by the code of 0.1.0, with nothing of today's tree on the path.

    git archive 6753d9b965c0 | tar -x -C OLD
    cd OLD && PYTHONPATH=OLD python .../tests/integration/upgrade/record_0_1_0.py OUT

It needs redis-server. A service, a sweeper, a producer and a consumer of that release work on an embedded broker and
SQLite until there are rows in every state; then they are stopped in the middle of their work. What they leave is
written down: the rows as SQL for three kinds of databases behind the DDL of that release, the Redis keys, and what the
broker has.
"""
# mypy: ignore-errors
# The modules are those of 0.1.0.

import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from consumers.handler import transactional_handler
from consumers.message import HandedOverMessage
from consumers.recorder import CommitRecorder
from producers.outbox import SqlOutbox
from producers.ports import CheckedHalf
from reconciler.ports import RepairChange
from reconciler.rocketmq.client_instance import ClientInstance
from reconciler.rocketmq.codes import RequestCode
from reconciler.rocketmq.message import Message
from reconciler.rocketmq.offsets import Offsets
from reconciler.rocketmq.pulling import PullRequest, pull
from redis import Redis

from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.tables import RepairState, Rung
from reconciler.contract.unique_key import shard_of
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.repairs import SqlRepairs
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.acceptance.deployment import SHARDS, Deployment
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer

REVISION = "6753d9b965c0"
TREES = ("outbox", "inbox", "ledger")
SETTINGS = """
[rounds]
interval_seconds = 1.0
skew_margin_seconds = 0.5

[repairs]
check_back_wait_seconds = 0

[sweep]
interval_seconds = 0.5
sweep_after_seconds = 2.0
settle_after_seconds = 3.0
"""


class Recorded(Deployment):
    """With the names of a service, and announcements that can be lost."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.topic, self.group, self.producer_group = "ORDERS", "billing", "order-service"
        self.environment, self.unique_key_topic = "production", "RECONCILER_UNIQUE_KEY"
        self.loses_announcements = False

    def _pass(self, address, command):
        sends = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2}
        topic = command.fields.get("topic") or command.fields.get("b")
        if self.loses_announcements and command.code in sends and topic == self.unique_key_topic:
            return None
        return super()._pass(address, command)


def scenario(world, redis):
    """What becomes of each key: a name -> keys."""
    keys = {}
    producer = world.producer()
    service, sweeper, consumer = world.run("run"), world.run("sweep"), world.consume()

    keys["consumed"] = world.commit(3, producer=producer)
    keys["repaired"] = world.commit(2, lose=True, producer=producer)
    eventually(lambda: len(world.effects()) == 5, within_seconds=60)
    eventually(lambda: [*world.repairs().values()] == ["DONE"] * 2, within_seconds=60)
    eventually(lambda: world.rows(world.outbox, OUTBOX_STATES).count("SETTLED") >= 5, within_seconds=60)
    refused(world)
    unknown = [world._keys.next_key()]
    keys["never committed"] = unknown
    announce(world, producer, unknown)
    eventually(lambda: world.verdicts().get(unknown[0]) == "REJECTED", within_seconds=60)

    consumer.shutdown()
    keys["waits for its group"] = world.commit(2, producer=producer)
    keys["sent again, not arrived"] = world.commit(2, lose=True, producer=producer)
    eventually(lambda: [*world.repairs().values()].count("SENT") == 2, within_seconds=60)
    assert world.command("hold", world.topic, "--reason", "month end").exit_code == 0
    keys["held"] = world.commit(3, lose=True, producer=producer)
    eventually(lambda: {world.verdicts().get(key) for key in keys["held"]} == {"LOST_CONFIRM"}, within_seconds=60)
    given_up = keys["held"][1]
    left(world, given_up, RepairChange(state=RepairState.FAILED, rung=Rung.END, answer="no rung is left"))
    eventually(lambda: world.verdicts()[given_up] == "QUARANTINED", within_seconds=120)
    assert sweeper.end() == 0
    redis.stop()
    eventually(lambda: world.rows(world.ledger, "SELECT count(*) FROM reconciler_outage") == [1], within_seconds=60)
    redis.start()
    eventually(
        lambda: world.rows(world.ledger, "SELECT count(*) FROM reconciler_outage WHERE closed_at_ms IS NULL") == [0],
        within_seconds=90,
    )
    rounds = "SELECT count(*) FROM reconciler_round"
    before = world.rows(world.ledger, rounds)[0]
    eventually(lambda: world.rows(world.ledger, rounds)[0] > before + 2 * SHARDS, within_seconds=60)
    assert service.end() == 0

    # As a process leaves it that is killed before its first byte leaves.
    left(world, keys["held"][0], RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True))
    reader = world.run("announcements")
    keys["announced, in no round"] = world.commit(1, producer=producer)
    keys["announced and lost, in no round"] = world.commit(1, lose=True, producer=producer)
    client = Redis.from_url(world.redis_url)
    eventually(lambda: sum(client.scard(name) for name in client.scan_iter("*:half")) == 2, within_seconds=60)
    client.close()
    assert reader.end() == 0
    keys["announced, read by nobody"] = world.commit(1, lose=True, producer=producer)
    applied = world.commit(1, producer=producer)
    keys["consumed, its announcement read by nobody"] = applied
    apply(world, applied[0])
    world.loses_announcements = True
    keys["announced by nobody"] = world.commit(1, lose=True, producer=producer)
    rolled_back = world._keys.next_key()
    keys["rolled back"] = [rolled_back]
    with closing(SqlOutbox(f"sqlite:///{world.outbox}")) as outbox:
        half = CheckedHalf(
            unique_key=rolled_back,
            topic=world.topic,
            producer_group=world.producer_group,
            tag=None,
            born_timestamp_ms=SystemClock().now_ms(),
            check_times=3,
        )
        assert outbox.insert_tombstone(half)
    return keys


OUTBOX_STATES = "SELECT state FROM reconciler_outbox"


def refused(world):
    """An announcement that is none."""
    send(world, b"{not json")
    eventually(lambda: world.rows(world.ledger, "SELECT count(*) FROM reconciler_quarantine") == [1], within_seconds=60)


def announce(world, producer, unique_keys):
    """An announcement of keys that nobody committed."""
    (key,) = unique_keys
    body = encode_announcement(
        Announcement(
            environment=world.environment,
            topic=world.topic,
            producer_group=world.producer_group,
            keys=(AnnouncedKey(unique_key=key, tag=None, committed_at_ms=SystemClock().now_ms()),),
        )
    )
    send(world, body, shard=shard_of(key, SHARDS))


def send(world, body, shard=0):
    with ClientInstance(world.name_servers) as instance:
        (queue,) = (one for one in instance.routes.write_queues(world.unique_key_topic) if one.queue_id == shard)
        message = Message(topic=world.unique_key_topic, body=body, tags=world.topic)
        instance.sender("announcers").send(message, queue=queue)


def left(world, key, change):
    """A repair in another state, under a claim of somebody else."""
    engine = open_engine(world.ledger_url)
    repairs = SqlRepairs(LedgerDatabase(engine))
    (row,) = repairs.read(world.environment, world.topic, [key])[key]
    claimed = repairs.claim(row, token="host-1:4711", lease_seconds=60)
    assert claimed is not None
    assert repairs.change(claimed, change, token="host-1:4711") is not None
    engine.dispose()


def apply(world, key):
    """The handler's work for one message: inbox row, effect, commit set."""
    engine = open_engine(f"sqlite:///{world.inbox}", must_exist=True)
    recorder = CommitRecorder.open(
        world.redis_url, environment=world.environment, group=world.group, shards=SHARDS, timeout_seconds=5
    )

    @transactional_handler(engine, group=world.group, topics=world.topic, recorder=recorder)
    def handle(message, connection):
        pass

    (record,) = [one for one in copies(world, world.topic) if one["unique_key"] == key]
    handle.apply(
        HandedOverMessage(
            topic=world.topic,
            unique_key=key,
            body=bytes.fromhex(record["body"]),
            properties=record["properties"],
            reconsume_times=0,
        )
    )
    assert recorder.flush(timeout_seconds=5)
    recorder.close()
    engine.dispose()


def copies(world, topic):
    """Records of a topic, queue by queue."""
    found = []
    with ClientInstance(world.name_servers) as instance:
        offsets, masters = Offsets(instance.client), instance.routes.masters(topic)
        for queue in instance.routes.read_queues(topic):
            address = masters[queue.broker_name]
            offset, end = offsets.minimum(address, queue), offsets.maximum(address, queue)
            assert offset == 0
            while offset < end:
                page = pull(instance.client, address, PullRequest(queue=queue, offset=offset, group="copies"))
                for record in page.records:
                    found.append(
                        {
                            "queue_id": queue.queue_id,
                            "unique_key": record.unique_key,
                            "body": record.body.hex(),
                            "properties": dict(record.properties),
                        }
                    )
                offset = max(offset + 1, page.next_offset)
    return found


def group_offsets(world):
    with ClientInstance(world.name_servers) as instance:
        offsets, masters = Offsets(instance.client), instance.routes.masters(world.topic)
        return {
            str(queue.queue_id): offsets.of_group(masters[queue.broker_name], queue, world.group)
            for queue in instance.routes.read_queues(world.topic)
        }


def literal(value, dialect):
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'" if dialect == "postgresql" else f"X'{value.hex()}'"
    text = value.replace("'", "''")
    return "'" + (text.replace("\\", "\\\\") if dialect == "mysql" else text) + "'"


def dump(world, out):
    """One file a tree and kind of database."""
    urls = {"outbox": f"sqlite:///{world.outbox}", "inbox": f"sqlite:///{world.inbox}", "ledger": world.ledger_url}
    for tree in TREES:
        engine = sa.create_engine(urls[tree])
        with engine.connect() as connection:
            names = [name for name in sa.inspect(connection).get_table_names() if name.startswith("reconciler_")]
            tables = {
                name: connection.execute(sa.text(f"SELECT * FROM {name}")).mappings().all()
                for name in sorted(names)
                if "alembic" not in name
            }
        engine.dispose()
        for dialect in ("sqlite", "postgresql", "mysql"):
            lines = [schema.ddl(tree, dialect)]
            for name, rows in tables.items():
                if name == "reconciler_outbox_identity":
                    lines.append(f"DELETE FROM {name};\n")  # the DDL has drawn another one
                for row in rows:
                    columns = ", ".join(f"`{one}`" if dialect == "mysql" else f'"{one}"' for one in row)
                    values = ", ".join(literal(value, dialect) for value in row.values())
                    lines.append(f"INSERT INTO {name} ({columns}) VALUES ({values});\n")
            (out / f"{tree}.{dialect}.sql").write_text("".join(lines))


def redis_commands(url):
    """What brings each key back; texts are hexadecimal."""
    commands = []
    with Redis.from_url(url) as client:
        for name in sorted(client.scan_iter("*")):
            kind = client.type(name).decode()
            if client.pttl(name) > 0:
                continue  # a lease: its owner has gone
            match kind:
                case "string":
                    words = [b"SET", name, client.get(name)]
                case "set":
                    words = [b"SADD", name, *sorted(client.smembers(name))]
                case "zset":
                    scores = client.zrange(name, 0, -1, withscores=True)
                    words = [b"ZADD", name, *(part for m, s in scores for part in (str(int(s)).encode(), m))]
                case "hash":
                    words = [b"HSET", name, *(part for pair in sorted(client.hgetall(name).items()) for part in pair)]
            commands.append([word.hex() for word in words])
    return commands


def write(world, broker_name, keys, out):
    """Everything that is left."""
    dump(world, out)
    recorded = {
        "revision": REVISION,
        "recorded_at_ms": SystemClock().now_ms(),
        "broker": broker_name,
        "keys": keys,
        "group_offsets": group_offsets(world),
        "copies": copies(world, world.topic),
        "announcements": copies(world, world.unique_key_topic),
        "redis": redis_commands(world.redis_url),
    }
    (out / "world.json").write_text(json.dumps(recorded, indent=1) + "\n")


def main(out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker() as broker,
        RedisServer(Path(folder, "redis")) as redis,
    ):
        options = {"redis_url": redis.url, "name_servers": broker.name_servers, "settings": SETTINGS}
        with Recorded(Path(folder, "world"), **options) as world:
            write(world, broker.broker_name, scenario(world, redis), out)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
