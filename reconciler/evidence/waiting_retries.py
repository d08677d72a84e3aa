"""Failed messages that wait for their next try: in a broker's delay queues, and in no queue of their group.

Every retry has a delay level. Each level has its own queue, the oldest message first. The broker shows the offset up to
which it has delivered each queue (ScheduleMessageService.buildRunningStats). Also on brokers from 5.0 on, messages with
a delay level use these queues and not the timer wheel (HookUtils.checkIfTimerMessage, read in 5.1.4 to 5.5.0).
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

#: The number of queues of the delay topic that can be read. A broker with more levels refuses to read the others
#: (SCHEDULE_TOPIC_QUEUE_NUM).
QUEUES = 18
#: Maximum number of messages of one broker that are read. An application may delay millions of its own messages.
SCANNED_MAX = 100_000
_PROGRESS = "scheduleMessageOffset_"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRetries:
    """The waiting retries that one broker shows."""

    #: The unique keys. Messages without a unique key have their offset message ids instead.
    keys: tuple[str, ...]
    #: Why more retries may wait. Empty if these are all.
    unread: str = ""


def waiting_retries(client: RemotingClient, address: str, broker_name: str, retry_topic: str) -> WaitingRetries:
    """Returns the undelivered messages for the retry topic on one broker. Leaves no trace on the broker.

    Reports a missing right in `unread`. Raises BrokerUnavailable, and the other errors of a request.
    """
    keys: list[str] = []
    try:
        unread = _read(client, address, broker_name, retry_topic, keys)
    except (AccessRefused, BrokerRefused) as error:
        unread = str(error)
    return WaitingRetries(keys=tuple(keys), unread=unread)


def _read(client: RemotingClient, address: str, broker_name: str, retry_topic: str, keys: list[str]) -> str:
    told = Admin(client).runtime_info(address)
    # Each value is "delivered,end". The broker leaves out a level without deliveries.
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
