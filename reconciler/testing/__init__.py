"""The test kit, for tests of services that send or receive, and of code that runs beside the reconciler.

    from reconciler.testing import Checkback

The names below are public. The package includes the pytest plug-in `checkback`, whose fixture `checkback_kit` gives
each test a `Checkback` of its own. Each name is imported when it is first used, because every run of pytest loads the
plug-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.contract.late_names import imported_when_used

if TYPE_CHECKING:
    from reconciler.clock import ManualClock
    from reconciler.contract.tables import HoldKind
    from reconciler.embedded.access_control import BrokerUser
    from reconciler.embedded.faults import Faults
    from reconciler.embedded.server import EmbeddedBroker
    from reconciler.embedded.tls import ServerTls, TlsMode
    from reconciler.testing.consumed import consumed_message
    from reconciler.testing.kit import Checkback, Settled
    from reconciler.testing.memory import MemoryLedger
    from reconciler.testing.memory_shards import MemoryShards
    from reconciler.testing.standing import LackingEffect

__all__ = [
    "BrokerUser",
    "Checkback",
    "EmbeddedBroker",
    "Faults",
    "HoldKind",
    "LackingEffect",
    "ManualClock",
    "MemoryLedger",
    "MemoryShards",
    "ServerTls",
    "Settled",
    "TlsMode",
    "consumed_message",
]

__getattr__ = imported_when_used(
    __name__,
    {
        "BrokerUser": "reconciler.embedded.access_control",
        "Checkback": "reconciler.testing.kit",
        "EmbeddedBroker": "reconciler.embedded.server",
        "Faults": "reconciler.embedded.faults",
        "HoldKind": "reconciler.contract.tables",
        "LackingEffect": "reconciler.testing.standing",
        "ManualClock": "reconciler.clock",
        "MemoryLedger": "reconciler.testing.memory",
        "MemoryShards": "reconciler.testing.memory_shards",
        "ServerTls": "reconciler.embedded.tls",
        "Settled": "reconciler.testing.kit",
        "TlsMode": "reconciler.embedded.tls",
        "consumed_message": "reconciler.testing.consumed",
    },
)
