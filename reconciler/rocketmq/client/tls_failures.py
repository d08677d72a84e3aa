"""Texts for failed TLS connections to name servers and brokers. Each text names the reason and the remedy.

In enforcing mode, NettyRemotingServer.TlsModeHandler closes a plain connection. In disabled mode, it closes a
connection that begins with a TLS record (0x16).
"""

from __future__ import annotations

import ipaddress
import ssl

from reconciler.errors import BrokerUnavailable
from reconciler.rocketmq.client.tls import TlsSettings

#: The remedy of a failure whose text already says what to do.
DO_AS_SAID = "do what the text says, in [rocketmq.tls] or at the server's tls properties (docs/how-to/tls.md)"
SWITCH_TLS_ON = "set [rocketmq.tls] enabled = true"
_MAY_DEMAND_TLS = (
    f" before it answered anything: the port seems to demand TLS; {SWITCH_TLS_ON} (plug-ins: tls=TlsSettings(...))"
)
_MAY_DEMAND_CERTIFICATE = (
    " before it answered anything: it may demand a certificate of this client; set [rocketmq.tls] certificate_file and "
    "key_file"
)
_MAY_REFUSE_CERTIFICATE = (
    " before it answered anything: it may refuse the certificate of this client, [rocketmq.tls] certificate_file; look "
    "at its log"
)

# X509_V_ERR_* of openssl/x509_vfy.h.
_NOT_YET_VALID, _EXPIRED, _SELF_SIGNED = 9, 10, 18
_UNKNOWN_AUTHORITY = frozenset({2, _SELF_SIGNED, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})
#: Reasons that openssl 1.1 to 3.x gives for bytes that are no TLS record.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
#: Errors for a connection that ends, orderly or not, during sending or reading.
_ENDS = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
#: Errors for a connection that the peer ends in the middle of a hand-shake. CPython 3.11.2 has raised both of them.
_ENDS_OF_HAND_SHAKE = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
_OTHER_VERSION = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")


class TlsFailure(BrokerUnavailable):
    """The connection could not be encrypted as the settings require. Nothing was sent over the connection."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.remedy = DO_AS_SAID


def hand_shake_failure(error: OSError, address: str, host: str, settings: TlsSettings) -> TlsFailure:
    """Returns the failure of a hand-shake, in words. The caller keeps the error of openssl as the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailure(f"{address}: {_certificate(error, host, settings)}")
    if isinstance(error, ssl.SSLError) and not isinstance(error, _ENDS_OF_HAND_SHAKE):
        return TlsFailure(f"{address}: {_refusal(error, settings)}")
    return TlsFailure(f"{address}: {_NO_TLS_TEXT} ({error})")


def alert_behind(error: OSError, address: str, settings: TlsSettings | None) -> TlsFailure | None:
    """Returns the failure that a TLS alert means. Returns None for an error without an alert.

    With TLS 1.3, the peer refuses our certificate only after our hand-shake has ended.
    """
    if settings is None or not isinstance(error, ssl.SSLError) or "ALERT" not in (error.reason or ""):
        return None
    return TlsFailure(f"{address}: {_refusal(error, settings)}")


def demand_of_silent(error: OSError | None, settings: TlsSettings | None) -> str:
    """Returns what the peer may demand if it ended the connection without having sent anything. Returns "" if nothing
    hints at a demand.

    `error` is None for an orderly end.
    """
    if error is not None and not isinstance(error, _ENDS):
        return ""
    if settings is None:
        return _MAY_DEMAND_TLS
    return _MAY_DEMAND_CERTIFICATE if settings.certificate_file is None else _MAY_REFUSE_CERTIFICATE


_NO_TLS_TEXT = (
    "the port does not speak TLS; set tls.server.mode there to permissive or enforcing, or take [rocketmq.tls] enabled "
    "out"
)


def _certificate(error: ssl.SSLCertVerificationError, host: str, settings: TlsSettings) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "its certificate, or one of its authorities, is expired; renew it there (tls.server.certPath)"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet; compare the clocks of both hosts"
    if code in _OTHER_NAME:
        kind = "IP" if _is_ip(host) else "DNS"
        return (
            f"its certificate does not name {host}; add {kind}:{host} to the certificate's subjectAltName, or set "
            "[rocketmq.tls] verify_host_name = false"
        )
    if code in _UNKNOWN_AUTHORITY:
        trusted = f"of {settings.ca_file}" if settings.ca_file else "that this system trusts"
        hint = " (it is self-signed: tls.test.mode.enable there?)" if code == _SELF_SIGNED else ""
        return (
            f"its certificate is signed by no authority {trusted}{hint}; give the certificate of its authority as "
            "[rocketmq.tls] ca_file"
        )
    return f"its certificate is refused: {error.verify_message}"


def _refusal(error: ssl.SSLError, settings: TlsSettings) -> str:
    reason = error.reason or str(error)
    if any(part in reason for part in _OTHER_VERSION):
        return f"it offers no version of TLS from 1.2 on ({reason}); update what speaks TLS there"
    if reason in _NO_TLS:
        return f"{_NO_TLS_TEXT} ({reason})"
    if "ALERT" not in reason:
        return f"the TLS hand-shake failed: {reason}"
    if settings.certificate_file is None:
        return (
            f"it refuses this client, which shows no certificate ({reason}); set [rocketmq.tls] certificate_file and "
            "key_file (tls.server.need.client.auth is on there)"
        )
    return (
        f"it refuses the certificate of this client ({reason}); give one in [rocketmq.tls] certificate_file that is in "
        "date and signed by an authority of its tls.server.trustCertPath"
    )


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
