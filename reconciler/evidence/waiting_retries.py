"""Failed messages that wait for their next try: in the delay queues of a broker, in no queue of their group.

Every retry has a delay level, which has a queue of its own, oldest first; the broker tells how far it has delivered
each (ScheduleMessageService.buildRunningStats). From 5.0 on a message with a delay level goes there, too, and not into
the timer wheel (HookUtils.checkIfTimerMessage, read in 5.1.4 to 5.5.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import AccessRefused, BrokerRefused
from reconciler.evidence.queue_scan import SCAN_GROUP
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, PullStatus, pull
from reconciler.rocketmq.wire.codes import SCHEDULE_TOPIC

#: Queues of the delay topic: a broker with more levels lets nobody read the others (SCHEDULE_TOPIC_QUEUE_NUM).
QUEUES = 18
#: Messages of one broker that are read: a shop may delay millions of its own.
SCANNED_MAX = 100_000
_PROGRESS = "scheduleMessageOffset_"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRetries:
    """What one broker shows."""

    #: Unique keys; offset ids of messages without one.
    keys: tuple[str, ...]
    #: Why there may be others; empty: there are none.
    unread: str = ""


def waiting_retries(client: RemotingClient, address: str, broker_name: str, retry_topic: str) -> WaitingRetries:
    """Messages for that topic on one broker that are not delivered yet. Nothing is stored there.

    Raises BrokerUnavailable, and what a request raises; a right that is missing, too, is `unread`.
    """
    keys: list[str] = []
    try:
        unread = _read(client, address, broker_name, retry_topic, keys)
    except (AccessRefused, BrokerRefused) as error:
        unread = str(error)
    return WaitingRetries(keys=tuple(keys), unread=unread)


def _read(client: RemotingClient, address: str, broker_name: str, retry_topic: str, keys: list[str]) -> str:
    told = Admin(client).runtime_info(address)
    # "delivered,end"; a level that has delivered nothing yet is not told.
    levels = {int(name.removeprefix(_PROGRESS)): of for name, of in told.items() if name.startswith(_PROGRESS)}
    hidden = [level for level, of in levels.items() if level > QUEUES and len(set(of.split(","))) > 1]
    left = SCANNED_MAX
    for level in range(1, QUEUES + 1):
        queue = MessageQueue(topic=SCHEDULE_TOPIC, broker_name=broker_name, queue_id=level - 1)
        offset, is_more = int(levels.get(level, "0").partition(",")[0]), True
        while is_more:
            found = pull(client, address, PullRequest(queue=queue, offset=offset, group=SCAN_GROUP))
            ours = [record for record in found.records if record.properties.get("REAL_TOPIC") == retry_topic]
            keys += [record.unique_key or record.offset_message_id for record in ours]
            left -= len(found.records)
            if left < 0:
                return f"{broker_name} has more than {SCANNED_MAX} delayed messages"
            is_more = found.status is not PullStatus.NO_NEW and found.next_offset > offset
            offset = found.next_offset
    return f"{broker_name} lets nobody read the delay levels above {QUEUES}" if hidden else ""
