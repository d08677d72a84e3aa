"""Where brokers differ: the one table that the conformance suite reads. A test never looks at a version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.services.rocketmq import VERSIONS

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
PARKED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """What a broker of one family does. The defaults are the newest family's."""

    #: 4.3: half topic and check-back. Before, a prepared record waits in its own topic and nobody asks back.
    has_half_topic: bool = True
    #: UNIQ_KEY is indexed (3.4.9); before, KEYS alone find anything.
    indexes_unique_key: bool = True
    #: Committed copies are indexed (not in 3.2.6: a delivery is seen by consuming only).
    indexes_committed: bool = True
    #: 4.5.2: what the broker gives up is copied to the discard topic.
    parks: bool = True
    #: 5.0: half topic routed from the start; before, from the first check round.
    routes_half_topic_at_start: bool = True
    #: 5.1.1: END later than CHECK_IMMUNITY_TIME_IN_SECONDS answers 604 unless it says it follows a check.
    refuses_late_end: bool = True
    #: 4.1: SEND_BATCH_MESSAGE.
    takes_batches: bool = True
    #: 4.0: the binary header form. Before, such a request kills the connection.
    takes_binary_headers: bool = True
    #: Send replies carry transactionId (5.0).
    replies_transaction_id: bool = True
    #: 4.9 answers a request it does not know with code 3, older ones do not answer.
    answers_unknown_requests: bool = True
    #: 4.9: dead-letter topics can be read as they are created.
    dead_letters_readable: bool = True
    #: QUERY_CONSUMER_OFFSET with setZeroIfNotFound=false says 22 for a group that never stored one (5.x).
    says_no_offset: bool = True
    #: 5.x refuses to store offsets for topics it does not know.
    refuses_offsets_of_unknown_topics: bool = True
    #: So do 5.3.3 and newer for groups.
    refuses_offsets_of_unknown_groups: bool = True
    #: Committed copies still carry REAL_TOPIC and REAL_QID, so END works on them too (not in 5.4.0).
    copies_keep_real_topic: bool = True
    #: maxMessageSize as delivered.
    maximum_body_bytes: int = 4 * 1024 * 1024
    #: MQVersion ordinal in replies is at least this.
    version_at_least: int = 433

    @property
    def error_case(self) -> str:
        """First letter of END_TRANSACTION's error texts: lower case up to 4.2."""
        return "upper" if self.has_half_topic else "lower"

    def half_topic(self, topic: str) -> str:
        """Topic under which a half of the topic is looked up."""
        return HALF_TOPIC if self.has_half_topic else topic


_5_3 = Expectation()
_5_4 = replace(_5_3, copies_keep_real_topic=False)
_5_1 = replace(_5_3, refuses_offsets_of_unknown_groups=False)
_4_9 = replace(
    _5_3,
    routes_half_topic_at_start=False,
    refuses_late_end=False,
    replies_transaction_id=False,
    says_no_offset=False,
    refuses_offsets_of_unknown_topics=False,
    refuses_offsets_of_unknown_groups=False,
    version_at_least=393,
)
_4_4 = replace(_4_9, parks=False, answers_unknown_requests=False, dead_letters_readable=False, version_at_least=290)
_4_2 = replace(_4_4, has_half_topic=False, version_at_least=250)
_3_2_6 = replace(
    _4_2,
    indexes_unique_key=False,
    indexes_committed=False,
    takes_batches=False,
    takes_binary_headers=False,
    maximum_body_bytes=512 * 1024,
    version_at_least=78,
)

#: By release of a real broker.
BY_VERSION = {
    "3.2.6": _3_2_6,
    "4.2.0": _4_2,
    "4.4.0": _4_4,
    "4.9.7": _4_9,
    "5.1.4": _5_1,
    "5.3.3": _5_3,
    "5.4.0": _5_4,
}
#: By family of the embedded broker: it must do what the real one does.
BY_FAMILY = {"3.2.6": _3_2_6, "4.2": _4_2, "4.4": _4_4, "4.9": _4_9, "5.x": _5_3}

assert tuple(BY_VERSION) == VERSIONS
