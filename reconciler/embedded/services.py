"""The parts of one broker that handlers of requests use. The loop that runs the handlers is not among them."""

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
    """The services of one broker. Only the broker's loop uses this class. ``host`` and ``port`` are the broker's
    address for clients, and are known as soon as the broker listens."""

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
        """Address for clients, as "host:port"."""
        return address_of(self.host, self.port)
