"""TLS of the embedded broker, on the same port as plain connections. The first byte of a connection tells them apart.

NettyRemotingServer.TlsModeHandler does the same (RocketMQ 4.2 and newer).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from reconciler.contract.named_files import require_file
from reconciler.errors import InvalidValue, warn_of_former_paths

logger = logging.getLogger(__name__)

_HAND_SHAKE_RECORD = b"\x16"
_HAND_SHAKE_SECONDS = 10.0
#: Maximum number of connections that have not sent a byte yet. Further connections are closed.
_MOST_SILENT = 1_000


class TlsMode(StrEnum):
    """The TLS mode of a server (tls.server.mode of RocketMQ)."""

    #: The server accepts only plain connections.
    DISABLED = "disabled"
    #: The server accepts plain connections and TLS.
    PERMISSIVE = "permissive"
    #: The server accepts only TLS.
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS settings of a broker (tls.server.certPath, keyPath, trustCertPath, need.client.auth). All files are PEM."""

    certificate_file: Path | str
    #: The file with the private key. With None, the key is in certificate_file.
    key_file: Path | str | None = None
    key_password: str | None = field(default=None, repr=False)
    #: Certificates of the authorities that sign clients' certificates.
    client_ca_file: Path | str | None = None
    #: With False, a client without a certificate is admitted.
    requires_client_certificate: bool = False
    mode: TlsMode = TlsMode.PERMISSIVE

    def context(self) -> ssl.SSLContext:
        """Makes the context. Raises InvalidValue if a file cannot be used."""
        if self.requires_client_certificate and self.client_ca_file is None:
            raise InvalidValue("client_ca_file", None, "the authorities of the certificates that clients must show")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            for file in (self.certificate_file, self.key_file):
                if file is not None:
                    require_file(file)
            # Without a password, openssl would ask for one at the terminal.
            context.load_cert_chain(self.certificate_file, self.key_file, self.key_password or "")
        except OSError as error:  # SSLError is one
            remedy = f"PEM files with a certificate and its key ({error})"
            raise InvalidValue("certificate_file", str(self.certificate_file), remedy) from error
        if self.client_ca_file is not None:
            try:
                require_file(self.client_ca_file)
                context.load_verify_locations(self.client_ca_file)
            except OSError as error:
                remedy = f"a PEM file with certificates of authorities ({error})"
                raise InvalidValue("client_ca_file", str(self.client_ca_file), remedy) from error
            context.verify_mode = ssl.CERT_REQUIRED if self.requires_client_certificate else ssl.CERT_OPTIONAL
        return context


class TlsDoor:
    """Accepts connections of one listening socket. The first byte of a connection decides whether it is TLS. Only one
    loop may use an object."""

    def __init__(self, listener: socket.socket, tls: ServerTls, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._mode = tls.mode
        self._context = tls.context()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._silent: set[socket.socket] = set()
        self._admitting: dict[asyncio.Task[None], socket.socket] = {}
        listener.setblocking(False)  # noqa: FBT003 - its only parameter
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Accepts no more connections. Closes connections that are silent, or in the hand-shake."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for silent in list(self._silent):
            self._turn_away(silent)
        admitting = dict(self._admitting)
        for task in admitting:
            task.cancel()
        await asyncio.gather(*admitting, return_exceptions=True)
        for connected in admitting.values():  # a task that was cancelled before it began closed nothing
            connected.close()

    def _accept(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except OSError:  # the client closed meanwhile
            return
        if len(self._silent) >= _MOST_SILENT:
            connected.close()
            return
        connected.setblocking(False)  # noqa: FBT003 - its only parameter
        self._silent.add(connected)
        self._loop.add_reader(connected, self._look, connected)

    def _look(self, connected: socket.socket) -> None:
        try:
            first = connected.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        is_tls = first == _HAND_SHAKE_RECORD
        refused = TlsMode.DISABLED if is_tls else TlsMode.ENFORCING
        if not first or self._mode is refused:
            logger.info("connection_lost: %s in mode %s", "TLS" if is_tls else "no TLS", self._mode)
            self._turn_away(connected)
            return
        self._loop.remove_reader(connected)
        self._silent.discard(connected)
        task = self._loop.create_task(self._admit(connected, is_tls=is_tls))
        self._admitting[task] = connected
        task.add_done_callback(self._admitting.pop)

    async def _admit(self, connected: socket.socket, *, is_tls: bool) -> None:
        try:
            if is_tls:
                await self._loop.connect_accepted_socket(
                    self._protocol, connected, ssl=self._context, ssl_handshake_timeout=_HAND_SHAKE_SECONDS
                )
            else:
                await self._loop.connect_accepted_socket(self._protocol, connected)
        except OSError as error:  # the hand-shake failed: asyncio has closed the socket
            logger.info("connection_lost: TLS hand-shake: %s", error)

    def _turn_away(self, connected: socket.socket) -> None:
        self._loop.remove_reader(connected)
        self._silent.discard(connected)
        with contextlib.suppress(OSError):
            connected.close()


warn_of_former_paths(__name__, {"ServerTls": "reconciler.testing", "TlsMode": "reconciler.testing"})
