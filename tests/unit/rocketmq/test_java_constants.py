"""A number of the protocol that differs from the broker's.

java_constants.json was printed by tests/brokers/java/Constants.java with the jars of broker 5.5.0 on its class path.
"""

from __future__ import annotations

import json
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from reconciler.contract.properties import RESERVED
from reconciler.rocketmq.wire.codes import MQVersion, Permission, PullFlag, RequestCode, ResponseCode, SystemFlag
from reconciler.rocketmq.wire.properties import SYSTEM_PROPERTIES

JAVA = json.loads((Path(__file__).parent / "java_constants.json").read_text())
#: Flags that Java names otherwise.
JAVA_NAMES = {
    "COMPRESSED": "COMPRESSED_FLAG",
    "MULTI_TAGS": "MULTI_TAGS_FLAG",
    "PREPARED": "TRANSACTION_PREPARED_TYPE",
    "COMMIT": "TRANSACTION_COMMIT_TYPE",
    "ROLLBACK": "TRANSACTION_ROLLBACK_TYPE",
    "BORN_HOST_V6": "BORNHOST_V6_FLAG",
    "STORE_HOST_V6": "STOREHOSTADDRESS_V6_FLAG",
    "NEED_UNWRAP": "NEED_UNWRAP_FLAG",
    "INNER_BATCH": "INNER_BATCH_FLAG",
    "COMPRESSION_LZ4": "COMPRESSION_LZ4_TYPE",
    "COMPRESSION_ZSTD": "COMPRESSION_ZSTD_TYPE",
    "COMPRESSION_ZLIB": "COMPRESSION_ZLIB_TYPE",
    "COMPRESSION_MASK": "COMPRESSION_TYPE_COMPARATOR",
    "COMMIT_OFFSET": "FLAG_COMMIT_OFFSET",
    "SUSPEND": "FLAG_SUSPEND",
    "SUBSCRIPTION": "FLAG_SUBSCRIPTION",
    "CLASS_FILTER": "FLAG_CLASS_FILTER",
    "LITE_PULL": "FLAG_LITE_PULL_MESSAGE",
    "INHERIT": "PERM_INHERIT",
    "WRITE": "PERM_WRITE",
    "READ": "PERM_READ",
    "PRIORITY": "PERM_PRIORITY",
}


@pytest.mark.parametrize(
    ("numbers", "java_class"),
    [
        (RequestCode, "org.apache.rocketmq.remoting.protocol.RequestCode"),
        (ResponseCode, "org.apache.rocketmq.remoting.protocol.ResponseCode"),
        (SystemFlag, "org.apache.rocketmq.common.sysflag.MessageSysFlag"),
        (PullFlag, "org.apache.rocketmq.common.sysflag.PullSysFlag"),
        (Permission, "org.apache.rocketmq.common.constant.PermName"),
        (MQVersion, "org.apache.rocketmq.common.MQVersion$Version"),
    ],
)
def test_a_number_that_no_broker_understands(numbers: type[IntEnum | IntFlag], java_class: str) -> None:
    of_java = JAVA[java_class]
    # The mask of the transaction bits has a name in this client only; in Java it is the rollback type.
    own = {name: int(one) for name, one in numbers.__members__.items() if name != "TRANSACTION_MASK"}
    assert own == {name: of_java.get(JAVA_NAMES.get(name, name)) for name in own}


#: Names that are no constant of that class in 5.5.0.
NOT_IN_MESSAGE_CONST = {
    "BORN_HOST", "KEY_CRC", "LITE_TOPIC", "LMQ_QUEUE_ID", "PROPERTY_PRODUCER_GROUP", "TAG_CRC", "TIMER_LOG_ID"
}  # fmt: skip


def test_a_property_that_brokers_set_is_misspelt_and_a_caller_may_set_it() -> None:
    of_java = set(JAVA["org.apache.rocketmq.common.message.MessageConst"].values())
    assert of_java >= SYSTEM_PROPERTIES - NOT_IN_MESSAGE_CONST
    assert len(SYSTEM_PROPERTIES) == 62
    assert of_java - RESERVED == {
        " ", "E_T", "F", "K", "PROPERTY_FORWARD_QUEUE_ID", "R", "REDIRECT", "T", "TRACE_CONTEXT", "TRANS_OFFSET",
        "U", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC", "__RMQ.TRANSIENT.",
        "__RMQ.TRANSIENT.GROUP_SYS_FLAG", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG",
    }  # fmt: skip
