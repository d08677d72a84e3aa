"""The plug-in for the service that receives: effects once, recorded, and seen by the reconciler.

>>> from consumers import CommitRecorder, TransactionalConsumer, transactional_handler

``transactional_handler`` wraps the service's handler, ``CommitRecorder`` records what was consumed,
``TransactionalConsumer`` runs handlers on the pure-Python push consumer
(consumers/checkback_consumers/client_python.py on the native client), ``ReplayWorker`` runs hand-overs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from checkback_consumers.handler import TransactionalHandler, transactional_handler
    from checkback_consumers.message import ConsumedMessage, business_id
    from checkback_consumers.push import TransactionalConsumer
    from checkback_consumers.recorder import CommitRecorder
    from checkback_consumers.redis_inbox import RedisInbox
    from checkback_consumers.replay import ReplayWorker
    from reconciler.rocketmq.consumer.listener import ConsumeStatus

__all__ = [
    "CommitRecorder",
    "ConsumeStatus",
    "ConsumedMessage",
    "RedisInbox",
    "ReplayWorker",
    "TransactionalConsumer",
    "TransactionalHandler",
    "business_id",
    "transactional_handler",
]

if not TYPE_CHECKING:  # the checker sees the imports above, and no attribute besides them
    __getattr__ = loading(
        __name__,
        {
            "checkback_consumers.handler": "TransactionalHandler transactional_handler",
            "checkback_consumers.message": "ConsumedMessage business_id",
            "checkback_consumers.push": "TransactionalConsumer",
            "checkback_consumers.recorder": "CommitRecorder",
            "checkback_consumers.redis_inbox": "RedisInbox",
            "checkback_consumers.replay": "ReplayWorker",
            "reconciler.rocketmq.consumer.listener": "ConsumeStatus",
        },
    )
