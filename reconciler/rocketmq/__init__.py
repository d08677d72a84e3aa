"""RocketMQ remoting client in pure Python: frames, records, routes, look-ups, sending, pulling, transactions.

The names below are the ones that users of the client need; they are loaded when they are first asked for, because
the embedded broker shares the codec and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.rocketmq.client import RemotingClient
    from reconciler.rocketmq.client_instance import ClientInstance
    from reconciler.rocketmq.consumer_listener import ConsumeStatus
    from reconciler.rocketmq.consumer_message import ReceivedMessage
    from reconciler.rocketmq.heartbeat import ConsumeFrom
    from reconciler.rocketmq.message import Message
    from reconciler.rocketmq.push_consumer import PushConsumer
    from reconciler.rocketmq.transaction_listener import LocalTransactionState, TransactionListener
    from reconciler.rocketmq.transaction_producer import TransactionMQProducer, TransactionSendResult

_HOMES = {
    "ClientInstance": "client_instance",
    "ConsumeFrom": "heartbeat",
    "ConsumeStatus": "consumer_listener",
    "LocalTransactionState": "transaction_listener",
    "Message": "message",
    "PushConsumer": "push_consumer",
    "ReceivedMessage": "consumer_message",
    "RemotingClient": "client",
    "TransactionListener": "transaction_listener",
    "TransactionMQProducer": "transaction_producer",
    "TransactionSendResult": "transaction_producer",
}

__all__ = [
    "ClientInstance",
    "ConsumeFrom",
    "ConsumeStatus",
    "LocalTransactionState",
    "Message",
    "PushConsumer",
    "ReceivedMessage",
    "RemotingClient",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
