"""Settings of a push consumer. A default is that of DefaultMQPushConsumer unless its comment says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from reconciler.errors import InvalidValue
from reconciler.rocketmq.client.heartbeat import ConsumeFrom
from reconciler.rocketmq.consumer.process_queue import CacheLimits

#: Maximum number of messages that a broker returns for one pull by default (maxTransferCountOnMessageInMemory).
MAXIMUM_PULL_BATCH = 1_024
#: DefaultMQPushConsumerImpl.checkConfig allows 65 535 ms.
PULL_INTERVAL_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of a push consumer. Raises InvalidValue for values that cannot work."""

    #: The place where a new group begins to consume. Java's default is LAST, which skips messages from before the group
    #: existed. A queue that is added to a known topic is read from its beginning in either case.
    consume_from: ConsumeFrom = ConsumeFrom.FIRST
    #: The start for ConsumeFrom.TIMESTAMP, as store time of the broker in milliseconds.
    consume_timestamp_ms: int = 0
    #: Threads that run the listener.
    threads: int = 20
    #: Maximum number of messages of one call of the listener.
    batch_size: int = 1
    #: Maximum number of messages of one pull.
    pull_batch_size: int = 32
    #: Pause after a pull that brought all messages of the queue. The next pull then brings several messages, which is
    #: cheaper but later. The pullInterval of DefaultMQPushConsumer also pauses while more messages wait, which would
    #: delay a group that lags.
    pull_interval_seconds: float = 0.0
    #: Limits per queue.
    limits: CacheLimits = field(default_factory=CacheLimits)
    #: Longest time for which a broker may hold a pull until a message comes.
    suspend_seconds: float = 15.0
    #: Number of deliveries after the first, before a message becomes a dead letter. For orderly consumers, -1 (Java's
    #: default) means no limit.
    max_reconsume_times: int = 16
    #: Pause before an orderly consumer runs a failed batch again.
    orderly_suspend_seconds: float = 1.0
    #: Pause before a message that no broker took back is delivered again in this process.
    local_retry_seconds: float = 5.0
    #: Pause between two commits of all assigned queues' offsets. The watermark needs these commits, even those of empty
    #: queues.
    offset_commit_interval_seconds: float = 5.0
    rebalance_interval_seconds: float = 20.0
    #: Longest time for which shutdown waits for running listeners.
    shutdown_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in ("threads", "batch_size", "pull_batch_size"):
            if not 1 <= getattr(self, name) <= MAXIMUM_PULL_BATCH:
                raise InvalidValue(name, getattr(self, name), f"1 to {MAXIMUM_PULL_BATCH}")
        for setting in fields(self):
            if setting.name.endswith("_seconds") and getattr(self, setting.name) < 0:
                raise InvalidValue(setting.name, getattr(self, setting.name), "no negative time")
        for name in ("offset_commit_interval_seconds", "rebalance_interval_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidValue(name, getattr(self, name), "more than 0 seconds")
        if self.pull_interval_seconds > PULL_INTERVAL_SECONDS_MAX:
            raise InvalidValue(
                "pull_interval_seconds", self.pull_interval_seconds, f"{PULL_INTERVAL_SECONDS_MAX:g} at most"
            )
        if self.max_reconsume_times < -1:
            raise InvalidValue("max_reconsume_times", self.max_reconsume_times, "0 or more; -1: without end (orderly)")
        if self.consume_from is ConsumeFrom.TIMESTAMP and self.consume_timestamp_ms <= 0:
            raise InvalidValue("consume_timestamp_ms", self.consume_timestamp_ms, "a broker time in milliseconds")
