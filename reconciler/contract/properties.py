"""Message properties that belong to RocketMQ or to this project. All other properties are the user's.

Names are those of org.apache.rocketmq.common.message.MessageConst (3.2.6 to 5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS = "KEYS"
TAGS = "TAGS"
#: The business transaction's own id. The id travels as a user property and is part of the content.
BUSINESS_ID = "BUSINESS_ID"
#: The mark of a half: it identifies the only outbox that can have the half's row (`reconciler_outbox_identity`). The
#: mark is a user property like BUSINESS_ID, so that plug-ins of every release compute the same digest.
OUTBOX_MARK = "RECONCILER_OUTBOX"

#: These properties are never copied by a republish and are never part of the content digest. A name that a service may
#: set must not be added here, because plug-ins of two releases would then compute two digests of one message.
#: TRACE_CONTEXT is such a name: proxies set it for gRPC producers, and users of other clients may set it. Two kinds of
#: names are left out because no compared copy has them: Java clients set names that begin with __RMQ.TRANSIENT. on
#: pulled messages, and brokers set TRANS_OFFSET on OP records. The sender sets __LITE_TOPIC (5.5), so it is content.
RESERVED = frozenset(
    {
        "KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
        "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
        "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID",
        "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
        "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
        "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL", "TIMER_LOG_ID", "__SHARDINGKEY", "__transactionId__", "__BORNHOST", "BORN_HOST",
        "BORN_TIMESTAMP", "__CRC32#", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "INNER_NUM", "INNER_BASE",
        "DUP_INFO", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TAG_CRC", "LMQ_QUEUE_ID", "KEY_CRC",
        "RECONCILER_SIGNATURE", "PROPERTY_PRODUCER_GROUP", "LITE_TOPIC", "ORIGIN_GROUP", "TIMER_ROLL_LABEL",
    }
)  # fmt: skip


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that the producing service set itself, sorted by name."""
    return {name: properties[name] for name in sorted(properties) if name not in RESERVED}
