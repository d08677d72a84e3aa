"""A simulated broker: log, queues, index that may lag, halves with put-back copies, END with its traps, retention.

Behaviour per family after reference sources: up to 4.2 prepared records lie in their own topic and nobody asks back;
from 4.3 on the half topic and the check service; from 5.1 on OP records are written up to three seconds late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reconciler.rocketmq.wire.broker_facts import facts_of
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, dead_letter_topic, retry_topic
from reconciler.rocketmq.wire.record import MessageRecord
from tests.simulation.kernel import Kernel, Link, ServerClock
from tests.simulation.popping import PoppedMessages

PREPARED, COMMIT = 4, 8
RECORD_BYTES = 100
#: Code and remark of an answer.
Answer = tuple[int, str]
#: Body of somebody's ordinary message that uses the key of another.
THEIRS = b"theirs"
GONE = (1, "Find prepared transaction message failed")


@dataclass(kw_only=True, slots=True)
class BrokerSettings:
    """What a broker's configuration says; seconds."""

    version: int
    transaction_timeout: float = 6.0
    check_interval: float = 30.0
    check_max: int = 15
    #: A real broker tries for hours, 16 times; here a minute and a half must outlast every outage of a database.
    retry_delay: float = 3.0
    retries_max: int = 9
    index_lag: float = 0.002


class Broker:
    """One master."""

    def __init__(
        self, kernel: Kernel, name: str, settings: BrokerSettings, *, host: str, link: Link, skew_ms: int
    ) -> None:
        """`host`: an IP address, which records carry."""
        self.kernel = kernel
        self.name = name
        self.store_host = (host, 10911)
        self.address = f"{name}:10911"
        self.settings = settings
        self.facts = facts_of(settings.version)
        self.link = link
        self.clock = ServerClock(kernel, skew_ms)
        self.log: list[MessageRecord | None] = []
        self.stored_at: list[float] = []
        self.queues: dict[tuple[str, int], list[MessageRecord]] = {}
        self.first_offsets: dict[tuple[str, int], int] = {}
        self.index: dict[tuple[str, str], list[MessageRecord]] = {}
        #: Unique key -> records with it, also those that the log has lost since.
        self.of_key: dict[str, list[MessageRecord]] = {}
        self.index_stalled_until = 0.0
        self.indexed = 0
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.popped = PoppedMessages(self)
        self.producers: dict[str, int] = {}
        self.finished: set[int] = set()
        self.check_position = 0
        #: Its check service begins no round before.
        self.checks_stand_until = 0.0
        #: Retry topic and key of what waits for its next try, as often as it waits.
        self.delayed: Counter[tuple[str, str]] = Counter()
        #: Grows when the broker loses its tail: offsets of before may mean other records now.
        self.era = 0
        self.is_disk_full = False
        #: Who asks behind the end goes on there; False: at the beginning.
        self.sets_back_to_end = True
        self.ends_busy = 0.0
        #: Asks a producer of the record's group; set by the world.
        self.ask: Callable[[Broker, MessageRecord], None] = lambda _broker, _record: None
        #: Told of every committed copy, and of every half that was ended; for the checkers.
        self.on_copy: Callable[[MessageRecord], None] = lambda _record: None

    # ---- storing

    def append(
        self,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        body: bytes,
        *,
        born_ms: int | None = None,
        system_flag: int = 0,
        prepared_offset: int = 0,
        reconsume_times: int = 0,
        is_queued: bool = True,
        is_indexed: bool = True,
    ) -> MessageRecord:
        """A record at the end of log and queue."""
        log, queue_offset, queue = self.log, 0, None
        if is_queued:
            place = (topic, queue_id)
            queue = self.queues.get(place)
            if queue is None:
                queue = self.queues[place] = []
            queue_offset = self.first_offsets.get(place, 0) + len(queue)
        now_ms = self.clock.now_ms()
        record = MessageRecord(
            topic=topic,
            queue_id=queue_id,
            flag=0,
            queue_offset=queue_offset,
            physical_offset=(len(log) + 1) * RECORD_BYTES,
            system_flag=system_flag,
            born_timestamp_ms=now_ms if born_ms is None else born_ms,
            born_host=self.store_host,
            store_timestamp_ms=now_ms,
            store_host=self.store_host,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_offset,
            body=body,
            properties=properties,
            body_crc=0,
            broker_name=self.name,
        )
        log.append(record)
        self.stored_at.append(self.kernel.now)
        if queue is not None:
            queue.append(record)
        unique_key = properties.get("UNIQ_KEY", "")
        self.of_key.setdefault(unique_key, []).append(record)
        if is_indexed:
            words = set(properties["KEYS"].split()) if "KEYS" in properties else set()
            if self.facts.indexes_unique_key and unique_key:
                words.add(unique_key)
            for word in words:
                hits = self.index.get((topic, word))
                if hits is None:
                    self.index[topic, word] = [record]
                else:
                    hits.append(record)
        return record

    def at_offset(self, physical_offset: int) -> MessageRecord | None:
        """The record at a commit-log offset."""
        number, rest = divmod(physical_offset, RECORD_BYTES)
        if rest or not 0 < number <= len(self.log):
            return None
        return self.log[number - 1]

    def has_copy(self, key: str, topics: tuple[str, ...]) -> bool:
        """Whether the log still holds a record of the message in one of the topics, however its queue was left."""
        return any(r.topic in topics and r.body != THEIRS for r in self._held(key))

    def has_committed(self, key: str) -> bool:
        """Whether the log still holds a copy of the message under its topic."""
        topics = (HALF_TOPIC, SCHEDULE_TOPIC, DISCARD_TOPIC)
        copies = (r for r in self._held(key) if r.system_flag != PREPARED and r.body != THEIRS)
        return any(r.topic not in topics and r.topic[0] != "%" for r in copies)

    def has_half(self, key: str) -> bool:
        """Whether the log still holds a half of the message."""
        return any(r.topic == HALF_TOPIC or r.system_flag == PREPARED for r in self._held(key))

    def _held(self, key: str) -> list[MessageRecord]:
        return [record for record in self.of_key.get(key, ()) if self.at_offset(record.physical_offset) is record]

    def query(self, topic: str, key: str) -> list[MessageRecord]:
        """QUERY_MESSAGE: what the index has by now."""
        self._index()
        limit = self.indexed * RECORD_BYTES
        found = [r for r in self.index.get((topic, key), ()) if self.at_offset(r.physical_offset) is r]
        visible = [r for r in found if r.physical_offset <= limit]
        if len(visible) < len(found):
            self.kernel.saw("index behind a look-up", f"{self.name} {topic} {key[-4:]}")
        return visible

    def _index(self) -> None:
        now = self.kernel.now
        if now < self.index_stalled_until:
            return
        # The times grow.
        self.indexed = bisect_right(self.stored_at, now - self.settings.index_lag, self.indexed)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Lowest offset and the offset of the next record."""
        first = self.first_offsets.get((topic, queue_id), 0)
        return first, first + len(self.queues.get((topic, queue_id), ()))

    def read(self, topic: str, queue_id: int, offset: int, maximum: int) -> list[MessageRecord]:
        """Records of a queue."""
        start = offset - self.first_offsets.get((topic, queue_id), 0)
        return self.queues.get((topic, queue_id), [])[max(0, start) : max(0, start) + maximum]

    def is_queued(self, record: MessageRecord) -> bool:
        """The queue still has the record at its offset."""
        return self.read(record.topic, record.queue_id, record.queue_offset, 1) == [record]

    def keys_of(self, topic: str, queue_id: int) -> set[str]:
        """Keys of what lies in a queue."""
        return {record.unique_key for record in self.queues.get((topic, queue_id), ())}

    # ---- transactions

    def send_half(
        self, topic: str, queue_id: int, properties: Mapping[str, str], body: bytes, *, born_ms: int
    ) -> MessageRecord:
        """A half, where the family keeps them."""
        if not self.facts.has_half_topic:
            return self.append(
                topic, queue_id, properties, body, born_ms=born_ms, system_flag=PREPARED, is_queued=False
            )
        with_place = {**properties, "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        return self.append(HALF_TOPIC, 0, with_place, body, born_ms=born_ms)

    def end(self, *, group: str, table_offset: int, log_offset: int, is_commit: bool) -> Answer:
        """END_TRANSACTION: no bookkeeping whatsoever, so every accepted COMMIT delivers once more."""
        if self.is_disk_full:
            self.kernel.saw("broker disk full", "END")
            return 14, "Service not available now."
        if self.ends_busy and self.kernel.dice.random() < self.ends_busy:
            self.kernel.saw("END refused: system busy")
            return 2, "[OVERLOAD]system busy"
        half = self.at_offset(log_offset)
        if half is None:
            return GONE
        if half.properties.get("PGROUP") != group:
            return 1, "The producer group wrong"
        if half.queue_offset != table_offset:
            return 1, "The transaction state table offset wrong"
        if is_commit:
            topic = half.properties.get("REAL_TOPIC") if self.facts.has_half_topic else half.topic
            if topic is None:
                return 1, "java.lang.NumberFormatException: null"
            queue_id = int(half.properties.get("REAL_QID", half.queue_id))
            copy = self.append(
                topic,
                queue_id,
                half.properties,
                half.body,
                born_ms=half.born_timestamp_ms,
                system_flag=COMMIT,
                prepared_offset=log_offset,
                is_indexed=self.facts.indexes_committed,
            )
            self.on_copy(copy)
        if self.facts.has_half_topic:
            # 5.1 and newer write OP records in batches, up to three seconds late.
            late = 3.0 * self.kernel.dice.random() if self.facts.family == "5.1+" else 0.0
            self.kernel.after(late, lambda: self.finished.add(half.queue_offset))
        return 0, ""

    def check_round(self) -> None:
        """TransactionalMessageServiceImpl.check, one round; plans the next one."""
        self.kernel.after(self.settings.check_interval, self.check_round)
        self.check_now()

    def check_now(self) -> None:
        """The round itself."""
        if self.kernel.now < max(self.link.down_until, self.checks_stand_until):
            return
        now_ms = self.clock.now_ms()
        halves = self.queues.get((HALF_TOPIC, 0), [])
        first = self.first_offsets.get((HALF_TOPIC, 0), 0)
        position = max(self.check_position, first)
        while position - first < len(halves):
            half = halves[position - first]
            if position not in self.finished and not self._treat(half, now_ms):
                break
            position += 1
        self.check_position = position

    def _treat(self, half: MessageRecord, now_ms: int) -> bool:
        times = int(half.properties.get("TRANSACTION_CHECK_TIMES", "0"))
        if times >= self.settings.check_max:
            self.kernel.saw("check-back gave up", half.unique_key[-4:])
            if self.facts.keeps_discarded:
                self.append(DISCARD_TOPIC, 0, half.properties, half.body, born_ms=half.born_timestamp_ms)
            return True
        if half.store_timestamp_ms >= now_ms:
            return False
        if now_ms - half.born_timestamp_ms <= self.settings.transaction_timeout * 1000:
            return False
        properties = {**half.properties, "TRANSACTION_CHECK_TIMES": str(times + 1)}
        copy = self.append(HALF_TOPIC, 0, properties, half.body, born_ms=half.born_timestamp_ms)
        self.kernel.saw("half put back", half.unique_key[-4:])
        self.ask(self, copy)
        return True

    # ---- consumers

    def send_back(self, record: MessageRecord, group: str) -> None:
        """CONSUMER_SEND_MSG_BACK: the message comes again later, or is dead-lettered."""
        topic = record.properties.get("RETRY_TOPIC", record.topic)
        times = record.reconsume_times + 1
        properties = {"ORIGIN_MESSAGE_ID": record.offset_message_id, **record.properties, "RETRY_TOPIC": topic}
        properties.pop("REAL_TOPIC", None)
        if times > self.settings.retries_max:
            self.kernel.saw("dead-lettered", f"{group} {record.unique_key[-4:]}")
            self.append(dead_letter_topic(group), 0, properties, record.body, reconsume_times=times)
            return
        retry = retry_topic(group)
        waiting = {**properties, "REAL_TOPIC": retry, "REAL_QID": "0"}
        self.append(SCHEDULE_TOPIC, times, waiting, record.body, reconsume_times=times)
        self._retry_later(retry, properties, record.body, times)

    def _retry_later(self, retry: str, properties: Mapping[str, str], body: bytes, times: int) -> None:
        pause = self.settings.retry_delay * min(times, 4)
        place = (retry, properties.get("UNIQ_KEY", ""))
        self.delayed[place] += 1

        def come() -> None:
            self.delayed[place] -= 1
            self.append(retry, 0, properties, body, reconsume_times=times)

        self.kernel.after(pause, come)

    # ---- what may happen to it

    def lose_tail(self, seconds: float) -> int:
        """Restarts without what it had not flushed: records of the last seconds are gone. Returns how many."""
        self.era += 1
        self.popped.forget_subscriptions()
        keep = len(self.log)
        while keep and self.stored_at[keep - 1] > self.kernel.now - seconds:
            keep -= 1
        lost = [record for record in self.log[keep:] if record is not None]
        # Offsets are bytes: those of new records do not hit the lost ones' by accident.
        self.log[keep:] = [None] * (len(self.log) - keep)
        gone = {id(record) for record in lost}
        for queue in self.queues.values():
            while queue and id(queue[-1]) in gone:
                queue.pop()
        for hits in self.index.values():
            hits[:] = [record for record in hits if id(record) not in gone]
        halves = self.bounds(HALF_TOPIC, 0)[1]
        self.finished = {offset for offset in self.finished if offset < halves}
        self.check_position = min(self.check_position, halves)
        for record in lost:
            # The delay service's progress is older than what was lost: what is due is delivered once more.
            if record.topic.startswith("%RETRY%"):
                self._retry_later(record.topic, record.properties, record.body, record.reconsume_times)
        for key in list(self.offsets):
            self.offsets[key] = min(self.offsets[key], self.bounds(key[1], key[2])[1])
        return len(lost)

    def begin_anew(self, topic: str) -> int:
        """The topic is deleted and created again: offsets begin at 0. Returns how many records are gone."""
        self.era += 1
        places = [place for place in self.queues if place[0] == topic]
        lost = sum(len(self.queues[place]) for place in places)
        for place in places:
            self.queues[place], self.first_offsets[place] = [], 0
        return lost

    def forget_halves(self, key: str) -> int:
        """Retention has come as far as the last half of a message. Returns how many were left of it."""
        left = [half for half in self.index.get((HALF_TOPIC, key), ()) if self.at_offset(half.physical_offset) is half]
        for half in left:
            self.log[half.physical_offset // RECORD_BYTES - 1] = None
        return len(left)

    def expire(self, seconds: float) -> int:
        """Retention: everything stored longer ago is deleted. Returns how many records."""
        expired = 0
        for number, (record, at) in enumerate(zip(self.log, self.stored_at, strict=True)):
            if at > self.kernel.now - seconds:
                break
            if record is not None:
                self.log[number] = None
                expired += 1
        for place, queue in self.queues.items():
            kept = [record for record in queue if self.at_offset(record.physical_offset) is record]
            self.first_offsets[place] = self.first_offsets.get(place, 0) + len(queue) - len(kept)
            self.queues[place] = kept
        return expired
