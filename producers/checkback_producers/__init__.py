"""Plug-in for the service that sends transactional messages: half, outbox row, announcement, check answers.

    from checkback_producers import Message, open_producer

The names below are public, and so are the names in `checkback_producers.errors`, `.metrics`, `.security` and `.tables`.
Every other module and name is private and may change with any release. The package loads SQLAlchemy and the remoting
client, and nothing heavier.
"""

from typing import TYPE_CHECKING

from checkback_producers.announcer import AnnouncementRoute
from checkback_producers.ports import Outcome
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import open_producer
from checkback_producers.transaction import Transaction
from reconciler.contract.late_names import imported_when_used
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.message import Message

if TYPE_CHECKING:
    from checkback_producers.asynchronous import AsyncTransaction, AsyncTransactionalProducer
    from checkback_producers.client_python import NativeProducer, open_native_producer

__all__ = [
    "AnnouncementRoute",
    "AsyncTransaction",
    "AsyncTransactionalProducer",
    "ClientInstance",
    "Message",
    "NativeProducer",
    "Outcome",
    "Transaction",
    "TransactionalProducer",
    "open_native_producer",
    "open_producer",
]

# These names are imported at their first use. Only producers in an event loop or over the library in C need the modules
# that they load.
__getattr__ = imported_when_used(
    __name__,
    dict.fromkeys(("AsyncTransaction", "AsyncTransactionalProducer"), "checkback_producers.asynchronous")
    | dict.fromkeys(("NativeProducer", "open_native_producer"), "checkback_producers.client_python"),
)
