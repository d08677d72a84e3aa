"""Ed25519 keys of statements. This module makes keys, reads keys with distrust, and names keys by a fingerprint.

A private key is PEM, PKCS8, without a passphrase. A public key is PEM, SubjectPublicKeyInfo. The fingerprint is the
SHA-256 of the public key's DER form, as ``openssl pkey -pubin -in FILE -outform DER | sha256sum`` prints it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from reconciler.audit.errors import AuditError, unwritable
from reconciler.contract.named_files import require_file

SIGNATURE_BYTES = 64
#: Largest number of bytes that are read of a file. No key is larger, and a wrong file is not read whole.
_PEM_BYTES_MAX = 65_536
#: Permissions that a key file must not have. The group may read the file (a mounted secret is often 0440). Only the
#: owner may write.
_TOO_OPEN = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Key that checks signatures."""

    key: Ed25519PublicKey

    @property
    def fingerprint(self) -> str:
        """Fingerprint of 64 hexadecimal digits."""
        return hashlib.sha256(self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    @property
    def pem(self) -> bytes:
        """Content of the key's file."""
        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """True if this key has signed exactly these bytes with the signature."""
        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Key that signs."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        """Public key, by which others verify signatures."""
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Signs data with 64 bytes. The same data gives the same signature."""
        return self.key.sign(data)


def read_signing_key(path: Path | str) -> SigningKey:
    """Reads a private key.

    Raises AuditError("usage") for a file that is no private key, and for a file that others could read or replace.
    """
    file = Path(path)
    try:
        require_file(file)
        with file.open("rb") as opened:
            # fstat asks the opened file, because the file's name may lead to another file a moment later.
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(_PEM_BYTES_MAX)
    except OSError as error:
        raise AuditError("usage", f"--signing-key {path}: {error.strerror}; name a key file") from error
    if stat.S_IMODE(mode) & _TOO_OPEN:
        raise AuditError(
            "usage",
            f"--signing-key {path}: mode {stat.S_IMODE(mode):04o} lets others read or change it; chmod 600 {path}",
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise AuditError("usage", f"--signing-key {path}: {_expected('private key (PKCS8)')}: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise AuditError("usage", f"--signing-key {path}: it is no Ed25519 key; {_expected('private key (PKCS8)')}")
    return SigningKey(key)


def read_public_key(path: Path | str) -> PublicKey:
    """Reads a public key. Raises AuditError("usage") for a file that is no public key."""
    try:
        require_file(path)
        with Path(path).open("rb") as opened:
            data = opened.read(_PEM_BYTES_MAX)
    except OSError as error:
        raise AuditError("usage", f"--public-key {path}: {error.strerror}; name the auditor's public key") from error
    if b"PRIVATE KEY" in data:
        raise AuditError("usage", f"--public-key {path}: it holds a private key; name the public one")
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise AuditError("usage", f"--public-key {path}: {_expected('public key')}: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise AuditError("usage", f"--public-key {path}: it is no Ed25519 key; {_expected('public key')}")
    return PublicKey(key)


def make_keys(private: Path | str) -> tuple[Path, Path, str]:
    """Writes a new key pair: FILE (mode 0600) and FILE.pub. Returns both paths and the fingerprint.

    Raises AuditError("usage") if one of the files exists, because a key is never overwritten.
    """
    key = SigningKey(Ed25519PrivateKey.generate())
    pem = key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    secret, public = Path(private), Path(f"{private}.pub")
    _write_new(public, key.public.pem, 0o644)
    try:
        _write_new(secret, pem, 0o600)
    except AuditError:
        public.unlink()
        raise
    return secret, public, key.public.fingerprint


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise AuditError("usage", f"{path} exists; keys are never overwritten: name another file") from error
    except OSError as error:
        raise unwritable(str(path), error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)  # an incomplete file is no key
        raise unwritable(str(path), error) from error


def _expected(what: str) -> str:
    return f"expected an Ed25519 {what} as PEM without a passphrase (`reconciler statement keygen FILE` makes one)"
