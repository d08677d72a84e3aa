"""Ordinary messages over rocketmq-client-python. This module checks what may be passed to C, and sends announcements to
their queue.

Works with rocketmq-client-python 2.0.0 and the wheel rocketmq 0.4.4.
"""

from __future__ import annotations

import ctypes
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from checkback_producers.ports import AnnouncementMessage
from reconciler.clock import Clock, SystemClock
from reconciler.errors import BrokerBusy, InvalidValue
from reconciler.rocketmq.client.native_client import (
    NativeLibrary,
    NativeObject,
    answered,
    call_within,
    check_group,
    translated,
)
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import Message

logger = logging.getLogger(__name__)

#: maxMessageSize of librocketmq's producers.
MAX_BODY_BYTES_DEFAULT = 131_072
SEND_TIMEOUT_SECONDS = 10.0
#: The library's own time-out of one try. The library tries up to five times to send a half (DefaultMQProducerImpl).
TRY_TIMEOUT_MS = 3_000

#: The pattern of Validators.checkTopic. 2.x does not apply this pattern, and answers "No route info" for other names.
_TOPIC = re.compile(r"[a-zA-Z0-9_-]{1,127}", re.ASCII)
#: Characters that a text must not have. NUL ends a text in C; the other characters vanish or separate properties. Line
#: ends and tabs count as content.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_message(message: Message, *, max_body_bytes: int = MAX_BODY_BYTES_DEFAULT) -> None:
    """Raises InvalidValue if librocketmq would crash, cut the message off, or refuse it with a misleading error."""
    if not isinstance(message, Message):
        raise InvalidValue("message", type(message).__name__, "a producers.Message")
    if not _TOPIC.fullmatch(message.topic):
        raise InvalidValue("topic", message.topic, "librocketmq takes 1 to 127 of the characters a-z A-Z 0-9 _ -")
    if len(message.body) > max_body_bytes:
        raise InvalidValue("body", f"{len(message.body)} bytes", f"at most {max_body_bytes} (max_body_bytes)")
    if b"\0" in message.body:
        raise InvalidValue(
            "body",
            "bytes with NUL",
            "librocketmq's consumers cut it off there: encode it (JSON, base64) or use open_producer",
        )
    if message.flag:
        raise InvalidValue("flag", message.flag, "librocketmq cannot set it: 0")
    texts = [("tags", message.tags or ""), ("keys", " ".join(message.keys))]
    for name, value in message.properties.items():
        texts += [("properties", name), (f"properties[{name!r}]", value)]
    for field, text in texts:
        if not isinstance(text, str) or _CONTROL.search(text):
            raise InvalidValue(field, text, "text without control characters")


@contextmanager
def native_message(library: NativeLibrary, message: Message) -> Iterator[Any]:
    """Yields the message as an object of the library. Destroys the object at the end, because 2.0.0 never frees it."""
    made = library.client.Message(message.topic)
    try:
        made.set_body(message.body)
        if message.tags:
            made.set_tags(message.tags)
        if message.keys:
            made.set_keys(" ".join(message.keys))
        for name, value in message.properties.items():
            made.set_property(name, value)
        yield made
    finally:
        handle, made._handle = made._handle, None  # noqa: SLF001  # 0.4.4 would destroy it a second time
        if handle is not None:
            library.ffi.dll.DestroyMessage(handle)


class PlainProducer:
    """An ordinary producer of the package. The producer sends to a chosen queue and waits for the confirmation.
    Thread-safe.

    The package's own `send_sync` cannot choose a queue, and 2.0.0 has no `send_orderly`; both libraries have the C
    function SendMessageOrderly.
    """

    def __init__(
        self,
        library: NativeLibrary,
        *,
        group: str,
        name_servers: str,
        instance_name: str,
        acl: AclCredentials | None = None,
        send_timeout_seconds: float = SEND_TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Producers with one instance name share connections and heartbeats."""
        self._library = library
        self._send_timeout_seconds = send_timeout_seconds
        self._clock = clock or SystemClock()
        made = library.client.Producer(check_group(group))
        self._native = NativeObject(made, f"producer {group}")
        configure(library, made, name_servers=name_servers, instance_name=instance_name, acl=acl)

    def start(self) -> None:
        """Raises UsageError, RequestTimeout, BrokerUnavailable."""
        self._native.start()

    def shutdown(self) -> bool:
        """Returns False if the library hangs."""
        return self._native.shutdown()

    def send(self, message: Message, *, choose: Callable[[int], int]) -> None:
        """Sends once to the queue whose index `choose` returns for the number of queues.

        Raises InvalidValue before anything is sent. Raises BrokerBusy if the message was stored less safely than the
        broker is configured. Can raise RequestTimeout and BrokerUnavailable. The library says "No route info" for
        nearly every failure.
        """
        check_message(message)
        what = f"a send to {message.topic}"
        try:
            status = call_within(
                self._send_timeout_seconds, what, lambda: self._send_in_c(message, choose), clock=self._clock
            )
        except Exception as error:
            raise translated(error, what) from error
        if status:
            raise BrokerBusy(f"{what}: {self._library.client.SendStatus(status).name}")

    def _send_in_c(self, message: Message, choose: Callable[[int], int]) -> int:
        ffi = self._library.ffi
        failures: list[BaseException] = []

        def select(count: int, _message: int | None, _argument: int | None) -> int:
            return answered(lambda: choose(count) % count, otherwise=0, keep=failures.append)

        # All of these objects must live until the call returns. The library does not read the last argument, but
        # refuses NULL.
        selector, argument, result = ffi.QUEUE_SELECTOR_CALLBACK(select), ctypes.c_int(0), ffi._CSendResult()  # noqa: SLF001
        function = ffi.dll.SendMessageOrderly
        if not function.argtypes:  # 2.0.0 does not declare the types
            function.argtypes = [
                ctypes.c_void_p,
                ctypes.c_void_p,
                ffi.QUEUE_SELECTOR_CALLBACK,
                ctypes.c_void_p,
                ctypes.c_int,
                ctypes.POINTER(ffi._CSendResult),  # noqa: SLF001  # the package's structure
            ]
            function.restype = ctypes.c_int
        with self._native.used() as producer, native_message(self._library, message) as made:
            # 0 retries, because a retry of the library would use another queue.
            code = function(
                producer._handle,  # noqa: SLF001  # the package has no other way
                made._handle,  # noqa: SLF001
                selector,
                ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p),
                0,
                ctypes.pointer(result),
            )
            self._library.exceptions.ffi_check(code)
        if failures:
            raise failures[0]
        return int(result.sendStatus)


class NativeAnnouncements:
    """The port AnnouncementSender over an ordinary producer of the package. Thread-safe.

    The library lists the queues by broker. If each broker has N queues, index i is queue i mod N. So an announcement
    goes to the shard's queue on a random broker. If brokers have different numbers of queues, an announcement may be
    stored in the queue of another shard. Then the announced keys never meet their commit set. Each key costs one
    look-up, which finds the effect in the inbox. Only the sweeper tries the same queue on another broker. Announcements
    over the remoting client (`instance=` of open_native_producer) have neither limit.
    """

    def __init__(self, producer: PlainProducer, *, queues: int) -> None:
        """`queues` is the number of queues on every master, as in AnnouncementRoute."""
        self._producer = producer
        self._queues = queues
        self._has_warned = False

    def send_announcement(self, message: AnnouncementMessage) -> None:
        """Sends once. Raises what PlainProducer.send raises."""
        sent = Message(
            topic=message.unique_key_topic, body=message.body, tags=message.tag, properties=message.properties
        )
        self._producer.send(sent, choose=lambda count: self._index(message, count))

    def _index(self, message: AnnouncementMessage, count: int) -> int:
        if count % self._queues == 0:
            return message.queue_id + self._queues * random.randrange(count // self._queues)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "queues_differ: %s has %d queues, which is not %d on every master: announcements land in other "
                "queues than their shard's and cost look-ups; run reconciler topics create, or correct `queues` "
                "(in a service: of its AnnouncementRoute)",
                message.unique_key_topic, count, self._queues,
            )  # fmt: skip
        return message.queue_id


def configure(
    library: NativeLibrary,
    made: Any,
    *,
    name_servers: str,
    instance_name: str,
    acl: AclCredentials | None,
    max_body_bytes: int | None = None,
) -> None:
    """Configures a producer before its start."""
    library.set_name_servers(made, name_servers)
    library.set_credentials(made, acl)
    # In neither version do producers have a method for this setting.
    library.exceptions.ffi_check(
        library.ffi.dll.SetProducerInstanceName(made._handle, instance_name.encode("ascii"))  # noqa: SLF001
    )
    made.set_timeout(TRY_TIMEOUT_MS)
    if max_body_bytes is not None:
        made.set_max_message_size(max_body_bytes)
