"""Where the queues of a topic begin and end, and since when unread messages wait in them.

Only masters are asked, for all queues of one broker together. If one request fails, the whole broker counts as silent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reconciler.errors import ReconcilerError
from reconciler.evidence.queue_scan import first_stored_ms
from reconciler.rocketmq.client.demands import explained
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEnd:
    """One queue, as its master answered."""

    queue: MessageQueue
    address: str
    begin: int
    #: The offset of the next message.
    end: int
    #: True if the route lacks this queue, but has other queues of the topic on the broker: a person lowered their
    #: number.
    is_taken_away: bool = False


class QueueEnds:
    """Asks masters for their queues. Thread-safe, without state."""

    def __init__(self, client: RemotingClient, routes: Routes) -> None:
        self._client = client
        self._routes = routes
        self._offsets = Offsets(client)

    def of_topic(self, topic: str, known: Mapping[str, Collection[int]]) -> tuple[list[QueueEnd], Mapping[str, str]]:
        """Returns the queues of every broker of the route, and broker -> why the broker did not answer.

        Includes queues that may only be written: no consumer reads their announcements.

        `known`: broker -> queues that were read before. Known queues are asked for even if the queue or its broker has
        left the route. Raises TopicNotFound or BrokerUnavailable.
        """
        self._routes.expect(topic, known)
        offered: dict[str, list[MessageQueue]] = {}
        for queue in sorted({*self._routes.read_queues(topic), *self._routes.write_queues(topic)}):
            offered.setdefault(queue.broker_name, []).append(queue)
        ends: list[QueueEnd] = []
        silent: dict[str, str] = {}
        for place in self._routes.whereabouts(topic):
            name = place.broker_name
            left = {MessageQueue(topic=topic, broker_name=name, queue_id=number) for number in known.get(name, ())}
            if place.master is None or place.doubt:  # the offsets would be those of another broker
                silent[name] = place.doubt or place.detail
                continue
            try:
                ends += self._of(place.master, offered.get(name, []), left.difference(offered.get(name, ())))
            except ReconcilerError as error:
                silent[name] = explained(error, place.master)
        return ends, silent

    def waiting_since_ms(self, end: QueueEnd, offset: int, *, tag: str = "*") -> int | None:
        """Returns the store time of the first message with the tag at or after the offset. None if no such message lies
        before the end.

        Raises the errors of a pull, and BrokerUnavailable for a queue that cannot be read at the offset.
        """
        return first_stored_ms(self._client, end.address, end.queue, offset=offset, end_offset=end.end, tag=tag)

    def _of(self, address: str, offered: Sequence[MessageQueue], left: Collection[MessageQueue]) -> list[QueueEnd]:
        # The ends are read last: a message that is stored meanwhile counts as waiting.
        asked = [(address, queue) for queue in (*offered, *sorted(left))]
        begins, ends = self._offsets.minima(asked), self._offsets.maxima(asked)
        return [
            QueueEnd(
                queue=queue,
                address=address,
                begin=max(0, begin),
                end=end,
                is_taken_away=bool(offered) and queue in left,
            )
            for (_, queue), begin, end in zip(asked, begins, ends, strict=True)
        ]
