"""Plug-in for the service that receives: a message has its effect once, and its key is recorded for the reconciler.

    from checkback_consumers import CommitRecorder, TransactionalConsumer, transactional_handler

`transactional_handler` wraps the service's handler. `CommitRecorder` records the keys that were consumed.
`TransactionalConsumer` runs handlers on the push consumer in Python, and `NativeConsumer` runs them on
rocketmq-client-python. `ReplayWorker` runs handlers for hand-overs.

The names below are public, and so are the names in `checkback_consumers.errors`, `.metrics`, `.security` and `.tables`.
Every other module and name is private and may change with any release.
"""

from typing import TYPE_CHECKING

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage, business_id
from checkback_consumers.push import TransactionalConsumer
from checkback_consumers.recorder import CommitRecorder
from reconciler.contract.late_names import imported_when_used
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.rocketmq.consumer.settings import PushSettings

if TYPE_CHECKING:
    from checkback_consumers.client_python import NativeConsumer
    from checkback_consumers.redis_inbox import RedisInbox
    from checkback_consumers.replay_worker import ReplayWorker

__all__ = [
    "CommitRecorder",
    "ConsumeStatus",
    "ConsumedMessage",
    "FailedAt",
    "NativeConsumer",
    "PushSettings",
    "RedisInbox",
    "ReplayWorker",
    "TransactionalConsumer",
    "TransactionalHandler",
    "business_id",
    "transactional_handler",
]

# These names are imported at their first use. The library in C, Redis and hand-overs make a third of all that the
# plug-in would load.
__getattr__ = imported_when_used(
    __name__,
    {
        "NativeConsumer": "checkback_consumers.client_python",
        "RedisInbox": "checkback_consumers.redis_inbox",
        "ReplayWorker": "checkback_consumers.replay_worker",
    },
)
