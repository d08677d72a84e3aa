"""The property text of a message. Each property is name \\x01 value \\x02 (MessageDecoder.messageProperties2String)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reconciler.errors import MalformedInput

NAME_END = "\x01"
VALUE_END = "\x02"

#: Maximum number of bytes of a property text, because its length is stored as a signed 16-bit number.
MAXIMUM_PROPERTIES_BYTES = 32_767

#: Names that clients and brokers set themselves (MessageConst, 3.2.6 to 5.5.0). Names that a caller may set are left
#: out: CHECK_IMMUNITY_TIME_IN_SECONDS, WAIT, __SHARDINGKEY, BUYER_ID and MSG_TYPE.
SYSTEM_PROPERTIES = frozenset(
    {
        "KEYS", "TAGS", "UNIQ_KEY", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
        "MIN_OFFSET", "MAX_OFFSET", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG",
        "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "INSTANCE_ID",
        "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
        "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
        "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL", "TIMER_LOG_ID", "__transactionId__", "__BORNHOST", "BORN_HOST",
        "BORN_TIMESTAMP", "__CRC32#", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "INNER_NUM", "INNER_BASE",
        "DUP_INFO", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TAG_CRC", "LMQ_QUEUE_ID", "KEY_CRC",
        "PROPERTY_PRODUCER_GROUP", "LITE_TOPIC", "ORIGIN_GROUP", "TIMER_ROLL_LABEL",
    }
)  # fmt: skip

#: Maximum number of digits of a number in a property.
DIGITS_MAX = 18
#: Largest values of Java's int and long.
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


def encode_properties(properties: Mapping[str, str]) -> str:
    """Encodes the property text. Raises MalformedInput for a name or value that would corrupt it."""
    parts: list[str] = []
    for name, value in properties.items():
        if not name or NAME_END in name or VALUE_END in name or NAME_END in value or VALUE_END in value:
            raise MalformedInput(f"property {name[:80]!r}: empty name, or a separator (\\x01, \\x02) in name or value")
        parts += (name, NAME_END, value, VALUE_END)
    return "".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """Decodes names and values. Like the Java parser, drops entries without name or value, and keeps the last entry of
    a name."""
    entries = [entry.partition(NAME_END) for entry in text.split(VALUE_END)]
    return {name: value for name, _, value in entries if value and name}


def whole_number(text: str, *, maximum: int = LONG_MAX) -> int | None:
    """Reads a number of 1 to 18 ASCII digits up to the maximum. Returns None for any other text.

    The number of digits is limited, because a stranger's message may carry thousands, and Python raises ValueError
    above 4 300.
    """
    if len(text) > DIGITS_MAX or not text.isascii() or not text.isdigit():
        return None
    number = int(text)
    return number if number <= maximum else None


class StoredProperties(Mapping[str, str]):
    """Properties of a stored record, decoded at their first use. `raw` has the stored bytes.

    Bytes that are no UTF-8 become U+FFFD, because 3.2.6 writes the platform's character set. The value is immutable, so
    threads may share it. If two threads use it first at once, each of them decodes the properties.
    """

    __slots__ = ("_parsed", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._parsed: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        parsed = self._parsed
        if parsed is None:
            parsed = self._parsed = decode_properties(self.raw.decode("utf-8", "replace"))
        return parsed

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())
