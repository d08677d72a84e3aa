"""One look at the halves of one master. The method BrokerScan.run shows the order of the steps.

The check service's saved offset limits the work. Every half below this offset was ended, put back or given up. So an
open half costs one record, however many halves the topic has. The ends are read again after the halves. So a half that
is called open was still open after all halves were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import AccessRefused, Lacking, ReconcilerError, without_remedy
from reconciler.halves.classify import (
    Identity,
    NotEnded,
    given_up,
    newest_of_each,
    open_halves,
    stands_seconds,
    uncounted_halves,
    unnamed_halves,
    walked_halves,
)
from reconciler.halves.ended import OffsetBits, Places
from reconciler.halves.half_topic import IN_FLIGHT, NO_KEYS, DeliveredCopies, MasterQueues, ReadingRate, half_copy
from reconciler.halves.log_walk import LogHalves, LogWalk, places_of_queues
from reconciler.halves.outcomes import property_of
from reconciler.halves.places import MARGIN_MS, PlacesReader, topic_gone
from reconciler.halves.values import BrokerFindings, CheckRules, Half, HalfCopy
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.broker_facts import BrokerFacts
from reconciler.rocketmq.wire.codes import (
    CHECK_GROUP,
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
)
from reconciler.rocketmq.wire.record import MessageRecord

NOT_REACHED = Code("scan.not-reached", why=Field.TEXT)
REFUSED = Code("scan.refused", why=Field.TEXT)
IN_NO_QUEUE = Code("scan.in-no-queue", version=Field.NAME)
BEFORE_FIRST_ROUND = Code("scan.before-first-round", number=Field.NUMBER)
WITHOUT_SAVED_OFFSET = Code("scan.without-saved-offset", why=Field.TEXT)
WITHOUT_ENDED = Code("scan.without-ended")
IN_ROCKSDB = Code("scan.in-rocksdb", since_ms=Field.TIME)
ROCKSDB_UNREAD = Code("scan.rocksdb-unread", why=Field.TEXT)
GIVEN_UP_UNREAD = Code("scan.given-up-unread", why=Field.TEXT)
MORE_GIVEN_UP = Code("scan.more-given-up", number=Field.NUMBER, shown=Field.NUMBER)
GIVEN_UP_SINCE = Code("scan.given-up-since", since_ms=Field.TIME)
PRODUCERS_UNKNOWN = Code("scan.producers-unknown", why=Field.TEXT)
DELIVERED_UNKNOWN = Code("scan.delivered-unknown", broker=Field.NAME, why=Field.TEXT)
TOO_MANY = Code("scan.too-many", number=Field.NUMBER, looked_up=Field.NUMBER)
STRANGE_ENDS = Code("scan.strange-ends", number=Field.NUMBER)

#: Most given-up halves that are shown: the newest ones.
GIVEN_UP_MAX = 10_000
#: Maximum number of halves whose messages are looked up in their topics, because each look-up costs a request.
LOOK_UPS_MAX = 100_000
#: Age up to which halves are searched for those that were given up without a trace (brokers up to 4.5.1).
SILENT_MS = 24 * 3_600_000
#: Most OP records that are read one by one. Brokers up to 5.0 need a request for each of them. With more records, the
#: margin before the first half is shortened.
_SINGLE_ENDS_MAX = 100_000

#: Longest wait for ends that a broker batches. A busy broker fills each batch at once, so its ends need no wait.
_ENDS_SEEN_AFTER_SECONDS_MAX = 10.0

#: A function that shows the progress. The arguments are the broker, the number of records that were read, and the
#: number of records to read.
Progress = Callable[[str, int, int], None]


class BrokerScan:
    """One scan of a broker, for one thread. `findings` has the results so far, even after `run` was interrupted."""

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
        since_ms: int | None = None,
        is_counting: bool = False,
        walks: bool = False,
        keys: Mapping[str, str] = NO_KEYS,
    ) -> None:
        """`since_ms` limits given-up halves and counted halves to those that were stored since then. `is_counting`
        counts the outcomes of all halves, which reads all halves and the queues of their topics. `walks`: True to walk
        the log of a broker up to 4.2 record by record. `keys`: as in half_copy()."""
        self._client = client
        self._address = masters[broker]
        self._clock = clock
        self._families = families
        self._admin = Admin(client)
        self._pace = ReadingRate(clock, records_per_second)
        self._queues = MasterQueues(client, broker, self._address, pace=self._pace)
        self._delivered = DeliveredCopies(client, masters, pace=self._pace)
        self._progress = progress
        self._since_ms = since_ms
        self._is_counting = is_counting
        self._walks = walks
        self._keys = keys
        #: The ends and the remaining halves while halves are read. None at other times.
        self._reading: tuple[HalfLook, NotEnded] | None = None
        self.findings = BrokerFindings(broker=broker, address=self._address)

    def run(self) -> BrokerFindings:
        """Reads, decides and returns the findings. An error of a broker is not raised, but kept in `unread`."""
        try:
            self._run()
        except ReconcilerError as error:
            self.findings.unread = why_unread(error)
        for broker, why in self._delivered.failures.items():
            self.findings.note(DELIVERED_UNKNOWN(broker=broker, why=why))
        self.findings.is_finished = True
        return self.findings

    def so_far(self) -> BrokerFindings:
        """Returns the findings after `run` was interrupted. These findings do not show whether open halves were
        delivered."""
        if self._reading is not None and not self.findings.halves:
            look, not_ended = self._reading
            now_ms = self._clock.now_ms()
            halves = open_halves(not_ended.copies(), rules=look.rules, now_ms=now_ms, delivered={}, ended_before=())
            self.findings.halves = tuple(halves) if look.source.is_readable else ()
        return self.findings

    def _run(self) -> None:
        found = self.findings
        facts = self._families.facts(self._address)
        info = self._admin.runtime_info(self._address)
        found.version = version_of(info)
        config = self._admin.broker_config(self._address)
        rules = check_rules(config, facts)
        if not facts.has_half_topic:
            if self._walks:
                self._walk(LogWalk(self._client, found.broker, self._address, config=config, pace=self._pace), rules)
            else:
                found.unread = in_no_queue(found.version)
            return
        # The saved offset is read before the end of the queue. So copies that a round puts back between the two reads
        # lie before this end.
        saved = self._saved_offset()
        bounds = self._queues.bounds(HALF_TOPIC)
        if bounds is None:
            if unseen := self._queues.maximum(HALF_TOPIC):
                found.unread = before_first_round(unseen)
            return
        begin = bounds[0] if saved is None else min(max(bounds), max(bounds[0], saved))
        started_ms = None if saved is None else int(info.get("bootTimestamp", "0"))
        look = HalfLook(rules, OffsetBits(*bounds), EndsSource(self._queues))
        copies = self._not_ended(look, begin, bounds[1], started_ms=started_ms)
        # Given-up halves are read after the other halves. So a half that is given up in between is found in one of both
        # places.
        parked = self._given_up(rules) if facts.keeps_discarded else self._given_up_in_silence(rules, bounds[0], begin)
        still = {copy.identity: copy for copy in copies if not _is_behind(copy, parked)}
        parked = {identity: copy for identity, copy in parked.items() if identity not in still}
        found.halves = tuple(self._classified(look, list(still.values())))
        found.halves += tuple(given_up(parked.values(), rules=rules, delivered=self._looked_up(parked)))
        if facts.may_keep_halves_in_rocksdb:
            found.halves += tuple(self._in_rocksdb(rules))
        found.halves = self._with_producers(found.halves)
        if self._is_counting:
            self._count_outcomes(look, bounds)

    def _saved_offset(self) -> int | None:
        """Returns the saved offset. Returns None if no round has saved an offset yet, or if the account may not ask.
        Without the offset, all halves are read."""
        try:
            return self._queues.saved_offset(HALF_TOPIC, CHECK_GROUP)
        except AccessRefused as error:
            self.findings.note(WITHOUT_SAVED_OFFSET(why=str(error)))
            return None

    # ----------------------------------------------------------------- halves about which the broker still asks

    def _not_ended(self, look: HalfLook, begin: int, end: int, *, started_ms: int | None) -> list[HalfCopy]:
        """Returns the newest copies that nothing had ended when the queue was read. `started_ms` is None if the saved
        offset is unknown. Without this offset, nothing shows whether the check service stands still before the first
        half."""
        if begin >= end:
            return []
        source, ends = look.source, look.ends
        first = next(self._queues.records(HALF_TOPIC, begin, begin + 1), None)
        if first is not None and source.is_readable:
            self._read_ends(look, source.begin(first.store_timestamp_ms, self._clock.now_ms(), look.rules))
            if started_ms is not None and begin not in ends:
                copy = self._copy(first, look.rules)
                now_ms = self._clock.now_ms()
                self.findings.stands_seconds = stands_seconds(copy, look.rules, now_ms=now_ms, started_ms=started_ms)
        not_ended = NotEnded(ends)
        self._reading = look, not_ended
        for record in self._queues.records(HALF_TOPIC, begin, end):
            not_ended.add(self._copy(record, look.rules))
            self._show(record.queue_offset - begin, end - begin)
        if first is not None and source.is_readable:
            self._read_ends(look, source.read_until)
            if put_back := [copy for copy in not_ended.copies() if copy.is_put_back]:
                # The broker asked about the newest put-back half a moment ago. The producer's answer may not be visible
                # yet.
                newest_ms = max(copy.store_ms for copy in put_back)
                seen_ms = newest_ms + round(look.rules.ended_seen_after_seconds * 1000)
                self._clock.sleep(min(look.rules.ended_seen_after_seconds, (seen_ms - self._clock.now_ms()) / 1000))
                self._read_ends(look, source.read_until)
        if ends.strangers:
            self.findings.note(STRANGE_ENDS(number=ends.strangers))
        return not_ended.copies()

    def _classified(self, look: HalfLook, copies: list[HalfCopy]) -> Iterable[Half]:
        now_ms = self._clock.now_ms()
        delivered = self._looked_up({copy.identity: copy for copy in copies})
        if not look.source.is_readable:
            self.findings.note(WITHOUT_ENDED())
            return unnamed_halves(copies, rules=look.rules, now_ms=now_ms, delivered=delivered)
        before = self._ended_before([one for one in copies if one.is_put_back], look.ends)
        return open_halves(copies, rules=look.rules, now_ms=now_ms, delivered=delivered, ended_before=before)

    def _read_ends(self, look: HalfLook, begin: int) -> None:
        bounds = self._queues.bounds(HALF_TOPIC)
        if bounds is not None:
            look.ends.grow(bounds[1])
        for offset in look.source.read(begin):
            look.ends.add(offset)

    def _ended_before(self, copies: list[HalfCopy], ends: OffsetBits) -> set[Identity]:
        """Returns the halves with an older copy that was ended. A half whose copies cannot be looked up counts as not
        ended."""

        def is_ended(copy: HalfCopy) -> bool:
            with suppress(ReconcilerError):
                return any(offset in ends for offset in self._queues.half_offsets(copy.unique_key))
            return False

        known = [copy for copy in copies[:LOOK_UPS_MAX] if copy.unique_key]
        with ThreadPoolExecutor(max_workers=IN_FLIGHT, thread_name_prefix="scan-copies") as pool:
            return {copy.identity for copy, is_it in zip(known, pool.map(is_ended, known), strict=True) if is_it}

    def _walk(self, walk: LogWalk, rules: CheckRules) -> None:
        """Walks the log, then walks the records that came meanwhile, because a later record may end a half of the first
        walk."""
        begin, end = self._log_bounds()
        topics = self._admin.topics(self._address)
        places, before = places_of_queues(self._queues, topics, self._since_ms)
        begin = max(begin, before)
        halves, walked, done_until = LogHalves(self._since_ms or 0, keys=self._keys), 0, begin
        while done_until < end:
            for record, size in walk.records(walk.starts(done_until, end, places), end):
                halves.add(record)
                walked += size
                self._show(walked, end - begin, each=1)
            done_until = end
            if not places:
                break
            places, end = set(), self._log_bounds()[1]
        now_ms = self._clock.now_ms()
        self.findings.halves = tuple(walked_halves(halves.open(), rules=rules, now_ms=now_ms))
        if self._is_counting:
            self.findings.outcomes = halves.outcomes

    def _log_bounds(self) -> tuple[int, int]:
        info = self._admin.runtime_info(self._address)
        return int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])

    # ----------------------------------------------------------------- halves that were given up

    def _given_up(self, rules: CheckRules) -> dict[Identity, HalfCopy]:
        """Returns the last halves of TRANS_CHECK_MAX_TIME_TOPIC (4.5.2 and newer)."""
        try:
            bounds = self._queues.bounds(DISCARD_TOPIC)
            if bounds is None:
                return {}
            first = bounds[0]
            if self._since_ms is not None:
                first = self._queues.at_time(DISCARD_TOPIC, self._since_ms, otherwise=first)
            begin = max(bounds[0], first, bounds[1] - GIVEN_UP_MAX)
            records = self._queues.records(DISCARD_TOPIC, begin, bounds[1])
            found = newest_of_each(self._copy(record, rules) for record in records)
        except ReconcilerError as error:
            self.findings.note(GIVEN_UP_UNREAD(why=str(error)))
            return {}
        if begin > max(bounds[0], first):
            self.findings.note(MORE_GIVEN_UP(number=bounds[1] - bounds[0], shown=GIVEN_UP_MAX))
        return found

    def _given_up_in_silence(self, rules: CheckRules, first: int, until: int) -> dict[Identity, HalfCopy]:
        """Returns the given-up halves of a broker up to 4.5.1. Such a half leaves only a line in the broker's log, and
        its last copy below the saved offset."""
        since_ms = self._clock.now_ms() - SILENT_MS if self._since_ms is None else self._since_ms
        self.findings.note(GIVEN_UP_SINCE(since_ms=since_ms))
        begin = max(first, self._queues.at_time(HALF_TOPIC, since_ms, otherwise=first))
        asked_out: dict[Identity, HalfCopy] = {}
        for record in self._queues.records(HALF_TOPIC, begin, until):
            if record.properties.get("TRANSACTION_CHECK_TIMES"):
                copy = self._copy(record, rules)
                if copy.asked >= rules.questions_max:
                    asked_out[copy.identity] = copy
            self._show(record.queue_offset - begin, until - begin)
        return asked_out

    def _count_outcomes(self, look: HalfLook, bounds: tuple[int, int]) -> None:
        """Reads all halves, all ends, and all messages of their topics on this broker."""
        since_ms, read = self._since_ms or 0, PlacesReader(self._queues, show=partial(self._show, each=1))
        begin = max(bounds[0], self._queues.at_time(HALF_TOPIC, since_ms, otherwise=bounds[0]))
        read.halves(begin, bounds[1])
        if look.source.is_readable:
            self._read_ends(look, look.source.since(since_ms - MARGIN_MS))
        queues = self._admin.topics(self._address)
        for topic in sorted(read.places.topics):
            if topic not in queues:
                self.findings.note(topic_gone(topic))
            read.committed(topic, queues.get(topic, 0), since_ms - MARGIN_MS)
        self.findings.outcomes = read.places.outcomes(look.ends if look.source.is_readable else None)

    def _in_rocksdb(self, rules: CheckRules) -> Iterator[Half]:
        """Yields the halves of the requested time, or of the last day, that the broker stores in RocksDB.

        A half in RocksDB is never put back, and clients cannot read the number of questions about it. So the age of a
        half decides whether it was given up. Each END has an OP record with the place of its half.
        """
        since_ms = self._clock.now_ms() - SILENT_MS if self._since_ms is None else self._since_ms
        try:
            bounds = self._queues.bounds(ROCKSDB_HALF_TOPIC)
            if bounds is None or bounds[0] == bounds[1]:
                return
            self.findings.note(IN_ROCKSDB(since_ms=since_ms))
            ended, until = self._ended_in_rocksdb(since_ms - MARGIN_MS, 0)
            begin = self._queues.at_time(ROCKSDB_HALF_TOPIC, since_ms, otherwise=bounds[0])
            left: dict[int, HalfCopy] = {}
            for record in self._queues.records(ROCKSDB_HALF_TOPIC, max(bounds[0], begin), bounds[1]):
                if record.physical_offset not in ended:
                    left[record.physical_offset] = self._copy(record, rules)
                self._show(record.queue_offset - begin, bounds[1] - begin)
            for place in self._ended_in_rocksdb(0, until)[0]:
                left.pop(place, None)
        except ReconcilerError as error:
            self.findings.note(ROCKSDB_UNREAD(why=str(error)))
            return
        delivered = self._looked_up({copy.identity: copy for copy in left.values()})
        yield from uncounted_halves(left.values(), rules=rules, now_ms=self._clock.now_ms(), delivered=delivered)

    def _ended_in_rocksdb(self, since_ms: int, begin: int) -> tuple[Places, int]:
        """Returns the places of ended halves, and the end of the topic with their OP records."""
        first, end = self._queues.bounds(ROCKSDB_OP_TOPIC) or (0, 0)
        begin = max(begin, first, self._queues.at_time(ROCKSDB_OP_TOPIC, since_ms, otherwise=first))
        heads = chain.from_iterable(self._queues.heads(ROCKSDB_OP_TOPIC, 0, begin, end))
        texts = (property_of(head.properties, b"\x02TRANS_OFFSET\x01") for head in heads)
        return Places(int(text) for text in texts if text.isdigit()), end

    # ----------------------------------------------------------------- questions to brokers about halves

    def _looked_up(self, copies: Mapping[Identity, HalfCopy]) -> dict[Identity, bool | None]:
        """Looks up the LOOK_UPS_MAX oldest halves. The result says nothing about further halves."""
        asked = sorted(copies.values(), key=lambda copy: copy.born_ms)[:LOOK_UPS_MAX]
        if len(asked) < len(copies):
            self.findings.note(TOO_MANY(number=len(copies), looked_up=len(asked)))
        return self._delivered.of(asked)

    def _with_producers(self, halves: tuple[Half, ...]) -> tuple[Half, ...]:
        connected: dict[str, int | None] = {}
        for group in sorted({half.copy.producer_group for half in halves if half.asked_until_ms is not None}):
            try:
                connected[group] = len(self._admin.producer_connections(self._address, group))
            except ReconcilerError as error:
                connected[group] = None
                if None not in list(connected.values())[:-1]:
                    self.findings.note(PRODUCERS_UNKNOWN(why=str(error)))
        return tuple(replace(half, producers=connected.get(half.copy.producer_group)) for half in halves)

    def _copy(self, record: MessageRecord, rules: CheckRules) -> HalfCopy:
        return half_copy(record, timeout_seconds=rules.timeout_seconds, keys=self._keys)

    def _show(self, read: int, of: int, *, each: int = 1_000) -> None:
        self.findings.records_read = self._pace.records
        if read % each == 0:
            self._progress(self.findings.broker, read, of)


@dataclass(frozen=True, slots=True)
class HalfLook:
    """The rules, the known ends, and the source of further ends for one look at the half topic."""

    rules: CheckRules
    ends: OffsetBits
    source: EndsSource


class EndsSource:
    """Reads the OP records of one master. Brokers from 5.0 on let clients pull OP records. On brokers from 4.7 to 4.9,
    the entries of the OP queue lead to OP records. Older brokers do not show OP records."""

    def __init__(self, queues: MasterQueues) -> None:
        self._queues = queues
        bounds = queues.bounds(OP_TOPIC)
        self._is_pulled = bounds is not None
        self._first = 0 if bounds is None else bounds[0]
        self.read_until = self._first
        self.is_readable = self._is_pulled or queues.shows_unregistered(OP_TOPIC, queues.maximum(OP_TOPIC))

    def begin(self, first_half_ms: int, now_ms: int, rules: CheckRules) -> int:
        """Returns the offset at which to begin, so that ends of older copies are also read."""
        older_ms = min(first_half_ms, now_ms - round(rules.asked_for_seconds * 1000)) - MARGIN_MS
        begin = self.since(older_ms)
        if not self._is_pulled and self._queues.maximum(OP_TOPIC) - begin > _SINGLE_ENDS_MAX:
            begin = self.since(first_half_ms - 60_000)
        return begin

    def since(self, time_ms: int) -> int:
        """Returns the offset of the first OP record since a time."""
        return max(self._first, self._queues.at_time(OP_TOPIC, time_ms, otherwise=self._first))

    def read(self, begin: int) -> Iterator[int]:
        """Yields the offsets of ended halves that OP records from `begin` to the present end name."""
        if self._is_pulled:
            bounds = self._queues.bounds(OP_TOPIC)
            end = begin if bounds is None else bounds[1]
        else:
            end = self._queues.maximum(OP_TOPIC)
        self.read_until = max(begin, end)
        return self._queues.ended(begin, end, is_pulled=self._is_pulled)


def check_rules(config: Mapping[str, str], facts: BrokerFacts) -> CheckRules:
    """Returns the check rules of a broker. A rule that the configuration does not name comes from the broker's
    version."""

    def milliseconds(name: str, default_seconds: float) -> float:
        text = config.get(name, "")
        return int(text) / 1000 if text.isdigit() else default_seconds

    questions, hours = config.get("transactionCheckMax", ""), config.get("fileReservedTime", "")
    return CheckRules(
        timeout_seconds=milliseconds("transactionTimeOut", facts.transaction_timeout_seconds),
        interval_seconds=milliseconds("transactionCheckInterval", facts.transaction_check_interval_seconds),
        questions_max=int(questions) if questions.isdigit() else facts.transaction_check_maximum,
        retention_seconds=3600.0 * (int(hours) if hours.isdigit() else 72),
        ended_seen_after_seconds=min(
            milliseconds("transactionOpBatchInterval", 3.0) + 1.0 if facts.batches_finished else 1.0,
            _ENDS_SEEN_AFTER_SECONDS_MAX,
        ),
    )


def version_of(info: Mapping[str, str]) -> str:
    """Returns the release of a broker, such as "5.3.3"."""
    return info.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".")


def in_no_queue(version: str) -> Fact:
    """Returns the fact that the broker stores halves in no queue, so that they cannot be pulled."""
    return IN_NO_QUEUE(version=version)


def before_first_round(number: int) -> Fact:
    """Returns the fact that the half topic cannot be pulled yet."""
    return BEFORE_FIRST_ROUND(number=number)


def why_unread(error: ReconcilerError) -> Fact:
    """Returns the reason why halves were not read. For a refusal without a missing right, leaves out the remedy,
    because it names a setting."""
    if isinstance(error, AccessRefused) and error.lacking is not Lacking.RIGHT:
        return REFUSED(why=without_remedy(error))
    return NOT_REACHED(why=str(error))


def _is_behind(copy: HalfCopy, parked: Mapping[Identity, HalfCopy]) -> bool:
    """Returns True if the half was given up after this copy was stored."""
    given = parked.get(copy.identity)
    return given is not None and given.commit_log_offset > copy.commit_log_offset
