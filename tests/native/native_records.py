"""What librocketmq keeps in its memory, and what a broker got from it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    OK = 0
    NULL_POINTER = 1
    MALLOC_FAILED = 2
    PRODUCER_START_FAILED = 10
    PRODUCER_SEND_SYNC_FAILED = 11
    PRODUCER_SEND_ONEWAY_FAILED = 12
    PRODUCER_SEND_ORDERLY_FAILED = 13
    PRODUCER_SEND_ASYNC_FAILED = 14
    PUSH_CONSUMER_START_FAILED = 20


class MessageModel(IntEnum):
    BROADCASTING = 0
    CLUSTERING = 1


class SendResult(ctypes.Structure):
    _fields_ = (("sendStatus", ctypes.c_int), ("msgId", ctypes.c_char * 256), ("offset", ctypes.c_longlong))


@dataclass
class NativeRecord:
    """A message in the library's memory."""

    topic: bytes
    properties: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    #: A received one has ids and times; a message on its way has only what was set.
    is_received: bool = False
    born_timestamp_ms: int = 0
    reconsume_times: int = 0


@dataclass
class Cluster:
    """What a broker got."""

    registered: set[str] = field(default_factory=set)
    halves: list[tuple[str, NativeRecord]] = field(default_factory=list)
    #: (unique key, outcome, from a check-back)
    ends: list[tuple[str, str, bool]] = field(default_factory=list)
    messages: list[tuple[int, NativeRecord]] = field(default_factory=list)


@dataclass
class Factory:
    """Connections and heartbeat, shared by all of one instance name."""

    name_servers: str
    groups: set[str] = field(default_factory=set)
    knows_route: bool = False


@dataclass
class NativeClient:
    """A producer or consumer in the library's memory."""

    kind: str
    group: str
    state: str = "new"
    name_servers: str = ""
    instance_name: str = "DEFAULT"
    max_body_bytes: int = 131_072
    checker: Any = None
    listener: Any = None
    topics: dict[str, str] = field(default_factory=dict)
