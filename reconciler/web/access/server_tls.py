"""The server's certificate. It is read again when its files are renewed."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from reconciler.contract.named_files import require_file
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.settings.web import WebSettings
from reconciler.web.access.open_files import warn_if_open

logger = logging.getLogger(__name__)


class ServerCertificate:
    """Certificate for TLS 1.2 or newer. Once the server listens, only the thread of the event loop uses it.

    New connections get a renewed certificate. If its files become unusable (for example half-renewed), the former
    certificate stays in use, and a warning is logged.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """`key` None: the key is in the certificate's file. Raises InvalidValue for unusable files."""
        self._files = (certificate, key or certificate)
        self._looked = self._look()
        self._newest = self._loaded()
        warn_if_open(self._files[1])
        #: The context with which the server listens.
        self.context = self._newest
        # Called at each handshake, even if a client names no host.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _host: str | None, _context: ssl.SSLContext) -> None:
        found = self._look()
        if found != self._looked:
            self._looked = found
            try:
                self._newest = self._loaded()
                logger.info("web_certificate_renewed")
            except ConfigurationError as error:
                logger.warning("web_certificate_unusable: the former one stays in use: %s", error)
        connection.context = self._newest

    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(file) for file in self._files)

    def _loaded(self) -> ssl.SSLContext:
        certificate, key = self._files
        for name, file in (("web.tls_certificate", certificate), ("web.tls_key", key)):
            try:
                require_file(file)
                with file.open("rb"):
                    pass  # openssl's own error names neither file
            except OSError as error:
                remedy = f"a PEM file that the login of this process may read ({error.strerror})"
                raise InvalidValue(name, str(file), remedy) from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # Without a password, openssl would ask at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:  # SSLError is an OSError
            remedy = f"with web.tls_key: PEM files of a certificate and its key, without a password ({error})"
            raise InvalidValue("web.tls_certificate", str(certificate), remedy) from error
        return context


def server_certificate(web: WebSettings) -> ServerCertificate | None:
    """Reads the certificate. None: browsers are served without TLS. Raises InvalidValue for unusable files."""
    if web.tls_certificate is None:
        return None
    return ServerCertificate(Path(web.tls_certificate), None if web.tls_key is None else Path(web.tls_key))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
