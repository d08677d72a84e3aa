"""The producer over this project's remoting client. This module has the adapters of the transport ports, and
`open_producer`."""

from __future__ import annotations

import logging
import random

from checkback_producers.announcement_batcher import INTERVAL_SECONDS_DEFAULT
from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.check_answer import CHECK_MAXIMUM_DEFAULT, LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT
from checkback_producers.errors import HalfNotSafe
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage, Answer, CheckedHalf, Outcome, SentHalf
from checkback_producers.producer import TransactionalProducer
from checkback_producers.transaction import Completion
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.secret import Secret
from reconciler.errors import (
    BrokerUnavailable,
    ConfigurationError,
    InvalidValue,
    ReconcilerError,
    TopicNotFound,
    TransientError,
    UsageError,
)
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.rocketmq.client.client_instance import ClientInstance, refuse_security_of_shared
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.producer.ending import EndAnswer
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener
from reconciler.rocketmq.producer.transaction_producer import (
    END_TIMEOUT_SECONDS,
    SEND_TIMEOUT_SECONDS,
    HalfReceipt,
    HalfStoredUnsafely,
    TransactionMQProducer,
)
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.properties import whole_number
from reconciler.rocketmq.wire.received_message import ReceivedMessage

logger = logging.getLogger(__name__)


class RemotingHalves:
    """The port HalfSender over TransactionMQProducer. Thread-safe."""

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        *,
        send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
        end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    ) -> None:
        self._group = group
        self._instance = instance
        check_timeouts(send_timeout_seconds=send_timeout_seconds, end_timeout_seconds=end_timeout_seconds)
        self._send_timeout_seconds = send_timeout_seconds
        self._end_timeout_seconds = end_timeout_seconds
        self._producer: TransactionMQProducer | None = None

    def start(self, answer: Answer) -> None:
        """Joins the group at every master of the cluster, so that brokers can ask a restarted service about old halves.

        If a broker is away, a later heartbeat registers the group there.
        """
        self._producer = TransactionMQProducer(
            self._group,
            _Checks(self._group, answer),
            instance=self._instance,
            send_timeout_seconds=self._send_timeout_seconds,
            end_timeout_seconds=self._end_timeout_seconds,
        )
        self._producer.start()
        try:
            failures = self._producer.register_everywhere()
        except TransientError as error:
            failures = {"the cluster's brokers": error}
        for where, failure in failures.items():
            if failure is not None:
                logger.warning(
                    "producer_not_registered: group %s is not registered at %s yet: %s", self._group, where, failure
                )

    def shutdown(self) -> None:
        """Leaves the group. The client instance stays open."""
        if self._producer is not None:
            self._producer.shutdown()

    def has_check_back(self) -> bool | None:
        """Returns False if any broker of the cluster is older than 4.3. Returns None if no broker is known to be older,
        but a broker did not answer."""
        try:
            addresses = self._instance.cluster_addresses()
        except ReconcilerError:
            return None
        answers: set[bool | None] = {self._asks_back(address) for address in addresses}
        if False in answers:
            return False
        return True if answers == {True} else None

    def next_unique_key(self) -> str:
        """Returns a key in the classic layout."""
        return self._instance.unique_keys.next_key()

    def send_half(self, message: Message) -> SentHalf:
        """Sends a half, as the port says."""
        if self._producer is None:
            raise UsageError(f"producer group {self._group} is not started")
        try:
            half = self._producer.send_half(message)
        except HalfStoredUnsafely as error:
            raise HalfNotSafe(
                error.half.unique_key, status=error.status.name, end_answer=_send_answer(error.end_answer)
            ) from error
        except TopicNotFound as error:
            remedy = (
                f"make the topic {message.topic} (mqadmin updateTopic, or reconciler topics create --business), or "
                "correct its name"
            )
            raise TopicNotFound(error.code, error.remark, request=error.request, remedy=remedy) from error
        return SentHalf(
            unique_key=half.unique_key,
            broker=half.broker_name,
            commit_log_offset=half.commit_log_offset,
            queue_offset=half.queue_offset,
            handle=half,
        )

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:
        """Sends END_TRANSACTION once. The failure of a broker is returned as an answer."""
        if self._producer is None or not isinstance(half.handle, HalfReceipt):
            return SendAnswer(outcome=EndOutcome.NOT_SENT, detail="the half was not sent by this producer")
        return _send_answer(self._producer.end(half.handle, LocalTransactionState[outcome.value]))

    def _asks_back(self, address: str) -> bool | None:
        try:
            return self._instance.families.facts(address).has_check_back
        except ReconcilerError:
            return None


class RemotingAnnouncements:
    """The port AnnouncementSender over the remoting client. Thread-safe."""

    def __init__(self, group: str, instance: ClientInstance) -> None:
        self._instance = instance
        self._sender = instance.sender(group)

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Tries the brokers that have the queue in random order, until a broker takes the message. Each broker is tried
        at most once.

        Raises ConfigurationError if no broker has the queue. Raises the last broker's error if every broker failed.
        """
        topic, queue_id = message.unique_key_topic, message.queue_id
        sent = Message(topic=topic, body=message.body, tags=message.tag, properties=message.properties)
        failure: ReconcilerError | None = None
        for queue in self._queues(topic, queue_id):
            try:
                self._sender.send(sent, queue=queue)
            except ReconcilerError as error:
                failure = error
            else:
                return
        raise failure or BrokerUnavailable(f"no broker takes messages for queue {queue_id} of {topic}")

    def _queues(self, topic: str, queue_id: int) -> list[MessageQueue]:
        route = self._instance.routes.route(topic)
        queues = [queue for queue in route.writable_queues if queue.queue_id == queue_id]
        if not queues:
            route = self._instance.routes.refresh(topic)
            queues = [queue for queue in route.writable_queues if queue.queue_id == queue_id]
        if not queues and route.writable_queues:
            raise ConfigurationError(
                f"{topic} has no queue {queue_id}: it must have as many queues on every master as configured; "
                "run reconciler topics create, or correct `queues` (in a service: of its AnnouncementRoute)"
            )
        random.shuffle(queues)
        return queues


class _RemotingProducer(TransactionalProducer):
    """Closes the client instance that open_producer made."""

    owned: ClientInstance | None = None

    def shutdown(self) -> None:
        super().shutdown()
        if self.owned is not None:
            self.owned.close()


def open_producer(
    *,
    #: Producer group. One producer per group and process.
    group: str,
    #: Environment of the reconciler's settings.
    environment: str,
    #: "a:9876;b:9876": the producer creates its own client instance. Give this or `instance`.
    name_servers: str | None = None,
    #: A client instance that is shared with others. The caller closes it.
    instance: ClientInstance | None = None,
    #: Access keys of a broker user. Only used with `name_servers`.
    acl: AclCredentials | None = None,
    #: TLS of the connections. Only used with `name_servers`. None: connections are not encrypted.
    tls: TlsSettings | None = None,
    #: URL of the database to which the blocks write, and which has the outbox.
    outbox_url: Secret | None = None,
    #: True: there is no outbox, and no commit is proved.
    without_outbox: bool = False,
    #: Where and how announcements are sent, as in the reconciler's settings. None: they go to the default topic.
    announcements: AnnouncementRoute | None = None,
    #: "end": a block sends END_TRANSACTION. "check": check-back ends the transaction, and the sweeper announces it.
    completion: Completion = "end",
    #: True: the outbox row keeps the body, so that the message can be sent again even if its half is gone.
    keep_bodies: bool = False,
    #: Age from which a half without a row is rolled back. The age must be longer than the longest local transaction.
    local_transaction_timeout_seconds: float = LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
    #: The brokers' transactionCheckMax.
    check_maximum: int = CHECK_MAXIMUM_DEFAULT,
    #: Connections to the outbox that the producer keeps for its own reads.
    pool_size: int = 5,
    #: The longest time for storing the half.
    send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
    #: How long a block waits for the answer to its END_TRANSACTION, which may never arrive.
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    #: Announcements follow their blocks within this time, with many keys per message. None, or no outbox: each block
    #: sends its own announcement.
    announce_every_seconds: float | None = INTERVAL_SECONDS_DEFAULT,
) -> TransactionalProducer:
    """Makes a producer over the remoting client. Start the producer, or use it as a context manager.

    Can raise ConfigurationError, InvalidValue, MissingDependency and UsageError.
    """
    if (name_servers is None) == (instance is None):
        raise UsageError("give either name_servers or instance")
    refuse_security_of_shared("instance", instance, acl=acl, tls=tls)
    route = AnnouncementRoute.of(environment, announcements)
    outbox = None if outbox_url is None else SqlOutbox(outbox_url, pool_size=pool_size)
    shared = instance or ClientInstance(name_servers or "", acl=acl, tls=tls)
    try:
        producer = _RemotingProducer(
            group=group,
            halves=RemotingHalves(
                group, shared, send_timeout_seconds=send_timeout_seconds, end_timeout_seconds=end_timeout_seconds
            ),
            announcer=Announcer(RemotingAnnouncements(group, shared), route),
            outbox=outbox,
            without_outbox=without_outbox,
            completion=completion,
            keep_bodies=keep_bodies,
            local_transaction_timeout_seconds=local_transaction_timeout_seconds,
            check_maximum=check_maximum,
            announce_every_seconds=announce_every_seconds,
            clock=shared.clock,
        )
    except BaseException:
        if instance is None:
            shared.close()
        raise
    producer.owned = shared if instance is None else None
    return producer


def check_timeouts(**named_seconds: float) -> None:
    """Raises InvalidValue for a time-out that is too short for any answer."""
    for name, seconds in named_seconds.items():
        if not seconds > 0:
            raise InvalidValue(name, seconds, "more than 0 seconds")


class _Checks(TransactionListener):
    """Passes check-backs on. Local transactions run in blocks, never here."""

    def __init__(self, group: str, answer: Answer) -> None:
        self._group = group
        self._answer = answer

    def execute_local_transaction(
        self,
        message: Message,  # noqa: ARG002  # the listener's signature
        arg: object,  # noqa: ARG002  # the listener's signature
    ) -> LocalTransactionState:
        """Not used, because send_half and end are called separately."""
        raise UsageError("local transactions run in producer.transaction(...)")

    def check_local_transaction(self, message: ReceivedMessage) -> LocalTransactionState:
        """Returns the outbox's answer."""
        times = message.properties.get("TRANSACTION_CHECK_TIMES", "0")
        half = CheckedHalf(
            unique_key=message.unique_key,
            topic=message.topic,
            producer_group=self._group,
            tag=message.tags,
            born_timestamp_ms=message.born_timestamp_ms,
            check_times=whole_number(times) or 0,
            outbox_mark=message.properties.get(OUTBOX_MARK) or None,
        )
        return LocalTransactionState[self._answer(half).value]


def _send_answer(answer: EndAnswer) -> SendAnswer:
    return SendAnswer(outcome=EndOutcome[answer.status.name], code=answer.code, detail=answer.remark or "")
