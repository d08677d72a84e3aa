"""RocketMQ remoting client in pure Python: frames, records, routes, look-ups, sending, pulling, transactions.

The names below are the ones that users of the client need; they are loaded when they are first asked for, because
the embedded broker shares the codec and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

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

if not TYPE_CHECKING:  # the checker sees the imports above, and no attribute besides them
    __getattr__ = loading(
        __name__,
        {
            "reconciler.rocketmq.client": "RemotingClient",
            "reconciler.rocketmq.client_instance": "ClientInstance",
            "reconciler.rocketmq.consumer_listener": "ConsumeStatus",
            "reconciler.rocketmq.consumer_message": "ReceivedMessage",
            "reconciler.rocketmq.heartbeat": "ConsumeFrom",
            "reconciler.rocketmq.message": "Message",
            "reconciler.rocketmq.push_consumer": "PushConsumer",
            "reconciler.rocketmq.transaction_listener": "LocalTransactionState TransactionListener",
            "reconciler.rocketmq.transaction_producer": "TransactionMQProducer TransactionSendResult",
        },
    )
