"""The configurations of brokers, remembered for a short time."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.clock import Clock
from reconciler.rocketmq.client.admin import Admin

_REMEMBER_SECONDS = 5.0


class BrokerConfigs:
    """Remembers each broker's configuration for 5 s. Thread-safe: each entry is replaced as a whole."""

    def __init__(self, admin: Admin, *, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._known: dict[str, tuple[Mapping[str, str], float]] = {}

    def of(self, address: str) -> Mapping[str, str]:
        """Returns the properties of the broker at the address. Raises the errors of Admin.broker_config."""
        now = self._clock.monotonic_seconds()
        known = self._known.get(address)
        if known is None or now - known[1] >= _REMEMBER_SECONDS:
            self._known[address] = known = (self._admin.broker_config(address), now)
        return known[0]
