"""`reconciler scan` on real brokers: exactly the halves that are stuck, and no trace of the look."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.commands.scan import ScanReport, run_scan
from reconciler.errors import BrokerRefused
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.wire.message import Message
from reconciler.wiring.ended_halves import sample_ended
from reconciler.wiring.half_scan import ScanRequest
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import end_half, patient_instance
from tests.services.remoting_probe import RemotingProbe
from tests.services.rocketmq import RocketMQCluster, marks
from tests.services.topics import create_topic, topic_name

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

GROUP = "PG_scan"
GET_ALL_CONSUMER_OFFSET = 43
#: Files that a broker writes now and then by itself; offsets are compared as it has them in memory.
CLOCKWORK = re.compile(
    r"checkpoint|lock$|abort$|timer|consumerOffset|consumerFilter|delayOffset|Order|lmq|transactionMetrics|bak$"
)
#: The body and the topic of a note in the log: offsets of ended halves, then the topic's length and its name.
NOTES_OF_ENDS = re.compile(rb"([0-9,]+)\x1bRMQ_SYS_TRANS_OP_HALF_TOPIC")
NIGHTLY = ("4.4.0", "4.9.7", "5.1.4", "5.4.0", "5.5.0")


def releases() -> Iterator[ParameterSet]:
    yield pytest.param("5.3.3", marks=marks("5.3.3"))
    for version in NIGHTLY:
        yield pytest.param(version, marks=[*marks(version), pytest.mark.nightly])


class Sender:
    """A producer that is not connected as one: nobody answers the broker's questions."""

    def __init__(self, cluster: RocketMQCluster, instance: ClientInstance) -> None:
        self._instance = instance
        broker = cluster.broker()
        self._address = broker.address
        self.name_servers = cluster.name_servers
        self.topic = create_topic(broker.port, topic_name("scan"), queues=2, name_server_port=cluster.name_server.port)
        eventually(self._answers_administrators, within_seconds=30)

    def _answers_administrators(self) -> bool:
        """A broker that has not run for a second has nothing counted yet, and refuses GET_BROKER_RUNTIME_INFO
        (StoreStatsService.getPutTps)."""
        try:
            return bool(Admin(self._instance.client).runtime_info(self._address))
        except BrokerRefused:
            return False

    def halves(self, count: int) -> list[SendResult]:
        message = Message(topic=self.topic, body=b"payment")
        return [self._instance.sender(GROUP).send(message, is_half=True) for _ in range(count)]

    def end(self, halves: list[SendResult], decision: EndDecision) -> None:
        for half in halves:
            client, address = self._instance.client, self._address
            assert end_half(client, half, decision, address=address, group=GROUP, from_transaction_check=True).code == 0

    def scan(self, *, walks: bool = False) -> ScanReport:
        request = ScanRequest(name_servers=self.name_servers, request_timeout_seconds=30.0, walks=walks)
        return run_scan(request, older_than_seconds=0.0, topic=self.topic, progress=lambda *_: None)

    def ended(self) -> tuple[set[str], set[str]]:
        """Keys of halves that ended in commit, and of those that were rolled back."""
        request = ScanRequest(name_servers=self.name_servers, request_timeout_seconds=30.0)
        found = sample_ended(request, {self.topic: "UNIQ_KEY"}, progress=lambda *_: None).topics[self.topic]
        committed, rolled_back = ({copy.unique_key for copy in some} for some in (found.committed, found.rolled_back))
        return committed, rolled_back

    def states(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for half in self.scan().halves:
            found.setdefault(half.state.value, set()).add(half.copy.unique_key)
        return found


def keys(halves: list[SendResult]) -> set[str]:
    return {half.unique_key for half in halves}


@pytest.mark.parametrize("version", [*releases()])
def test_it_names_exactly_those_that_are_open_or_were_given_up(
    version: str, new_rocketmq_cluster: ClusterFactory
) -> None:
    cluster = new_rocketmq_cluster(version, properties={"transactionCheckMax": "1", "transactionTimeOut": "4000"})
    with patient_instance(cluster.name_servers) as instance:
        sender = Sender(cluster, instance)
        given_up = sender.halves(15)
        eventually(lambda: sender.states() == {"given-up": keys(given_up)}, within_seconds=60)
        cluster.broker().update_config(transactionCheckMax="1000")
        late = sender.halves(5)
        still_open = sender.halves(40)
        eventually(lambda: all(half.copy.asked for half in open_of(sender, late)), within_seconds=60)
        sender.end(late, EndDecision.COMMIT)
        committed, rolled_back = sender.halves(60), sender.halves(10)
        sender.end(committed, EndDecision.COMMIT)
        sender.end(rolled_back, EndDecision.ROLLBACK)
        expected = {"open": keys(still_open)}
        if version != "4.4.0":  # there ends cannot be read, and what was given up is told by the maximum
            expected |= {"given-up": keys(given_up), "delivered": keys(late)}
        eventually(lambda: sender.states() == expected, within_seconds=60)
        if version == "4.4.0":
            return
        assert sender.ended() == (keys(committed + late), keys(rolled_back))
        sender.end(given_up[:5], EndDecision.COMMIT)
        expected |= {"given-up": keys(given_up[5:]), "given-up-delivered": keys(given_up[:5])}
        eventually(lambda: sender.states() == expected, within_seconds=60)


def open_of(sender: Sender, halves: list[SendResult]) -> list[Any]:
    found = [half for half in sender.scan().halves if half.copy.unique_key in keys(halves)]
    assert len(found) == len(halves)
    return found


@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[*marks(one), pytest.mark.nightly]) for one in ("3.2.6", "4.2.0")]
)
def test_up_to_4_2_a_walk_names_exactly_those_that_are_open(version: str, new_rocketmq_cluster: ClusterFactory) -> None:
    """Files of the log are small, so that it has ends of files, too."""
    cluster = new_rocketmq_cluster(version, properties={"mapedFileSizeCommitLog": "65536"})
    with patient_instance(cluster.name_servers) as instance:
        sender = Sender(cluster, instance)
        sender.end(sender.halves(200), EndDecision.COMMIT)
        still_open = sender.halves(40)
        sender.end(sender.halves(30), EndDecision.ROLLBACK)
        report = sender.scan(walks=True)
        assert {half.copy.unique_key for half in report.halves} == keys(still_open)


@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[*marks(one), pytest.mark.nightly]) for one in ("5.4.0", "5.5.0")]
)
def test_halves_in_rocksdb_are_named_too(version: str, new_rocketmq_cluster: ClusterFactory) -> None:
    in_rocksdb = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
    # 17 intervals of 2 s and two time-outs after its birth a half counts as given up.
    cluster = new_rocketmq_cluster(version, properties={**in_rocksdb, "transactionCheckMax": "15"})
    with patient_instance(cluster.name_servers) as instance:
        sender = Sender(cluster, instance)
        old = sender.halves(15)
        eventually(lambda: sender.states() == {"given-up": keys(old)}, within_seconds=90)
        sender.end(sender.halves(60), EndDecision.COMMIT)
        sender.end(sender.halves(10), EndDecision.ROLLBACK)
        young = sender.halves(40)
        eventually(lambda: sender.states() == {"given-up": keys(old), "open": keys(young)}, within_seconds=30)


@pytest.mark.parametrize("version", [*releases()])
def test_it_leaves_no_trace(version: str, new_rocketmq_cluster: ClusterFactory) -> None:
    cluster = new_rocketmq_cluster(version, properties={"transactionCheckInterval": "3600000"})
    with patient_instance(cluster.name_servers) as instance:
        sender = Sender(cluster, instance)
        sender.halves(20)
        sender.end(sender.halves(20), EndDecision.COMMIT)
        before = eventually(lambda: settled(cluster, instance, ended=20), within_seconds=60)
        report = sender.scan()
        if version.startswith("4."):  # before the first round
            assert report.exit_code == 3
        else:
            assert len(report.halves) == 20
        assert seen(cluster, instance) == before


def seen(cluster: RocketMQCluster, instance: ClientInstance) -> dict[str, str]:
    """What the broker has in memory and on its disk. 5.5.0 notes how far every pull came, whoever pulls."""
    broker, admin = cluster.broker(), Admin(instance.client)
    with RemotingProbe(broker.port, timeout_seconds=60) as probe:
        offsets = probe.ask(GET_ALL_CONSUMER_OFFSET, {}).body
    store = broker.folder / "store"
    files = {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and not CLOCKWORK.search(str(path.relative_to(store)))
    }
    if cluster.version == "5.5.0":
        offsets = b""
    return {
        **files,
        "offsets": offsets.decode(),
        "groups": repr(admin.groups(broker.address)),
        "topics": repr(admin.topics(broker.address)),
    }


def settled(cluster: RocketMQCluster, instance: ClientInstance, *, ended: int) -> dict[str, str] | None:
    """The same twice, once all that was sent is in the log and in its queues.

    From 5.1 on the broker notes an END after it was answered, together with others (TransactionalOpBatchService).
    """
    broker = cluster.broker()
    log = b"".join(path.read_bytes() for path in sorted((broker.folder / "store" / "commitlog").iterdir()))
    noted = {offset for note in NOTES_OF_ENDS.findall(log) for offset in note.split(b",") if offset}
    behind = Admin(instance.client).runtime_info(broker.address)["dispatchBehindBytes"]
    if len(noted) < ended or behind != "0":
        return None
    first = seen(cluster, instance)
    return first if first == seen(cluster, instance) else None
