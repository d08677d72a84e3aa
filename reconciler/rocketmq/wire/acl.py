"""Access control of brokers: whose requests these are, and the signature that proves it.

One scheme in both generations, ACL 1.0 (4.4 to 5.2) and authentication (from 5.3): two or three fields are added to
each request (AclClientRPCHook). The string to sign is the values of all fields but the signature, in ascending order
of their names, and the body behind them (AclUtils.combineRequestContent); the signature is its HMAC-SHA1, in base64
(AclSigner.calSignature).

Brokers up to 4.6.1 verify the field `_UNIQUE_KEY_QUERY`, those from 4.7.0 to 5.0.0 leave it out, and later ones leave
it out for clients up to 4.9.3. No request of this client has it, so that one signature is right for all.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from operator import itemgetter
from typing import Protocol, TypeAlias, runtime_checkable

from reconciler.errors import InvalidValue
from reconciler.rocketmq.wire.frame import Command

#: SessionCredentials.ACCESS_KEY, SIGNATURE and SECURITY_TOKEN.
ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # a field's name

#: A secret, or what returns it: asked at each request, so that a changed one is used without a restart.
Secret: TypeAlias = str | Callable[[], str]


@runtime_checkable
class _KeptSource(Protocol):
    """A function that returns a secret, keeps it for a while, and can be asked again before."""

    def ask_again(self, refused: str) -> bool:
        """After a server has refused a secret: True if there is another one now. May take as long as its source."""


def ask_again(secret: object, refused: str) -> bool:
    """After a server has refused a Secret: True if its source has another one now. May take as long as the source."""
    return isinstance(secret, _KeptSource) and secret.ask_again(refused)


#: HMAC (RFC 2104) over SHA-1, whose block is 64 bytes.
_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
#: Sets of field names whose order is kept; a client sends about thirty of them.
_ORDERS_MAX = 256

_Order: TypeAlias = Callable[[Mapping[str, str]], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCredentials:
    """A user of brokers. `secret_key` and `security_token` are never shown.

    From RocketMQ 5.3 on, access key and secret key are a user's name and password. Raises InvalidValue for an access
    key or a secret key that is empty.
    """

    access_key: str
    secret_key: Secret = field(repr=False)
    #: Only with keys that a token service lends for a while.
    security_token: Secret | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key:
            raise InvalidValue("access_key", self.access_key, "the name of a user of the brokers")
        if not self.secret_key:
            raise InvalidValue("secret_key", "", "the user's secret key, which must not be empty")

    def current_secret_key(self) -> str:
        """The secret key as it is now. Raises what its source raises."""
        return self.secret_key if isinstance(self.secret_key, str) else self.secret_key()

    def ask_again(self, refused: str) -> None:
        """After a broker has refused what was signed with the secret key: its source is read again, and the token's."""
        ask_again(self.secret_key, refused)
        if self.security_token is not None:
            ask_again(self.security_token, self.current_security_token() or "")

    def current_security_token(self) -> str | None:
        """The token as it is now; None: requests carry none. Raises what its source raises."""
        token = self.security_token
        return token if token is None or isinstance(token, str) else token()


class RequestSigner:
    """Signs requests for one user. Thread-safe: what is kept is replaced as a whole.

    After a refusal the sources of the user's secrets are read again, by the thread that signs next: a source may be a
    command, and the thread that reads a connection must not wait for one.

    The two states of the HMAC behind its key, and the order of each set of field names, are computed once: a signature
    then costs two copies of a hash and no sorting.
    """

    def __init__(self, credentials: AclCredentials) -> None:
        self._credentials = credentials
        self._key = _Key(credentials.current_secret_key())
        self._orders = _Orders()
        self._is_refused = False

    def note_refusal(self) -> None:
        """A broker did not accept a signature. Does not block."""
        self._is_refused = True

    def sign(self, command: Command) -> Command:
        """The request with the fields of the user; one that has a signature already gets a new one."""
        credentials = self._credentials
        if self._is_refused:
            self._is_refused = False
            credentials.ask_again(self._key.secret)
        fields = dict(command.fields)
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = credentials.access_key
        if credentials.security_token is not None:
            fields[SECURITY_TOKEN] = credentials.current_security_token() or ""
        secret = credentials.current_secret_key()
        key = self._key
        if secret != key.secret:
            key = self._key = _Key(secret)
        values = "".join(self._orders.of(fields)(fields)).encode()
        fields[SIGNATURE] = key.signature(values, command.body)
        # Not dataclasses.replace: it costs as much as the signature.
        return Command(
            code=command.code,
            opaque=command.opaque,
            flag=command.flag,
            language=command.language,
            version=command.version,
            remark=command.remark,
            fields=fields,
            body=command.body,
            serialization=command.serialization,
        )


class SignatureVerifier:
    """Verifies what one user signed, as a broker does."""

    def __init__(self, secret_key: str) -> None:
        self._key = _Key(secret_key)
        self._orders = _Orders()

    def accepts(self, command: Command, signed: Mapping[str, str]) -> bool:
        """Whether the request's signature is that of these fields and its body."""
        values = "".join(self._orders.of(signed)(signed)).encode(errors="surrogatepass")
        made = self._key.signature(values, command.body)
        return compare_digest(made.encode(), signed.get(SIGNATURE, "").encode(errors="surrogatepass"))


class _Orders:
    """Reads the values of signed fields in their order; the order of each set of names is found once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], _Order] = {}

    def of(self, fields: Mapping[str, str]) -> _Order:
        names = tuple(fields)
        order = self._known.get(names)
        if order is None:
            if len(self._known) >= _ORDERS_MAX:
                self._known = {}
            order = self._known[names] = _order_of(tuple(name for name in names if name != SIGNATURE))
        return order

    def __len__(self) -> int:
        return len(self._known)


class _Key:
    """A secret key, and the hashes of the HMAC as they are behind its two pads."""

    __slots__ = ("_inner", "_outer", "secret")

    def __init__(self, secret: str) -> None:
        self.secret = secret
        key = secret.encode()
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()  # noqa: S324  # the scheme of the brokers
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(key.translate(_INNER_PAD))  # noqa: S324  # the scheme of the brokers
        self._outer = hashlib.sha1(key.translate(_OUTER_PAD))  # noqa: S324  # the scheme of the brokers

    def signature(self, values: bytes, body: bytes) -> str:
        inner = self._inner.copy()
        inner.update(values)
        if body:
            inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).decode("ascii")


def _order_of(names: tuple[str, ...]) -> _Order:
    """Reads the values in ascending order of the names' UTF-16 units, as a TreeMap of strings has them."""
    ordered = sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    if len(ordered) == 1:
        name = ordered[0]
        return lambda fields: (fields[name],)
    return itemgetter(*ordered) if ordered else lambda _fields: ()
