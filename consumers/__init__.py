"""The plug-in for the service that receives: effects once, recorded, and seen by the reconciler.

>>> from consumers import CommitRecorder, TransactionalConsumer, transactional_handler

``transactional_handler`` wraps the service's handler, ``CommitRecorder`` records what was consumed,
``TransactionalConsumer`` runs handlers on the pure-Python push consumer (consumers/client_python.py on the native
client), ``ReplayWorker`` runs hand-overs.
"""

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
