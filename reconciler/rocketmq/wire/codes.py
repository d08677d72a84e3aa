"""Numbers and names of the remoting protocol, with the broker class that defines each set.

A *half message* is a transactional message that consumers cannot see yet. END_TRANSACTION commits it or rolls it back.
Each check-back may append another copy of the half. END_TRANSACTION names the newest copy.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class RequestCode(IntEnum):
    """org.apache.rocketmq.remoting.protocol.RequestCode (3.2.6 to 5.5.0)."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    #: Broker to producer, one-way.
    CHECK_TRANSACTION_STATE = 39
    #: Broker to consumer, one-way.
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    #: Broker to consumer.
    RESET_CONSUMER_CLIENT_OFFSET = 220
    #: Broker to consumer.
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    #: Broker to consumer.
    GET_CONSUMER_RUNNING_INFO = 307
    #: Broker to consumer.
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    #: 4.1 and newer.
    SEND_BATCH_MESSAGE = 320
    #: 4.1 and newer.
    QUERY_CONSUME_QUEUE = 321
    #: 4.5.2 and newer.
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    #: Asks for the topics in which a group has an offset.
    QUERY_TOPICS_BY_CONSUMER = 343
    #: Asks for the subscription of a group to a topic. The broker knows the subscription from heartbeats, or from
    #: requests of clients without heartbeats.
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    #: Tells clients of a group to get messages of a topic by PULL or by POP. This code and the next code exist from 5.0
    #: on.
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402


class ResponseCode(IntEnum):
    """RemotingSysResponseCode and ResponseCode (3.2.6 to 5.5.0)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    #: The answer to END_TRANSACTION after the immunity window (5.1.1 and newer).
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


class SystemFlag(IntFlag):
    """org.apache.rocketmq.common.sysflag.MessageSysFlag. The V6 bits exist from 4.6.0 on, and the bits for the
    compression type from 4.9.4 on."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    COMPRESSION_MASK = 0x700


class PullFlag(IntFlag):
    """org.apache.rocketmq.common.sysflag.PullSysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class Permission(IntFlag):
    """org.apache.rocketmq.common.constant.PermName."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class MQVersion(IntEnum):
    """The ordinals of org.apache.rocketmq.common.MQVersion.Version that this client uses. A snapshot build reports the
    ordinal of its release minus 1."""

    V3_2_6 = 79
    V3_4_9 = 121
    V4_0_0 = 213
    V4_1_0 = 233
    V4_3_0 = 273
    V4_3_1 = 275
    V4_5_2 = 317
    V4_6_0 = 333
    V4_7_0 = 353
    V4_9_0 = 393
    V4_9_1 = 395
    V4_9_2 = 397
    V4_9_4 = 401
    V4_9_8 = 409
    V5_0_0 = 413
    V5_1_0 = 433
    V5_1_1 = 435
    V5_1_3 = 439
    V5_2_0 = 453
    V5_3_0 = 473
    V5_3_2 = 477
    V5_3_3 = 479

    @classmethod
    def of_release(cls, release: str) -> int:
        """Returns the ordinal of a release such as "5.3.3". The release need not be a member of this class.

        From 4.0.0 on, each minor version has ten releases, and each release follows its snapshot. An older release is
        looked up by its name. Raises KeyError if this class does not name an older release.
        """
        major, minor, patch = map(int, release.split("."))
        if major < 4:
            return cls[f"V{major}_{minor}_{patch}"]
        return cls.V4_0_0 + 20 * (10 * (major - 4) + minor) + 2 * patch


#: The version that this client reports. This version is high enough for routes in standard JSON, and too low for
#: GO_AWAY of a closing proxy.
CLIENT_VERSION = int(MQVersion.V4_9_8)

#: The topic for halves of 4.3 and newer. All of them are in queue 0 (TopicValidator).
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: The topic for halves of a broker from 5.4 on, with transRocksDBEnable and without transWriteOriginTransHalfEnable.
#: These halves are also in queue 0 (TransactionalMessageBridge.parseHalfMessageInner).
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
#: The topic with one record for each END of a half in RocksDB. The record's property TRANS_OFFSET is the half's place
#: in the log.
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
HALF_TOPICS = frozenset({HALF_TOPIC, ROCKSDB_HALF_TOPIC})
#: The topic for halves that the broker gave up (4.5.2 and newer).
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: The consumer group whose offsets are the progress of the check service.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
#: The topic from which an auto-created topic takes its number of queues and its permission.
AUTO_CREATE_TOPIC = "TBW102"
#: The topic in which messages with a delay level and all retries wait (TopicValidator.RMQ_SYS_SCHEDULE_TOPIC).
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
#: The topic in which messages with a delay level wait in 5.x if the timer wheel handles them
#: (TimerMessageStore.TIMER_TOPIC).
TIMER_TOPIC = "rmq_sys_wheel_timer"
RETRY_TOPIC_PREFIX = "%RETRY%"
DEAD_LETTER_TOPIC_PREFIX = "%DLQ%"
#: The topic of this project's index probes (horizon.py). The topic has one queue on every master.
PROBE_TOPIC = "RECONCILER_PROBE"

#: The brokerId of a master in a route (MixAll.MASTER_ID).
MASTER_ID = 0


def retry_topic(group: str) -> str:
    """Returns the name of the topic with a group's messages that will be delivered again (MixAll.getRetryTopic)."""
    return RETRY_TOPIC_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Returns the names of the topics for messages that a group popped in vain, from 5.0 on. Brokers with
    enableRetryTopicV2 use the second topic.

    KeyBuilder.buildPopRetryTopicV1 and buildPopRetryTopicV2.
    """
    prefix = retry_topic(group)
    return f"{prefix}_{topic}", f"{prefix}+{topic}"


def dead_letter_topic(group: str) -> str:
    """Returns the name of the topic with a group's given-up messages (MixAll.getDLQTopic)."""
    return DEAD_LETTER_TOPIC_PREFIX + group
