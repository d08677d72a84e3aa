"""A RocketMQ remoting client in pure Python. It has frames, records, routes, look-ups, sending, pulling and
transactions."""

from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener
from reconciler.rocketmq.producer.transaction_producer import TransactionMQProducer, TransactionSendResult
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage

__all__ = [
    "AclCredentials",
    "ClientInstance",
    "ConsumeFrom",
    "ConsumeStatus",
    "LocalTransactionState",
    "Message",
    "MessageQueue",
    "Offsets",
    "PushConsumer",
    "ReceivedMessage",
    "RemotingClient",
    "TlsSettings",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
]
