# ruff: noqa: N802, N815  # methods are named as the C functions that they stand for
"""A stand-in for librocketmq's C functions, under the real Python part of rocketmq-client-python 2.0.0.

It behaves as librocketmq 2.2.0 was seen and read to behave, traps included: what would crash or be undefined there is
noted in `crashes`, callbacks are real ctypes callbacks, messages are freed by hand, groups are registered by
heartbeats of a factory that has looked up a route.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.native.native_records import Cluster, Factory, MessageModel, NativeClient, NativeRecord, SendResult, Status

CHECK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
EXECUTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
SELECT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
OK, START_FAILED, SEND_FAILED, SHUTDOWN_REFUSED = 0, 10, 15, 10
STATUSES = ("COMMIT", "ROLLBACK", "UNKNOWN")


class StandIn:
    """The library and the clusters behind it. Its functions are called by the package through `module()`."""

    def __init__(self) -> None:
        self.crashes: list[str] = []
        self.clusters: dict[str, Cluster] = {}
        self.factories: dict[str, Factory] = {}
        self.queues = 4
        #: Blocks the calls of that name until the event is set.
        self.hang: dict[str, threading.Event] = {}
        #: The next halves are stored with this status, or refused.
        self.half_status = 0
        self.refusal: bytes | None = None
        self.is_broker_away = False
        #: So many sends fail before the next one succeeds.
        self.refused_sends = 0
        self._numbers = itertools.count(1)
        self._messages: dict[int, NativeRecord] = {}
        self._clients: dict[int, NativeClient] = {}
        self._inside = threading.local()
        self._latest_error = b""

    @property
    def live_messages(self) -> int:
        """Messages that were not destroyed."""
        return len(self._messages)

    def cluster(self, name_servers: str) -> Cluster:
        return self.clusters.setdefault(name_servers, Cluster())

    def client(self, kind: str) -> NativeClient:
        """The one of that kind that is running."""
        (found,) = [c for c in self._clients.values() if c.kind == kind and c.state == "running"]
        return found

    def module(self) -> ModuleType:
        """What stands in sys.modules as rocketmq.ffi."""
        ffi: Any = ModuleType("rocketmq.ffi")
        ffi.dll = _Functions(self)
        ffi._CSendResult, ffi._CStatus, ffi.MessageModel = SendResult, Status, MessageModel
        ffi.TRANSACTION_CHECK_CALLBACK, ffi.LOCAL_TRANSACTION_EXECUTE_CALLBACK = CHECK, EXECUTE
        ffi.MSG_CALLBACK_FUNC, ffi.QUEUE_SELECTOR_CALLBACK = CONSUME, SELECT
        return ffi  # type: ignore[no-any-return]  # a ModuleType with attributes

    # ----------------------------------------------------------------- the broker's side

    def check_back(
        self, cluster: Cluster, unique_key: str, *, born_timestamp_ms: int = 0, times: int = 1
    ) -> str | None:
        """The broker asks about a half; None: the group is not registered, so there is no client to ask."""
        record = next(record for key, record in cluster.halves if key == unique_key)
        (producer,) = [c for c in self._clients.values() if c.kind == "transaction" and c.state == "running"]
        if producer.group not in cluster.registered:
            return None
        asked = NativeRecord(
            topic=record.topic,
            properties={**record.properties, b"TRANSACTION_CHECK_TIMES": str(times).encode()},
            body=record.body,
            is_received=True,
            born_timestamp_ms=born_timestamp_ms,
        )
        answer = _outcome(self._on_a_thread_of_the_library(producer.checker, asked))
        cluster.ends.append((unique_key, answer, True))
        return answer

    def deliver(self, record: NativeRecord) -> int:
        """Pushes a message to the consumer; what its callback returned."""
        record.is_received = True
        return self._on_a_thread_of_the_library(self.client("consumer").listener, record)

    def _on_a_thread_of_the_library(self, callback: Callable[..., int], record: NativeRecord) -> int:
        answers: list[int] = []
        handle = self._keep(record)

        def run() -> None:
            arguments = (1, handle) if isinstance(callback, CONSUME) else (1, handle, None)
            answers.append(self._call(callback, *arguments))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
        del self._messages[handle]  # a caller that kept it reads freed memory
        return answers[0]

    def _call(self, callback: Callable[..., int], *arguments: Any) -> int:
        self._inside.callback = True
        try:
            return callback(*arguments)
        finally:
            self._inside.callback = False

    # ----------------------------------------------------------------- memory

    def _keep(self, record: NativeRecord) -> int:
        handle = next(self._numbers)
        self._messages[handle] = record
        return handle

    def _message(self, message: Any, what: str) -> NativeRecord:
        handle = getattr(message, "_as_parameter_", message)
        if handle not in self._messages:
            self.crashes.append(f"{what}: freed or null message {handle}")
            return NativeRecord(topic=b"?")
        return self._messages[handle]

    def _running(self, handle: int, what: str, kind: str) -> NativeClient:
        client = self._clients[handle]
        if client.state != "running" or client.kind != kind:
            self.crashes.append(f"{what} on a {client.kind} that is {client.state}")
        return client

    def _fail(self, code: int, text: bytes) -> int:
        self._latest_error = text
        return code

    def _wait(self, name: str) -> None:
        if name in self.hang:
            self.hang[name].wait(60)

    # ----------------------------------------------------------------- C functions, by their names

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self, f"c_{name}")(*arguments)

    def c_GetLatestErrorMessage(self) -> bytes:
        return self._latest_error

    def c_CreateMessage(self, topic: bytes) -> int:
        return self._keep(NativeRecord(topic=topic))

    def c_DestroyMessage(self, handle: int) -> int:
        if self._messages.pop(handle, None) is None:
            self.crashes.append(f"message {handle} destroyed twice")
        return OK

    def c_SetMessageBody(self, message: int, body: bytes) -> int:
        self._message(message, "SetMessageBody").body = body.split(b"\0")[0]
        return OK

    def c_SetMessageTags(self, message: int, tags: bytes) -> int:
        return self.c_SetMessageProperty(message, b"TAGS", tags)

    def c_SetMessageKeys(self, message: int, keys: bytes) -> int:
        return self.c_SetMessageProperty(message, b"KEYS", keys)

    def c_SetMessageProperty(self, message: int, name: bytes, value: bytes | None) -> int:
        if value is None:
            self.crashes.append("abort: SetMessageProperty with NULL")
            return OK
        self._message(message, "SetMessageProperty").properties[name] = value.split(b"\0")[0]
        return OK

    def c_GetMessageTopic(self, message: int) -> bytes:
        return self._message(message, "GetMessageTopic").topic

    def c_GetMessageBody(self, message: int) -> bytes:
        return self._message(message, "GetMessageBody").body

    def c_GetMessageTags(self, message: int) -> bytes:
        return self.c_GetMessageProperty(message, b"TAGS")

    def c_GetMessageKeys(self, message: int) -> bytes:
        return self.c_GetMessageProperty(message, b"KEYS")

    def c_GetMessageProperty(self, message: int, name: bytes) -> bytes:
        return self._message(message, "GetMessageProperty").properties.get(name, b"")

    def _received_only(self, message: int, what: str) -> NativeRecord:
        record = self._message(message, what)
        if not record.is_received:
            self.crashes.append(f"{what} of a message on its way: undefined, segmentation fault seen")
        return record

    def c_GetMessageId(self, message: int) -> bytes:
        return self._received_only(message, "GetMessageId").properties.get(
            b"UNIQ_KEY", b"7F00000100002A9F0" + b"0" * 15
        )

    def c_GetMessageBornTimestamp(self, message: int) -> int:
        return self._received_only(message, "GetMessageBornTimestamp").born_timestamp_ms

    def c_GetMessageReconsumeTimes(self, message: int) -> int:
        return self._received_only(message, "GetMessageReconsumeTimes").reconsume_times

    def c_GetMessageStoreTimestamp(self, message: int) -> int:
        return self._received_only(message, "GetMessageStoreTimestamp").born_timestamp_ms

    def c_GetMessageQueueId(self, message: int) -> int:
        self._received_only(message, "GetMessageQueueId")
        return 0

    def c_GetMessageQueueOffset(self, message: int) -> int:
        self._received_only(message, "GetMessageQueueOffset")
        return 0

    def _create(self, kind: str, group: bytes) -> int:
        handle = next(self._numbers)
        self._clients[handle] = NativeClient(kind=kind, group=group.decode())
        return handle

    def c_CreateProducer(self, group: bytes) -> int:
        return self._create("plain", group)

    def c_CreateTransactionProducer(self, group: bytes, checker: Any, _user_args: object) -> int:
        handle = self._create("transaction", group)
        self._clients[handle].checker = checker
        return handle

    def c_CreatePushConsumer(self, group: bytes) -> int:
        return self._create("consumer", group)

    def c_SetProducerNameServerAddress(self, handle: int, address: bytes) -> int:
        self._clients[handle].name_servers = address.decode()
        return OK

    c_SetPushConsumerNameServerAddress = c_SetProducerNameServerAddress

    def c_SetProducerInstanceName(self, handle: int, name: bytes) -> int:
        self._clients[handle].instance_name = name.decode()
        return OK

    c_SetPushConsumerInstanceName = c_SetProducerInstanceName

    def c_SetProducerMaxMessageSize(self, handle: int, size: int) -> int:
        self._clients[handle].max_body_bytes = size
        return OK

    def c_SetProducerSendMsgTimeout(self, _handle: int, _timeout_ms: int) -> int:
        return OK

    def c_SetPushConsumerMessageModel(self, _handle: int, _model: int) -> int:
        return OK

    def c_SetPushConsumerThreadCount(self, _handle: int, _count: int) -> int:
        return OK

    def c_StartProducer(self, handle: int) -> int:
        self._wait("start")
        client = self._clients[handle]
        if client.state != "new":
            self.crashes.append(f"start of a {client.kind} that is {client.state}")
        factory = self.factories.setdefault(client.instance_name, Factory(name_servers=client.name_servers))
        if client.group in factory.groups:
            return self._fail(START_FAILED, b"The producer group has been created before, specify another name please.")
        factory.groups.add(client.group)
        client.state = "running"
        if factory.knows_route:  # otherwise: sendheartbeat brokeradd is empty
            self.cluster(factory.name_servers).registered |= factory.groups
        return OK

    c_StartPushConsumer = c_StartProducer

    def c_ShutdownProducer(self, handle: int | None) -> int:
        if handle is None:
            return Status.NULL_POINTER
        if getattr(self._inside, "callback", False):
            self.crashes.append("shutdown inside a callback")
            return self._fail(SHUTDOWN_REFUSED, b"shutdown inside a callback")
        self._wait("shutdown")
        client = self._running(handle, "shutdown", self._clients[handle].kind)
        client.state = "closed"
        factory = self.factories[client.instance_name]
        factory.groups.discard(client.group)
        self.cluster(factory.name_servers).registered.discard(client.group)
        return OK

    c_ShutdownPushConsumer = c_ShutdownProducer

    def _sent(self, client: NativeClient, record: NativeRecord) -> tuple[str, Cluster] | None:
        self._wait("send")
        factory = self.factories[client.instance_name]
        if self.refused_sends:
            self.refused_sends -= 1
            return None
        if self.is_broker_away or self.refusal:
            return None
        factory.knows_route = True
        key = f"{next(self._numbers):032X}"
        record.properties[b"UNIQ_KEY"] = key.encode()  # whatever the caller set
        return key, self.cluster(factory.name_servers)

    def c_SendMessageOrderly(
        self, handle: int, message: int, select: Any, argument: Any, retries: int, result: Any
    ) -> int:
        client, record = self._running(handle, "send", "plain"), self._message(message, "send")
        sent = self._sent(client, record)
        if sent is None or argument is None:
            return self._fail(Status.PRODUCER_SEND_ORDERLY_FAILED, self.refusal or b"No route info of this topic, ")
        index = self._call(select, self.queues, message, argument)
        if not 0 <= index < self.queues:
            self.crashes.append(f"queue {index} of {self.queues}")
        sent[1].messages.append((index, _copy(record)))
        result.contents.sendStatus, result.contents.msgId = 0, sent[0].encode()
        return OK

    def c_SendMessageTransaction(self, handle: int, message: Any, execute: Any, _user_args: object, result: Any) -> int:
        client, record = self._running(handle, "half", "transaction"), self._message(message, "half")
        if len(record.body) > client.max_body_bytes or not record.body:
            return self._fail(SEND_FAILED, b"the message body size over max value")
        sent = self._sent(client, record)
        if sent is None:
            return self._fail(SEND_FAILED, self.refusal or b"No route info of this topic: " + record.topic)
        key, cluster = sent
        cluster.halves.append((key, _copy(record)))
        result.contents.sendStatus, result.contents.msgId = self.half_status, key.encode()
        if self.half_status == 0:
            answer = _outcome(self._call(execute, handle, message._as_parameter_, None))
        else:
            answer = "ROLLBACK"
        self._wait("end")
        self._message(message, "after the local transaction")
        cluster.ends.append((key, answer, False))
        return OK

    def c_Subscribe(self, handle: int, topic: bytes, expression: bytes) -> int:
        self._clients[handle].topics[topic.decode()] = expression.decode()
        return OK

    def c_RegisterMessageCallback(self, handle: int, callback: Any) -> int:
        self._clients[handle].listener = callback  # one for all topics: the last one
        return OK

    c_RegisterMessageCallbackOrderly = c_RegisterMessageCallback


class _Functions:
    """`dll`: functions are objects with argtypes, as ctypes makes them."""

    def __init__(self, library: StandIn) -> None:
        self._library = library
        self._made: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> _Function:
        if not hasattr(self._library, f"c_{name}"):
            raise AttributeError(name)
        return self._made.setdefault(name, _Function(self._library, name))


class _Function:
    def __init__(self, library: StandIn, name: str) -> None:
        self.argtypes: Any = None
        self.restype: Any = None
        self._library, self._name = library, name

    def __call__(self, *arguments: Any) -> Any:
        return self._library.call(self._name, *arguments)


def _outcome(number: int) -> str:
    """CTransactionStatus; anything else is UNKNOWN (MyLocalTransactionExecuterInner)."""
    return STATUSES[number] if 0 <= number < len(STATUSES) else "UNKNOWN"


def _copy(record: NativeRecord) -> NativeRecord:
    return NativeRecord(topic=record.topic, properties=dict(record.properties), body=record.body)
