"""TransactionMQProducer sends a half, runs the local transaction, sends END_TRANSACTION, and answers check-backs.

The methods are those of org.apache.rocketmq.client.producer.TransactionMQProducer. Unlike the Java class, this class
sends END two-way, so that the answer is known. Callers that run the transaction themselves call `send_half` and `end`.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from reconciler.clock import Clock
from reconciler.errors import BrokerRefused, InvalidValue, ReconcilerError, TransientError, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance, refuse_security_of_shared
from reconciler.rocketmq.client.sending import SendStatus
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.producer.check_back import QUEUE_CAPACITY, THREADS_MAX, CheckBack, CheckRequest
from reconciler.rocketmq.producer.ending import EndAnswer, EndRequest, EndStatus, end_transaction
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener, asked
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import ResponseCode
from reconciler.rocketmq.wire.message import Message

__all__ = [
    "HalfReceipt",
    "HalfStoredUnsafely",
    "LocalTransactionState",
    "TransactionListener",
    "TransactionMQProducer",
    "TransactionSendResult",
    "TransactionsRejected",
]

logger = logging.getLogger(__name__)

SEND_TIMEOUT_SECONDS = 3.0
END_TIMEOUT_SECONDS = 3.0
#: Seconds for which the list of all brokers is used before name servers are asked again.
_CLUSTER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfReceipt:
    """A half that the broker has stored, with all facts that END_TRANSACTION needs."""

    unique_key: str
    topic: str
    producer_group: str
    broker_name: str
    #: Address of the master that stored the half.
    broker_address: str
    queue_id: int
    #: The number that END needs (tranStateTableOffset), or 0 for brokers up to 4.2.
    queue_offset: int
    commit_log_offset: int
    #: The broker's transaction id. Brokers before 5.0 name none.
    transaction_id: str | None
    offset_message_id: str
    #: Version of the broker, as its ordinal in MQVersion.
    broker_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSendResult:
    """The outcome of a transactional message."""

    #: Always SEND_OK, because a half that is stored less safely raises HalfStoredUnsafely.
    status: SendStatus
    half: HalfReceipt
    local_state: LocalTransactionState
    #: The broker's answer to END. An END with UNKNOWN goes one-way and gets no answer.
    end_answer: EndAnswer

    @property
    def unique_key(self) -> str:
        """The unique key of the message (property UNIQ_KEY)."""
        return self.half.unique_key

    @property
    def transaction_id(self) -> str:
        """The broker's transaction id, which is the unique key (before 5.0 the broker names none)."""
        return self.half.transaction_id or self.half.unique_key


class HalfStoredUnsafely(TransientError):
    """The broker has stored the half less safely than it should. The half was rolled back, and the transaction was not
    run."""

    def __init__(self, status: SendStatus, half: HalfReceipt, end_answer: EndAnswer) -> None:
        self.status = status
        self.half = half
        self.end_answer = end_answer
        super().__init__(
            f"half {half.unique_key} on {half.broker_name}: {status.name}; rolled back ({end_answer.status}), "
            "the local transaction was not run"
        )


class TransactionsRejected(BrokerRefused):
    """The broker refuses transactional messages (NO_PERMISSION for a half)."""


class TransactionMQProducer:
    """A thread-safe producer. With `name_servers`, such as "a;b", it makes a client instance of its own. `acl` and
    `tls` are for this instance. With `instance`, it shares an instance.

    `listener` may be None if another process answers check-backs.
    """

    def __init__(
        self,
        group: str,
        listener: TransactionListener | None,
        *,
        name_servers: str | None = None,
        instance: ClientInstance | None = None,
        acl: AclCredentials | None = None,
        tls: TlsSettings | None = None,
        send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
        end_timeout_seconds: float = END_TIMEOUT_SECONDS,
        check_threads_max: int = THREADS_MAX,
        check_queue: int = QUEUE_CAPACITY,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(group, str) or not group:
            raise InvalidValue("group", group, "the name of a producer group")
        if (name_servers is None) == (instance is None):
            raise UsageError("give either name_servers or instance")
        refuse_security_of_shared("instance", instance, acl=acl, tls=tls)
        self.group = group
        self._listener = listener
        self._owns_instance = instance is None
        self.instance = instance or ClientInstance(name_servers or "", acl=acl, tls=tls, clock=clock)
        self._sender = self.instance.sender(group)
        self._send_timeout_seconds = send_timeout_seconds
        self._end_timeout_seconds = end_timeout_seconds
        self._check_threads_max = check_threads_max
        self._check_queue = check_queue
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._everywhere = False
        self._cluster: tuple[float, set[str]] | None = None
        self._is_started = False

    def start(self, *topics: str) -> TransactionMQProducer:
        """Starts to answer check-backs. If topics are named, registers the group at their brokers at once."""
        with self._lock:
            if self._is_started:
                raise UsageError(f"producer {self.group} is started already")
            self._is_started = True
            self._topics.update(topics)
        try:
            self._join()
        except UsageError:
            with self._lock:
                self._is_started = False  # otherwise its shutdown would unregister the group of the other producer
            raise
        if topics:
            self.instance.heartbeats.beat()
        return self

    def _join(self) -> None:
        check_back, heartbeats = self.instance.shared(CheckBack), self.instance.heartbeats
        heartbeats.join_producer(self.group, self._addresses)
        if self._listener is None:
            return
        try:
            check_back.register(
                self.group, self._check, threads_max=self._check_threads_max, queue_capacity=self._check_queue
            )
        except UsageError:  # a former producer of the group still waits for a running check
            heartbeats.leave_producer(self.group)
            raise

    def shutdown(self) -> None:
        """Unregisters the group and waits for running checks. Closes its own client instance."""
        with self._lock:
            was_started, self._is_started = self._is_started, False
        if was_started:
            self.instance.heartbeats.leave_producer(self.group)
            self.instance.shared(CheckBack).unregister(self.group)
        if self._owns_instance:
            self.instance.close()

    def __enter__(self) -> TransactionMQProducer:
        return self if self._is_started else self.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def register_topics(self, *topics: str) -> dict[str, ReconcilerError | None]:
        """Registers the group at the masters of these topics now, without sending a message.

        A topic without a route follows as soon as it has a route. Returns broker address -> failure, with None for
        success.
        """
        with self._lock:
            self._topics.update(topics)
        return self.instance.heartbeats.beat()

    def register_everywhere(self) -> dict[str, ReconcilerError | None]:
        """Registers the group at every master of the cluster, also at masters that join later. Returns broker address
        -> failure, with None for success."""
        with self._lock:
            self._everywhere = True
        return self.instance.heartbeats.beat()

    def send_message_in_transaction(self, message: Message, arg: object = None) -> TransactionSendResult:
        """Sends the half, runs the listener's local transaction, and ends the transaction with its outcome.

        Raises HalfStoredUnsafely, TransactionsRejected or what sending raises. After such an error, the transaction was
        not run. A failed END raises nothing. `end_answer` then has the failure, and a check-back decides later.
        """
        if self._listener is None:
            raise UsageError(f"producer {self.group} has no listener: use send_half and end")
        listener = self._listener
        message = replace(message, unique_key=message.unique_key or self.instance.unique_keys.next_key())
        half = self.send_half(message)
        state, remark = asked(
            lambda: listener.execute_local_transaction(message, arg), f"the local transaction of {half.unique_key}"
        )
        end_answer = self.end(half, state, remark=remark)
        return TransactionSendResult(status=SendStatus.SEND_OK, half=half, local_state=state, end_answer=end_answer)

    def send_half(self, message: Message) -> HalfReceipt:
        """Sends the half and waits until the broker has stored it safely.

        Raises HalfStoredUnsafely after an END with ROLLBACK. Raises TransactionsRejected, UsageError for a message with
        a delay level, or what Sender.send raises. After an error of Sender.send the half may be stored, but nothing
        commits it.
        """
        if not self._is_started:
            raise UsageError(f"producer {self.group} is not started")
        if message.delay_level is not None:
            raise UsageError("a transactional message cannot be delayed: older brokers would ask for it without end")
        with self._lock:
            is_new_topic = message.topic not in self._topics
        if is_new_topic:
            self._register_before_first_half(message.topic)
        try:
            sent = self._sender.send(message, is_half=True, timeout_seconds=self._send_timeout_seconds)
        except BrokerRefused as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            remark = f"{error.remark}; does the broker have rejectTransactionMessage=true?"
            raise TransactionsRejected(error.code, remark, request=f"half to {message.topic}") from error
        address = self.instance.routes.master_of(message.topic, sent.broker_name)
        if address is None:  # its master left just now; END will say so
            address = self.instance.routes.refresh(message.topic).masters.get(sent.broker_name, "")
        half = HalfReceipt(
            unique_key=sent.unique_key,
            topic=sent.topic,
            producer_group=self.group,
            broker_name=sent.broker_name,
            broker_address=address,
            queue_id=sent.queue_id,
            queue_offset=sent.queue_offset,
            commit_log_offset=sent.commit_log_offset,
            transaction_id=sent.transaction_id,
            offset_message_id=sent.offset_message_id,
            broker_version=sent.broker_version,
        )
        if sent.status is not SendStatus.SEND_OK:
            raise HalfStoredUnsafely(sent.status, half, self.end(half, LocalTransactionState.ROLLBACK))
        return half

    def end(
        self,
        half: HalfReceipt,
        outcome: LocalTransactionState,
        *,
        from_check: bool = False,
        remark: str | None = None,
    ) -> EndAnswer:
        """Sends END_TRANSACTION. COMMIT and ROLLBACK go two-way. UNKNOWN goes one-way, because no broker answers it.

        Never raises for a failing broker. Sends once, because a repeated COMMIT may deliver a second time.
        """
        if not half.broker_address:
            return EndAnswer(status=EndStatus.NOT_SENT, remark=f"{half.broker_name} had no master in the route")
        request = EndRequest(
            address=half.broker_address,
            producer_group=half.producer_group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            decision=outcome.decision,
            message_id=half.unique_key,
            transaction_id=half.transaction_id,
            from_transaction_check=from_check,
            remark=remark,
        )
        answer = end_transaction(self.instance.client, request, timeout_seconds=self._end_timeout_seconds)
        if answer.code is None and outcome is not LocalTransactionState.UNKNOWN:
            self.instance.heartbeats.doubt(half.broker_address)  # the broker must ask later, so it must know the group
        return answer

    def _check(self, request: CheckRequest) -> LocalTransactionState | None:
        if self._listener is None:
            return LocalTransactionState.UNKNOWN
        return self._listener.check_local_transaction(request.message)

    def _register_before_first_half(self, topic: str) -> None:
        """Registers the group before the first half, because the broker must know whom to ask. A failure here must not
        fail the send."""
        failures = {address: error for address, error in self.register_topics(topic).items() if error is not None}
        if failures:
            logger.warning(
                "producer_not_registered: group %s is not registered at %s yet", self.group, sorted(failures)
            )

    def _addresses(self) -> set[str]:
        with self._lock:
            topics, everywhere, cluster = list(self._topics), self._everywhere, self._cluster
        found = self.instance.master_addresses(topics)
        if everywhere:
            now = self.instance.clock.monotonic_seconds()
            if cluster is None or now - cluster[0] >= _CLUSTER_SECONDS:
                cluster = self._cluster_since(now) or cluster
            if cluster is not None:
                found |= cluster[1]
        return found

    def _cluster_since(self, now: float) -> tuple[float, set[str]] | None:
        """Asks for the cluster's brokers. Returns None if no name server can be reached. The known brokers then stay in
        use."""
        try:
            cluster = (now, self.instance.cluster_addresses())
        except ReconcilerError as error:
            logger.warning("cluster_unknown: group %s is registered at known brokers only: %s", self.group, error)
            return None
        with self._lock:
            self._cluster = cluster
        return cluster
