"""Name server and two real brokers behind proxies, and what can be done to them while they run."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from tests.chaos.disk import SmallDisk
from tests.chaos.proxy import Proxy
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.processes import ServiceFailed
from tests.services.remoting_probe import RemotingProbe
from tests.services.rocketmq import (
    CLUSTER_NAME,
    QUICK,
    START_SECONDS,
    ClusterTls,
    JavaServer,
    NameServer,
    RealBroker,
)
from tests.services.rocketmq_users import ADMIN, AUTHORIZATION

#: Name -> RocketMQ version; the name server is the first one's. BROKER=5.5.0 chooses that one.
BROKERS = {"broker-1": os.environ.get("BROKER") or "5.3.3", "broker-2": "4.9.7"}
#: Of all brokers in a secured run.
SECURED_VERSION = "5.3.3"
SEND_MESSAGE = 10
UNREGISTER_BROKER = 104
SYSTEM_BUSY = 2
SERVICE_NOT_AVAILABLE = 14
#: Queues of the business topic on every broker, at the start and at the end.
QUEUES, QUEUES_MAX = 2, 8
#: DefaultMessageStore.addScheduleTask: cleanFilesPeriodically.
DISK_WATCH_SECONDS = 62.0
_PROPERTIES = {
    **QUICK,
    # A full disk is noticed within a second (from DISK_WATCH_SECONDS after the start on), and does not make the broker
    # delete what no group has consumed.
    "cleanResourceInterval": "1000",
    "cleanFileForciblyEnable": "false",
    # One file for the whole run: a file that 5.x makes while it believes in a pool of buffers (make_busy) is never
    # read, so that nothing stored in it reaches a queue or the index (DefaultMappedFile.getReadPosition).
    "mapedFileSizeCommitLog": str(256 * 1024**2),
    "mappedFileSizeCommitLog": str(256 * 1024**2),
}


class Cluster:
    """Started by its constructor, ended by the stack. Confined to the thread that runs the chaos."""

    def __init__(self, folder: Path, stack: ExitStack, *, seed: int, tls: ClusterTls | None = None) -> None:
        """`tls`: brokers that let users in, of one release, with nothing between them and their clients."""
        versions = BROKERS if tls is None else dict.fromkeys(BROKERS, SECURED_VERSION)
        self._acl = None if tls is None else ADMIN
        self._tls = None if tls is None else tls.of_clients()
        first = next(iter(versions.values()))
        self._name_server = NameServer(version=first, folder=folder / "name-server")
        stack.callback(self._name_server.kill)
        self._secure(self._name_server, tls)
        self._name_server.start()
        #: Not through the proxies.
        self.name_servers = self._name_server.address
        self.brokers: dict[str, RealBroker] = {}
        self.disks: dict[str, SmallDisk] = {}
        for name, version in versions.items():
            broker = RealBroker(
                version=version,
                folder=folder / name,
                name=name,
                name_servers=self.name_servers,
                properties=_PROPERTIES if tls is None else {**_PROPERTIES, **AUTHORIZATION},
                java_options=("-Drocketmq.broker.diskSpaceWarningLevelRatio=0.90",),
            )
            self._secure(broker, tls)
            self.brokers[name] = broker
            self.disks[name] = SmallDisk(broker.folder / "store")
            stack.callback(self.disks[name].close)
            stack.callback(broker.kill)
        children = {name: broker.launch(broker._all_properties()) for name, broker in self.brokers.items()}
        for name, child in children.items():
            child.until(self.brokers[name].ready, within_seconds=START_SECONDS, what=self.brokers[name].what)
        self._started_at = dict.fromkeys(self.brokers, time.monotonic())
        self._topic, self._queues, self._probe_topic = "", QUEUES, ""
        self._stand_between(stack, seed=seed, has_proxies=tls is None)

    def _stand_between(self, stack: ExitStack, *, seed: int, has_proxies: bool) -> None:
        self.proxies: dict[str, Proxy] = {}
        #: Name servers as processes see them.
        self.seen_name_servers = self.name_servers
        if not has_proxies:
            return
        self.proxies = {name: Proxy(b.port, seed=seed + n) for n, (name, b) in enumerate(self.brokers.items())}
        addresses = {broker.port: self.proxies[name].port for name, broker in self.brokers.items()}
        name_proxy = Proxy(self._name_server.port, addresses=addresses)
        self.seen_name_servers = f"127.0.0.1:{name_proxy.port}"
        for proxy in (name_proxy, *self.proxies.values()):
            stack.callback(proxy.close)

    @staticmethod
    def _secure(server: JavaServer, tls: ClusterTls | None) -> None:
        if tls is not None:
            server.java_options += tls.java_options
            server.tls = tls.context()

    def instance(self) -> AbstractContextManager[ClientInstance]:
        """Of whoever may do everything, past the proxies."""
        return patient_instance(self.name_servers, acl=self._acl, tls=self._tls)

    def make_topics(self, topic: str, *, unique_key_topic: str, shards: int, probe_topic: str) -> None:
        """On both brokers; returns when the routes name both."""
        self._topic, self._probe_topic = topic, probe_topic
        topics = {topic: QUEUES, unique_key_topic: shards, probe_topic: 1}
        with self.instance() as instance:
            for address in instance.cluster_addresses():
                for name, queues in topics.items():
                    Admin(instance.client).create_topic(address, name, queues=queues)
            eventually(
                lambda: all(len(instance.routes.refresh(name).masters) == len(BROKERS) for name in topics),
                within_seconds=30,
                message="the topics on both brokers",
            )

    def grow_topic(self) -> bool:
        """One queue more on every broker; False if there are enough."""
        if self._queues >= QUEUES_MAX:
            return False
        self._queues += 1
        with self.instance() as instance:
            for broker in self.brokers.values():
                Admin(instance.client).create_topic(broker.address, self._topic, queues=self._queues)
        return True

    def start_again(self, broker: RealBroker) -> None:
        """After its kill."""
        try:
            broker.start()
        except ServiceFailed:  # a busy machine takes longer
            if not broker.running:
                raise
            eventually(broker.ready, within_seconds=2 * START_SECONDS, message=f"{broker.what} is back")
        self._started_at[broker.name] = time.monotonic()

    def watching_their_disks(self) -> list[RealBroker]:
        """Brokers that look at their disk by now: they begin a minute after their start."""
        now = time.monotonic()
        return [self.brokers[name] for name, at in self._started_at.items() if now - at > DISK_WATCH_SECONDS]

    def leave_route(self, broker: RealBroker) -> None:
        """The name server forgets a living master."""
        with RemotingProbe(self._name_server.port) as probe:
            probe.ask(
                UNREGISTER_BROKER,
                {
                    "brokerName": broker.name,
                    "brokerAddr": broker.address,
                    "clusterName": CLUSTER_NAME,
                    "brokerId": "0",
                },
            )

    def join_route(self, broker: RealBroker) -> None:
        """It registers again: a change of its permission makes it do so at once."""
        broker.update_config(brokerPermission="6")

    def make_busy(self, broker: RealBroker, *, is_busy: bool) -> None:
        """A broker that believes in a pool of off-heap buffers, and has none left, answers sends with SYSTEM_BUSY.

        Its commit log must have its file already.
        """
        broker.update_config(transientStorePoolEnable=str(is_busy).lower())

    def answers_sends_with(self, broker: RealBroker, code: int, *, within_seconds: float) -> bool:
        """Whether the broker itself, asked past the proxy, comes to answer a send with the code."""
        deadline = time.monotonic() + within_seconds
        while True:
            if self._send(broker) == code:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)

    def _send(self, broker: RealBroker) -> int:
        fields = {
            "producerGroup": "chaos-probe",
            "topic": self._probe_topic,
            "defaultTopic": self._probe_topic,
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(round(time.time() * 1000)),
            "flag": "0",
            "properties": "",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        with RemotingProbe(broker.port) as probe:
            return probe.ask(SEND_MESSAGE, fields, b"chaos").code
