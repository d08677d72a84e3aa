"""The parts of one broker that the handlers of requests use, without the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.contract.urls import address_of
from reconciler.embedded.check_service import CheckService
from reconciler.embedded.consumers import ClientRegistry, RebalanceLocks
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.long_polling import LongPolling
from reconciler.embedded.routes import RouteTable
from reconciler.embedded.settings import BrokerSettings
from reconciler.embedded.state import BrokerState
from reconciler.embedded.store import MessageStore
from reconciler.embedded.transactions import Transactions


@dataclass(kw_only=True, slots=True)
class BrokerServices:
    """Used by the broker's loop only. ``host`` and ``port`` are its address for clients, known once it listens."""

    family: Family
    settings: BrokerSettings
    faults: Faults
    clock: Clock
    started_ms: int
    state: BrokerState
    store: MessageStore
    transactions: Transactions
    checks: CheckService
    clients: ClientRegistry
    locks: RebalanceLocks
    polling: LongPolling
    routes: RouteTable
    #: Runs an action after some seconds, if the broker still runs then.
    later: Callable[[float, Callable[[], None]], None]
    host: str = "127.0.0.1"
    port: int = 0

    @property
    def address(self) -> str:
        """host:port for clients."""
        return address_of(self.host, self.port)
