"""Records tests/integration/upgrade/release_0_2_0: run by the code of 0.2.0, with nothing of today's tree on the path.

    git archive 56d7d70a | tar -x -C OLD
    cd OLD && make setup && PYTHONPATH=OLD .venv/bin/python .../tests/integration/upgrade/record_0_2_0.py OUT

It needs redis-server, and OUT is a folder that does not exist. A service, a sweeper, a producer, a consumer and a
worker of that release work on an embedded broker and SQLite until there are rows in every state; then they are stopped
in the middle of their work. What they leave is written down: the DDL of that release for three kinds of databases, the
rows, the Redis keys, what the broker has, and the history; beside it what that release says of all of it, and which
rows its retention keeps once all are old.
"""
# mypy: ignore-errors
# The modules are those of 0.2.0.

import gzip
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from redis import Redis

from checkback_consumers.handler import transactional_handler
from checkback_consumers.message import HandedOverMessage
from checkback_consumers.recorder import CommitRecorder
from checkback_consumers.replay_worker import ReplayWorker
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import CheckedHalf
from reconciler.clock import SystemClock
from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement
from reconciler.contract.tables import HoldKind, JobKind, JobState, RepairState, Rung
from reconciler.contract.unique_key import shard_of
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.brakes import BreakerRules, RoundLoad
from reconciler.policy.ports.ledger import RepairChange
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.consumer.pulling import PullRequest, pull
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.message import Message
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.telling.ports.idempotency import KeyedRequest
from reconciler.telling.ports.jobs import JobChange, WantedJob
from tests.acceptance.command import reconciler
from tests.acceptance.deployment import EFFECTS, Deployment
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.redis_server import RedisServer

REVISION = "56d7d70a610a378fb44687bb4e48ce6e41bccbe3"
SHARDS = 4
OLD_DAYS = 1_000
TREES = ("outbox", "inbox", "ledger")
LISTINGS = ("candidates", "repairs", "rounds", "quarantine", "outages", "floors", "actions")
SETTINGS = """
[history]
path = "{history}"
seal_seconds = 60.0

[[notifiers]]
name = "night-shift"
kind = "webhook"
url = "http://127.0.0.1:9/"

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
        self.begun_seconds = time.time()
        #: Of the subscription.
        self.repair_order = [rung.value for rung in Rung]

    def _toml(self):
        written = f"grace_period_seconds = {self._grace_period_seconds}"
        return super()._toml().replace(written, f"{written}\nrepair_order = {json.dumps(self.repair_order)}")

    def run_with(self, *repair_order):
        """Another `run`, with these rungs."""
        self.repair_order = [rung.value for rung in repair_order]
        self.config.write_text(self._toml())
        return self.run("run")

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
    assert service.end() == 0

    service = world.run_with(Rung.HAND_OVER)
    hand_overs(world, producer, keys)
    assert service.end() == 0

    service = world.run_with(*Rung)
    keys["waits for its group"] = world.commit(2, producer=producer)
    sent = keys["sent again, not arrived"] = world.commit(2, lose=True, producer=producer)
    eventually(lambda: [world.repairs().get(key) for key in sent] == ["SENT"] * 2, within_seconds=60)
    assert world.command("hold", world.topic, "--reason", "month end").exit_code == 0
    held = world.commit(4, lose=True, producer=producer)
    eventually(lambda: {world.verdicts().get(key) for key in held} == {"LOST_CONFIRM"}, within_seconds=60)
    keys["held"], keys["given up"], keys["dismissed"] = held[:2], held[2:3], held[3:]
    for key in held[2:]:
        left(world, key, RepairChange(state=RepairState.FAILED, rung=Rung.END, answer="no rung is left"))
        eventually(lambda key=key: world.verdicts()[key] == "QUARANTINED", within_seconds=120)
    dismissed = world.command("dismiss", held[3], "--reason", "paid by hand")
    assert dismissed.exit_code == 0, dismissed.stderr
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
            outbox_mark=None,
        )
        assert outbox.insert_tombstone(half)
    of_persons(world)
    return keys


def hand_overs(world, producer, keys):
    """One that the group's handler took, one that it refused for good, and one that waits for it."""
    states = "SELECT state FROM reconciler_repair WHERE scope = 'billing' AND unique_key = "

    def has(key, state):
        eventually(lambda: world.rows(world.ledger, f"{states}'{key}'") == [state], within_seconds=60)

    for story, works, state in (("handed over", True, "DONE"), ("refused by its handler", False, "FAILED")):
        (key,) = keys[story] = world.commit(1, lose=True, producer=producer)
        eventually(lambda key=key: world.rows(world.ledger, f"{states}'{key}'") != [], within_seconds=60)
        stop = threading.Event()
        with closing(worker(world, works=works)) as working:
            thread = threading.Thread(target=working.run, args=(stop,))
            thread.start()
            has(key, state)
            stop.set()
            thread.join()
    (key,) = keys["waits for its handler"] = world.commit(1, lose=True, producer=producer)
    has(key, "OPEN")
    eventually(lambda: world.repairs().get(keys["handed over"][0]) == "DONE", within_seconds=60)
    eventually(lambda: world.repairs().get(key) == "SENT", within_seconds=60)
    eventually(lambda: world.repairs().get(keys["refused by its handler"][0]) == "FAILED", within_seconds=60)
    eventually(lambda: world.verdicts()[keys["refused by its handler"][0]] == "QUARANTINED", within_seconds=120)


def worker(world, *, works):
    """A replay worker that gives up at once."""
    engine = open_engine(f"sqlite:///{world.inbox}", must_exist=True)

    @transactional_handler(engine, group=world.group, topics=world.topic)
    def handle(message, connection):
        if not works:
            raise ValueError("no such account")
        connection.execute(sa.insert(EFFECTS).values(unique_key=message.unique_key, applied_at_ms=0))

    return ReplayWorker(
        handle,
        environment=world.environment,
        topics=world.topic,
        ledger_url=world.ledger_url,
        poll_seconds=0.2,
        attempts_max=1,
    )


def of_persons(world):
    """Jobs and requests in every state, and a breaker that has just opened."""
    engine = open_engine(world.ledger_url)
    ledger, environment = SqlLedger(engine), world.environment
    for state in (*JobState,)[::-1]:  # the oldest is claimed first
        request = {"unique_keys": [world._keys.next_key()], "topic": world.topic, "group": None, "reason": "ticket 7"}
        job = ledger.jobs.place(
            environment, WantedJob(job_id=f"job-{state.value}", kind=JobKind.REPAIR, request=request, by="amy")
        )
        if state is JobState.CANCELLED:
            ledger.jobs.cancel(environment, job.job_id, by="bob")
        elif state is not JobState.QUEUED:
            claimed = ledger.jobs.claim(environment, token="host-1:4711", lease_seconds=60)
            assert claimed.job.job_id == job.job_id
            ended = {JobState.DONE: {"ends": state, "done": 1, "total": 1, "counts": {"DONE": 1}}}
            ended[JobState.FAILED] = {"ends": state, "error": "its owners died of it 5 times"}
            change = JobChange(**ended.get(state, {"total": 1}))
            assert ledger.jobs.change(claimed, change, lease_seconds=60) is not None
    for name in ("under way", "answered"):
        request = KeyedRequest(by="amy", key=f"hold:{name}", digest=hashlib.sha256(name.encode()).digest())
        token = ledger.idempotency_keys.begin(environment, request, lease_seconds=60).token
        if name == "answered":
            assert ledger.idempotency_keys.answer(environment, request, token=token, status=200, answer="{}")
    load = RoundLoad(announced=2_000, left_over=0, verified=2_000, losses=1_500, ladders=0, ladders_absent=0)
    reason = BreakerRules().too_many(load)
    assert ledger.holds.place(environment, world.topic, HoldKind.BREAKER, by="host-1:4711", reason=reason)
    engine.dispose()


OUTBOX_STATES = "SELECT state FROM reconciler_outbox"
#: Columns that say which row it is.
PLACES = (
    *("unique_key", "scope", "shard", "epoch", "generation", "broker", "queue_id", "queue_offset", "kind"),
    *("action_id", "job_id", "idempotency_key", "notifier"),
)


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
    repairs = SqlLedger(engine).repairs
    (row,) = repairs.of_keys(world.environment, world.topic, [key])[key]
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


def plain(value):
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def dump(world, out):
    """The DDL of each tree and kind of database, and all rows."""
    rows = {}
    for tree, url in urls(world).items():
        for dialect in ("sqlite", "postgresql", "mysql"):
            (out / f"{tree}.{dialect}.sql").write_text(schema.ddl(tree, dialect))
        rows[tree] = {
            name: [{column: plain(value) for column, value in row.items()} for row in found]
            for name, found in tables(url).items()
        }
    (out / "rows.json").write_text(as_text(rows))


def urls(world):
    return {"outbox": f"sqlite:///{world.outbox}", "inbox": f"sqlite:///{world.inbox}", "ledger": world.ledger_url}


def tables(url):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        names = [name for name in sa.inspect(connection).get_table_names() if name.startswith("reconciler_")]
        found = {
            name: connection.execute(sa.text(f"SELECT * FROM {name} ORDER BY 1, 2, 3")).mappings().all()
            for name in sorted(names)
            if "alembic" not in name
        }
    engine.dispose()
    return found


def as_text(document):
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def answers(world, keys, out):
    """What this release says of what it leaves, and what it keeps."""
    told = {f"list {one}": asked(world, "list", one, "--limit", "20") for one in LISTINGS}
    told |= {f"explain {key}": asked(world, "explain", key) for found in keys.values() for key in found}
    told["status"] = asked(world, "status")
    told["audit"] = audited(world, out)
    told["kept"] = kept(world)
    (out / "answers.json").write_text(as_text(told))


def asked(world, *words):
    ended = world.command(*words, "--output", "json")
    return {"exit code": ended.exit_code, **json.loads(ended.stdout)}


def audited(world, out):
    """Its verdict, and the number of each class."""
    begin, end = (
        datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="milliseconds")
        for at in (world.begun_seconds, time.time())
    )
    databases = [f"--outbox={world.producer_group}=sqlite:///{world.outbox}", f"--ledger={world.ledger_url}"]
    databases.append(f"--inbox={world.topic}/{world.group}=sqlite:///{world.inbox}")
    places = ("--subscriptions", world.config, "--history", out / "history", "--out", world.folder / "audited")
    ended = reconciler("audit", "--window", f"{begin}/{end}", *databases, *places, "--engine=here", "--output=json")
    return {"exit code": ended.exit_code, "window": [begin, end], **json.loads(ended.stdout)}


def packed(history):
    """One file of the folder."""
    with (
        gzip.GzipFile(history.with_name("history.tar.gz"), "wb", mtime=0) as file,
        tarfile.open(fileobj=file, mode="w") as tar,
    ):
        tar.add(history, arcname="history")
    shutil.rmtree(history)


def kept(world):
    """Rows that are left of each table of the ledger, by how many days after the last of them retention comes."""
    engine = open_engine(world.ledger_url)
    with engine.begin() as connection:
        for name in sa.inspect(connection).get_table_names():
            for column in sa.inspect(connection).get_columns(name):
                if column["name"].endswith("_ms"):
                    connection.exec_driver_sql(
                        f"UPDATE {name} SET {column['name']} = {column['name']} - {OLD_DAYS * 86_400_000}"
                    )
    SqlRetention(SqlLedger(engine).database, keep_days=30, notifiers=["night-shift"]).delete_old(world.environment)
    engine.dispose()
    found = {}
    for name, rows in tables(world.ledger_url).items():
        found[name] = [[value for column, value in row.items() if column in PLACES] for row in rows]
    return found


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
    (out / "world.json").write_text(as_text(recorded))
    answers(world, keys, out)
    packed(out / "history")


def main(out: Path) -> int:
    out.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedBroker() as broker,
        RedisServer(Path(folder, "redis")) as redis,
    ):
        settings = SETTINGS.format(history=out / "history")
        options = {"redis_url": redis.url, "name_servers": broker.name_servers, "settings": settings, "shards": SHARDS}
        with Recorded(Path(folder, "world"), **options) as world:
            write(world, broker.broker_name, scenario(world, redis), out)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
