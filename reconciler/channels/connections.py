"""Connections to receivers. The deadline of a delivery also limits the time to open and to encrypt its connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from reconciler.channels.deadline import Deadline

_DEMANDED = "which Python 3.13 and newer demand; have its authority issue one that has it"
#: X509_V_ERR_* of OpenSSL -> its meaning. OpenSSL's own words for 62 to 64 contain the host's name, which may be a
#: token.
_CERTIFICATE_PROBLEMS: Mapping[int, str] = {
    7: "its signature is not that of its authority",
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is signed by itself",
    19: "its authority is unknown",
    20: "its authority is unknown",
    21: "its authority is unknown",
    62: "it is valid for another name",
    63: "it is valid for another address",
    64: "it is valid for another address",
    85: f"it lacks the extension Authority Key Identifier, {_DEMANDED}",
    86: f"it, or its authority's, lacks the extension Subject Key Identifier, {_DEMANDED}",
    92: f"its authority's lacks the extension Key Usage, {_DEMANDED}",
}


def open_connection(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Opens a TCP connection to the first address of the host that accepts one.

    An address that does not answer uses only its share of the time. Raises OSError (such as TimeoutError), and
    UnicodeError for a name that cannot be resolved. The resolver has its own time limit.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for number, (family, kind, protocol, _, address) in enumerate(found):
        seconds = deadline.next_wait_seconds(shares=len(found) - number)
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # a family that this machine lacks
            failure = error
            continue
        try:
            connection.settimeout(seconds)
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            failure = error
            connection.close()
        else:
            return connection
    raise failure


def encrypt(connection: socket.socket, context: ssl.SSLContext, host: str, deadline: Deadline) -> ssl.SSLSocket:
    """Encrypts the connection by TLS. Returns the encrypted connection, to be used instead of `connection`. Raises
    OSError, such as SSLCertVerificationError.

    `host`: the name that the certificate must have.
    """
    connection.settimeout(deadline.next_wait_seconds())  # the limit for the whole handshake
    return context.wrap_socket(connection, server_hostname=host)


def certificate_problem(error: ssl.SSLCertVerificationError) -> str:
    """Says why a certificate is not trusted, without the requested name."""
    return _CERTIFICATE_PROBLEMS.get(error.verify_code, f"{error.verify_message} (OpenSSL's {error.verify_code})")
