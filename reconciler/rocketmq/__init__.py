"""RocketMQ remoting client in pure Python: frames, records, routes, look-ups, sending, pulling, transactions.

The names below are the ones that users of the client need; they are loaded when they are first asked for, because
the embedded broker shares the codec and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.lazy_names import loading

if TYPE_CHECKING:
    from reconciler.rocketmq.client.client_instance import ClientInstance
    from reconciler.rocketmq.client.heartbeat import ConsumeFrom
    from reconciler.rocketmq.client.remoting_client import RemotingClient
    from reconciler.rocketmq.consumer.listener import ConsumeStatus
    from reconciler.rocketmq.consumer.push_consumer import PushConsumer
    from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener
    from reconciler.rocketmq.producer.transaction_producer import TransactionMQProducer, TransactionSendResult
    from reconciler.rocketmq.wire.message import Message
    from reconciler.rocketmq.wire.received_message import ReceivedMessage

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
            "reconciler.rocketmq.client.remoting_client": "RemotingClient",
            "reconciler.rocketmq.client.client_instance": "ClientInstance",
            "reconciler.rocketmq.consumer.listener": "ConsumeStatus",
            "reconciler.rocketmq.wire.received_message": "ReceivedMessage",
            "reconciler.rocketmq.client.heartbeat": "ConsumeFrom",
            "reconciler.rocketmq.wire.message": "Message",
            "reconciler.rocketmq.consumer.push_consumer": "PushConsumer",
            "reconciler.rocketmq.producer.transaction_listener": "LocalTransactionState TransactionListener",
            "reconciler.rocketmq.producer.transaction_producer": "TransactionMQProducer TransactionSendResult",
        },
    )
