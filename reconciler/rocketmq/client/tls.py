"""How connections to name servers and brokers are encrypted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS for every connection of a client; the password is never shown. Files are PEM."""

    #: Certificates of the trusted authorities; None: those of the system.
    ca_file: str | None = None
    #: The client's own certificate and key, if servers require one (tls.server.need.client.auth).
    certificate_file: str | None = None
    key_file: str | None = None
    #: Password of the key file; a function is called whenever the file is read.
    key_password: str | Callable[[], str] | None = field(default=None, repr=False)
    #: False: any certificate of the trusted authorities is accepted, whatever host it names.
    verify_host_name: bool = True
