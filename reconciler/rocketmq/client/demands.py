"""Demands of a broker or name server that this client does not meet, such as TLS, a signature, a user or a right.

The texts of the answers are those of 4.9.7 (plain ACL) and 5.3.3 (ACL 2.0, TLS in enforcing mode).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from enum import StrEnum

from reconciler.errors import AccessRefused, BrokerUnavailable, Lacking, ReconcilerError, RequestTimeout
from reconciler.rocketmq.client.connection import ConnectionLost, PeerSilent
from reconciler.rocketmq.client.tls_failures import DO_AS_SAID, SWITCH_TLS_ON, TlsFailure
from reconciler.rocketmq.wire.address import parse_address


class PeerDemand(StrEnum):
    """The demand, in the words that errors use."""

    WANTS_TLS = "wants TLS"
    TLS_FAILS = "TLS fails"
    WANTS_AUTHENTICATION = "wants authentication"
    REFUSES_ACCESS = "refuses access"


REMEDIES = {
    PeerDemand.WANTS_TLS: f"{SWITCH_TLS_ON} and, for an authority of your own, ca_file",
    PeerDemand.TLS_FAILS: DO_AS_SAID,
}
_HANDSHAKE_SECONDS = 2.0


def demand_behind(error: ReconcilerError, address: str) -> PeerDemand | None:
    """Returns the demand that explains the missing answer. Returns None if no demand explains it.

    After a closed connection, this function connects once more to find the demand out. A silent server closes no
    connection.
    """
    if isinstance(error, AccessRefused):
        return PeerDemand.WANTS_AUTHENTICATION if error.lacking is Lacking.SIGNATURE else PeerDemand.REFUSES_ACCESS
    if _tells_of_tls(error):
        return PeerDemand.TLS_FAILS
    # A server that enforces TLS closes a connection that begins without TLS (NettyRemotingServer.HandshakeHandler).
    is_closed = isinstance(error, BrokerUnavailable) and not _tells_of_silence(error)
    return PeerDemand.WANTS_TLS if is_closed and _speaks_tls(address) else None


def remedy_of(demand: PeerDemand, error: ReconcilerError) -> str:
    """Returns the remedy for the demand behind an error."""
    return error.remedy if isinstance(error, AccessRefused) else REMEDIES[demand]


def explained(error: ReconcilerError, address: str) -> str:
    """Returns the peer's demand, followed by the error's text."""
    demand = demand_behind(error, address)
    return str(error) if demand is None else f"{demand}: {error}"


def _tells_of_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, TlsFailure) or (isinstance(error, ConnectionLost) and error.is_silent_over_tls):
            return True
        error = error.__cause__
    return False


def _tells_of_silence(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, PeerSilent | RequestTimeout | TimeoutError):
            return True
        error = error.__cause__
    return False


def _speaks_tls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over it
    try:
        with contextlib.closing(socket.create_connection(parse_address(address), _HANDSHAKE_SECONDS)) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        # An alert also proves that the peer speaks TLS. The peer may want our certificate, for example.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True
