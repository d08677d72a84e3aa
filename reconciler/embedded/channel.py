"""TCP connections of clients, which carry frames in both directions. Only the broker's loop uses this module."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping

from reconciler.contract.urls import address_of
from reconciler.embedded.families import Family
from reconciler.embedded.faults import Faults
from reconciler.embedded.layout import packed_host
from reconciler.embedded.reply import Reply
from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, FrameReader, Serialization, encode_frame

logger = logging.getLogger(__name__)

_WRITE_AT_BYTES = 1024 * 1024  # bytes of collected answers before they are written
MOST_UNANSWERED = 1000  # requests of the broker that a client may leave unanswered
_PREFIX = struct.Struct(">II")
_JSON_NAMES = ',"serializeTypeCurrentRPC":"JSON"'


class Channels:
    """The open connections of one broker. `write_out` writes the answers of a turn of the loop to these connections."""

    def __init__(
        self,
        *,
        family: Family,
        faults: Faults,
        on_request: Callable[[Channel, Command], None],
        on_lost: Callable[[Channel], None],
        commit: Callable[[], None],
    ) -> None:
        self.family = family
        self.faults = faults
        self.on_request = on_request
        self.on_lost = on_lost
        self.commit = commit
        self._open: set[Channel] = set()
        self._with_output: list[Channel] = []

    def add(self, channel: Channel) -> None:
        """Adds the connection of a client."""
        self._open.add(channel)

    def discard(self, channel: Channel) -> None:
        """Removes the connection of a lost client."""
        self._open.discard(channel)
        self.on_lost(channel)

    def has_output(self, channel: Channel) -> None:
        """Records a channel whose answers ``write_out`` must write."""
        self._with_output.append(channel)

    def write_out(self) -> None:
        """Writes every answer. Call it after everything that the answers confirm is in the log."""
        ready, self._with_output = self._with_output, []
        for channel in ready:
            channel.write_out()

    def drop_output(self) -> None:
        """Closes channels with unwritten answers, because the log may lack what these answers confirm."""
        for channel in self._with_output:
            channel.close()

    def close_all(self) -> None:
        """Closes every connection, as a network fault would."""
        for channel in list(self._open):
            channel.close()


class Channel(asyncio.Protocol):
    """One connection of a client. Answers are collected, and written together after the log was written
    (Broker.commit)."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._backlog: deque[Command] = deque()  # bounded by one read of the socket
        self._opaque = 0
        self._waiting: dict[int, Callable[[Command], None]] = {}
        self._congested = False
        self.peer = ""
        self.born_host = b""
        self.host = ""

    # -- asyncio.Protocol --------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Records the address of a connected client."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = address_of(host, port)
        self.born_host = packed_host(host, port)
        self._channels.add(self)

    def data_received(self, data: bytes) -> None:
        """Handles all whole frames, then answers them together."""
        try:
            self._backlog.extend(self._reader.feed(data))
        except ProtocolViolation as error:
            logger.info("connection_lost: %s: %s", self.peer, error)
            self.close()
            return
        self._work()

    def _work(self) -> None:
        """Handles waiting frames while the client takes the answers."""
        while self._backlog and self.is_writable():
            command = self._backlog.popleft()
            if command.is_response:
                self._take_answer(command)
            else:
                self._channels.on_request(self, command)
            if self._out_bytes > _WRITE_AT_BYTES:
                self._channels.commit()
        self._channels.commit()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio.Protocol
        """Forgets the lost client."""
        self._transport = None
        self._waiting.clear()
        self._backlog.clear()
        self._channels.discard(self)

    def pause_writing(self) -> None:
        """Stops reading from a client that does not read, so that memory stays bounded."""
        self._congested = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continues with a client that reads again."""
        self._congested = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._work()

    # -- for handlers ------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        """True while the connection is neither closed nor closing."""
        return self._transport is not None and not self._transport.is_closing()

    def is_writable(self) -> bool:
        """True if the client takes more answers, like Channel.isWritable of Netty."""
        return self.is_open and not self._congested

    def close(self) -> None:
        """Closes the connection at once, and drops unwritten answers."""
        self._out.clear()
        self._out_bytes = 0
        if self._transport is not None:
            self._transport.abort()

    def reply(self, request: Command, reply: Reply | None) -> None:
        """Answers a two-way request. Sends nothing if the reply is None, if the request is one-way, or if a fault loses
        the reply."""
        if reply is None or request.is_oneway or self._channels.faults.loses_reply(request.code):
            return
        family = self._channels.family
        if request.serialization is Serialization.ROCKETMQ and family.replies_in_kind:
            frame = encode_frame(
                Command(
                    code=reply.code,
                    opaque=request.opaque,
                    flag=FLAG_RESPONSE,
                    language="JAVA",
                    version=family.version,
                    remark=reply.remark,
                    fields=reply.fields,
                    body=reply.body,
                    serialization=Serialization.ROCKETMQ,
                )
            )
        else:
            frame = _json_frame(
                reply.code,
                request.opaque,
                FLAG_RESPONSE,
                reply.remark,
                reply.fields,
                reply.body,
                family.version,
                names_serialization=family.names_serialization,
            )
        self._send(frame)

    def request(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        on_answer: Callable[[Command], None] | None = None,
    ) -> None:
        """Sends a request of the broker to this client. Without `on_answer`, the request is one-way."""
        self._opaque += 1
        flag = FLAG_ONEWAY
        if on_answer is not None:
            flag = 0
            if len(self._waiting) >= MOST_UNANSWERED:
                self._waiting.pop(next(iter(self._waiting)))
            self._waiting[self._opaque] = on_answer
        family = self._channels.family
        self._send(
            _json_frame(
                code,
                self._opaque,
                flag,
                None,
                fields,
                body,
                family.version,
                names_serialization=family.names_serialization,
            )
        )

    def _take_answer(self, command: Command) -> None:
        on_answer = self._waiting.pop(command.opaque, None)
        if on_answer is not None:
            on_answer(command)

    def _send(self, frame: bytes) -> None:
        if self.is_open:
            if not self._out:
                self._channels.has_output(self)
            self._out.append(frame)
            self._out_bytes += len(frame)

    def write_out(self) -> None:
        """Writes the collected answers."""
        if self._out and self._transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self._transport.write(data)


# The encoder is made once. A call of json.dumps with separators would make an encoder each time.
_compact_json = json.JSONEncoder(separators=(",", ":")).encode


def _json_frame(
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: Mapping[str, str],
    body: bytes,
    version: int,
    *,
    names_serialization: bool,
) -> bytes:
    """Makes a frame whose header has the order and form of brokers. Members that are null are left out."""
    extras = f',"extFields":{_compact_json(dict(fields))}' if fields else ""
    text = f',"remark":{json.dumps(remark)}' if remark is not None else ""
    header = (
        f'{{"code":{int(code)}{extras},"flag":{flag},"language":"JAVA","opaque":{opaque}{text}'
        f'{_JSON_NAMES if names_serialization else ""},"version":{version}}}'
    ).encode()
    return b"".join((_PREFIX.pack(4 + len(header) + len(body), len(header)), header, body))
