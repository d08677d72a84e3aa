"""Real RocketMQ clusters: a name server and brokers on free loopback ports, data in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from reconciler.rocketmq.client.tls import TlsSettings
from tests.brokers.jars import broker_jars
from tests.services.certificates import Authority, Certificate
from tests.services.ports import answers, free_port
from tests.services.processes import Child, ServiceFailed
from tests.services.remoting_probe import RemotingProbe, route_names
from tests.services.requirements import java_missing as missing

__all__ = ["VERSIONS", "ClusterTls", "JavaServer", "RealBroker", "RocketMQCluster", "marks", "missing"]

VERSIONS = ("3.2.6", "4.2.0", "4.4.0", "4.6.1", "4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0")
START_SECONDS = 90.0
UPDATE_BROKER_CONFIG = 25
CLUSTER_NAME = "C1"

# Short enough that a test sees check-backs, give-up and retries within seconds.
QUICK = {
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "3",
    "transactionOpBatchInterval": "100",
    "messageDelayLevel": " ".join(["1s"] * 18),
}

#: From one interval after the last END on, the thread that notes ended halves of 5.5.0 fills a core (issue
#: 10966 of apache/rocketmq). Where each note is full at once it is written at once, and the thread sleeps.
WITHOUT_SPINNING = {"5.5.0": {"transactionOpBatchInterval": "86400000", "transactionOpMsgMaxSize": "1"}}

JVM = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    # Starts in half the time and with fewer threads; these brokers never live long enough for the optimiser.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dfile.encoding=UTF-8",
    # Each JVM would make RSA keys for a TLS that no client asks for: two thirds of its start (TlsSystemConfig).
    "-Dtls.server.mode=disabled",
    # The developer's disk may be fuller than a broker likes.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTls:
    """TLS of name server and brokers: one certificate for all, and one with which brokers and probes are clients."""

    authority: Authority
    server: Certificate
    client: Certificate
    mode: str = "enforcing"
    requires_client_certificate: bool = False

    @property
    def java_options(self) -> tuple[str, ...]:
        """Names of TlsSystemConfig, for a server that is a client of other servers, too."""
        options = {
            "tls.server.mode": self.mode,
            "tls.test.mode.enable": "false",
            "tls.server.certPath": self.server.certificate,
            "tls.server.keyPath": self.server.key,
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": self.authority.file,
            "tls.client.certPath": self.client.certificate,
            "tls.client.keyPath": self.client.key,
        }
        if self.requires_client_certificate:
            options |= {
                "tls.server.need.client.auth": "require",
                "tls.server.authClient": "true",
                "tls.server.trustCertPath": self.authority.file,
            }
        return tuple(f"-D{name}={value}" for name, value in options.items())

    def of_clients(self) -> TlsSettings:
        """For this project's client."""
        files = (str(self.authority.file), str(self.client.certificate), str(self.client.key))
        return TlsSettings(ca_file=files[0], certificate_file=files[1], key_file=files[2])

    def context(self) -> ssl.SSLContext:
        """For probes."""
        context = ssl.create_default_context(cafile=self.authority.file)
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context


def marks(version: str) -> list[pytest.MarkDecorator]:
    """Marks of a test on a shared cluster: needs Java, and runs on the worker that has that version."""
    return [pytest.mark.broker, pytest.mark.xdist_group(f"rocketmq-{version}")]


class JavaServer:
    """One JVM: started, stopped and killed by its own id. Confined to the test that started it."""

    def __init__(self, *, version: str, folder: Path, main_class: str, port: int, what: str) -> None:
        self.version = version
        self.folder = folder
        self.port = port
        self.what = what
        #: After the usual ones, so that they win.
        self.java_options: tuple[str, ...] = ()
        #: For probes of a server that speaks TLS.
        self.tls: ssl.SSLContext | None = None
        self._main_class = main_class
        self._child: Child | None = None
        folder.mkdir(parents=True)
        configuration = folder / "conf"
        configuration.mkdir()
        for name in ("logback_namesrv.xml", "logback_broker.xml"):  # up to 4.9 it must exist
            (configuration / name).write_text(_logging(version))

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Output of the JVM."""
        return self.folder / "output.log"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child is not None and self._child.exit_code is None

    def launch(self, properties: dict[str, str]) -> Child:
        """Starts the JVM; does not wait."""
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command = [
            "java",
            *JVM,
            *self.java_options,
            f"-Duser.home={self.folder}",
            f"-Drocketmq.home.dir={self.folder}",
            f"-Djava.io.tmpdir={self.folder}",
            f"-Drmq.logback.configurationFile={self.folder / 'conf' / 'logback_broker.xml'}",  # 5.x
            "-cp",
            f"{broker_jars(self.version)}/*",
            self._main_class,
            *self.arguments(file),
        ]
        environment = {"ROCKETMQ_HOME": str(self.folder), "NAMESRV_ADDR": ""}
        self._child = Child(command, log=self.log, cwd=self.folder, environment=environment)
        return self._child

    def arguments(self, properties: Path) -> list[str]:
        """Of the main class, which reads this file."""
        return ["-c", str(properties)]

    def stop(self) -> None:
        """SIGTERM: it flushes, unregisters and leaves."""
        if self._child is not None:
            self._child.stop(within_seconds=40)

    def kill(self) -> None:
        """kill -9."""
        if self._child is not None:
            self._child.kill()


class NameServer(JavaServer):
    """A name server."""

    def __init__(self, *, version: str, folder: Path) -> None:
        super().__init__(
            version=version,
            folder=folder,
            main_class=f"{_package(version)}.namesrv.NamesrvStartup",
            port=free_port(),
            what=f"name server {version}",
        )

    def start(self) -> Self:
        """Starts it (again on the same port) and returns when it accepts connections."""
        child = self.launch({"listenPort": str(self.port), "bindAddress": "127.0.0.1"})
        child.until(lambda: answers(self.port), within_seconds=START_SECONDS, what=self.what)
        return self


class RealBroker(JavaServer):
    """A broker, master unless the properties say otherwise; a restart keeps port and data."""

    def __init__(
        self,
        *,
        version: str,
        folder: Path,
        name: str,
        name_servers: str,
        properties: dict[str, str],
        java_options: tuple[str, ...] = (),
        main_class: str = "broker.BrokerStartup",
    ) -> None:
        super().__init__(
            version=version,
            folder=folder,
            main_class=f"{_package(version)}.{main_class}",
            port=free_port(neighbours=(-2, 1)),  # the VIP channel and the replication port
            what=f"broker {name} {version}",
        )
        self.java_options = java_options
        self.name = name
        self.name_servers = name_servers
        self.properties = dict(properties)

    def start(self, *, properties: dict[str, str] | None = None) -> Self:
        """Starts it and returns when the name server has its route; new properties stay."""
        self.properties.update(properties or {})
        child = self.launch(self._all_properties())
        child.until(self.ready, within_seconds=START_SECONDS, what=self.what)
        return self

    def ready(self) -> bool:
        """Whether it accepts connections and a name server routes to it."""
        if not answers(self.port):
            return False
        port = int(self.name_servers.split(";", maxsplit=1)[0].rpartition(":")[2])
        if self.name in route_names(port, "TBW102", tls=self.tls):
            return True
        self._register()
        return False

    def update_config(self, **properties: str) -> None:
        """Changes properties of the running broker; a restart forgets them."""
        body = "".join(f"{name}={value}\n" for name, value in properties.items())
        with RemotingProbe(self.port, timeout_seconds=20, tls=self.tls) as probe:
            reply = probe.ask(UPDATE_BROKER_CONFIG, {}, body.encode())
        if reply.code != 0:
            raise ServiceFailed(f"{self.what} refused {properties}: {reply.code} {reply.remark}")

    def _register(self) -> None:
        # A 5.x broker mostly misses its first registration (its list of reachable name servers is still
        # empty) and tries again only after 10 s. A changed brokerPermission makes it register at once.
        if self.version.startswith("5."):
            with contextlib.suppress(OSError, ServiceFailed):
                self.update_config(brokerPermission="6")

    def _all_properties(self) -> dict[str, str]:
        store = self.folder / "store"
        return {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": self.name,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "namesrvAddr": self.name_servers,
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "mapedFileSizeCommitLog": "16777216",  # sic: spelled so up to 4.5.1
            "mappedFileSizeCommitLog": "16777216",
            "mapedFileSizeConsumeQueue": "600000",
            "mappedFileSizeConsumeQueue": "600000",
            "maxHashSlotNum": "50000",
            "maxIndexNum": "200000",
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "diskMaxUsedSpaceRatio": "95",
            # A loaded machine is slow, not busy.
            "waitTimeMillsInSendQueue": "5000",
            "osPageCacheBusyTimeOutMills": "10000",
            "timerWheelEnable": "false",
            "enableControllerMode": "false",
            **self.properties,
            **WITHOUT_SPINNING.get(self.version, {}),
        }


class RocketMQCluster:
    """A name server and masters `broker-1`, `broker-2`, …; use it as a context manager.

    ``properties`` are broker properties, over short intervals for check-back and retries (``QUICK``).
    """

    def __init__(
        self,
        version: str,
        *,
        brokers: int = 1,
        properties: dict[str, str] | None = None,
        tls: ClusterTls | None = None,
        broker_class: type[RealBroker] = RealBroker,
    ) -> None:
        if version not in VERSIONS:
            raise ValueError(f"RocketMQ {version}: known are {', '.join(VERSIONS)}")
        self.version = version
        self.folder = Path(tempfile.mkdtemp(prefix=f"reconciler-rocketmq-{version}-"))
        self.name_server = NameServer(version=version, folder=self.folder / "name-server")
        self.name_servers = self.name_server.address
        self.brokers = {
            name: broker_class(
                version=version,
                folder=self.folder / name,
                name=name,
                name_servers=self.name_servers,
                properties={**QUICK, **(properties or {})},
            )
            for name in (f"broker-{number}" for number in range(1, brokers + 1))
        }
        if tls is not None:
            for server in (self.name_server, *self.brokers.values()):
                server.java_options = tls.java_options
                server.tls = tls.context()

    def broker(self, name: str = "broker-1") -> RealBroker:
        """One of the brokers."""
        return self.brokers[name]

    def start(self) -> Self:
        """Starts the name server, then all brokers side by side; returns when all are routed to."""
        if missing() is not None:
            raise ServiceFailed(missing() or "")
        self.name_server.start()
        children = {name: broker.launch(broker._all_properties()) for name, broker in self.brokers.items()}
        for name, child in children.items():
            broker = self.brokers[name]
            child.until(broker.ready, within_seconds=START_SECONDS, what=broker.what)
        return self

    def close(self) -> None:
        """Kills everything and deletes the data."""
        for server in (*self.brokers.values(), self.name_server):
            with contextlib.suppress(OSError):
                server.kill()
        if os.environ.get("CHECKBACK_KEEP_BROKERS"):
            return
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _logging(version: str) -> str:
    """Warnings to the output, where a failing test shows them; 5.x carries logback under another name."""
    prefix = "org.apache.rocketmq.logging." if version.startswith("5.") else ""
    return (
        f'<configuration><appender name="out" class="{prefix}ch.qos.logback.core.ConsoleAppender"><encoder>'
        "<pattern>%d{HH:mm:ss.SSS} %-5level %logger %msg%n</pattern></encoder></appender>"
        '<root level="WARN"><appender-ref ref="out"/></root></configuration>'
    )


def _package(version: str) -> str:
    return "com.alibaba.rocketmq" if version.startswith("3.") else "org.apache.rocketmq"
