"""The whole path on real clusters that are secured: signed requests, and enforced TLS with certificates on both sides.

SECURED=all runs it on every cluster of `CLUSTERS`, SECURED=VERSION on one; without it, on 5.5.0, and by night on 5.3.3.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from checkback_consumers.message import ConsumedMessage
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.acceptance.audited import LATE_SECONDS, audited
from tests.acceptance.deployment import SHARDS, Deployment
from tests.acceptance.marked_secrets import marked, require_unmarked, with_login
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.redis_server import RedisServer
from tests.services.rocketmq import ClusterTls, RocketMQCluster, marks

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
KEYS = AclCredentials(access_key="shopkeeper", secret_key=marked("shopkeeper"))

_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.{1}"
_USERS_5 = {
    "authenticationEnabled": "true",
    "authenticationProvider": _PROVIDER.format("authentication", "DefaultAuthenticationProvider"),
    "authenticationMetadataProvider": _PROVIDER.format("authentication", "LocalAuthenticationMetadataProvider"),
    "authorizationEnabled": "true",
    "authorizationProvider": _PROVIDER.format("authorization", "DefaultAuthorizationProvider"),
    "authorizationMetadataProvider": _PROVIDER.format("authorization", "LocalAuthorizationMetadataProvider"),
    "initAuthenticationUser": f'{{"username":"{KEYS.access_key}","password":"{KEYS.secret_key}"}}',
    "innerClientAuthenticationCredentials": (f'{{"accessKey":"{KEYS.access_key}","secretKey":"{KEYS.secret_key}"}}'),
}
_USERS_4 = f"accounts:\n  - accessKey: {KEYS.access_key}\n    secretKey: {KEYS.secret_key}\n    admin: true\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """How one release is secured."""

    properties: dict[str, str]
    #: 4.9.7 answers look-ups over TLS in part only.
    has_tls: bool


CLUSTERS = {
    "4.9.7": _Cluster(properties={"aclEnable": "true"}, has_tls=False),
    "5.3.3": _Cluster(properties=_USERS_5, has_tls=True),
    "5.4.0": _Cluster(properties=_USERS_5, has_tls=True),
    "5.5.0": _Cluster(properties=_USERS_5, has_tls=True),
}


def chosen() -> list[ParameterSet]:
    """Versions by the environment."""
    wanted = os.environ.get("SECURED")
    if wanted is None:
        return [pytest.param(version, marks=[*marks(version), pytest.mark.nightly]) for version in ("5.5.0", "5.3.3")]
    versions = list(CLUSTERS) if wanted == "all" else [wanted]
    return [pytest.param(version, marks=marks(version)) for version in versions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A running cluster, and what its clients need."""

    name_servers: str
    tls: TlsSettings | None

    def shop(self, folder: Path, redis_server: RedisServer) -> Deployment:
        """A deployment whose every server asks for a login, with marked secrets."""
        return Deployment(
            folder,
            redis_url=with_login(redis_server.url),
            name_servers=self.name_servers,
            acl=KEYS,
            tls=self.tls,
            has_marked_secrets=True,
        )


@pytest.fixture(params=chosen())
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secured]:
    version: str = request.param
    wanted = CLUSTERS[version]
    tls, ours = None, None
    if wanted.has_tls:
        authority = Authority(tmp_path / "certificates")
        server, client = authority.issue("server"), authority.issue("client")
        tls = ClusterTls(authority=authority, server=server, client=client, requires_client_certificate=True)
        ours = TlsSettings(
            ca_file=str(authority.file), certificate_file=str(client.certificate), key_file=str(client.key)
        )
    cluster = RocketMQCluster(version, properties=wanted.properties, tls=tls)
    (cluster.broker().folder / "conf" / "plain_acl.yml").write_text(_USERS_4)
    with cluster:
        yield Secured(name_servers=cluster.name_servers, tls=ours)


_DIES_AFTER_COMMIT = """
import os, signal, sys
import sqlalchemy as sa
from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.remoting import open_producer
from checkback_producers.security import AclCredentials, TlsSettings, secret_from_file
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
group, environment, name_servers, outbox, unique_key_topic, queues, topic, user, secret, *files = sys.argv[1:]
url = f"sqlite:///{outbox}"
producer = open_producer(
    group=group, environment=environment, name_servers=name_servers, outbox_url=url,
    announcements=AnnouncementRoute(environment=environment, unique_key_topic=unique_key_topic, queues=int(queues)),
    acl=AclCredentials(access_key=user, secret_key=secret_from_file(secret)),
    tls=TlsSettings(ca_file=files[0], certificate_file=files[1], key_file=files[2]) if files else None,
).start()
with producer.transaction(Message(topic=topic, body=b"order")) as tx:
    with open_engine(url).begin() as connection:
        tx.record(connection)
        connection.execute(sa.text("INSERT INTO orders VALUES (:key)"), {"key": tx.unique_key})
    print(tx.unique_key, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def commit_and_die(deployed: Deployment) -> str:
    """A producer that is killed between its commit and END: neither END nor announcement are ever sent."""
    tls = deployed.tls
    files = [] if tls is None else [str(tls.ca_file), str(tls.certificate_file), str(tls.key_file)]
    arguments = (
        *(deployed.producer_group, deployed.environment, deployed.name_servers, str(deployed.outbox)),
        *(deployed.unique_key_topic, str(SHARDS), deployed.topic),
        *(KEYS.access_key, str(deployed.file_of("secret_key")), *files),
    )
    killed = subprocess.run(
        [sys.executable, "-c", _DIES_AFTER_COMMIT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    require_unmarked(killed.stdout, killed.stderr)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    return killed.stdout.strip()


_HANDLERS = """
import sqlalchemy as sa

def bill(message, connection):
    connection.execute(sa.text("INSERT INTO effects VALUES (:key, 0)"), {"key": message.unique_key})
"""


def test_every_loss_is_found_and_repaired_by_every_rung(
    secured: Secured, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_handlers.py").write_text(textwrap.dedent(_HANDLERS))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    for rung in ("end", "republish", "hand-over"):
        with secured.shop(tmp_path / rung, redis_server) as deployed:
            text = deployed.config.read_text()
            own = f'late_after_seconds = {LATE_SECONDS}\nrepair_order = ["{rung}"]\ninbox_url'
            deployed.config.write_text(text.replace("inbox_url", own))
            repaired_by(rung, deployed)
            if rung == "end":
                audited(deployed)


def repaired_by(rung: str, deployed: Deployment) -> None:
    """Commits, loses ENDs, kills a producer, and waits until everything took effect once."""
    deployed.consume()
    services = [deployed.run("run"), deployed.run("sweep")]
    if rung == "hand-over":
        handler = ("--handler", "shop_handlers:bill", "--topic", deployed.topic, "--group", deployed.group)
        services.append(deployed.run("replay", *handler))
    producer = deployed.producer()
    consumed = deployed.commit(3, producer=producer)
    lost = deployed.commit(2, lose=True, producer=producer)
    killed = commit_and_die(deployed)
    everything = sorted([*consumed, *lost, killed])
    eventually(lambda: deployed.effects() == everything, within_seconds=120, message=f"repairs by {rung}")
    eventually(lambda: set(repairs(deployed).values()) == {(rung, "DONE")}, within_seconds=60)
    # The sweep answers check-backs of killed producers: their message may need no repair.
    assert set(lost) <= repairs(deployed).keys() <= {*lost, killed}

    def is_settled() -> bool:
        with closing(sqlite3.connect(deployed.outbox)) as db:
            return dict(db.execute("SELECT state, count(*) FROM reconciler_outbox GROUP BY 1")) == {"SETTLED": 6}

    eventually(is_settled, within_seconds=60)
    doctor = deployed.command("doctor", "-o", "json")
    assert doctor.exit_code == 0, doctor.stdout
    eventually(lambda: has_status(0, deployed), within_seconds=60)  # until the next rounds, it tells of the losses
    assert [service.end() for service in services] == [0] * len(services)


def has_status(exit_code: int, deployed: Deployment) -> bool:
    """Asserts the exit code of `status`, with what it said."""
    status = deployed.command("status", "-o", "json")
    assert status.exit_code == exit_code, status.stdout
    return True


def repairs(deployed: Deployment) -> dict[str, tuple[str, str]]:
    """Key -> rung and state of its repair."""
    with closing(sqlite3.connect(deployed.ledger)) as db:
        rows = db.execute("SELECT unique_key, rung, state FROM reconciler_repair").fetchall()
    return {key: (rung, state) for key, rung, state in rows}


# ----------------------------------------------------------------- what waits for a person

_ROW_OF_ANOTHER = """
INSERT INTO reconciler_inbox (consumer_group, unique_key, topic, content_digest, source, applied_at_ms)
VALUES (?, ?, ?, zeroblob(32), 'consumer', 0)
"""


def waiting(deployed: Deployment) -> dict[str, str]:
    """Key -> verdict, of what a person ends."""
    with closing(sqlite3.connect(deployed.ledger)) as db:
        rows = "SELECT unique_key, verdict FROM reconciler_candidate WHERE state <> 'SETTLED'"
        return dict(db.execute(rows).fetchall())


@pytest.mark.parametrize(
    "secured", [pytest.param("5.3.3", marks=[*marks("5.3.3"), pytest.mark.nightly])], indirect=True
)
def test_everything_that_waits_for_a_person_ends_by_the_act_that_explain_names(
    secured: Secured, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_handlers.py").write_text(textwrap.dedent(_HANDLERS))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with secured.shop(tmp_path / "deployed", redis_server) as deployed:
        keys = made_to_wait(deployed)
        ended_by_acts(deployed, keys)


def made_to_wait(deployed: Deployment) -> dict[str, str]:
    """One message for each way in which a message waits for a person: how it came to it -> its key."""
    producer, keys = deployed.producer(), {}
    taken: list[str] = []

    def swallow(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        taken.extend(message.unique_key or "" for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    settings = PushSettings(offset_commit_interval_seconds=0.2, max_reconsume_times=1)
    swallower = PushConsumer(
        deployed.group, name_servers=deployed.name_servers, acl=deployed.acl, tls=deployed.tls, settings=settings
    )
    assert deployed.command("hold", deployed.topic, "--reason", "a drill").exit_code == 0
    deployed.run("run")
    # From its first round on the group answers for messages.
    eventually(lambda: deployed.rows(deployed.ledger, "SELECT 1 FROM reconciler_round"), within_seconds=60)
    with swallower.subscribe(deployed.topic).register_listener(swallow):
        (keys["swallowed"],) = deployed.commit(1, producer=producer)
        eventually(lambda: taken == [keys["swallowed"]], within_seconds=60)

    def fail(message: ConsumedMessage) -> None:
        if (message.properties or {}).get("how") == "failing":
            raise RuntimeError("the bank is closed")

    def halfway(message: ConsumedMessage, connection: sa.Connection) -> None:
        if (message.properties or {}).get("how") == "halfway":
            connection.exec_driver_sql("COMMIT")

    def occupy(of: list[str]) -> None:
        with closing(sqlite3.connect(deployed.inbox)) as db, db:
            db.execute(_ROW_OF_ANOTHER, (deployed.group, of[0], deployed.topic))

    deployed.consume(fail, after=halfway, settings=settings)
    for how in ("failing", "halfway"):
        (keys[how],) = deployed.commit(1, producer=producer, properties={"how": how})
    (keys["held"],) = deployed.commit(1, lose=True, producer=producer)
    (keys["occupied"],) = deployed.commit(1, lose=True, producer=producer, before=occupy)
    verdicts = {
        keys["swallowed"]: "DELIVERED_NOT_APPLIED",
        keys["failing"]: "DEAD_LETTERED",
        keys["halfway"]: "INCOMPLETE",
        keys["held"]: "LOST_CONFIRM",
        keys["occupied"]: "COLLISION",
    }
    eventually(lambda: waiting(deployed) == verdicts, within_seconds=120, message="verdicts")
    eventually(lambda: has_status(1, deployed), within_seconds=60)
    return keys


def ended_by_acts(deployed: Deployment, keys: Mapping[str, str]) -> None:
    """Each by the command that `explain` names; the worker begins after the rows are there."""

    def outcome(key: str, *arguments: str) -> str:
        (line,) = deployed.command("repair", key, *arguments, "-o", "json").document["keys"]
        return str(line["outcome"])

    by_hand = ("--by", "hand-over")
    acts = {
        "swallowed": "repair {} --by hand-over",
        "failing": "repair {} --by hand-over",
        "halfway": "reconciler incomplete",
        "occupied": "reconciler dismiss {}",
    }
    for how, act in acts.items():
        assert act.format(keys[how]) in deployed.command("explain", keys[how]).stdout.replace("\n", " ")
    assert outcome(keys["swallowed"], *by_hand) == "held"
    assert deployed.command("resume", deployed.topic).exit_code == 0
    eventually(lambda: keys["held"] in deployed.effects(), within_seconds=60)

    assert outcome(keys["occupied"], *by_hand) == "refused"
    assert outcome(keys["swallowed"], *by_hand) == "sent"
    assert outcome(keys["swallowed"], *by_hand) == "waits"
    assert outcome(keys["swallowed"], "--cancel") == "cancelled"
    handler = ("--handler", "shop_handlers:bill", "--topic", deployed.topic, "--group", deployed.group)
    worker = deployed.run("replay", *handler)
    for how in ("failing", "swallowed"):
        assert outcome(keys[how], *by_hand) == "sent"
    handed = {keys["failing"], keys["swallowed"]}
    eventually(lambda: handed <= set(deployed.effects()), within_seconds=60, message="the worker's effects")
    group = ("--topic", deployed.topic, "--group", deployed.group)
    ended = deployed.command("incomplete", "accept", keys["halfway"], *group, "--reason", "it is whole", "--also-young")
    assert ended.exit_code == 0, ended.stdout + ended.stderr
    assert deployed.command("dismiss", keys["occupied"], "--reason", "undone by hand").exit_code == 0
    # A quarantined message is looked at once per minute.
    eventually(lambda: not waiting(deployed), within_seconds=120, message="nothing waits")
    assert deployed.effects() == sorted(key for how, key in keys.items() if how != "occupied")
    assert worker.end() == 0
    eventually(lambda: deployed.command("status").exit_code == 0, within_seconds=60, message="status")
