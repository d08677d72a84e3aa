"""The plug-in for the service that receives: effects once, recorded, and seen by the reconciler.

>>> from consumers import CommitRecorder, TransactionalConsumer, transactional_handler

``transactional_handler`` wraps the service's handler, ``CommitRecorder`` records what was consumed,
``TransactionalConsumer`` runs handlers on the pure-Python push consumer (consumers/client_python.py on the native
client), ``ReplayWorker`` runs hand-overs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from consumers.handler import TransactionalHandler, transactional_handler
    from consumers.message import ConsumedMessage, business_id
    from consumers.push import TransactionalConsumer
    from consumers.recorder import CommitRecorder
    from consumers.redis_inbox import RedisInbox
    from consumers.replay import ReplayWorker
    from reconciler.rocketmq.consumer_listener import ConsumeStatus

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
            "consumers.handler": "TransactionalHandler transactional_handler",
            "consumers.message": "ConsumedMessage business_id",
            "consumers.push": "TransactionalConsumer",
            "consumers.recorder": "CommitRecorder",
            "consumers.redis_inbox": "RedisInbox",
            "consumers.replay": "ReplayWorker",
            "reconciler.rocketmq.consumer_listener": "ConsumeStatus",
        },
    )
