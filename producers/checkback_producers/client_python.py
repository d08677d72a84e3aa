"""The producer over rocketmq-client-python 2.0.0 (librocketmq 2.x), for services that already use it.

producer = open_native_producer(group="orders", environment="prod", name_servers="a:9876", outbox_url=...)

def place(tx):                                   # runs between the half and END_TRANSACTION
    with engine.begin() as connection:
        tx.record(connection)                    # outbox row: first statement
        ...                                      # business

with producer:
    tx = producer.send(message, place)           # tx.outcome, tx.unique_key

This producer has limits that `open_producer` does not have. END_TRANSACTION is one-way, so its answer is unknown. The
half's offsets are unknown and their outbox columns stay NULL, so transactions cannot be repaired on brokers of 3.2.6.
Bodies contain no NUL and at most 128 KiB. The library ignores SIGPIPE, logs to $HOME/logs/rocketmq-cpp, and must be
started after a fork. The library can crash and hang.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.check_answer import CHECK_MAXIMUM_DEFAULT, LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT
from checkback_producers.client_python_halves import END_TIMEOUT_SECONDS, ONE_WAY, NativeHalves
from checkback_producers.client_python_plain import MAX_BODY_BYTES_DEFAULT, SEND_TIMEOUT_SECONDS, NativeAnnouncements
from checkback_producers.errors import HalfNotSafe
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementSender, Outcome, SentHalf
from checkback_producers.producer import TransactionalProducer
from checkback_producers.remoting import RemotingAnnouncements, check_timeouts
from checkback_producers.transaction import Completion, Transaction, is_interruption
from reconciler.clock import Clock
from reconciler.contract.secret import Secret
from reconciler.errors import InvalidValue, ReconcilerError, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.native_client import check_group, load_library, new_instance_name, require_writable_home
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import PROBE_TOPIC
from reconciler.rocketmq.wire.message import Message

#: Placeholder for the unique key, which only the library makes. The placeholder is used while the other fields of the
#: message are checked.
_KEY_TO_COME = "0" * 32

#: The local transaction, as a function. The function receives the Transaction, calls `record` first, and commits its
#: own database transaction.
LocalTransactionFunction = Callable[[Transaction], object]


class NativeTransaction(Transaction):
    """A transaction whose unique key is known only after its half was sent. Before that, `unique_key` is empty."""

    def attach(self, half: SentHalf) -> None:
        """Takes over the key that the library made."""
        self.message = replace(self.message, unique_key=half.unique_key)
        super().attach(half)


class NativeProducer(TransactionalProducer):
    """A TransactionalProducer whose halves are sent by rocketmq-client-python. Thread-safe. Start it once. A process
    that forks must start it after the fork."""

    _halves: NativeHalves

    def send(
        self, message: Message, local_transaction: LocalTransactionFunction, *, business_id: str | None = None
    ) -> NativeTransaction:
        """Sends a half, runs `local_transaction(tx)` on this thread, reads the outcome, ends the transaction and
        announces a commit.

        The returned transaction has the fields `outcome`, `reason`, `unique_key` and `is_announced`. `outcome` is what
        was *read* from the outbox. Raises what the local transaction raised, KeyboardInterrupt included. Raises
        NotRecorded without a row, and NotCommitted without a commit. Before the local transaction runs, the call can
        raise InvalidValue, HalfNotSafe, TransientError and PermanentError. RequestTimeout means that our own deadline
        has passed.
        """
        tx = self._prepared(message, business_id)
        raised: list[BaseException] = []

        def local(half: SentHalf) -> Outcome:
            tx.attach(half)
            try:
                local_transaction(tx)
            except BaseException as error:  # noqa: BLE001  # raised again below, once the outcome was read and sent
                raised.append(error)
            return tx.conclude(is_clean=not raised, is_interrupted=bool(raised) and is_interruption(raised[0])).outcome

        self.counts.add("halves")
        try:
            self._halves.send(tx.message, local)
        except HalfNotSafe as error:
            self.counts.add("halves_not_safe")
            tx.end_answer, tx.outcome = error.end_answer, Outcome.ROLLBACK
            raise
        except ReconcilerError:
            self.counts.add("halves_failed")
            raise
        tx.end_answer = ONE_WAY
        tx.announce()
        if raised:
            raise raised[0]
        tx.require_commit()
        return tx

    def transaction(self, message: Message, *, business_id: str | None = None) -> NativeTransaction:
        """Makes a block for one message. The producer needs `completion="check"` for that, because only the library can
        send END_TRANSACTION.

        The broker's check-back and the sweeper finish the transaction. Check-back also rolls back the message of a
        block that recorded nothing.
        """
        if self._parts.completion != "check":
            raise UsageError(
                'over rocketmq-client-python a block needs completion="check": use send(message, local_transaction)'
            )
        return self._prepared(message, business_id)

    def _prepared(self, message: Message, business_id: str | None) -> NativeTransaction:
        if not self._is_running:
            raise UsageError("the producer is not started: call start(), or use it as a context manager")
        self._halves.check(message)
        if message.unique_key is not None:
            raise InvalidValue("unique_key", message.unique_key, "none: librocketmq makes the key while it sends")
        prepared = self._prepare(message, business_id, _KEY_TO_COME)
        self._halves.check(prepared)
        return NativeTransaction(self._parts, replace(prepared, unique_key=None))


def open_native_producer(
    *,
    group: str,
    environment: str,
    name_servers: str,
    instance: ClientInstance | None = None,
    acl: AclCredentials | None = None,
    outbox_url: Secret | None = None,
    without_outbox: bool = False,
    announcements: AnnouncementRoute | None = None,
    completion: Completion = "end",
    keep_bodies: bool = False,
    local_transaction_timeout_seconds: float = LOCAL_TRANSACTION_TIMEOUT_SECONDS_DEFAULT,
    check_maximum: int = CHECK_MAXIMUM_DEFAULT,
    pool_size: int = 5,
    max_body_bytes: int = MAX_BODY_BYTES_DEFAULT,
    send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    warm_up_topic: str = PROBE_TOPIC,
    clock: Clock | None = None,
) -> NativeProducer:
    """Makes a producer over rocketmq-client-python. Start the producer once, or use it as a context manager.

    `instance` is a remoting client that sends the announcements instead of the library. This client knows the queue,
    tries other brokers, and sees whether the group is registered. The caller closes it. `warm_up_topic` gets one
    message at the start, so that brokers register the group. `max_body_bytes` is the largest uncompressed body of a
    half. `acl` gives the keys with which the library signs, as they are when the producer is made. The library supports
    no TLS here. `send_timeout_seconds` is the longest time for storing the half. Other parameters have the meaning that
    they have in `open_producer`.

    Raises MissingDependency if the library is not installed, and the error says what to install. Raises
    ConfigurationError for contradicting settings or an unwritable HOME. Can raise InvalidValue and UsageError.
    """
    check_group(group)
    check_timeouts(send_timeout_seconds=send_timeout_seconds, end_timeout_seconds=end_timeout_seconds)
    route = AnnouncementRoute.of(environment, announcements)
    instance_name = new_instance_name(group, name_servers)
    library = load_library(transactions=True)
    require_writable_home()
    outbox = None if outbox_url is None else SqlOutbox(outbox_url, pool_size=pool_size)
    halves = NativeHalves(
        library,
        group=group,
        name_servers=name_servers,
        instance_name=instance_name,
        instance=instance,
        acl=acl,
        max_body_bytes=max_body_bytes,
        send_timeout_seconds=send_timeout_seconds,
        end_timeout_seconds=end_timeout_seconds,
        warm_up_topic=warm_up_topic,
        clock=clock,
    )
    sender: AnnouncementSender = (
        NativeAnnouncements(halves.plain, queues=route.queues)
        if instance is None
        else RemotingAnnouncements(group, instance)
    )
    return NativeProducer(
        group=group,
        halves=halves,
        announcer=Announcer(sender, route),
        outbox=outbox,
        without_outbox=without_outbox,
        completion=completion,
        keep_bodies=keep_bodies,
        local_transaction_timeout_seconds=local_transaction_timeout_seconds,
        check_maximum=check_maximum,
        clock=clock,
    )
