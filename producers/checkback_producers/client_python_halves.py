"""Sends halves over rocketmq-client-python 2.0.0, as the port HalfSender. This module keeps a deadline, which the
library does not.

The library runs the local transaction in a callback between the half and its one-way END_TRANSACTION. Here the call
into C runs on a thread of its own, and its callback waits. The local transaction meanwhile runs on the caller's thread.
So the caller gets its deadline and keeps its thread-local connections.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from checkback_producers.client_python_plain import (
    MAX_BODY_BYTES_DEFAULT,
    SEND_TIMEOUT_SECONDS,
    PlainProducer,
    check_message,
    configure,
    native_message,
)
from checkback_producers.errors import HalfNotSafe
from checkback_producers.ports import Answer, CheckedHalf, Outcome, SentHalf
from checkback_producers.remoting import RemotingHalves
from reconciler.clock import Clock, SystemClock
from reconciler.contract.properties import OUTBOX_MARK
from reconciler.contract.unique_key import UNIQUE_KEY_PROPERTY, is_unique_key
from reconciler.errors import (
    BrokerBusy,
    BrokerUnavailable,
    InvariantViolation,
    ReconcilerError,
    RequestTimeout,
    TransientError,
    UsageError,
)
from reconciler.policy.evidence import EndOutcome, SendAnswer
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.native_client import (
    NativeLibrary,
    NativeObject,
    answered,
    check_group,
    inside_callback,
    translated,
)
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.rocketmq.wire.message import Message

logger = logging.getLogger(__name__)

#: The most calls into the library at a time, including the calls that the caller gave up.
SENDS_MAX = 64
#: How long a finished send waits until the library returns from END_TRANSACTION.
END_TIMEOUT_SECONDS = 3.0
#: How long the warm-up checks whether brokers know the group.
REGISTRATION_SECONDS = 3.0
#: The most sends that are tried at the start until a send succeeds.
WARM_UP_TRIES = 3

#: The value of `end_answer`, because the library sends END_TRANSACTION one-way and gets no answer.
ONE_WAY = SendAnswer(outcome=EndOutcome.NO_ANSWER, detail="librocketmq sends END_TRANSACTION one-way")


class NativeHalves:
    """The port HalfSender over TransactionMQProducer of the package. Thread-safe. A process that forks must start it
    after the fork.

    The library makes the unique key while it sends, and makes another key for each of its up to five tries. Halves of
    tries that seemed to fail remain, and check-back rolls these halves back. A half that was stored less safely than
    the broker is configured counts as a failed try.
    """

    def __init__(
        self,
        library: NativeLibrary,
        *,
        group: str,
        name_servers: str,
        instance_name: str,
        instance: ClientInstance | None = None,
        acl: AclCredentials | None = None,
        max_body_bytes: int = MAX_BODY_BYTES_DEFAULT,
        send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
        end_timeout_seconds: float = END_TIMEOUT_SECONDS,
        warm_up_topic: str = PROBE_TOPIC,
        clock: Clock | None = None,
    ) -> None:
        """`instance` only asks brokers whether they know the group, and which versions they have."""
        self._group = check_group(group)
        self._library = library
        self._instance = instance
        self._max_body_bytes = max_body_bytes
        self._send_timeout_seconds = send_timeout_seconds
        self._end_timeout_seconds = end_timeout_seconds
        self._warm_up_topic = warm_up_topic
        self._clock = clock or SystemClock()
        self._answer: Answer | None = None
        self._free = threading.BoundedSemaphore(SENDS_MAX)
        #: The last exception of a check-back callback, which the library never saw.
        self.check_failure: BaseException | None = None
        # The arguments are positional. With keywords, the package would make a second native producer of another kind.
        made = library.client.TransactionMQProducer(group, self._check)
        configure(
            library,
            made,
            name_servers=name_servers,
            instance_name=instance_name,
            acl=acl,
            max_body_bytes=max_body_bytes,
        )
        self._native = NativeObject(made, f"transactional producer {group}")
        self.plain, self._second = (
            PlainProducer(
                library,
                group=f"{group}-{role}",
                name_servers=name_servers,
                instance_name=instance_name,
                acl=acl,
                send_timeout_seconds=send_timeout_seconds,
                clock=self._clock,
            )
            for role in ("announcements", "warm-up")
        )

    # ----------------------------------------------------------------- the port

    def start(self, answer: Answer) -> None:
        """Joins the group at the brokers at once, because the library's own heartbeat comes after 30 s. Can raise
        TransientError."""
        self._answer = answer
        self._native.start()
        self.plain.start()
        self._warm_up()

    def shutdown(self) -> None:
        """Ends the producer for good. Call it once. If the library hangs, the call returns after the watchdog's
        time."""
        for part in (self._native, self._second, self.plain):
            part.shutdown()

    def has_check_back(self) -> bool | None:
        """Returns None without a remoting client instance, because the library does not show versions."""
        return None if self._instance is None else RemotingHalves(self._group, self._instance).has_check_back()

    def next_unique_key(self) -> str:
        """Not used. The library makes its own key, even for a message that carries a key."""
        raise UsageError("librocketmq makes the unique key while it sends")

    def check(self, message: Message) -> None:
        """Raises InvalidValue if the library cannot send the message unchanged."""
        check_message(message, max_body_bytes=self._max_body_bytes)

    def send_half(self, message: Message) -> SentHalf:
        """Sends a half. The broker asks for its outcome by check-back."""
        halves: list[SentHalf] = []

        def leave_it(half: SentHalf) -> Outcome:
            halves.append(half)
            return Outcome.UNKNOWN

        self.send(message, leave_it)
        return halves[0]

    def end(self, half: SentHalf, outcome: Outcome) -> SendAnswer:  # noqa: ARG002  # the port's signature
        """The library ends a transaction only from its callback."""
        return SendAnswer(outcome=EndOutcome.NOT_SENT, detail="librocketmq cannot: check-back asks for the outcome")

    # ----------------------------------------------------------------- the library's own form

    def send(self, message: Message, local: Callable[[SentHalf], Outcome]) -> None:
        """Sends a half, runs `local` on this thread, and makes the library send the outcome as a one-way
        END_TRANSACTION.

        Before `local` runs, can raise BrokerUnavailable and HalfNotSafe. Raises RequestTimeout at the deadline; a half
        that arrives later is rolled back. Raises BrokerBusy if SENDS_MAX calls hang in the library. Once `local` runs,
        raises only what `local` raises. A return proves no commit. Only the outbox row does.
        """
        deadline = self._clock.monotonic_seconds() + self._send_timeout_seconds
        if not self._free.acquire(timeout=self._send_timeout_seconds):
            raise BrokerBusy(f"{SENDS_MAX} sends hang in librocketmq: the brokers or name servers are away")
        call = _HalfCall()
        name = f"librocketmq-half-{self._group}"
        threading.Thread(target=self._run_in_c, args=(message, call), name=name, daemon=True).start()
        try:
            half = self._stored_half(call, message, deadline)
        except BaseException:
            # The local transaction has not begun, so a half that still arrives may be rolled back.
            call.answer(Outcome.ROLLBACK)
            raise
        outcome = Outcome.UNKNOWN
        try:
            with inside_callback():
                outcome = local(half)
        finally:
            call.answer(outcome)
        if not self._clock.wait(call.returned, self._end_timeout_seconds):
            logger.warning(
                "library_hangs: %s: librocketmq hangs after the local transaction (%s)", half.unique_key, outcome
            )
        elif call.failure is not None:
            logger.warning(
                "library_failed: %s: librocketmq failed after the local transaction: %s", half.unique_key, call.failure
            )

    def _stored_half(self, call: _HalfCall, message: Message, deadline: float) -> SentHalf:
        if not self._clock.wait(call.progress, deadline - self._clock.monotonic_seconds()):
            raise RequestTimeout(f"a half to {message.topic}: no answer within {self._send_timeout_seconds} s")
        if call.unique_key is None:
            raise self._refusal(call, message)
        return SentHalf(unique_key=call.unique_key, broker=None, commit_log_offset=None, queue_offset=None)

    def _run_in_c(self, message: Message, call: _HalfCall) -> None:
        statuses = self._library.client.TransactionStatus

        def execute(received: Any, _argument: object) -> Any:
            # Only properties are read, because C leaves id, offsets and times of this message undefined.
            def body() -> Any:
                key = received.get_property(UNIQUE_KEY_PROPERTY)
                return statuses[call.enter(key.decode("ascii")).value]

            return answered(body, otherwise=statuses.UNKNOWN, keep=call.fail)

        try:
            with self._native.used() as producer, native_message(self._library, message) as made:
                call.result = producer.send_message_in_transaction(made, execute)
        except BaseException as error:  # noqa: BLE001  # raised or reported on the caller's thread
            call.fail(error)
        finally:
            self._free.release()
            call.finish()

    def _refusal(self, call: _HalfCall, message: Message) -> BaseException:
        what = f"a half to {message.topic}"
        if isinstance(call.failure, Exception):
            error = translated(call.failure, what)
            error.__cause__ = call.failure
            return error
        if call.failure is not None:
            return call.failure
        if call.result is None or call.result.status == self._library.client.SendStatus.OK:
            return InvariantViolation(f"{what}: librocketmq reported success without running its callback")
        return HalfNotSafe(call.result.msg_id, status=call.result.status.name, end_answer=ONE_WAY)

    def _check(self, received: Any) -> Any:
        """Answers a check-back on the library's only thread for check-backs."""
        statuses = self._library.client.TransactionStatus

        def body() -> Any:
            if self._answer is None:
                return statuses.UNKNOWN
            return statuses[self._answer(_checked_half(received, self._group)).value]

        return answered(body, otherwise=statuses.UNKNOWN, keep=self._keep_check_failure)

    def _keep_check_failure(self, error: BaseException) -> None:
        self.check_failure = error
        logger.error("check_back_failed: a check-back of %s was answered UNKNOWN: %r", self._group, error)

    # ----------------------------------------------------------------- registration

    def _send_warm_up(self) -> ReconcilerError | None:
        """Returns the error of the sending. On a slow machine, the library says "No route info", too."""
        problem: ReconcilerError | None = None
        for _ in range(WARM_UP_TRIES):
            try:
                self.plain.send(Message(topic=self._warm_up_topic, body=b"warm-up"), choose=random.randrange)
            except BrokerUnavailable as error:
                problem = error
            except TransientError as error:
                return error
            else:
                return None
        return problem

    def _warm_up(self) -> None:
        """Makes brokers register the group at once. A first send looks up a route; then the start of a second producer
        sends the heartbeat.

        The library sends its first heartbeat before it knows any broker (MQClientFactory.sendHeartbeatToAllBroker:
        "brokeradd is empty"). The next heartbeat comes 30 s later. Halves that are sent in between are never checked
        back.
        """
        problem = self._send_warm_up()
        try:
            self._second.start()
        except TransientError as error:
            problem = error
        unregistered = "" if problem else self._unregistered()
        if problem is None and not unregistered:
            logger.info("producer_registered: producer group %s is registered for check-back", self._group)
            return
        logger.warning(
            "producer_not_registered: producer group %s could not be registered for check-back (%s): halves of the "
            "next 30 s may not be asked back; the reconciler finds their keys, the sweeper announces them",
            self._group, problem or unregistered,
        )  # fmt: skip

    def _unregistered(self) -> str:
        """Returns the masters that do not know the group, if a remoting client instance is there to ask."""
        if self._instance is None:
            return ""
        admin, group = Admin(self._instance.client), self._group
        deadline = self._clock.monotonic_seconds() + REGISTRATION_SECONDS
        while True:
            try:
                without = [a for a in self._instance.cluster_addresses() if not admin.producer_connections(a, group)]
            except ReconcilerError as error:
                return str(error)
            if not without or self._clock.monotonic_seconds() >= deadline:
                return f"not at {', '.join(sorted(without))}" if without else ""
            self._clock.sleep(0.05)


class _HalfCall:
    """One call into the library, shared by two threads: the thread inside the call and the caller's thread."""

    def __init__(self) -> None:
        #: Set when the callback was entered, or when the call returned without a callback.
        self.progress = threading.Event()
        self.returned = threading.Event()
        self.unique_key: str | None = None
        self.failure: BaseException | None = None
        self.result: Any = None
        self._answered = threading.Event()
        self._outcome = Outcome.UNKNOWN

    def enter(self, unique_key: str) -> Outcome:
        """Waits in the callback, after the half was stored, until the caller has answered. The wait has no limit."""
        if not is_unique_key(unique_key):
            raise InvariantViolation(f"librocketmq made {unique_key!r}, which is no unique key")
        self.unique_key = unique_key
        self.progress.set()
        self._answered.wait()
        return self._outcome

    def answer(self, outcome: Outcome) -> None:
        """Called once on the caller's thread."""
        self._outcome = outcome
        self._answered.set()

    def fail(self, error: BaseException) -> None:
        """Keeps the first failure inside the call."""
        self.failure = self.failure or error

    def finish(self) -> None:
        """Marks the call as finished."""
        self.returned.set()
        self.progress.set()


def _checked_half(received: Any, group: str) -> CheckedHalf:
    """Returns the half that a broker asks about, copied while the callback runs."""
    times = received.get_property("TRANSACTION_CHECK_TIMES") or b""
    return CheckedHalf(
        unique_key=received.get_property(UNIQUE_KEY_PROPERTY).decode("ascii"),
        topic=received.topic,
        producer_group=group,
        tag=(received.tags or b"").decode() or None,
        born_timestamp_ms=received.born_timestamp,
        check_times=int(times) if times.isdigit() and len(times) < 10 else 0,
        outbox_mark=(received.get_property(OUTBOX_MARK) or b"").decode(errors="replace") or None,
    )
