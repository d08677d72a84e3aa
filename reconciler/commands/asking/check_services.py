"""Finds brokers whose check service does not move.

Such a service has stopped at one half. No producer is asked about the halves behind that half. A round of the check
service that ends with an exception saves no offset, so each round ends at the same half (RocketMQ #9500, open in 5.5).
One look shows this. The half at the saved offset is too old, although the broker has run long enough to pass it. A
service that is far behind looks the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.commands.asking.brokers import masters
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import AccessRefused, BrokerUnavailable, ReconcilerError
from reconciler.evidence.brokers import unasked_seconds
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.halves.classify import overdue_seconds
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, PullStatus, pull
from reconciler.rocketmq.wire.codes import CHECK_GROUP, HALF_TOPIC
from reconciler.wiring.connections import Connections

CHECK_SERVICE_STANDS = Code("wiring.check-service-stands", minutes=Field.NUMBER)

#: Maximum number of repetitions of a pull whose offset lies before the beginning of the queue.
_STEPS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckServiceFinding:
    """The finding about one broker's check service."""

    broker: str
    #: The fact that the check service does not move, and for how long. None: the broker refuses to show this.
    stands: Fact | None
    #: The refusal of a broker that does not show this.
    refusal: AccessRefused | None = None


def check_services(connections: Connections) -> Iterator[CheckServiceFinding]:
    """Yields one finding for each master whose check service does not move, or cannot be read.

    A check service that moves, or for which no half waits, has no finding. Other checks report a broker that does not
    answer.
    """
    try:
        addresses = masters(connections)
    except ReconcilerError:
        return
    for broker, address in addresses.items():
        try:
            waited = _overdue_seconds(connections, broker, address)
        except AccessRefused as error:
            yield CheckServiceFinding(broker=broker, stands=None, refusal=error)
        except (ReconcilerError, KeyError, ValueError, OverflowError):
            continue
        else:
            if waited is not None:
                yield CheckServiceFinding(broker=broker, stands=CHECK_SERVICE_STANDS(minutes=round(waited / 60)))


def _overdue_seconds(connections: Connections, broker: str, address: str) -> float | None:
    """Returns how long the half at the saved offset has waited. Returns None if this is not too long."""
    facts = connections.rocketmq.families.facts(address)
    if not facts.has_check_back:
        return None
    admin = connections.admin
    config = admin.broker_config(address)
    if config.get("transRocksDBEnable") == "true" and config.get("transWriteOriginTransHalfEnable") == "false":
        return None  # another check of doctor reports this
    timeout, interval = (int(config[name]) / 1000 for name in ("transactionTimeOut", "transactionCheckInterval"))
    queue = MessageQueue(topic=HALF_TOPIC, broker_name=broker, queue_id=0)
    offset = connections.rocketmq.offsets.of_group(address, queue, CHECK_GROUP) or 0
    now_ms = connections.clock.now_ms() - 1000 * connections.settings.rounds.skew_margin_seconds
    for _ in range(_STEPS_MAX):
        request = PullRequest(queue=queue, offset=offset, group=SCAN_GROUP, maximum=1)
        result = pull(connections.rocketmq.client, address, request)
        if result.records:
            half = result.records[0]
            since_ms = max(half.store_timestamp_ms, int(admin.runtime_info(address)["bootTimestamp"]))
            return overdue_seconds(
                (now_ms - since_ms) / 1000,
                left_alone_seconds=unasked_seconds(half.properties, timeout),
                interval_seconds=interval,
            )
        if result.status is not PullStatus.OFFSET_MOVED or result.next_offset <= offset:
            return None
        offset = result.next_offset
    raise BrokerUnavailable(f"{queue}: its beginning moves")
