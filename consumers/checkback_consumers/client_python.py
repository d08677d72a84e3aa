"""Transactional handlers on the PushConsumer of rocketmq-client-python, for services that already use it.

consumer = NativeConsumer(place_order, name_servers="a:9876")     # place_order: @transactional_handler
with consumer:
    ...

Works with rocketmq-client-python 2.0.0 (librocketmq 2.x) and the wheel rocketmq 0.4.4. The library has these limits,
which `TransactionalConsumer` does not have:

- A new group starts at the *end* of each queue (CONSUME_FROM_LAST_OFFSET, fixed). The reconciler reports earlier
  messages as lost. To avoid this, run TransactionalConsumer first, which starts at the beginning and creates the
  group's offsets.
- Properties cannot be listed, so content is not compared, and the digest stays NULL. A handler sees only the properties
  that `property_names` names. The library cuts a body at its first NUL byte and reports nothing, so senders must encode
  such bodies.
- If a handler refuses a message, the library sends back all messages that were pulled together, up to 32
  (ConsumeMessageConcurrentlyService). The inbox makes that harmless, but each message uses up one retry. If 0.4.4 fails
  to send a message back, it forgets the message. The reconciler finds such a message.
- A shutdown first handles all cached messages, which may take half a minute. A consumer may stay stalled after its
  broker was frozen. The library ignores SIGPIPE and writes logs to $HOME/logs/rocketmq-cpp. A process that forks must
  create its consumer after the fork.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.push import handlers_by_topic
from reconciler.clock import Clock
from reconciler.contract.properties import BUSINESS_ID
from reconciler.contract.unique_key import UNIQUE_KEY_PROPERTY
from reconciler.errors import InvalidValue
from reconciler.rocketmq.client.native_client import (
    SHUTDOWN_TIMEOUT_SECONDS,
    START_TIMEOUT_SECONDS,
    NativeLibrary,
    NativeObject,
    answered,
    check_group,
    load_library,
    new_instance_name,
    require_writable_home,
)
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.message import check_topic

logger = logging.getLogger(__name__)

#: Values of CConsumeStatus. If a callback raises, C reads 0, too.
_SUCCESS, _LATER = 0, 1
_RETRY_PREFIX = "%RETRY%"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeMessage:
    """A copy of a ConsumedMessage, because the library frees the original when the callback returns."""

    topic: str
    unique_key: str | None
    body: bytes
    tags: str | None
    keys: str | None
    reconsume_times: int
    #: Always None, because the library cannot list properties.
    properties: None = None
    #: Property BUSINESS_ID.
    business_id: str | None = None
    #: Properties that the consumer's `property_names` names. Properties that the message lacks are left out.
    known_properties: Mapping[str, str] = field(default_factory=dict)
    #: The offset message id of the first delivery. Only messages without a unique key have this field.
    offset_message_id: str | None = None
    queue_id: int = 0
    queue_offset: int = 0
    born_timestamp_ms: int = 0
    store_timestamp_ms: int = 0

    @classmethod
    def copy(cls, received: Any, *, property_names: Iterable[str] = ()) -> NativeMessage:
        """Copies a ReceivedMessage (0.4.4: RecvMessage) of the package. Call it only inside the callback that gets the
        message."""
        topic = received.topic
        if topic.startswith(_RETRY_PREFIX):
            topic = _text(received.get_property("RETRY_TOPIC")) or topic
        unique_key = _text(received.get_property(UNIQUE_KEY_PROPERTY))
        known = {name: _text(received.get_property(name)) for name in property_names}
        return cls(
            topic=topic,
            unique_key=unique_key,
            body=received.body or b"",
            tags=_text(received.tags),
            keys=_text(received.keys),
            reconsume_times=received.reconsume_times,
            business_id=_text(received.get_property(BUSINESS_ID)),
            known_properties={name: value for name, value in known.items() if value is not None},
            offset_message_id=None if unique_key else _text(received.get_property("ORIGIN_MESSAGE_ID")) or received.id,
            queue_id=received.queue_id,
            queue_offset=received.queue_offset,
            born_timestamp_ms=received.born_timestamp,
            store_timestamp_ms=received.store_timestamp,
        )


class NativeConsumer:
    """A consumer that is a member of the handlers' group. Start it once and shut it down once, or use a with block.
    Create it after a fork.

    A PushConsumer has one callback for all its topics, and here the callback dispatches by topic. Handlers run on
    threads of the library. `failures` and `last_failure` show what went wrong outside of handlers: a message that could
    not be copied, or an exit that a handler asked for. The broker delivers such a message again.
    """

    def __init__(
        self,
        *handlers: TransactionalHandler,
        name_servers: str,
        acl: AclCredentials | None = None,
        subscriptions: Mapping[str, str] | None = None,
        orderly: bool = False,
        threads: int | None = None,
        property_names: Iterable[str] = (),
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        shutdown_timeout_seconds: float = SHUTDOWN_TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """`subscriptions` maps a topic to its tags ("a || b", "*"). Without `subscriptions`, the consumer subscribes to
        each handler's topics with "*". `acl` gives the keys with which the library signs. The keys are read once, when
        the consumer is made. The library supports no TLS here.

        Raises InvalidValue for handlers, subscriptions or name servers that are not usable. Raises MissingDependency if
        the library is not installed, and the error says what to install. Raises ConfigurationError if HOME cannot be
        written. Raises BrokerUnavailable if the library refuses.
        """
        groups = {handler.group for handler in handlers}
        if len(groups) != 1:
            raise InvalidValue("handlers", sorted(groups), "one or more handlers of one consumer group")
        if any(handler.is_asynchronous for handler in handlers):
            raise InvalidValue(
                "handlers", "async def", "rocketmq-client-python has threads only: TransactionalConsumer"
            )
        wanted = dict(subscriptions or dict.fromkeys((t for h in handlers for t in h.topics or ()), "*"))
        self._by_topic = handlers_by_topic(handlers, wanted)
        self.group = check_group(groups.pop())
        for topic, expression in wanted.items():
            _check_subscription(topic, expression)
        instance_name = new_instance_name(self.group, name_servers)
        self.failures = 0
        self.last_failure: BaseException | None = None
        self._property_names = tuple(property_names)
        self._library = load_library(transactions=False)
        require_writable_home()
        made = self._library.client.PushConsumer(self.group, orderly)
        self._native = NativeObject(
            made,
            f"consumer {self.group}",
            start_timeout_seconds=start_timeout_seconds,
            shutdown_timeout_seconds=shutdown_timeout_seconds,
            clock=clock,
        )
        self._library.set_name_servers(made, name_servers)
        self._library.set_credentials(made, acl)
        made.set_instance_name(instance_name)
        if threads is not None:
            made.set_thread_count(threads)
        self._subscribe(self._library, made, wanted)

    def start(self) -> Self:
        """Joins the group. Raises UsageError for a second start. Can raise RequestTimeout and BrokerUnavailable."""
        logger.info(
            "offset_of_new_group: group %s: where it has no offset yet, librocketmq starts at the end of the queue",
            self.group,
        )
        self._native.start()
        return self

    def shutdown(self) -> bool:
        """Handles the pulled messages, commits offsets and leaves the group. Returns False if the library did not
        return in time.

        Call it once, from the main thread. A call from a handler raises UsageError.
        """
        return self._native.shutdown()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _subscribe(self, library: NativeLibrary, made: Any, topics: Mapping[str, str]) -> None:
        # This does not call `made.subscribe`. In 0.4.4, `subscribe` ignores what the callback returns. In both
        # releases, each call replaces the callback of earlier topics.
        for topic, expression in topics.items():
            code = library.ffi.dll.Subscribe(made._handle, topic.encode(), expression.encode())  # noqa: SLF001
            library.exceptions.ffi_check(code)
        made._register_callback(self._on_message)  # noqa: SLF001  # keeps it from being collected, too

    def _on_message(self, _consumer: int | None, pointer: int) -> int:
        """Handles a message, as the library's callback for every topic. Returns 0 or 1, even after an error."""
        return answered(lambda: self._consume(pointer), otherwise=_LATER, keep=self._keep_failure)

    def _consume(self, pointer: int) -> int:
        message = NativeMessage.copy(self._library.received(pointer), property_names=self._property_names)
        status = self._by_topic[message.topic](message)
        return _SUCCESS if status is ConsumeStatus.CONSUME_SUCCESS else _LATER

    def _keep_failure(self, error: BaseException) -> None:
        self.failures += 1
        self.last_failure = error
        logger.error("message_comes_again: a message of group %s comes again: %r", self.group, error, exc_info=error)


def _check_subscription(topic: str, expression: str) -> None:
    check_topic(topic)
    if not isinstance(expression, str) or not expression.strip() or not expression.isprintable():
        raise InvalidValue("subscriptions", {topic: expression}, 'tags: "a || b", or "*"')


def _text(value: bytes | None) -> str | None:
    """Returns a property as text, or None for an absent property. The library gives "" for an absent property."""
    return value.decode("utf-8", "replace") if value else None
