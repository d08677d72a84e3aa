"""Registers a broker with a name server in another process or thread. REGISTER_BROKER goes over TCP or TLS.

Only the broker's loop uses this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

from reconciler.embedded.handlers.admin import topics_json
from reconciler.embedded.services import BrokerServices
from reconciler.rocketmq.client.tls_context import TlsContext
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import FLAG_ONEWAY, Command, encode_frame

logger = logging.getLogger(__name__)

_PERIOD_SECONDS = 10.0
_POLL_SECONDS = 0.02  # delay before a new topic is announced
_RETRY_SECONDS = 0.5
_FIRST_SECONDS = 3.0
_GOODBYE_SECONDS = 1.0


class Registration:
    """Keeps one broker registered with each of its name servers."""

    def __init__(
        self, broker: BrokerServices, name_servers: list[tuple[str, int]], tls: TlsContext | None = None
    ) -> None:
        """`tls` encrypts the connections to the name servers (tls.enable of a real broker). With None, they are
        plain."""
        self._broker = broker
        self._name_servers = name_servers
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()

    async def start(self) -> None:
        """Begins to register the broker. Returns when one name server knows the broker, or after a few seconds without
        an answer."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(host, port)) for host, port in self._name_servers]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._ready.wait()

    async def stop(self) -> None:
        """Closes the connections. The name servers then forget the broker."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, host: str, port: int) -> None:
        while True:
            try:
                await self._stay_registered(host, port)
            except (OSError, asyncio.IncompleteReadError) as error:
                logger.info("name_server_away: name server %s:%d: %s", host, port, error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _stay_registered(self, host: str, port: int) -> None:
        context = None if self._tls is None else self._tls.current()
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            sent_version, waited = -1, 0.0
            while True:
                version = self._broker.state.topics_version
                if version != sent_version or waited >= _PERIOD_SECONDS:
                    writer.write(self._register_frame())
                    await writer.drain()
                    length = int.from_bytes(await reader.readexactly(4), "big")
                    await reader.readexactly(length)
                    sent_version, waited = version, 0.0
                    self._ready.set()
                await asyncio.sleep(_POLL_SECONDS)
                if reader.at_eof():
                    return  # the name server closed: connect again
                waited += _POLL_SECONDS
        finally:
            if not writer.is_closing():
                writer.write(self._unregister_frame())
            await _close(writer)

    def _fields(self) -> dict[str, str]:
        settings = self._broker.settings
        return {
            "brokerAddr": self._broker.address,
            "brokerId": "0",
            "brokerName": settings.broker_name,
            "clusterName": settings.cluster_name,
        }

    def _register_frame(self) -> bytes:
        body = {"filterServerList": [], "topicConfigSerializeWrapper": topics_json(self._broker)}
        return encode_frame(
            Command(
                code=RequestCode.REGISTER_BROKER,
                language="JAVA",
                version=self._broker.family.version,
                fields=self._fields() | {"haServerAddr": "", "compressed": "false", "bodyCrc32": "0"},
                body=json.dumps(body).encode(),
            )
        )

    def _unregister_frame(self) -> bytes:
        return encode_frame(
            Command(
                code=RequestCode.UNREGISTER_BROKER,
                flag=FLAG_ONEWAY,
                language="JAVA",
                version=self._broker.family.version,
                fields=self._fields(),
            )
        )


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes the connection after the written bytes were sent, or after a time limit. TLS sends a closing message
    first."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await writer.wait_closed()
    writer.transport.abort()
