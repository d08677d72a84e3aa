"""Check-back, by which a broker asks about the outcome of a transaction (CHECK_TRANSACTION_STATE, 4.3 and newer).

A broker asks any client whose heartbeat names the producer group. The answer is a new END_TRANSACTION. It carries the
offsets of the request, which are those of the newest half copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.errors import MissingDependency, PermanentError, ProtocolViolation, ReconcilerError, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.worker_pool import WorkerPool
from reconciler.rocketmq.producer.ending import EndRequest, EndStatus, end_transaction
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, asked
from reconciler.rocketmq.wire.answers import number_field
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.properties import whole_number
from reconciler.rocketmq.wire.received_message import ReceivedMessage, received, with_body
from reconciler.rocketmq.wire.record import MessageRecord, decode_records

logger = logging.getLogger(__name__)

#: Maximum number of threads that answer check-backs of one group. They are started on demand.
THREADS_MAX = 5
#: Most check-backs that wait for a thread. Further ones are dropped and counted, and the broker asks again.
QUEUE_CAPACITY = 2_000
END_TIMEOUT_SECONDS = 3.0
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """One check-back of a broker."""

    producer_group: str
    #: Topic and queue are the real ones. Offsets are those of the half copy. If `body_error` is set, `body` is the
    #: stored body.
    message: ReceivedMessage
    #: Address of the asking broker, which gets the answer.
    broker_address: str
    tran_state_table_offset: int
    commit_log_offset: int
    transaction_id: str | None
    #: The reason why the body could not be uncompressed here.
    body_error: str | None = None

    @property
    def check_times(self) -> int:
        """Number of times that the broker has asked, including this time. 1 if the broker does not say."""
        text = self.message.properties.get("TRANSACTION_CHECK_TIMES", "1")
        times = whole_number(text)
        return 1 if times is None else times


#: A function that decides on one request. None or an exception means UNKNOWN.
CheckAnswer = Callable[[CheckRequest], LocalTransactionState | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """Counts of check-backs so far."""

    received: int
    #: Number of answers COMMIT or ROLLBACK that the broker accepted.
    accepted: int
    #: Number of answers COMMIT or ROLLBACK that the broker refused, or to which it said nothing.
    not_accepted: int
    #: Number of answers UNKNOWN. Brokers never confirm them.
    unknown: int
    #: Number of check-backs that were dropped because QUEUE_CAPACITY check-backs waited already.
    dropped: int
    #: Number of check-backs that were unreadable, or whose group is not registered here.
    unmatched: int
    #: Number of check-backs that were answered although the body could not be read. The body is damaged, or its
    #: compression needs a package that is not installed.
    unreadable_bodies: int


class CheckBack:
    """Answers check-backs of all producer groups of a client instance (`instance.shared(CheckBack)`). A lock protects
    this object."""

    def __init__(self, instance: ClientInstance) -> None:
        self._client = instance.client
        self._clock = instance.clock
        self._lock = threading.Lock()
        self._groups: dict[str, tuple[CheckAnswer, WorkerPool]] = {}
        self._received = self._accepted = self._not_accepted = self._unknown = self._unmatched = 0
        self._unreadable_bodies = 0
        self._dropped_by_former = 0
        self._client.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._on_check)

    @property
    def counts(self) -> CheckCounts:
        """The counters now."""
        with self._lock:
            return CheckCounts(
                received=self._received,
                accepted=self._accepted,
                not_accepted=self._not_accepted,
                unknown=self._unknown,
                dropped=self._dropped_by_former + sum(pool.dropped for _, pool in self._groups.values()),
                unmatched=self._unmatched,
                unreadable_bodies=self._unreadable_bodies,
            )

    def register(
        self,
        group: str,
        answer: CheckAnswer,
        *,
        threads_max: int = THREADS_MAX,
        queue_capacity: int = QUEUE_CAPACITY,
    ) -> None:
        """Answers check-backs of the group from now on. The heartbeat must name the group, too."""
        pool = WorkerPool(
            f"check-back-{group}",
            self._clock,
            threads_max=threads_max,
            capacity=queue_capacity,
        )
        with self._lock:
            if group in self._groups:
                raise UsageError(f"producer group {group} has a checker already")
            self._groups[group] = (answer, pool)

    def unregister(self, group: str) -> None:
        """Ends answers for the group. Waits for running answers, within a time limit."""
        with self._lock:
            found = self._groups.pop(group, None)
            if found is not None:
                self._dropped_by_former += found[1].dropped
        if found is not None:
            found[1].close(timeout_seconds=_CLOSE_SECONDS)

    def close(self) -> None:
        """Ends all answers."""
        for group in list(self._groups):
            self.unregister(group)

    def _on_check(self, address: str, request: Command) -> None:
        """Takes a check-back. Never sends a response to its frame, because the answer is an END_TRANSACTION of its
        own."""
        try:
            check = _read(address, request)
        except PermanentError as error:
            logger.warning("check_back_unreadable: a check-back of %s cannot be read: %s", address, error)
            check = None
        with self._lock:
            self._received += 1
            found = self._groups.get(check.producer_group) if check is not None else None
            if check is None or found is None:
                self._unmatched += 1
            elif check.body_error is not None:
                self._unreadable_bodies += 1
        if check is None:
            return
        if found is None:
            logger.warning(
                "check_back_of_stranger: %s asks for producer group %s, which is not here",
                address,
                check.producer_group,
            )
            return
        answer, pool = found
        if not pool.submit(lambda: self._decide(check, answer)):
            logger.warning(
                "check_back_dropped: check-back of %s dropped: too many wait; the broker asks again",
                check.message.unique_key,
            )

    def _decide(self, check: CheckRequest, answer: CheckAnswer) -> None:
        key = check.message.unique_key
        state, remark = asked(lambda: answer(check), f"the checker of {check.producer_group}")
        request = EndRequest(
            address=check.broker_address,
            producer_group=check.producer_group,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            decision=state.decision,
            message_id=key,
            transaction_id=check.transaction_id,
            from_transaction_check=True,
            remark=remark,
        )
        try:
            ended = end_transaction(self._client, request, timeout_seconds=END_TIMEOUT_SECONDS)
        except ReconcilerError as error:
            logger.warning("check_back_answer_lost: the answer %s for %s was not sent: %s", state, key, error)
            ended = None
        is_accepted = ended is not None and ended.status is EndStatus.DONE
        with self._lock:
            self._unknown += state is LocalTransactionState.UNKNOWN
            if state is not LocalTransactionState.UNKNOWN:
                self._accepted += is_accepted
                self._not_accepted += not is_accepted
        if state is not LocalTransactionState.UNKNOWN and not is_accepted:
            logger.warning("check_back_answer_refused: the answer %s for %s was not accepted: %s", state, key, ended)


def _read(address: str, request: Command) -> CheckRequest:
    """Reads a check-back. Raises PermanentError (ProtocolViolation)."""
    records = decode_records(request.body)
    if len(records) != 1:
        raise PermanentError(f"{len(records)} messages in one request")
    message, body_error = _message(records[0])
    return CheckRequest(
        producer_group=message.properties.get("PGROUP", ""),
        message=message,
        broker_address=address,
        tran_state_table_offset=number_field(request, "tranStateTableOffset"),
        commit_log_offset=number_field(request, "commitLogOffset"),
        transaction_id=request.fields.get("transactionId"),
        body_error=body_error,
    )


def _message(half: MessageRecord) -> tuple[ReceivedMessage, str | None]:
    """Returns the message, and the reason if its body cannot be read. Brokers ask any member of the group, even a
    member without the package for the sender's compression. This member can still answer, because the answer comes from
    a database.

    An unreadable body is returned as stored. An empty body would mislead, because a sender may send an empty body.
    """
    try:
        return received(half), None
    except (ProtocolViolation, MissingDependency) as error:
        if not isinstance(error, MissingDependency):  # a missing package is not logged per message
            logger.warning(
                "check_back_unreadable: check-back of %s: its body cannot be read here: %s", half.unique_key, error
            )
        return with_body(half, half.body), str(error)
