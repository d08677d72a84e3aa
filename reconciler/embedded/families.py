"""Which RocketMQ a stand-in imitates: the differences between releases as one table of plain data."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.errors import InvalidValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What brokers of one family do differently.

    The release each row was taken from is named in it; facts that hold for every family are in the code.
    """

    name: str
    release: str
    version: int  # MQVersion ordinal, sent in every reply
    has_half_topic: bool = True  # 4.3.0: TransactionalMessageBridge, check-back
    indexes_unique_key: bool = True  # IndexService.buildIndex
    indexes_committed: bool = True
    registers_half_topics_at_start: bool = False  # TopicConfigManager of 5.0.0
    half_topic_is_writable: bool = True  # forbidden by TopicValidator from 4.7 on
    parks_discarded: bool = True  # 4.5.2: TRANS_CHECK_MAX_TIME_TOPIC and code 323
    batches_finished: bool = False  # 5.1.0: TransactionalOpBatchService
    rejects_late_end: bool = False  # 5.1.1: EndTransactionProcessor.rejectCommitOrRollback
    check_interval_seconds: float = 60.0
    check_max: int = 15
    max_message_bytes: int = 4 * 1024 * 1024  # MessageStoreConfig.maxMessageSize
    answers_unknown_codes: bool = True  # AdminBrokerProcessor returns null up to 4.4
    knows_binary_headers: bool = True  # SerializeType exists from 4.0.0 on
    replies_in_kind: bool = False  # NettyRemotingAbstract of 4.9 only: else always JSON
    names_serialization: bool = True  # "serializeTypeCurrentRPC" in JSON headers
    knows_batches: bool = True  # 4.1: code 320
    requires_max_reconsume_times: bool = False  # ConsumerSendMsgBack up to 4.4
    stores_cluster: bool = False  # property CLUSTER, 4.9
    stores_trace: bool = False  # properties MSG_REGION and TRACE_ON, 5.0
    replies_trace: bool = True  # ext fields of a send reply, 4.0
    replies_transaction_id: bool = False  # ext field of a send reply, 5.0
    trims_properties: bool = False  # no trailing separator, MessageDecoder of 4.9
    overflow_starts_over: bool = False  # OFFSET_OVERFLOW_BADLY sends to 0 up to 4.4
    reports_moved_offsets: bool = True  # a message in OFFSET_MOVED_EVENT, up to 4.9
    heartbeat_flags: bool = False  # ext fields of a heartbeat's reply, 5.1
    pull_flags: bool = False  # topicSysFlag and groupSysFlag in pull replies, 5.0
    bad_queue_code: int = 1  # 5.x: INVALID_PARAMETER 29
    checks_offset_commits: bool = False  # 5.x: 17 and 26 on UPDATE_CONSUMER_OFFSET
    dead_letters_readable: bool = True  # perm of %DLQ% topics
    standard_json: bool = False  # RouteInfo for requests of version >= 401, name server 4.9.4
    names_cluster_in_routes: bool = True  # BrokerData.cluster, 4.0
    acting_master_in_routes: bool = False  # BrokerData.enableActingMaster, 5.0
    topic_flag_name: str = "topicSysFlag"  # spelled topicSynFlag up to 4.8
    exact_record_lookup: bool = False  # 5.x answers "Find prepared..." for an offset inside a record
    help_address: str = "http://rocketmq.apache.org/docs/faq/"

    @property
    def help_text(self) -> str:
        """What some refusals end with (FAQUrl.suggestTodo)."""
        return f"\nSee {self.help_address} for further details."

    def phrase(self, text: str) -> str:
        """An error text of END_TRANSACTION in this family's spelling (lower case up to 4.2)."""
        return text if self.has_half_topic else text[0].lower() + text[1:]


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            name="3.2.6",
            release="3.2.6",
            version=79,
            has_half_topic=False,
            max_message_bytes=512 * 1024,
            indexes_unique_key=False,
            indexes_committed=False,
            parks_discarded=False,
            answers_unknown_codes=False,
            knows_binary_headers=False,
            names_serialization=False,
            knows_batches=False,
            replies_trace=False,
            overflow_starts_over=True,
            dead_letters_readable=False,
            names_cluster_in_routes=False,
            topic_flag_name="topicSynFlag",
            help_address="https://github.com/alibaba/RocketMQ/issues/38",
        ),
        Family(
            name="4.2",
            release="4.2.0",
            version=253,
            has_half_topic=False,
            parks_discarded=False,
            answers_unknown_codes=False,
            requires_max_reconsume_times=True,
            overflow_starts_over=True,
            dead_letters_readable=False,
            topic_flag_name="topicSynFlag",
        ),
        Family(
            name="4.4",
            release="4.4.0",
            version=293,
            parks_discarded=False,
            answers_unknown_codes=False,
            requires_max_reconsume_times=True,
            overflow_starts_over=True,
            dead_letters_readable=False,
            topic_flag_name="topicSynFlag",
        ),
        Family(
            name="4.9",
            release="4.9.7",
            version=407,
            half_topic_is_writable=False,
            replies_in_kind=True,
            stores_cluster=True,
            trims_properties=True,
            standard_json=True,
        ),
        Family(
            name="5.x",
            release="5.3.3",
            version=479,
            registers_half_topics_at_start=True,
            half_topic_is_writable=False,
            batches_finished=True,
            rejects_late_end=True,
            check_interval_seconds=30.0,
            stores_cluster=True,
            stores_trace=True,
            replies_transaction_id=True,
            trims_properties=True,
            reports_moved_offsets=False,
            heartbeat_flags=True,
            pull_flags=True,
            bad_queue_code=29,
            checks_offset_commits=True,
            standard_json=True,
            acting_master_in_routes=True,
            exact_record_lookup=True,
            help_address="https://rocketmq.apache.org/docs/bestPractice/06FAQ",
        ),
    )
}

DEFAULT_FAMILY = "5.x"
_OTHER_NAMES = {"4.2.0": "4.2", "4.4.0": "4.4", "4.9.7": "4.9", "5": "5.x", "5.3.3": "5.x"}


def family_named(name: str) -> Family:
    """The family of that name or of the release it was taken from; InvalidValue names the choices."""
    found = FAMILIES.get(_OTHER_NAMES.get(name, name))
    if found is None:
        raise InvalidValue("family", name, "one of " + ", ".join(FAMILIES))
    return found
