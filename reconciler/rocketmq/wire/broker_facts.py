"""Differences between versions of the broker. Each difference has one line, with the version that brought it.

The client decides by these differences, and the embedded broker imitates them. The first release of each line was read
from the tags of RocketMQ's source. Tests in tests/conformance show each difference on real brokers. Facts that hold for
every version stand in the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.rocketmq.wire.codes import MQVersion, ResponseCode


class BrokerFamily(StrEnum):
    """Versions that treat transactions alike."""

    #: In 3.2.6, prepared messages are in their own topic. Neither UNIQ_KEY nor committed copies are indexed. There is
    #: no check-back.
    V3_2 = "3.2.6"
    #: From 3.4.9 to 4.2, UNIQ_KEY and committed copies are also indexed. All else is as in 3.2.6.
    V4_2 = "3.5-4.2"
    #: From 4.3 to 5.0, halves are in a half topic, and brokers check back.
    V4_3 = "4.3-5.0"
    #: From 5.1 on, OP records come in batches. From 5.1.1 on, END is refused after the immunity window.
    V5_1 = "5.1+"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """The facts that follow from a broker's version. `facts_of` names the first version of each fact, and the Java
    class that shows the fact."""

    #: The ordinal in MQVersion, which the broker reports in every answer.
    version: int
    family: BrokerFamily

    # -- transactions True if halves are in HALF_TOPIC. False if prepared records are in their own topic.
    has_half_topic: bool
    has_check_back: bool
    #: True if the broker's settings may put halves into ROCKSDB_HALF_TOPIC.
    may_keep_halves_in_rocksdb: bool
    #: True if the half topics have a route from the start. False if they have a route only from the first check round
    #: on.
    registers_half_topics_at_start: bool
    #: True if a client may send into the half topics. False if brokers refuse that, as they do for other system topics.
    half_topic_is_writable: bool
    #: True if given-up halves are kept in DISCARD_TOPIC, and code 323 puts them back.
    keeps_discarded: bool
    #: True if one OP record names several halves.
    batches_finished: bool
    #: True if END is refused with code 604 after the immunity window. An END that says that it follows a check is
    #: accepted.
    rejects_late_end: bool
    #: True if a committed copy keeps REAL_TOPIC and REAL_QID. END on such a copy is accepted, too.
    copies_keep_real_topic: bool
    #: Default for a broker whose configuration cannot be read. It is 0 without check-back.
    transaction_timeout_seconds: float
    transaction_check_interval_seconds: float
    transaction_check_maximum: int

    # -- look-ups True if UNIQ_KEY is indexed. False if only KEYS are indexed.
    indexes_unique_key: bool
    #: True if QUERY_MESSAGE finds a committed copy. False if only a scan of the queue finds it.
    indexes_committed: bool
    #: True if the broker answers for an offset inside a record as for an offset without a record. False if it answers
    #: with an IllegalArgumentException.
    exact_record_lookup: bool
    #: True if QUERY_CONSUME_QUEUE answers with the entries. False if the broker writes the body before it finds the
    #: entries.
    lists_queue_entries: bool

    # -- sending
    has_batch_send: bool
    max_message_bytes: int
    #: The response code for a queue that the topic does not have.
    bad_queue_code: int
    #: Properties that the broker adds. stores_cluster: CLUSTER. stores_trace: MSG_REGION, TRACE_ON and a missing
    #: UNIQ_KEY.
    stores_cluster: bool
    stores_trace: bool
    #: True if the property text has no trailing separator.
    trims_properties: bool
    #: True if the reply to a send has these ext fields.
    replies_trace: bool
    replies_transaction_id: bool

    # -- consuming
    #: UPDATE_CONSUMER_OFFSET refuses unknown topics. QUERY_CONSUMER_OFFSET answers 22 if no offset is stored.
    checks_offset_topics: bool
    #: True if UPDATE_CONSUMER_OFFSET refuses unknown groups.
    checks_offset_groups: bool
    #: True if OFFSET_OVERFLOW_BADLY sends the consumer to offset 0.
    overflow_starts_over: bool
    #: True if a message in OFFSET_MOVED_EVENT reports a jump of offsets.
    reports_moved_offsets: bool
    #: True if CONSUMER_SEND_MSG_BACK fails without maxReconsumeTimes.
    requires_max_reconsume_times: bool
    dead_letters_readable: bool
    #: True if groups may pop, and have a request mode per topic. With pop, the offset of a group passes messages that
    #: were only handed out.
    has_pop: bool
    #: Ext fields in replies to heartbeats and to pulls.
    heartbeat_flags: bool
    pull_flags: bool

    # -- frames and routes
    answers_unknown_codes: bool
    knows_binary_headers: bool
    #: True if a binary request gets a binary answer. False if every answer is JSON.
    replies_in_kind: bool
    #: True if JSON headers have "serializeTypeCurrentRPC".
    names_serialization: bool
    #: True if routes are in standard JSON for clients that report 4.9.4 or newer.
    standard_json: bool
    names_cluster_in_routes: bool
    acting_master_in_routes: bool
    topic_flag_name: str
    help_address: str


def family_of(version: int) -> BrokerFamily:
    """Returns the family of a version ordinal. A snapshot build has the ordinal one below that of its release."""
    if version < MQVersion.V3_4_9 - 1:
        return BrokerFamily.V3_2
    if version < MQVersion.V4_3_0 - 1:
        return BrokerFamily.V4_2
    if version < MQVersion.V5_1_0 - 1:
        return BrokerFamily.V4_3
    return BrokerFamily.V5_1


def facts_of(version: int) -> BrokerFacts:
    """Returns all facts of a version ordinal."""

    def since(first: MQVersion) -> bool:
        return version >= first - 1  # with its snapshot build

    has_half_topic = since(MQVersion.V4_3_0)
    timeout_seconds, interval_seconds, maximum = _check_defaults(version) if has_half_topic else (0.0, 0.0, 0)
    return BrokerFacts(
        version=version,
        family=family_of(version),
        has_half_topic=has_half_topic,  # TransactionalMessageBridge
        has_check_back=has_half_topic,  # AbstractTransactionalMessageCheckListener
        may_keep_halves_in_rocksdb=version > MQVersion.V5_3_3,  # 5.4: TransactionalMessageBridge
        registers_half_topics_at_start=since(MQVersion.V5_0_0),  # TopicConfigManager
        half_topic_is_writable=not since(MQVersion.V4_9_4),  # TopicValidator.isNotAllowedSendTopic
        keeps_discarded=since(MQVersion.V4_5_2),  # DefaultTransactionalMessageCheckListener
        batches_finished=since(MQVersion.V5_1_0),  # TransactionalOpBatchService
        rejects_late_end=since(MQVersion.V5_1_1),  # EndTransactionProcessor.rejectCommitOrRollback
        copies_keep_real_topic=version <= MQVersion.V5_3_3,  # EndTransactionProcessor of 5.4.0 clears them
        transaction_timeout_seconds=timeout_seconds,
        transaction_check_interval_seconds=interval_seconds,
        transaction_check_maximum=maximum,
        indexes_unique_key=since(MQVersion.V3_4_9),  # IndexService.buildIndex
        indexes_committed=since(MQVersion.V3_4_9),
        exact_record_lookup=since(MQVersion.V5_0_0),  # EndTransactionProcessor: "Find prepared ..."
        lists_queue_entries=since(MQVersion.V4_7_0),  # AdminBrokerProcessor.queryConsumeQueue
        has_batch_send=since(MQVersion.V4_1_0),  # SendMessageProcessor, code 320
        max_message_bytes=(4 * 1024 if since(MQVersion.V3_4_9) else 512) * 1024,  # MessageStoreConfig.maxMessageSize
        bad_queue_code=int(ResponseCode.INVALID_PARAMETER if since(MQVersion.V5_3_2) else ResponseCode.SYSTEM_ERROR),
        stores_cluster=since(MQVersion.V4_6_0),  # SendMessageProcessor
        stores_trace=since(MQVersion.V5_0_0),
        trims_properties=since(MQVersion.V4_9_1) and not since(MQVersion.V5_2_0),  # MessageDecoder
        replies_trace=since(MQVersion.V4_0_0),
        replies_transaction_id=since(MQVersion.V5_0_0),  # SendMessageResponseHeader
        checks_offset_topics=since(MQVersion.V5_0_0),  # ConsumerManageProcessor
        checks_offset_groups=since(MQVersion.V5_3_0),  # ConsumerManageProcessor
        overflow_starts_over=not since(MQVersion.V4_9_4),  # DefaultMessageStore.getMessage
        reports_moved_offsets=not since(MQVersion.V5_0_0),  # PullMessageProcessor.generateOffsetMovedEvent
        requires_max_reconsume_times=since(MQVersion.V3_4_9) and not since(MQVersion.V4_9_1),  # SendMessageProcessor
        dead_letters_readable=since(MQVersion.V4_9_2),  # SendMessageProcessor: permission of %DLQ% topics
        has_pop=since(MQVersion.V5_0_0),  # PopMessageProcessor, QueryAssignmentProcessor
        heartbeat_flags=since(MQVersion.V5_1_3),  # ClientManageProcessor
        pull_flags=since(MQVersion.V5_0_0),  # PullMessageResponseHeader
        answers_unknown_codes=since(MQVersion.V4_9_1),  # AdminBrokerProcessor returns null up to 4.9.0
        knows_binary_headers=since(MQVersion.V4_0_0),  # SerializeType
        replies_in_kind=since(MQVersion.V4_9_4) and not since(MQVersion.V5_0_0),  # NettyRemotingAbstract
        names_serialization=since(MQVersion.V4_0_0),  # RemotingCommand
        standard_json=since(MQVersion.V4_9_4),  # RouteInfoManager
        names_cluster_in_routes=since(MQVersion.V4_0_0),  # BrokerData.cluster
        acting_master_in_routes=since(MQVersion.V5_0_0),  # BrokerData.enableActingMaster
        topic_flag_name="topicSysFlag" if since(MQVersion.V4_9_0) else "topicSynFlag",  # QueueData up to 4.8
        help_address=_help_address(version),
    )


def _check_defaults(version: int) -> tuple[float, float, int]:
    """Returns transactionTimeOut, transactionCheckInterval and transactionCheckMax of BrokerConfig."""
    if version < MQVersion.V4_3_1 - 1:
        return 3.0, 60.0, 5
    if version < MQVersion.V5_1_1 - 1:
        return 6.0, 60.0, 15
    return 6.0, 30.0, 15


def _help_address(version: int) -> str:
    """Returns the page that refusals name (FAQUrl)."""
    if version < MQVersion.V4_0_0 - 1:
        return "https://github.com/alibaba/RocketMQ/issues/38"
    if version < MQVersion.V5_1_0 - 1:
        return "http://rocketmq.apache.org/docs/faq/"
    return "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
