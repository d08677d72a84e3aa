"""What a broker or name server wants that this client does not give: TLS, or signed requests.

Answers of 4.9.7 (plain ACL) and 5.3.3 (ACL 2.0, TLS in enforcing mode).
"""

from __future__ import annotations

import contextlib
import socket
import ssl

from reconciler.errors import BrokerRefused, BrokerUnavailable, ReconcilerError
from reconciler.rocketmq.client.tls_failures import TlsFailure
from reconciler.rocketmq.wire.address import parse_address

WANTS_TLS = "wants TLS"
FAILS_TLS = "TLS fails"
WANTS_AUTHENTICATION = "wants authentication"
REMEDIES = {
    WANTS_TLS: "set [rocketmq.tls] enabled = true and, for an authority of your own, ca_file",
    FAILS_TLS: "do what the text says, in [rocketmq.tls] or at the server's tls properties (docs/security.md)",
    WANTS_AUTHENTICATION: "this client signs nothing: let its address in without a signature "
    "(globalWhiteRemoteAddresses), or switch access control off there",
}
#: Parts of the remark that mean it. Code 16 alone may be a topic without write permission; up to 4.9 it is code 1.
_UNSIGNED = ("AclException", "accessKey", "username cannot be null")
_HANDSHAKE_SECONDS = 2.0


def demand_behind(error: ReconcilerError, address: str) -> str | None:
    """What of REMEDIES is why it did not answer; None: something else. May connect once more to find out."""
    if isinstance(error, BrokerRefused):
        remark = error.remark or ""
        return WANTS_AUTHENTICATION if any(part in remark for part in _UNSIGNED) else None
    if _tells_of_tls(error):
        return FAILS_TLS
    # A server that enforces TLS closes a connection that begins without it (NettyRemotingServer.HandshakeHandler).
    return WANTS_TLS if isinstance(error, BrokerUnavailable) and _speaks_tls(address) else None


def explained(error: ReconcilerError, address: str) -> str:
    """The error's text, behind what the peer wants."""
    demand = demand_behind(error, address)
    return str(error) if demand is None else f"{demand}: {error}"


def _tells_of_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, TlsFailure):
        error = error.__cause__
    return error is not None


def _speaks_tls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over it
    try:
        with contextlib.closing(socket.create_connection(parse_address(address), _HANDSHAKE_SECONDS)) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        # An alert is TLS, too: it wants a certificate of ours, say.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True
