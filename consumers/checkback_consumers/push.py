"""A ready-made consumer: runs transactional handlers on the push consumer in pure Python."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from checkback_consumers.asynchronous import on_thread
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.message import ConsumedMessage
from reconciler.clock import Clock
from reconciler.errors import InvalidValue
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.consumer.listener import ConsumeStatus, FailedAt
from reconciler.rocketmq.consumer.push_consumer import PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.acl import AclCredentials


class TransactionalConsumer:
    """A consumer that is a member of the handlers' group. Start it and shut it down, or use a with block. In an event
    loop, use `async with`: the start and the shutdown then run on a thread.

    Each topic has one handler, and all handlers have one group. A PushConsumer has one listener, and here the listener
    dispatches by topic. The consumer commits the offset of every assigned queue at the broker, even if the queue is
    empty, because the reconciler's watermark needs all these offsets.
    """

    def __init__(
        self,
        #: Handlers of one consumer group.
        *handlers: TransactionalHandler,
        #: "a:9876;b:9876": the consumer creates its own client instance. Give this or `instance`.
        name_servers: str | None = None,
        #: A client instance that is shared with others. The caller closes it.
        instance: ClientInstance | None = None,
        #: Access keys of a broker user. Only used with `name_servers`.
        acl: AclCredentials | None = None,
        #: TLS of the connections. Only used with `name_servers`. None: connections are not encrypted.
        tls: TlsSettings | None = None,
        #: Topic -> its tags ("a || b", "*"). None: the consumer subscribes to the topics that the handlers name, with
        #: "*".
        subscriptions: Mapping[str, str] | None = None,
        #: True: the messages of a queue are handled in order, one at a time.
        orderly: bool = False,
        #: Threads, batches and bounds.
        settings: PushSettings | None = None,
        #: Replaces the value in `settings`.
        offset_commit_interval_seconds: float | None = None,
        #: For tests.
        clock: Clock | None = None,
    ) -> None:
        """Raises InvalidValue if handlers and subscriptions contradict each other."""
        groups = {handler.group for handler in handlers}
        if len(groups) != 1:
            raise InvalidValue("handlers", sorted(groups), "one or more handlers of one consumer group")
        wanted = dict(subscriptions or dict.fromkeys((t for h in handlers for t in h.topics or ()), "*"))
        self._by_topic = handlers_by_topic(handlers, wanted)
        chosen = settings or PushSettings()
        if offset_commit_interval_seconds is not None:
            chosen = replace(chosen, offset_commit_interval_seconds=offset_commit_interval_seconds)
        self.group = groups.pop()
        self.handlers = handlers
        self.consumer = PushConsumer(
            self.group, name_servers=name_servers, instance=instance, acl=acl, tls=tls, settings=chosen, clock=clock
        )
        for topic, expression in wanted.items():
            self.consumer.subscribe(topic, expression)
        self.consumer.register_listener(self._listen, orderly=orderly)

    def start(self) -> Self:
        """Joins the group. Raises UsageError for an asynchronous handler that is not open."""
        for handler in self.handlers:
            handler.require_open()
        self.consumer.start()
        return self

    def shutdown(self) -> bool:
        """Waits for running handlers, commits offsets and leaves the group. Returns False if a handler still runs; its
        message comes again."""
        return self.consumer.shutdown()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    async def __aenter__(self) -> Self:
        """Does what start() does."""
        try:
            return await on_thread(self.start)
        except BaseException:  # a start that is still running is ended afterwards
            threading.Thread(target=self.shutdown, name="consumer-end", daemon=True).start()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does what shutdown() does. The shutdown completes even if the waiting task is cancelled."""
        await on_thread(self.shutdown)

    def _listen(self, messages: Sequence[ConsumedMessage]) -> ConsumeStatus | FailedAt:
        # A batch comes from one queue, so from one topic.
        return self._by_topic[messages[0].topic].listener(messages)


def handlers_by_topic(
    handlers: Sequence[TransactionalHandler], topics: Mapping[str, str]
) -> dict[str, TransactionalHandler]:
    """Returns the handler of each topic. Raises InvalidValue unless exactly one handler takes each topic."""
    by_topic: dict[str, TransactionalHandler] = {}
    for topic in topics:
        matching = [handler for handler in handlers if handler.topics is None or topic in handler.topics]
        if len(matching) != 1:
            raise InvalidValue("subscriptions", topic, f"exactly one handler must take it, not {len(matching)}")
        by_topic[topic] = matching[0]
    if not by_topic:
        raise InvalidValue("subscriptions", dict(topics), "name the topics, here or in @transactional_handler")
    return by_topic
