"""Compressed bodies of messages. Producers compress a body, and brokers store it unchanged
(org.apache.rocketmq.common.compression).

A body is a plain zlib stream, a zstd frame, or an LZ4 frame. zstd and lz4 need the packages `zstandard` and `lz4` (the
extra `compression`), which are loaded when a body needs them. Without the package, a look-up of such a message is
UNKNOWN, and a consumer hands the message back.
"""

from __future__ import annotations

import logging
import zlib
from functools import cache

from reconciler.errors import MissingDependency, ProtocolViolation
from reconciler.rocketmq.wire.codes import SystemFlag

logger = logging.getLogger(__name__)

#: Module that a body may need -> name of the compression.
OPTIONAL_MODULES = {"zstandard": "zstd", "lz4": "lz4"}

#: Largest uncompressed body, which is 16 times the largest message that a broker takes by default (maxMessageSize, 4
#: MiB).
MAXIMUM_BODY_BYTES = 64 * 1024 * 1024

#: Largest accepted ratio of the uncompressed size to the compressed size. A text of one repeated byte reaches about 1
#: 030 with zlib, and more with zstd.
MAXIMUM_RATIO = 1_100
#: Below this uncompressed size the ratio is not checked, because any producer may send as much (maxMessageSize, 4 MiB
#: by default).
_RATIO_FREE_BYTES = 4 * 1024 * 1024
#: Bytes that one step of zstd reads, because the package limits only its input. A block of 128 KiB takes 4 bytes, so
#: one step gives at most 16 MiB.
_ZSTD_STEP_BYTES = 512

#: The level of Java producers up to 4.9.3, which is also the later default (zipCompressLevel).
ZLIB_LEVEL = 5


def compress_zlib(body: bytes) -> bytes:
    """Makes a zlib stream. Every broker and client version understands it with SystemFlag.COMPRESSED alone."""
    return zlib.compress(body, ZLIB_LEVEL)


def decompress(data: bytes, system_flag: int, maximum_bytes: int = MAXIMUM_BODY_BYTES) -> bytes:
    """Returns the plain body, never more than `maximum_bytes`.

    Raises ProtocolViolation for damaged data, a body over the limit or a decompression bomb. Raises MissingDependency
    if the package for zstd or lz4 is not installed.
    """
    bound = min(maximum_bytes, max(_RATIO_FREE_BYTES, len(data) * MAXIMUM_RATIO))
    kind = system_flag & SystemFlag.COMPRESSION_MASK
    if kind in (0, SystemFlag.COMPRESSION_ZLIB):
        return _unzlib(data, bound)
    if kind == SystemFlag.COMPRESSION_ZSTD:
        return _unzstd(data, bound)
    if kind == SystemFlag.COMPRESSION_LZ4:
        return _unlz4(data, bound)
    raise ProtocolViolation(f"unknown compression type {kind >> 8}")


def _unzlib(data: bytes, bound: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data, bound + 1)
    except zlib.error as error:
        raise ProtocolViolation(f"damaged zlib body: {error}") from error
    return _complete(plain, bound, is_whole=decompressor.eof)


def _unzstd(data: bytes, bound: int) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise _missing("zstandard") from error
    # The window is limited, because a frame header may ask for gigabytes.
    decompressor = zstandard.ZstdDecompressor(max_window_size=128 * 1024 * 1024).decompressobj()
    plain = bytearray()
    try:
        for at in range(0, len(data), _ZSTD_STEP_BYTES):
            plain += decompressor.decompress(data[at : at + _ZSTD_STEP_BYTES])
            if decompressor.eof or len(plain) > bound:
                break
    except zstandard.ZstdError as error:
        raise ProtocolViolation(f"damaged zstd body: {error}") from error
    return _complete(bytes(plain), bound, is_whole=bool(decompressor.eof))


def _unlz4(data: bytes, bound: int) -> bytes:
    try:
        import lz4.frame
    except ImportError as error:
        raise _missing("lz4") from error
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = decompressor.decompress(data, max_length=bound + 1)
    except RuntimeError as error:
        raise ProtocolViolation(f"damaged lz4 body: {error}") from error
    return _complete(plain, bound, is_whole=bool(decompressor.eof))


def _missing(module: str) -> MissingDependency:
    text = f"a message body is compressed with {OPTIONAL_MODULES[module]}: pip install {module}"
    _log_once(text)
    return MissingDependency(text)


@cache
def _log_once(text: str) -> None:
    """Logs a text once per process, because every look-up, pull and check-back of such a message calls this
    function."""
    logger.error("package_missing: %s, in every process that reads such messages", text)


def _complete(plain: bytes, bound: int, *, is_whole: bool) -> bytes:
    if len(plain) > bound:
        raise ProtocolViolation(f"body grows beyond {bound} bytes when it is decompressed")
    if not is_whole:
        raise ProtocolViolation("compressed body ends too early")
    return plain
