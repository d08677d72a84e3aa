"""RocketMQ's proxy, which serves gRPC clients: a process of its own (cluster mode), or one with its broker (local)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from tests.services.ports import answers, free_port
from tests.services.rocketmq import CLUSTER_NAME, START_SECONDS, JavaServer, RealBroker

_MAIN_CLASS = "proxy.ProxyStartup"


class Proxy(JavaServer):
    """A proxy in cluster mode before every broker of the name servers; `address` is where gRPC clients connect."""

    def __init__(self, *, version: str, folder: Path, name_servers: str) -> None:
        super().__init__(
            version=version,
            folder=folder,
            main_class=f"org.apache.rocketmq.{_MAIN_CLASS}",
            port=free_port(),
            what=f"proxy {version}",
        )
        self._name_servers = name_servers

    def arguments(self, properties: Path) -> list[str]:
        return ["-pm", "cluster", "-pc", str(_settings(self.folder, self.port, self._name_servers))]

    def start(self) -> Self:
        """Starts it and returns when gRPC clients can connect."""
        child = self.launch({})
        child.until(lambda: answers(self.port), within_seconds=START_SECONDS, what=self.what)
        return self


class BrokerWithProxy(RealBroker):
    """A broker and a proxy in one process: gRPC consumers are the broker's own members."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, main_class=_MAIN_CLASS)
        self.grpc_port = free_port()

    @property
    def grpc_address(self) -> str:
        """host:port for gRPC clients."""
        return f"127.0.0.1:{self.grpc_port}"

    def arguments(self, properties: Path) -> list[str]:
        settings = _settings(self.folder, self.grpc_port, self.name_servers)
        return ["-pm", "local", "-bc", str(properties), "-pc", str(settings)]

    def ready(self) -> bool:
        return answers(self.grpc_port) and super().ready()


def _settings(folder: Path, grpc_port: int, name_servers: str) -> Path:
    settings = {
        "rocketMQClusterName": CLUSTER_NAME,
        "namesrvAddr": name_servers,
        "grpcServerPort": grpc_port,
        "remotingListenPort": free_port(),
        "minInvisibleTimeMillsForRecv": 1000,
    }
    file = folder / "rmq-proxy.json"
    file.write_text(json.dumps(settings))
    return file
