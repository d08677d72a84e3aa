"""TLS settings for connections to name servers and brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS settings for every connection of a client. All files are PEM. The password is never shown."""

    #: Certificates of the trusted authorities. None means the certificates of the system.
    ca_file: str | None = None
    #: The client's own certificate and key, if servers require one (tls.server.need.client.auth).
    certificate_file: str | None = None
    key_file: str | None = None
    #: Password of the key file, or a function that returns it. The function is called whenever the file is read.
    key_password: str | Callable[[], str] | None = field(default=None, repr=False)
    #: False accepts any certificate of the trusted authorities, whatever host the certificate names.
    verify_host_name: bool = True
