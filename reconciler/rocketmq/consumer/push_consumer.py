"""PushConsumer is a member of a consumer group. A listener gets the messages (DefaultMQPushConsumer).

One thread pulls all queues. Another thread rebalances and commits. A pool of threads runs the listener.
"""

from __future__ import annotations

import logging
import threading

from reconciler.clock import Clock
from reconciler.errors import InvalidValue, UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance, refuse_security_of_shared
from reconciler.rocketmq.client.heartbeat import ConsumeFrom, ConsumerMembership
from reconciler.rocketmq.client.step_thread import StepThread
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.client.topic_subscription import EVERY_TAG, TopicSubscription, subscribe_to
from reconciler.rocketmq.client.worker_pool import WorkerPool
from reconciler.rocketmq.consumer.admin import AdminAnswers
from reconciler.rocketmq.consumer.assignment import Assignment
from reconciler.rocketmq.consumer.concurrent import ConcurrentConsumption
from reconciler.rocketmq.consumer.group_members import BrokerQueueLocks, group_members
from reconciler.rocketmq.consumer.listener import ConsumeStatus, MessageListener
from reconciler.rocketmq.consumer.orderly import OrderlyConsumption
from reconciler.rocketmq.consumer.process_queue import CacheLimits, ProcessQueue
from reconciler.rocketmq.consumer.pull_loop import Consumption, PullLoop
from reconciler.rocketmq.consumer.queue_offsets import GroupOffsets
from reconciler.rocketmq.consumer.retry import RetryRoute
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.codes import RequestCode, retry_topic
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import check_topic
from reconciler.rocketmq.wire.received_message import ReceivedMessage

__all__ = [
    "CacheLimits",
    "ConsumeFrom",
    "ConsumeStatus",
    "MessageListener",
    "PushConsumer",
    "PushSettings",
    "ReceivedMessage",
]

logger = logging.getLogger(__name__)

#: Pause before an incomplete rebalance is tried again.
REBALANCE_AGAIN_SECONDS = 1.0
LOCK_RENEWAL_SECONDS = 20.0
_DEFAULT_MAX_RECONSUME_TIMES = 16


class PushConsumer:
    """Call subscribe, register_listener, start and shutdown, in this order. A started consumer is thread-safe.

    With `name_servers`, such as "a;b", the consumer makes a client instance of its own. `acl` and `tls` are for this
    instance. With `instance`, the consumer shares an instance, but two members of one group must not share one.
    Delivery is at least once, so listeners must be idempotent.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str | None = None,
        instance: ClientInstance | None = None,
        acl: AclCredentials | None = None,
        tls: TlsSettings | None = None,
        settings: PushSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(group, str) or not group:
            raise InvalidValue("group", group, "the name of a consumer group")
        if (name_servers is None) == (instance is None):
            raise UsageError("give either name_servers or instance")
        refuse_security_of_shared("instance", instance, acl=acl, tls=tls)
        self.group = group
        self.settings = settings or PushSettings()
        self._owns_instance = instance is None
        self.instance = instance or ClientInstance(name_servers or "", acl=acl, tls=tls, clock=clock)
        self._clock = self.instance.clock
        self._subscriptions: dict[str, TopicSubscription] = {}
        self._listener: MessageListener | None = None
        self._is_orderly = False
        self._running: _Running | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def subscribe(self, topic: str, expression: str = EVERY_TAG) -> PushConsumer:
        """Adds a topic, with tags such as "a || b" or "*". Call this method before start. All members of a group must
        have the same subscriptions."""
        if self._running is not None:
            raise UsageError("subscribe before start: members of a group must agree on what they subscribe to")
        check_topic(topic)
        self._subscriptions[topic] = subscribe_to(topic, expression, version=self._clock.now_ms())
        return self

    def register_listener(self, listener: MessageListener, *, orderly: bool = False) -> PushConsumer:
        """Registers the user code. Call this method before start. With `orderly`, one batch of a queue runs at a time,
        in queue order."""
        if self._running is not None:
            raise UsageError("register the listener before start")
        self._listener, self._is_orderly = listener, orderly
        return self

    def start(self) -> PushConsumer:
        """Joins the group. Messages are delivered from now on. A broker that cannot be reached learns of this member
        when it comes back."""
        with self._lock:
            if self._running is not None or self._is_over:
                raise UsageError(f"consumer {self.group} was started already")
            if self._listener is None or not self._subscriptions:
                raise UsageError(f"consumer {self.group} needs a listener and a subscription")
            own = retry_topic(self.group)
            subscriptions = {**self._subscriptions, own: subscribe_to(own, EVERY_TAG, version=self._clock.now_ms())}
            running = _Running(self, self._listener, subscriptions, is_orderly=self._is_orderly)
            running.start()
            self._running = running
        return self

    def shutdown(self) -> bool:
        """Stops pulling, waits up to `shutdown_timeout_seconds` for running listeners, commits, and leaves the group.

        Returns False if a listener still runs. The messages of this listener are not committed, and come again at
        another member.
        """
        with self._lock:
            running, self._running = self._running, None
            self._is_over = True
        is_clean = running.stop() if running is not None else True
        if self._owns_instance:
            self.instance.close()
        return is_clean

    def assigned(self) -> list[ProcessQueue]:
        """The queues that this member holds now."""
        running = self._running
        return running.assignment.queues() if running is not None else []

    def commit_offsets(self) -> int:
        """Stores the offset of each assigned queue at the broker now. The consumer also stores offsets by itself every
        few seconds.

        Returns the number of stored offsets.
        """
        running = self._running
        return running.assignment.commit() if running is not None else 0

    def __enter__(self) -> PushConsumer:
        return self if self._running is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class _Running:
    """The parts of a started consumer and their connections."""

    def __init__(
        self,
        consumer: PushConsumer,
        listener: MessageListener,
        subscriptions: dict[str, TopicSubscription],
        *,
        is_orderly: bool,
    ) -> None:
        instance, settings, group = consumer.instance, consumer.settings, consumer.group
        clock = instance.clock
        self.group = group
        self._instance = instance
        self._settings = settings
        self._subscriptions = subscriptions
        self._is_orderly = is_orderly
        self._pulling_steps = StepThread(f"rocketmq-pull-{group}", clock)
        self._upkeep_steps = StepThread(f"rocketmq-upkeep-{group}", clock)
        self._pool = WorkerPool(
            f"rocketmq-listen-{group}", clock, threads_max=settings.threads
        )  # limited by the queues' limits
        self._rebalance_waits = threading.Event()
        self._tries_again = False  # used by the upkeep thread only
        client, routes = instance.client, instance.routes
        maximum = settings.max_reconsume_times
        retry = RetryRoute(
            client,
            routes,
            group=group,
            max_reconsume_times=maximum if maximum >= 0 else _DEFAULT_MAX_RECONSUME_TIMES,
        )
        locks = BrokerQueueLocks(client, routes, group=group, client_id=instance.client_id, clock=clock)
        self._consumption = self._consumption_of(listener, retry, locks)
        self._pulling = PullLoop(
            client,
            routes,
            group=group,
            settings=settings,
            subscriptions=subscriptions,
            steps=self._pulling_steps,
            consumption=self._consumption,
            on_doubt=instance.heartbeats.doubt,
            on_offset_moved=lambda queue: self.assignment.commit_one(queue),
            give_back=retry.unread,
        )
        self.assignment = Assignment(
            routes,
            GroupOffsets(instance.offsets, routes, group=group, settings=settings),
            client_id=instance.client_id,
            limits=settings.limits,
            members=lambda topic: group_members(client, routes, group=group, topic=topic),
            locks=locks if is_orderly else None,
            on_gained=self._pulling.pull_soon,
            on_lost=self._consumption.release,
            is_busy=self._consumption.is_busy,
        )
        self._admin = AdminAnswers(
            self.assignment,
            membership=self._membership,
            listener=listener,
            is_orderly=is_orderly,
            started_at_ms=clock.now_ms(),
            name_servers=";".join(routes.name_servers.addresses),
            clock=clock,
            pull_soon=self._pulling.pull_soon,
        )

    def start(self) -> None:
        """Registers the member, then rebalances at once. Raises UsageError if the instance has a member of the group
        already."""
        heartbeats = self._instance.heartbeats
        heartbeats.join_consumer(self.group, self._membership, self._addresses)
        on_request = self._instance.on_group_request
        on_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.group, self._on_members_changed)
        on_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self.group, self._admin.reset_offsets)
        on_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.group, self._admin.status)
        on_request(RequestCode.GET_CONSUMER_RUNNING_INFO, self.group, self._admin.running_info)
        on_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.group, self._admin.consume_directly)
        heartbeats.beat()
        self._pulling_steps.start()
        self._upkeep_steps.start()
        self._rebalance_soon()
        self._upkeep_steps.every(self._settings.rebalance_interval_seconds, self._rebalance)
        self._upkeep_steps.every(self._settings.offset_commit_interval_seconds, self.assignment.commit)
        if self._is_orderly:
            self._upkeep_steps.every(LOCK_RENEWAL_SECONDS, self.assignment.renew_locks)

    def stop(self) -> bool:
        """Stops the parts in order. First pulling ends, then running handlers end. After that, offsets are stored, and
        other members may take the queues."""
        self._upkeep_steps.close()
        self._pulling_steps.close()
        is_clean = self._pool.close(timeout_seconds=self._settings.shutdown_timeout_seconds)
        if not is_clean:
            logger.warning("listener_still_runs: a listener of %s still runs: its messages come again", self.group)
        self.assignment.end()
        self._instance.heartbeats.leave_consumer(self.group)
        self._instance.forget_group(self.group)
        return is_clean

    def _consumption_of(self, listener: MessageListener, retry: RetryRoute, locks: BrokerQueueLocks) -> Consumption:
        settings = self._settings
        if not self._is_orderly:
            return ConcurrentConsumption(
                listener,
                pool=self._pool,
                steps=self._upkeep_steps,
                send_back=retry.later,
                resume=lambda queue: self._pulling.pull_soon(queue),
                batch_size=settings.batch_size,
                local_retry_seconds=settings.local_retry_seconds,
            )
        return OrderlyConsumption(
            listener,
            pool=self._pool,
            steps=self._upkeep_steps,
            locks=locks,
            send_back=retry.dead_letter,
            resume=lambda queue: self._pulling.pull_soon(queue),
            clock=self._instance.clock,
            batch_size=settings.batch_size,
            suspend_seconds=settings.orderly_suspend_seconds,
            max_reconsume_times=settings.max_reconsume_times,
        )

    def _membership(self) -> ConsumerMembership:
        return ConsumerMembership(
            group=self.group,
            consume_from=self._settings.consume_from,
            subscriptions=tuple(self._subscriptions.values()),
        )

    def _addresses(self) -> set[str]:
        return self._instance.broker_addresses(self._subscriptions)

    def _on_members_changed(self, _address: str, _request: Command) -> None:
        self._rebalance_soon()

    def _rebalance_soon(self) -> None:
        if not self._rebalance_waits.is_set():
            self._rebalance_waits.set()
            self._upkeep_steps.soon(self._rebalance)

    def _rebalance(self) -> None:
        self._rebalance_waits.clear()
        is_complete = self.assignment.rebalance(self._subscriptions)
        # Only one retry waits at a time. Otherwise each regular rebalance would start one more retry.
        if not is_complete and not self._tries_again:
            self._tries_again = True
            self._upkeep_steps.later(REBALANCE_AGAIN_SECONDS, self._rebalance_again)

    def _rebalance_again(self) -> None:
        self._tries_again = False
        self._rebalance_soon()
