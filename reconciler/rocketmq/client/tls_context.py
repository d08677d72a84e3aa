"""The TLS context of one client. The context is made from the client's files, and made again when a file was
renewed."""

from __future__ import annotations

import errno
import logging
import os
import ssl
import stat
import threading
from typing import TypeAlias

from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import ask_again

logger = logging.getLogger(__name__)

#: For each file, the facts that change when the file is replaced or written.
_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class TlsContext:
    """Threads may share this object, because a lock protects it. The constructor raises InvalidValue for files that
    cannot be used.

    Connections that are made after a renewal use the new certificate. If files become unusable, for example half
    renewed, the former context stays in use and a warning is logged. The next connection reads the files again.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._context = client_context(settings)

    def current(self) -> ssl.SSLContext:
        """Returns the context for a new connection."""
        with self._lock:
            stamps = self._look()
            if stamps != self._stamps:
                try:
                    self._context = client_context(self.settings)
                    self._stamps = stamps
                except ConfigurationError as error:
                    logger.warning("tls_files_unusable: the former ones stay in use: %s", error)
            return self._context

    def _look(self) -> _Stamps:
        settings = self.settings
        return tuple(_stamp(path) for path in (settings.ca_file, settings.certificate_file, settings.key_file))


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Makes a context for TLS 1.2 or newer, which always verifies the peer's certificate. Raises InvalidValue, whose
    text names the field."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # so that writing never waits for reading
    context.check_hostname = settings.verify_host_name
    if settings.ca_file is None:
        context.load_default_certs()
    else:
        try:
            _require_file(settings.ca_file)
            context.load_verify_locations(settings.ca_file)
        except OSError as error:  # SSLError is one
            remedy = f"a PEM file with the certificates of the authorities that are trusted ({error})"
            raise InvalidValue("rocketmq.tls.ca_file", settings.ca_file, remedy) from error
    if settings.certificate_file is not None:
        _load_certificate(context, settings)
    elif settings.key_file is not None:
        raise InvalidValue("rocketmq.tls.key_file", settings.key_file, "only together with certificate_file")
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    given = settings.key_password
    used: str | None = None

    def password() -> str:
        # Without a password function, openssl would ask for the password at the terminal.
        nonlocal used
        used = (given() if callable(given) else given) or ""
        return used

    certificate, key = settings.certificate_file, settings.key_file
    assert certificate is not None  # noqa: S101 - for the type checker; the caller looked
    try:
        for file in (certificate, key):
            if file is not None:
                _require_file(file)
        try:
            context.load_cert_chain(certificate, key, password)
        except OSError:
            if used is None or not ask_again(given, used):
                raise
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        if used is not None:
            has_one = settings.key_password is not None
            found = "*****" if has_one else None
            remedy = "the password of the key file" if has_one else "the key file is encrypted: give its password"
            raise InvalidValue("rocketmq.tls.key_password", found, remedy) from error
        remedy = f"PEM files with a certificate and its key ({error}); the key is {key or 'expected in the same file'}"
        raise InvalidValue("rocketmq.tls.certificate_file", certificate, remedy) from error


def _require_file(path: str) -> None:
    """Raises OSError for a path that is no file, because openssl would wait for the writer of a FIFO. A pipe of a shell
    ends."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not path.startswith(("/dev/fd/", "/proc/")):
        raise OSError(errno.EINVAL, "Is no file", path)


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
