"""Looks up messages by key. Each broker's answer is FOUND, ABSENT or UNKNOWN. "Not found" raises nothing.

QUERY_MESSAGE compares only a 31-bit hash of topic and key, so this module compares every hit again. The number of hits
is limited. A broker answers "not found" also if its index failed or is behind. So ABSENT means only that the index has
no such message now. A caller that acts on ABSENT needs a horizon (horizon.py).
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from reconciler.contract.answers import NO_MASTER, NOTHING_AT, SCANNED
from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.evidence.broker_answer import MAXIMUM_HITS, Accepts, BrokerAnswer, answer_of_hits, merge_answers
from reconciler.evidence.queue_scan import copies_of_prepared
from reconciler.evidence.stored_message import real_topic
from reconciler.policy.evidence import Lookup, Presence, StoredMessage
from reconciler.policy.ports.asked import Asked, known
from reconciler.rocketmq.client.connection import ConnectionLost, PeerSilent
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes, TopicNotFound, Whereabouts
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.broker_facts import BrokerFacts
from reconciler.rocketmq.wire.codes import DISCARD_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import MessageRecord, TransactionType, decode_records

#: A number of hits that fits into one frame, even if each message has the largest size (4 MiB).
FEW_HITS = 3
#: Java's Long.MAX_VALUE.
END_OF_TIME_MS = 2**63 - 1

#: The remark of VIEW_MESSAGE_BY_ID if the log has no message at the offset (QueryMessageProcessor.viewMessageById).
_NOTHING_THERE = "can not find message by the offset"


def query_messages(
    client: RemotingClient,
    address: str,
    topic: str,
    key: str,
    *,
    maximum: int = MAXIMUM_HITS,
    begin_ms: int = 0,
    broker_name: str = "",
    by_unique_key: bool = False,
) -> list[MessageRecord]:
    """Returns the hits of QUERY_MESSAGE at one broker, hash collisions included. Empty for "not found" (code 22).

    `by_unique_key`: True for a UNIQ_KEY, False for a word of KEYS. 5.4's RocksDB index has separate entries for
    UNIQ_KEY and for KEYS.

    Raises BrokerUnavailable, RequestTimeout, BrokerBusy, BrokerRefused or ProtocolViolation.
    """
    command = _query(topic, key, maximum, begin_ms, by_unique_key=by_unique_key)
    return _hits(client.request(address, command), topic, broker_name)


def query_newest(client: RemotingClient, address: str, topic: str, unique_key: str) -> list[MessageRecord]:
    """Returns the hits of a UNIQ_KEY. Returns the newest FEW_HITS if the hits do not fit into one frame."""
    return query_fitting(client, address, topic, unique_key, by_unique_key=True)[0]


def query_fitting(
    client: RemotingClient, address: str, topic: str, key: str, *, by_unique_key: bool, broker_name: str = ""
) -> tuple[list[MessageRecord], bool]:
    """Returns the hits, and True if these are all hits. If the hits do not fit into one frame, the connection ends, and
    the newest FEW_HITS are returned."""
    ask = partial(
        query_messages, client, address, topic, key, by_unique_key=by_unique_key, broker_name=broker_name
    )  # fmt: skip
    try:
        return ask(), True
    except ConnectionLost as error:
        if _is_silence(error):
            raise
    newest = ask(maximum=FEW_HITS)
    return newest, len(newest) < FEW_HITS


def records_at(
    client: RemotingClient, address: str, commit_log_offset: int, *, broker_name: str = ""
) -> list[MessageRecord]:
    """Returns the record at an offset of one broker's log, whatever its topic. Empty if the log has no message at the
    offset.

    Access control demands no right, because VIEW_MESSAGE_BY_ID names no topic. Raises the errors of query_messages().
    """
    return _record(client.request(address, _record_query(commit_log_offset)), broker_name)


class Lookups:
    """Asks all brokers that may hold messages of a topic at the same time. Thread-safe, without state.

    Each method sends its requests and returns a function. A call of this function awaits the answers.
    """

    def __init__(self, client: RemotingClient, routes: Routes, families: Families) -> None:
        self._client = client
        self._routes = routes
        self._families = families

    def find(self, topic: str, key: str) -> Asked[Lookup[StoredMessage]]:
        """Returns every record under exactly this topic whose UNIQ_KEY is the key, or whose KEYS contain the key.

        A broker with only 5.4's RocksDB index searches UNIQ_KEY only.
        """
        return self._find(topic, topic, key, lambda record: _carries(record, key))

    def committed_copies(self, topic: str, unique_key: str) -> Asked[Lookup[StoredMessage]]:
        """Returns the copies that consumers get: committed copies and ordinary messages.

        3.2.6 does not index committed copies. On 3.2.6, the key finds prepared records, whose queues are scanned.
        """

        def accepts(record: MessageRecord) -> bool:
            return record.unique_key == unique_key and record.transaction_type in (
                TransactionType.NONE,
                TransactionType.COMMIT,
            )

        return self._find(topic, topic, unique_key, accepts, scans=True)

    def messages_of_key(self, topic: str, key: str) -> Asked[Lookup[StoredMessage]]:
        """Returns the messages that consumers get and whose KEYS contain `key`. 3.2.6 does not index committed
        messages."""

        def accepts(record: MessageRecord) -> bool:
            kinds = (TransactionType.NONE, TransactionType.COMMIT)
            return key in record.keys and record.transaction_type in kinds

        return self._find(topic, topic, key, accepts, by_unique_key=False)

    def view_message(self, topic: str, unique_key: str) -> Asked[Lookup[StoredMessage]]:
        """Returns all half copies of the message, the oldest first, for every broker family.

        On brokers up to 4.2, half copies are prepared records of the topic itself, and do not change when the
        transaction ends. On brokers from 5.4 on, half copies may be in one of two topics. The broker's settings at the
        time of the half decide which.
        """
        places = self._places(topic)
        if isinstance(places, Lookup):
            return known(places)
        with_half_topic: list[Whereabouts] = []
        with_two: list[Whereabouts] = []
        without: list[Whereabouts] = []
        unknown: list[BrokerAnswer] = []
        for place in places:
            facts = self._facts(place)
            if isinstance(facts, str):
                unknown.append(BrokerAnswer(place.broker_name, Presence.UNKNOWN, facts))
            else:
                (with_half_topic if facts.has_half_topic else without).append(place)
                if facts.may_keep_halves_in_rocksdb:
                    with_two.append(place)

        def accepts(record: MessageRecord) -> bool:
            return record.unique_key == unique_key and real_topic(record) == topic

        def is_prepared(record: MessageRecord) -> bool:
            return record.unique_key == unique_key and record.transaction_type is TransactionType.PREPARED

        of_half_topic = self._ask(with_half_topic, HALF_TOPIC, unique_key, accepts)
        of_rocksdb = self._ask(with_two, ROCKSDB_HALF_TOPIC, unique_key, accepts)
        of_topic = self._ask(without, topic, unique_key, is_prepared)

        def hear() -> Lookup[StoredMessage]:
            answers, others = of_half_topic(), {one.broker_name: one for one in of_rocksdb()}
            both = [one.and_elsewhere(others[one.broker_name]) if one.broker_name in others else one for one in answers]
            return merge_answers(both + of_topic() + unknown)

        return hear

    def parked_copies(self, topic: str, unique_key: str) -> Asked[Lookup[StoredMessage]]:
        """Returns the copies of given-up halves. Only brokers from 4.5.2 on keep a copy of a half that they give up."""
        return self._find(
            topic,
            DISCARD_TOPIC,
            unique_key,
            lambda record: record.unique_key == unique_key and real_topic(record) == topic,
        )

    def copies_under(
        self, topic: str, stored_topic: str, unique_key: str, *, meant_for: str | None = None
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns the copies under `stored_topic` (retry, dead letters) at the brokers of `topic`.

        `meant_for`: the REAL_TOPIC that a delayed copy must have.
        """

        def accepts(record: MessageRecord) -> bool:
            is_meant = meant_for is None or record.properties.get("REAL_TOPIC") == meant_for
            return record.unique_key == unique_key and is_meant

        return self._find(topic, stored_topic, unique_key, accepts)

    def at_offset(
        self, topic: str, broker_name: str, commit_log_offset: int, unique_key: str
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns the record at an offset of a broker if the record has the unique key. ABSENT if the log has no
        message at the offset (code 1)."""
        places = self._places(topic)
        if isinstance(places, Lookup):
            return known(places)
        place = next((place for place in places if place.broker_name == broker_name), None)
        if place is None or place.master is None:
            return known(Lookup[StoredMessage].unknown(broker_name, NO_MASTER()))
        query = _record_query(commit_log_offset)
        asked = self._submit(place, query)

        def hear() -> Lookup[StoredMessage]:
            try:
                records = self._record_of(place, asked, query)
                if records:
                    heard = answer_of_hits(broker_name, records, lambda one: one.unique_key == unique_key, maximum=2)
                else:
                    heard = BrokerAnswer(broker_name, Presence.ABSENT, NOTHING_AT(offset=commit_log_offset))
            except ReconcilerError as error:
                heard = BrokerAnswer(broker_name, Presence.UNKNOWN, str(error))
            return merge_answers([heard.doubted(place.doubt)])

        return hear

    # ----------------------------------------------------------------- asking

    def _find(
        self,
        topic: str,
        stored_topic: str,
        key: str,
        accepts: Accepts,
        *,
        scans: bool = False,
        by_unique_key: bool = True,
    ) -> Asked[Lookup[StoredMessage]]:
        places = self._places(topic)
        if isinstance(places, Lookup):
            return known(places)
        asked = self._ask(places, stored_topic, key, accepts, scans=scans, by_unique_key=by_unique_key)
        return lambda: merge_answers(asked())

    def _places(self, topic: str) -> list[Whereabouts] | Lookup[StoredMessage]:
        try:
            return self._routes.whereabouts(topic)
        except (TopicNotFound, BrokerUnavailable) as error:
            return Lookup.unknown("route", str(error))

    def _facts(self, place: Whereabouts) -> BrokerFacts | str:
        if place.master is None:
            return place.detail
        try:
            return self._families.facts(place.master)
        except ReconcilerError as error:
            return str(error)

    def _ask(
        self,
        places: list[Whereabouts],
        topic: str,
        key: str,
        accepts: Accepts,
        *,
        scans: bool = False,
        by_unique_key: bool = True,
    ) -> Asked[list[BrokerAnswer]]:
        """`scans`: True to scan queues for committed copies that the index lacks."""
        if not places:
            return known([])
        query = _query(topic, key, MAXIMUM_HITS, by_unique_key=by_unique_key)
        asked = [(place, self._submit(place, query)) for place in places]
        return lambda: [
            self._hear(place, answer, query, accepts, scans=scans).doubted(place.doubt) for place, answer in asked
        ]

    def _submit(self, place: Whereabouts, command: Command) -> Future[Command]:
        """Returns the future answer. A request that cannot be sent has failed already, with the same error."""
        try:
            if place.master is None:
                raise BrokerUnavailable(place.detail)
            return self._client.pipeline(place.master, command)
        except ReconcilerError as error:
            failed: Future[Command] = Future()
            failed.set_exception(error)
            return failed

    def _hear(
        self,
        place: Whereabouts,
        answer: Future[Command],
        query: Command,
        accepts: Accepts,
        *,
        scans: bool,
    ) -> BrokerAnswer:
        topic = query.fields["topic"]
        try:
            hits, maximum = self._hits_of(place, answer, query)
            heard = answer_of_hits(
                place.broker_name, hits, lambda record: record.topic == topic and accepts(record), maximum=maximum
            )
        except ReconcilerError as error:
            return BrokerAnswer(place.broker_name, Presence.UNKNOWN, str(error))
        if not scans or heard.presence is Presence.UNKNOWN:
            return heard
        unindexed = self._unindexed(place, hits, query.fields["key"])
        return heard if unindexed is None else unindexed.and_elsewhere(heard)

    def _unindexed(self, place: Whereabouts, hits: list[MessageRecord], unique_key: str) -> BrokerAnswer | None:
        """Returns the committed copies that the index of 3.2.6 lacks. None if the broker's index has all copies."""
        if place.master is None:
            return None
        try:
            if self._families.facts(place.master).indexes_committed:
                return None
            return self._scan(place.broker_name, place.master, hits, unique_key)
        except ReconcilerError as error:
            return BrokerAnswer(place.broker_name, Presence.UNKNOWN, str(error))

    def _hits_of(self, place: Whereabouts, answer: Future[Command], query: Command) -> tuple[list[MessageRecord], int]:
        """Returns the hits, and the number of hits that was asked for.

        Many copies of a large message do not fit into one frame, and such an answer ends the connection. In this case,
        the newest copies are enough. Other requests on the connection fail, too, so each request is sent again by
        itself.
        """
        name, topic = place.broker_name, query.fields["topic"]
        try:
            return _hits(self._wait(place, answer), topic, name), MAXIMUM_HITS
        except ConnectionLost as error:
            if place.master is None or _is_silence(error):
                raise
            few = replace(query, fields={**query.fields, "maxNum": str(FEW_HITS)})
            newest = _hits(self._client.request(place.master, few), topic, name)
            if len(newest) < FEW_HITS:
                return newest, FEW_HITS
            try:
                return _hits(self._client.request(place.master, query), topic, name), MAXIMUM_HITS
            except ConnectionLost:
                return newest, FEW_HITS

    def _record_of(self, place: Whereabouts, answer: Future[Command], query: Command) -> list[MessageRecord]:
        try:
            return _record(self._wait(place, answer), place.broker_name)
        except ConnectionLost as error:
            if place.master is None or _is_silence(error):
                raise
            return _record(self._client.request(place.master, query), place.broker_name)

    def _wait(self, place: Whereabouts, answer: Future[Command]) -> Command:
        return self._client.wait(answer, self._client.request_timeout_seconds, f"look-up at {place.broker_name}")

    def _scan(self, broker_name: str, address: str, hits: list[MessageRecord], unique_key: str) -> BrokerAnswer:
        """Finds the committed copies of 3.2.6 in the queues of the prepared records."""
        prepared = {
            hit.physical_offset: hit
            for hit in hits
            if hit.unique_key == unique_key and hit.transaction_type is TransactionType.PREPARED
        }
        found: list[MessageRecord] = []
        for offset, hit in prepared.items():
            queue = MessageQueue(topic=hit.topic, broker_name=broker_name, queue_id=hit.queue_id)
            stored_at_ms = hit.store_timestamp_ms
            found += copies_of_prepared(self._client, address, queue, prepared_offset=offset, stored_at_ms=stored_at_ms)
        if not found:
            return BrokerAnswer(broker_name, Presence.ABSENT, SCANNED(number=len(prepared)))
        return answer_of_hits(broker_name, found, lambda record: record.unique_key == unique_key)


def _query(topic: str, key: str, maximum: int, begin_ms: int = 0, *, by_unique_key: bool) -> Command:
    # 5.4's RocksDB index has one kind of entries for UNIQ_KEY and one for words of KEYS, which it searches by default
    # (QueryMessageRequestHeader.indexType). Index files have one kind, and brokers without RocksDB ignore the field.
    fields = {"indexType": "U"} if by_unique_key else {}
    fields |= {
        "topic": topic,
        "key": key,
        "maxNum": str(maximum),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(END_OF_TIME_MS),
    }
    return Command(code=RequestCode.QUERY_MESSAGE, fields=fields)


def _hits(answer: Command, topic: str, broker_name: str) -> list[MessageRecord]:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    return decode_records(require_success(answer, f"look-up in {topic}").body, broker_name)


def _record_query(commit_log_offset: int) -> Command:
    return Command(code=RequestCode.VIEW_MESSAGE_BY_ID, fields={"offset": str(commit_log_offset)})


def _record(answer: Command, broker_name: str) -> list[MessageRecord]:
    if answer.code == ResponseCode.SYSTEM_ERROR and _NOTHING_THERE in (answer.remark or ""):
        return []
    return decode_records(require_success(answer, "message by offset").body, broker_name)


def _is_silence(error: ConnectionLost) -> bool:
    """Returns True if the broker did not answer in time. Such a broker is not asked again."""
    return isinstance(error, PeerSilent) or isinstance(error.__cause__, PeerSilent)


def _carries(record: MessageRecord, key: str) -> bool:
    return record.unique_key == key or key in record.keys
