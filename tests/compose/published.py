"""A published port: `published.py ADDRESS PORT TARGET TARGET_PORT` passes on what comes, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.write_eof()


async def _serve(address: str, port: int, target: str, target_port: int) -> None:
    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(target, target_port)
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            there_writer.close()
        writer.close()

    server = await asyncio.start_server(passed, address, port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
