"""Check services of brokers that stand still: what lies behind the half at which one stands is asked about by nobody.

A round that ends with an exception saves no offset, so that each round ends there (RocketMQ #9500, open in 5.5). The
sign is one look: the half at the saved offset is older than it can be before a round has passed it, and the broker has
run for as long. A service that is far behind shows the same.
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

#: Times that a pull is sent on because the queue begins later.
_STEPS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckServiceFinding:
    """What is told of one broker's check service."""

    broker: str
    #: That it stands still, and for how long. None: it cannot be read whether it does.
    stands: Fact | None
    #: Why it cannot be read.
    refusal: AccessRefused | None = None


def check_services(connections: Connections) -> Iterator[CheckServiceFinding]:
    """One for each master whose check service stands still, or does not let it be seen; nothing where it moves, or no
    half waits. A broker that does not answer is told by other checks."""
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
    """How long the half at the saved offset has waited, where that is too long; None where it is not."""
    facts = connections.rocketmq.families.facts(address)
    if not facts.has_check_back:
        return None
    admin = connections.admin
    config = admin.broker_config(address)
    if config.get("transRocksDBEnable") == "true" and config.get("transWriteOriginTransHalfEnable") == "false":
        return None  # doctor tells of it
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
