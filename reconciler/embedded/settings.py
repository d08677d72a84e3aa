"""Settings of an embedded broker. Names and defaults are those of BrokerConfig and MessageStoreConfig.

UPDATE_BROKER_CONFIG (25) changes settings while the broker runs, as on a real broker. Only the broker's loop uses this
module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reconciler.embedded.families import Family
from reconciler.errors import InvalidValue

# The 18 delay levels, which begin with level 1 (MessageStoreConfig.messageDelayLevel).
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LEVEL = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_delay_levels(text: str) -> tuple[float, ...]:
    """Parses a text such as "1s 5s 1m" into the seconds of each delay level. "100ms" and fractions are an addition for
    tests."""
    levels = []
    for word in text.split():
        match = _LEVEL.fullmatch(word)
        if match is None:
            raise InvalidValue("messageDelayLevel", text, "a number with ms, s, m, h or d for each level")
        levels.append(float(match[1]) * _UNIT_SECONDS[match[2]])
    if not levels:
        raise InvalidValue("messageDelayLevel", text, "at least one level")
    return tuple(levels)


@dataclass(kw_only=True, slots=True)
class BrokerSettings:
    """Settings of one broker. None means the family's default."""

    cluster_name: str = "DefaultCluster"
    broker_name: str = "embedded"
    transaction_timeout_seconds: float = 6.0
    check_interval_seconds: float | None = None
    check_max: int | None = None
    finished_batch_interval_seconds: float = 3.0
    finished_batch_bytes: int = 4096
    delay_levels: str = DELAY_LEVELS
    suspend_scan_interval_seconds: float = 1.0
    reject_transaction_message: bool = False
    auto_create_topic: bool = True
    auto_create_group: bool = True
    default_queue_count: int = 8
    permission: int = 6
    max_message_bytes: int | None = None
    reserved_seconds: float = 72 * 3600.0  # fileReservedTime: the check service gives up older halves
    retention_seconds: float = 72 * 3600.0  # older messages are deleted at once, not at deleteWhen
    max_stored_bytes: int = 1024 * 1024 * 1024
    max_stored_messages: int = 2_000_000
    segment_bytes: int = 64 * 1024 * 1024
    channel_expiry_seconds: float = 120.0
    lock_expiry_seconds: float = 60.0
    trace_on: bool = True
    region: str = "DefaultRegion"
    delay_level_seconds: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.delay_level_seconds = parse_delay_levels(self.delay_levels)

    def complete(self, family: Family) -> None:
        """Fills in the family's defaults."""
        if self.check_interval_seconds is None:
            self.check_interval_seconds = family.transaction_check_interval_seconds or 60.0
        if self.check_max is None:
            self.check_max = family.transaction_check_maximum
        if self.max_message_bytes is None:
            self.max_message_bytes = family.max_message_bytes

    @property
    def check_interval(self) -> float:
        """Seconds between two check rounds."""
        return self.check_interval_seconds if self.check_interval_seconds is not None else 60.0

    def as_properties(self) -> dict[str, str]:
        """Returns name -> value for GET_BROKER_CONFIG (26), in its units. fileReservedTime is rounded up to hours."""
        return {
            "brokerName": self.broker_name,
            "brokerClusterName": self.cluster_name,
            "brokerId": "0",
            "brokerPermission": str(self.permission),
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "transactionTimeOut": str(round(self.transaction_timeout_seconds * 1000)),
            "transactionCheckInterval": str(round(self.check_interval * 1000)),
            "transactionCheckMax": str(self.check_max),
            "transactionOpBatchInterval": str(round(self.finished_batch_interval_seconds * 1000)),
            "transactionOpMsgMaxSize": str(self.finished_batch_bytes),
            "messageDelayLevel": self.delay_levels,
            "rejectTransactionMessage": _java(self.reject_transaction_message),
            "autoCreateTopicEnable": _java(self.auto_create_topic),
            "autoCreateSubscriptionGroup": _java(self.auto_create_group),
            "defaultTopicQueueNums": str(self.default_queue_count),
            "maxMessageSize": str(self.max_message_bytes),
            "fileReservedTime": str(max(0, -int(-self.reserved_seconds // 3600))),
            "messageIndexEnable": "true",
            "longPollingEnable": "true",
            "regionId": self.region,
            "traceOn": _java(self.trace_on),
            "notifyConsumerIdsChangedEnable": "true",
        }

    def update(self, name: str, value: str) -> bool:
        """Applies one property of UPDATE_BROKER_CONFIG. Ignores a property that has no meaning here, and returns False.

        Raises InvalidValue if the value is unreadable.
        """
        try:
            return self._update(name, value.strip())
        except (ValueError, OverflowError) as error:
            raise InvalidValue(name, value, "a number") from error

    @staticmethod
    def names() -> list[str]:
        """Returns the names that ``configure`` understands."""
        plain = ["fileReservedTime", "messageDelayLevel"]
        return sorted([*plain, *_TEXTS, *_SECONDS, *_MILLISECONDS, *_INTEGERS, *_BOOLEANS])

    def configure(self, name: str, value: str) -> bool:
        """Applies one property before the broker starts, as ``update`` does later. Also takes names of brokers, and
        fractions of a second."""
        if name in _TEXTS:
            setattr(self, _TEXTS[name], value)
        elif name in _SECONDS:
            try:
                setattr(self, _SECONDS[name], float(value))
            except ValueError as error:
                raise InvalidValue(name, value, "seconds") from error
        else:
            return self.update(name, value)
        return True

    def _update(self, name: str, value: str) -> bool:
        if name in _MILLISECONDS:
            setattr(self, _MILLISECONDS[name], int(value) / 1000)
        elif name in _INTEGERS:
            setattr(self, _INTEGERS[name], int(value))
        elif name in _BOOLEANS:
            setattr(self, _BOOLEANS[name], value == "true")
        elif name == "fileReservedTime":
            self.reserved_seconds = float(value) * 3600
        elif name == "messageDelayLevel":
            self.delay_level_seconds = parse_delay_levels(value)
            self.delay_levels = value
        else:
            return False
        return True


_TEXTS = {"brokerName": "broker_name", "brokerClusterName": "cluster_name", "regionId": "region"}
_SECONDS = {  # names of our own, because real brokers have no such settings, or coarser ones
    "reservedSeconds": "reserved_seconds",
    "retentionSeconds": "retention_seconds",
    "suspendScanSeconds": "suspend_scan_interval_seconds",
    "channelExpirySeconds": "channel_expiry_seconds",
    "lockExpirySeconds": "lock_expiry_seconds",
}
_MILLISECONDS = {
    "transactionTimeOut": "transaction_timeout_seconds",
    "transactionCheckInterval": "check_interval_seconds",
    "transactionOpBatchInterval": "finished_batch_interval_seconds",
}
_INTEGERS = {
    "transactionCheckMax": "check_max",
    "transactionOpMsgMaxSize": "finished_batch_bytes",
    "brokerPermission": "permission",
    "defaultTopicQueueNums": "default_queue_count",
    "maxMessageSize": "max_message_bytes",
    "maxStoredBytes": "max_stored_bytes",
    "maxStoredMessages": "max_stored_messages",
    "segmentBytes": "segment_bytes",
}
_BOOLEANS = {
    "rejectTransactionMessage": "reject_transaction_message",
    "autoCreateTopicEnable": "auto_create_topic",
    "autoCreateSubscriptionGroup": "auto_create_group",
    "traceOn": "trace_on",
}


def _java(value: bool) -> str:  # noqa: FBT001 - a converter
    return "true" if value else "false"
