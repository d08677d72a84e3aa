"""An authority of the test's own, and certificates that it signs: PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = datetime.timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Two PEM files; the key as PKCS 8, which RocketMQ wants."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for servers and clients.

    One without `key_identifiers` is as many companies' own: Python 3.13 refuses what it signed.
    """

    def __init__(self, folder: Path, name: str = "authority", *, key_identifiers: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._has_key_identifiers = key_identifiers
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key.public_key(), days=30)
        builder = builder.add_extension(constraints, critical=True).add_extension(_SIGNS_CERTIFICATES, critical=True)
        if key_identifiers:
            own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(own, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        #: Its own certificate.
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def write_key(self) -> Path:
        """Its own key, for a server that shows the authority's certificate as its own."""
        pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = self.file.with_suffix(".key")
        file.write_bytes(self._key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
        return file

    def issue(
        self, name: str, *, hosts: tuple[str, ...] = ("127.0.0.1",), days: int = 30, key_password: str | None = None
    ) -> Certificate:
        """A new certificate for these hosts, over files of the same name; negative `days`: it ended so long ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = _builder(_named(name), self._name, key.public_key(), days=days)
        builder = builder.add_extension(names, critical=False)
        if self._has_key_identifiers:
            of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(of_authority, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        issued = Certificate(certificate=self.folder / f"{name}.pem", key=self.folder / f"{name}.key")
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if key_password is not None:
            encryption = serialization.BestAvailableEncryption(key_password.encode())
        pkcs8 = serialization.PrivateFormat.PKCS8
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, encryption))
        issued.key.chmod(0o600)  # PostgreSQL reads no other
        return issued


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _DAY)
        .not_valid_after(end)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
