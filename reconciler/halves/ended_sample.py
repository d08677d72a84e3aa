"""A sample of halves whose end is known, on which a commit query is tried. The sample has the newest committed halves
and the newest rolled-back halves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact
from reconciler.errors import ReconcilerError
from reconciler.halves.classify import newest_of_each
from reconciler.halves.ended import OffsetBits
from reconciler.halves.half_topic import DeliveredCopies, MasterQueues, ReadingRate, half_copy
from reconciler.halves.places import MARGIN_MS, PlacesReader, topic_gone
from reconciler.halves.scan import (
    EndsSource,
    Progress,
    before_first_round,
    check_rules,
    in_no_queue,
    version_of,
    why_unread,
)
from reconciler.halves.values import CheckRules, HalfCopy
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import HALF_TOPIC, ROCKSDB_HALF_TOPIC

ENDS_UNREADABLE = Code("query.ends-unreadable")
ROCKSDB_NOT_TRIED = Code("query.rocksdb-not-tried")

#: Maximum number of halves of each kind in one topic.
SAMPLE_MAX = 500
#: Number of a broker's newest halves that are searched for the sample.
HALVES_READ_MAX = 200_000


@dataclass(slots=True)
class EndedHalves:
    """Ended halves of one topic. Each list begins with its newest half."""

    committed: list[HalfCopy] = field(default_factory=list)
    #: Ended halves whose message is not in the topic on any broker.
    rolled_back: list[HalfCopy] = field(default_factory=list)

    def add(self, other: EndedHalves) -> None:
        """Adds the halves of another broker. A half on two brokers counts once, and as committed if it is committed on
        one of them."""
        self.committed = _newest(self.committed + other.committed)
        committed = {copy.identity for copy in self.committed}
        left = [copy for copy in self.rolled_back + other.rolled_back if copy.identity not in committed]
        self.rolled_back = _newest(left)


@dataclass(slots=True)
class BrokerSample:
    """The sample from one broker."""

    broker: str
    topics: dict[str, EndedHalves] = field(default_factory=dict)
    #: Facts about missing parts of the sample.
    notes: list[Fact] = field(default_factory=list)
    #: The reason why the broker's halves could not be read. None if the halves were read.
    unread: Fact | None = None


class EndedSampling:
    """One look at the halves of one master. Used by one thread only."""

    def __init__(
        self,
        client: RemotingClient,
        broker: str,
        masters: Mapping[str, str],
        *,
        families: Families,
        clock: Clock,
        records_per_second: float,
        progress: Progress,
        keys: Mapping[str, str],
    ) -> None:
        """`keys` maps each searched topic to the place of the business key in its halves."""
        self._address = masters[broker]
        self._families = families
        self._admin = Admin(client)
        pace = ReadingRate(clock, records_per_second)
        self._queues = MasterQueues(client, broker, self._address, pace=pace)
        self._delivered = DeliveredCopies(client, masters, pace=pace)
        self._progress = progress
        self._keys = keys
        self.found = BrokerSample(broker)

    def run(self) -> BrokerSample:
        """Samples the halves of the master. An error of a broker is not raised, but kept in `unread`."""
        try:
            self._run()
        except ReconcilerError as error:
            self.found.unread = why_unread(error)
            self.found.topics = {}
        return self.found

    def _run(self) -> None:
        facts = self._families.facts(self._address)
        if not facts.has_half_topic:
            self.found.unread = in_no_queue(version_of(self._admin.runtime_info(self._address)))
            return
        if facts.may_keep_halves_in_rocksdb:
            elsewhere = self._queues.bounds(ROCKSDB_HALF_TOPIC)
            if elsewhere is not None and elsewhere[0] < elsewhere[1]:
                self.found.notes.append(ROCKSDB_NOT_TRIED())
        bounds = self._queues.bounds(HALF_TOPIC)
        if bounds is None:
            if unseen := self._queues.maximum(HALF_TOPIC):
                self.found.unread = before_first_round(unseen)
            return
        read = PlacesReader(self._queues, show=partial(self._progress, self.found.broker))
        read.halves(max(bounds[0], bounds[1] - HALVES_READ_MAX), bounds[1])
        if read.oldest_ms is None:
            return
        rules = check_rules(self._admin.broker_config(self._address), facts)
        # Ends are read before messages. An END stores the message before its own record, so the message of each end
        # that was read is found.
        ended = self._ends(bounds, read.oldest_ms - MARGIN_MS)
        queues = self._admin.topics(self._address)
        for topic in sorted(read.places.topics & self._keys.keys()):
            if topic in queues:
                read.committed(topic, queues[topic], read.oldest_ms - MARGIN_MS)
                self.found.topics[topic] = self._sample(topic, read, ended, rules)
            else:
                self.found.notes.append(topic_gone(topic))

    def _ends(self, bounds: tuple[int, int], since_ms: int) -> OffsetBits | None:
        source = EndsSource(self._queues)
        if not source.is_readable:
            self.found.notes.append(ENDS_UNREADABLE())
            return None
        ends = OffsetBits(*bounds)
        for offset in source.read(source.since(since_ms)):
            ends.add(offset)
        return ends

    def _sample(self, topic: str, read: PlacesReader, ended: OffsetBits | None, rules: CheckRules) -> EndedHalves:
        committed, rolled_back = read.places.ended_halves(ended, topic)
        silent = self._copies(rolled_back[-SAMPLE_MAX:], rules)
        # The message of a half may be on another broker. An END of a copy that was not read may have delivered the
        # message.
        delivered = self._delivered.of(silent)
        return EndedHalves(
            committed=self._copies(committed[-SAMPLE_MAX:], rules),
            rolled_back=[copy for copy in silent if delivered[copy.identity] is False],
        )

    def _copies(self, offsets: Collection[int], rules: CheckRules) -> list[HalfCopy]:
        records = self._queues.records_at(HALF_TOPIC, offsets)
        return _newest([half_copy(one, timeout_seconds=rules.timeout_seconds, keys=self._keys) for one in records])


def _newest(copies: Collection[HalfCopy]) -> list[HalfCopy]:
    each = newest_of_each(copies).values()
    return sorted(each, key=lambda copy: (copy.store_ms, copy.identity), reverse=True)[:SAMPLE_MAX]
