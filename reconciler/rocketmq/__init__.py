"""RocketMQ remoting client in pure Python: frames, records, routes, look-ups, sending, pulling, transactions."""

from typing import TYPE_CHECKING

from reconciler.contract.late_names import imported_when_used
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage

if TYPE_CHECKING:
    from reconciler.rocketmq.consumer.listener import ConsumeStatus
    from reconciler.rocketmq.consumer.push_consumer import PushConsumer
    from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener
    from reconciler.rocketmq.producer.transaction_producer import TransactionMQProducer, TransactionSendResult

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

# Only those who consume or produce load what that needs: who asks brokers loads this package, too.
_LATE = {
    "reconciler.rocketmq.consumer.listener": ("ConsumeStatus",),
    "reconciler.rocketmq.consumer.push_consumer": ("PushConsumer",),
    "reconciler.rocketmq.producer.transaction_listener": ("LocalTransactionState", "TransactionListener"),
    "reconciler.rocketmq.producer.transaction_producer": ("TransactionMQProducer", "TransactionSendResult"),
}
__getattr__ = imported_when_used(__name__, {name: place for place, names in _LATE.items() for name in names})
