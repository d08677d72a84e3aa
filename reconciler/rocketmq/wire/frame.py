"""A remoting command, and its bytes as a frame (RemotingCommand, RocketMQSerializable, NettyDecoder).

A frame is: u32 length of the rest, u8 header form (0 JSON, 1 binary), u24 header length, header, body. A reply may have
another form than its request, so every frame is read by its own form byte. Requests are written in JSON, because 3.2.6
drops the connection for any other form.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from reconciler.errors import ProtocolViolation
from reconciler.rocketmq.wire.codes import CLIENT_VERSION

#: Largest frame that NettyDecoder takes by default (com.rocketmq.remoting.frameMaxLength).
MAXIMUM_FRAME_BYTES = 16 * 1024 * 1024

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

_PREFIX = struct.Struct(">II")
_WORD = struct.Struct(">I")
_BINARY_HEAD = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, length of the remark
_LENGTH = struct.Struct(">i")
_NAME_LENGTH = struct.Struct(">h")

#: Names of org.apache.rocketmq.remoting.protocol.LanguageCode, in the order of their numbers.
_LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(_LANGUAGES)}

_INT32_MAX = 2**31 - 1
_NO_FIELDS: Mapping[str, str] = {}


class Serialization(IntEnum):
    """Form of a frame's header (SerializeType)."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request or a response. `fields` are the extFields, whose values are all text. Booleans are "true" and
    "false"."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    #: Version of the sender, as its ordinal in MQVersion.
    version: int = CLIENT_VERSION
    remark: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialization: Serialization = Serialization.JSON

    @property
    def is_response(self) -> bool:
        """True if this command answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """True if the request wants no answer."""
        return bool(self.flag & FLAG_ONEWAY)


def reply_to(
    request: Command,
    code: int,
    *,
    remark: str | None = None,
    fields: Mapping[str, str] = _NO_FIELDS,
    body: bytes = b"",
    language: str = "PYTHON",
    version: int = CLIENT_VERSION,
) -> Command:
    """Makes a response to the request, in the request's form."""
    return Command(
        code=code,
        opaque=request.opaque,
        flag=FLAG_RESPONSE,
        language=language,
        version=version,
        remark=remark,
        fields=fields,
        body=body,
        serialization=request.serialization,
    )


# Headers are written in ASCII only, because 3.2.6 reads text in the platform's character set.
_encode_json = json.JSONEncoder(ensure_ascii=True, check_circular=False).encode
_decode_json = json.JSONDecoder().decode


def encode_frame(command: Command, *, opaque: int | None = None, flag: int | None = None) -> bytes:
    """Encodes the whole frame with its length word. Raises ProtocolViolation if the frame is larger than a peer would
    take.

    `opaque` and `flag` replace the values of the command. This costs less than a copy of the command.
    """
    opaque = command.opaque if opaque is None else opaque
    flag = command.flag if flag is None else flag
    is_json = command.serialization is Serialization.JSON
    header = _json_header(command, opaque, flag) if is_json else _binary_header(command, opaque, flag)
    length = 4 + len(header) + len(command.body)
    if length > MAXIMUM_FRAME_BYTES:
        raise ProtocolViolation(f"frame of {length} bytes is larger than {MAXIMUM_FRAME_BYTES}")
    prefix = _PREFIX.pack(length, command.serialization << 24 | len(header))
    return b"".join((prefix, header, command.body))


def decode_frame(frame: bytes | memoryview) -> Command:
    """Decodes a frame without its length word. Raises only ProtocolViolation for bad bytes."""
    if len(frame) < 4:
        raise ProtocolViolation(f"frame of {len(frame)} bytes has no header word")
    word = _WORD.unpack_from(frame)[0]
    form, end = word >> 24, 4 + (word & 0xFFFFFF)
    if end > len(frame):
        raise ProtocolViolation(f"header of {end - 4} bytes in a frame of {len(frame)}")
    header, body = bytes(frame[4:end]), bytes(frame[end:])
    if form == Serialization.JSON:
        return _from_json(header, body)
    if form == Serialization.ROCKETMQ:
        return _from_binary(header, body)
    raise ProtocolViolation(f"unknown header form {form}")


class FrameReader:
    """Cuts a byte stream into commands. Each connection has one FrameReader, which only its reading thread uses."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._wanted = 4

    @property
    def is_in_frame(self) -> bool:
        """True if only a part of a frame has arrived."""
        return bool(self._waiting)

    def feed(self, data: bytes) -> list[Command]:
        """Adds bytes and returns the commands that are complete now. Raises ProtocolViolation for a bad length as soon
        as the length word has arrived.

        After an error, close the connection, because the rest of the stream has no meaning.
        """
        waiting = self._waiting
        if waiting:
            waiting += data
            if len(waiting) < self._wanted:
                return []
            data = bytes(waiting)
            waiting.clear()
        commands: list[Command] = []
        view = memoryview(data)
        at, end = 0, len(data)
        self._wanted = 4
        while end - at >= 4:
            length = _WORD.unpack_from(data, at)[0]
            if not 4 <= length <= MAXIMUM_FRAME_BYTES:
                raise ProtocolViolation(f"frame length {length} is outside 4..{MAXIMUM_FRAME_BYTES}")
            if end - at - 4 < length:
                self._wanted = length + 4
                break
            commands.append(decode_frame(view[at + 4 : at + 4 + length]))
            at += 4 + length
        if at < end:
            waiting += view[at:]
        return commands


# --------------------------------------------------------------------------- JSON header


def _json_header(command: Command, opaque: int, flag: int) -> bytes:
    fields = command.fields
    header: dict[str, object] = {
        "code": int(command.code),
        "language": command.language,
        "version": int(command.version),
        "opaque": opaque,
        "flag": flag,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields if type(fields) is dict else dict(fields),
    }
    if command.remark is not None:
        header["remark"] = command.remark
    return _encode_json(header).encode("ascii")


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        parsed = _decode_json(header.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"header is no JSON: {type(error).__name__}") from error
    if not isinstance(parsed, dict):
        raise ProtocolViolation("header is no JSON object")
    remark = parsed.get("remark")
    language = parsed.get("language", "JAVA")
    if not (remark is None or isinstance(remark, str)) or not isinstance(language, str):
        raise ProtocolViolation("remark or language in the header is no text")
    return Command(
        code=_integer(parsed, "code"),
        opaque=_integer(parsed, "opaque"),
        flag=_integer(parsed, "flag"),
        language=language,
        version=_integer(parsed, "version"),
        remark=remark,
        fields=_text_fields(parsed.get("extFields")),
        body=body,
    )


def _integer(parsed: Mapping[str, object], name: str) -> int:
    value = parsed.get(name, 0)
    if type(value) is not int or not -_INT32_MAX - 1 <= value <= _INT32_MAX:
        raise ProtocolViolation(f"{name} in the header is no 32-bit integer")
    return value


def _text_fields(value: object) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolViolation("extFields in the header is no object")
    for text in value.values():
        if type(text) is not str:
            return {name: _text(text) for name, text in value.items() if text is not None}
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ProtocolViolation("an extField is neither text nor number")


# --------------------------------------------------------------------------- binary header


def _binary_header(command: Command, opaque: int, flag: int) -> bytes:
    remark = (command.remark or "").encode()
    fields = bytearray()
    for name, value in command.fields.items():
        encoded_name, encoded_value = name.encode(), value.encode()
        if len(encoded_name) > 0x7FFF:
            raise ProtocolViolation(f"field name of {len(encoded_name)} bytes")
        fields += _NAME_LENGTH.pack(len(encoded_name)) + encoded_name
        fields += _LENGTH.pack(len(encoded_value)) + encoded_value
    try:
        head = _BINARY_HEAD.pack(
            command.code,
            _LANGUAGE_NUMBERS.get(command.language, _LANGUAGE_NUMBERS["OTHER"]),
            command.version,
            opaque,
            flag,
            len(remark),
        )
    except struct.error as error:
        raise ProtocolViolation(f"command {command.code} does not fit a binary header: {error}") from error
    return b"".join((head, remark, _LENGTH.pack(len(fields)), fields))


def _from_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(header)
        remark, at = _take(header, _BINARY_HEAD.size, remark_length)
        fields_length = _LENGTH.unpack_from(header, at)[0]
        fields_bytes, end = _take(header, at + 4, fields_length)
        if end != len(header):
            raise ProtocolViolation(f"{len(header) - end} bytes too many in a binary header")
        fields: dict[str, str] = {}
        at = 0
        while at < len(fields_bytes):
            name, at = _take(fields_bytes, at + 2, _NAME_LENGTH.unpack_from(fields_bytes, at)[0])
            value, at = _take(fields_bytes, at + 4, _LENGTH.unpack_from(fields_bytes, at)[0])
            fields[name.decode()] = value.decode()
        remark_text = remark.decode() if remark else None
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"bad binary header: {error}") from error
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER",
        version=version,
        remark=remark_text,
        fields=fields,
        body=body,
        serialization=Serialization.ROCKETMQ,
    )


def _take(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length < 0 or at + length > len(data):
        raise ProtocolViolation(f"length {length} inside a binary header of {len(data)} bytes")
    return data[at : at + length], at + length
