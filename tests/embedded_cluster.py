"""Several embedded brokers under one name server."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from reconciler.embedded.families import DEFAULT_FAMILY
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings


class EmbeddedCluster:
    """One name server and several masters: ``with EmbeddedCluster(("a", "b")) as cluster: cluster["a"].stop()``."""

    def __init__(
        self,
        names: tuple[str, ...] = ("broker-a", "broker-b"),
        *,
        family: str = DEFAULT_FAMILY,
        settings: Callable[[], BrokerSettings] = BrokerSettings,
    ) -> None:
        self.name_server = EmbeddedBroker(family=family, is_broker=False)
        self._names = names
        self._family = family
        self._settings = settings
        self.brokers: dict[str, EmbeddedBroker] = {}

    def __enter__(self) -> Self:
        self.name_server.start()
        try:
            for name in self._names:
                settings = self._settings()
                settings.broker_name = name
                broker = EmbeddedBroker(family=self._family, settings=settings, name_servers=self.name_server.address)
                broker.start()
                self.brokers[name] = broker
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> EmbeddedBroker:
        return self.brokers[name]

    @property
    def name_servers(self) -> str:
        """What clients are configured with."""
        return self.name_server.address

    def stop(self) -> None:
        """Stops everything."""
        for broker in self.brokers.values():
            broker.stop()
        self.name_server.stop()
