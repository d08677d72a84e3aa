"""A message to be sent. The constructor checks the message. So a message that a broker would refuse or spoil never
leaves the process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.properties import NAME_END, SYSTEM_PROPERTIES, VALUE_END

#: A name with the characters and the length that every version takes (Validators.checkTopic).
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}", re.ASCII)
#: Largest body that brokers and clients take by default (maxMessageSize).
MAXIMUM_BODY_BYTES = 4 * 1024 * 1024
#: Maximum number of bytes of the service's own properties. The remaining 2 048 bytes are for properties that client and
#: broker add.
MAXIMUM_OWN_PROPERTIES_BYTES = 32_767 - 2_048
#: Number of delay levels that brokers have by default (messageDelayLevel: 1s 5s 10s 30s 1m ... 2h).
MAXIMUM_DELAY_LEVEL = 18

#: A UNIQ_KEY of any client. Most clients write 32 digits, of which Go writes some in lower case. Clients with gRPC
#: write 34 digits (MessageIdCodec), and Java on IPv6 writes 56.
_UNIQUE_KEY = re.compile(r"[0-9A-Za-z_-]{16,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message on its way to a broker. Raises InvalidValue for contents that no broker would keep.

    An empty body is refused, because Java consumers would get null. Java's Validators also refuse it.
    """

    topic: str
    #: The uncompressed body. The sender may compress it.
    body: bytes
    #: One tag, by which consumers filter (property TAGS).
    tags: str | None = None
    #: Words by which look-ups find the message (property KEYS).
    keys: tuple[str, ...] = ()
    #: The service's own properties.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: A number of 32 bits for the service's own use.
    flag: int = 0
    #: The unique key (property UNIQ_KEY). With None, the sender makes a key.
    unique_key: str | None = None
    #: The delay level, from 1 to 18. None means no delay.
    delay_level: int | None = None

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if not isinstance(self.body, bytes):
            raise InvalidValue(
                "body", type(self.body).__name__, "bytes are wanted: text.encode(), or json.dumps(value).encode()"
            )
        if not 0 < len(self.body) <= MAXIMUM_BODY_BYTES:
            raise InvalidValue("body", f"{len(self.body)} bytes", f"1 to {MAXIMUM_BODY_BYTES} bytes")
        if self.tags is not None:
            _check_text("tags", self.tags)
            if self.tags != self.tags.strip() or "||" in self.tags:
                raise InvalidValue("tags", self.tags, "one tag, without spaces around it and without ||")
        if not hasattr(self.keys, "__iter__"):
            raise InvalidValue("keys", self.keys, 'words in a tuple: ("order-7",)')
        for key in self.keys:
            _check_text("keys", key)
            if key.split() != [key]:
                raise InvalidValue("keys", key, "keys are words: no spaces inside")
        if self.unique_key is not None and not (
            isinstance(self.unique_key, str) and _UNIQUE_KEY.fullmatch(self.unique_key)
        ):
            raise InvalidValue("unique_key", self.unique_key, '16 to 64 letters, digits, "_" or "-"')
        if not -(2**31) <= self.flag < 2**31:
            raise InvalidValue("flag", self.flag, "a 32-bit integer")
        if self.delay_level is not None and not 1 <= self.delay_level <= MAXIMUM_DELAY_LEVEL:
            raise InvalidValue("delay_level", self.delay_level, f"1 to {MAXIMUM_DELAY_LEVEL}")
        self._check_properties()

    def _check_properties(self) -> None:
        size = 0
        if not hasattr(self.properties, "items"):
            raise InvalidValue("properties", self.properties, 'names and texts in a dict: {"channel": "web"}')
        for name, value in self.properties.items():
            _check_text("properties", name)
            _check_text("properties", value, of=name)
            if name in SYSTEM_PROPERTIES:
                raise InvalidValue("properties", name, "a name that RocketMQ uses itself")
            size += len(name.encode()) + len(value.encode()) + 2
        size += len((self.tags or "").encode()) + sum(len(key.encode()) + 1 for key in self.keys)
        if size > MAXIMUM_OWN_PROPERTIES_BYTES:
            raise InvalidValue("properties", f"{size} bytes", f"at most {MAXIMUM_OWN_PROPERTIES_BYTES} bytes together")

    def wire_properties(self, unique_key: str) -> dict[str, str]:
        """Returns all properties that are sent. UNIQ_KEY is the first."""
        wired = {"UNIQ_KEY": unique_key}
        if self.keys:
            wired["KEYS"] = " ".join(self.keys)
        if self.tags:
            wired["TAGS"] = self.tags
        wired["WAIT"] = "true"
        if self.delay_level is not None:
            wired["DELAY"] = str(self.delay_level)
        wired.update(self.properties)
        return wired


def check_topic(topic: object) -> str:
    """Returns the topic itself. Raises InvalidValue for a name that brokers refuse (Validators.checkTopic)."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise InvalidValue("topic", topic, "1 to 127 of the characters a-z A-Z 0-9 _ - % |")
    return topic


def _check_text(what: str, text: object, *, of: str | None = None) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidValue(_named(what, of), text, "a text that is not empty")
    if NAME_END in text or VALUE_END in text:
        raise InvalidValue(_named(what, of), text, "the characters \\x01 and \\x02 separate properties")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(_named(what, of), text, "text that has a UTF-8 form") from error


def _named(what: str, of: str | None) -> str:
    # The name is built only for a refusal, because this function checks every message.
    return what if of is None else f"{what}[{of!r}]"
