"""The least of RocketMQ's wire protocol, for readiness checks and recordings.

It shares no code with reconciler/rocketmq, so a fault there cannot hide itself here.
"""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import Any

GET_ROUTE = 105
PROBE_VERSION = 401  # V4_9_4: name servers from there on answer in valid JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A response frame."""

    code: int
    remark: str | None
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = b""


class RemotingProbe:
    """One connection, one request at a time; frames that answer nothing asked are kept in `unsolicited`."""

    def __init__(
        self, port: int, *, host: str = "127.0.0.1", timeout_seconds: float = 5.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_seconds)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._opaque = itertools.count(1)
        self.unsolicited: list[bytes] = []

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def __enter__(self) -> RemotingProbe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def encode(self, code: int, fields: dict[str, str], body: bytes = b"", *, flag: int = 0, version: int) -> bytes:
        """A JSON request frame."""
        header: dict[str, Any] = {
            "code": code,
            "language": "PYTHON",
            "version": version,
            "opaque": next(self._opaque),
            "flag": flag,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": fields,
        }
        encoded = json.dumps(header).encode()
        return struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"", *, version: int = PROBE_VERSION) -> Reply:
        """Sends a two-way request and waits for its answer."""
        frame = self.encode(code, fields, body, version=version)
        return self.ask_raw(frame)

    def ask_raw(self, frame: bytes) -> Reply:
        """Sends an encoded request and returns the next response."""
        self._socket.sendall(frame)
        while True:
            raw = self.read_frame()
            reply, is_response = decode(raw)
            if is_response:
                return reply
            self.unsolicited.append(raw)

    def read_frame(self) -> bytes:
        """The next frame with its length word."""
        length = self._read(4)
        return length + self._read(struct.unpack(">I", length)[0])

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise ConnectionError("the peer closed the connection")
            parts += part
        return bytes(parts)


def decode(raw: bytes) -> tuple[Reply, bool]:
    """Decodes a frame in JSON or binary form; the second value says whether it is a response."""
    header_word = struct.unpack_from(">I", raw, 4)[0]
    length = header_word & 0xFFFFFF
    header, body = raw[8 : 8 + length], raw[8 + length :]
    if header_word >> 24 == 0:
        parsed = json.loads(header)
        reply = Reply(
            code=parsed["code"],
            remark=parsed.get("remark"),
            fields=parsed.get("extFields") or {},
            body=body,
            raw=raw,
        )
        return reply, bool(parsed["flag"] & 1)
    code, _, _, _, flag, remark_length = struct.unpack_from(">hbhiii", header)
    at = 17
    remark = header[at : at + remark_length].decode() or None
    at += remark_length + 4
    fields: dict[str, str] = {}
    while at < len(header):
        key_length = struct.unpack_from(">h", header, at)[0]
        key = header[at + 2 : at + 2 + key_length].decode()
        at += 2 + key_length
        value_length = struct.unpack_from(">i", header, at)[0]
        fields[key] = header[at + 4 : at + 4 + value_length].decode()
        at += 4 + value_length
    return Reply(code=code, remark=remark, fields=fields, body=body, raw=raw), bool(flag & 1)


def route_names(name_server_port: int, topic: str, *, tls: ssl.SSLContext | None = None) -> set[str]:
    """Broker names in a topic's route; empty if there is none or no server answers."""
    try:
        with RemotingProbe(name_server_port, tls=tls) as probe:
            reply = probe.ask(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    except OSError:
        return set()
    if reply.code != 0:
        return set()
    # Old name servers leave integer keys unquoted; the names are found without parsing those.
    text = reply.body.decode()
    names = set()
    for part in text.split('"brokerName":"')[1:]:
        names.add(part.split('"', 1)[0])
    return names
