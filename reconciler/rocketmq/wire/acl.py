"""Access control of brokers. Each request names its user, and a signature proves the user.

ACL 1.0 (4.4 to 5.2) and authentication (from 5.3) have the same scheme. AclClientRPCHook adds two or three fields to
each request. The text to sign has the values of all fields except the signature, in ascending order of the fields'
names. The body follows (AclUtils.combineRequestContent). The signature is the HMAC-SHA1 of this text in base64
(AclSigner.calSignature).

Brokers up to 4.6.1 include the field `_UNIQUE_KEY_QUERY` when they verify. Brokers from 4.7.0 to 5.0.0 leave this field
out. Later brokers leave it out for clients up to 4.9.3. Requests of this client never have this field, so one signature
is right for all brokers.
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

#: Names of the three fields (SessionCredentials.ACCESS_KEY, SIGNATURE and SECURITY_TOKEN).
ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # a field's name

#: A secret, or a function that returns it. The function is called for each request, so that a changed secret is used
#: without a restart.
Secret: TypeAlias = str | Callable[[], str]


@runtime_checkable
class _KeptSource(Protocol):
    """A function that returns a secret and keeps the secret for a while. `ask_again` makes it read the secret
    earlier."""

    def ask_again(self, refused: str) -> bool:
        """Asks the source again after a server refused a secret. Returns True if the source has another secret now. The
        call may take as long as the source."""


def ask_again(secret: object, refused: str) -> bool:
    """Asks the source of a secret again after a server refused the secret. Returns True if the source has another
    secret now. The call may take as long as the source."""
    return isinstance(secret, _KeptSource) and secret.ask_again(refused)


#: The block of SHA-1 has 64 bytes, and HMAC pads the key to one block (RFC 2104).
_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
#: Maximum number of sets of field names whose order is kept. A client sends about thirty of them.
_ORDERS_MAX = 256

_Order: TypeAlias = Callable[[Mapping[str, str]], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCredentials:
    """A user of brokers. `secret_key` and `security_token` are never shown.

    From RocketMQ 5.3 on, access key and secret key are a user's name and password. Raises InvalidValue for an empty
    access key or secret key.
    """

    access_key: str
    secret_key: Secret = field(repr=False)
    #: The token that comes with keys that a token service lends for a while. None for other keys.
    security_token: Secret | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key:
            raise InvalidValue("access_key", self.access_key, "the name of a user of the brokers")
        if not self.secret_key:
            raise InvalidValue("secret_key", "", "the user's secret key, which must not be empty")

    def current_secret_key(self) -> str:
        """Returns the present secret key. Raises what the source of the key raises."""
        return self.secret_key if isinstance(self.secret_key, str) else self.secret_key()

    def ask_again(self, refused: str) -> None:
        """Reads the sources of the secret key and the token again, after a broker refused a signature of this key."""
        ask_again(self.secret_key, refused)
        if self.security_token is not None:
            ask_again(self.security_token, self.current_security_token() or "")

    def current_security_token(self) -> str | None:
        """Returns the present token. Returns None if requests carry no token. Raises what the source of the token
        raises."""
        token = self.security_token
        return token if token is None or isinstance(token, str) else token()


class RequestSigner:
    """Signs requests for one user. Threads may share this object, because each kept value is replaced as a whole.

    After a refusal, the thread that signs next reads the sources of the user's secrets again. The thread that reads a
    connection must not read them, because a source may be a command that takes long. The states of both HMAC hashes
    after the key are computed once. So is the order of each set of field names. A signature then costs two copies of a
    hash and no sorting.
    """

    def __init__(self, credentials: AclCredentials) -> None:
        self._credentials = credentials
        self._key = _Key(credentials.current_secret_key())
        self._orders = _Orders()
        self._is_refused = False

    def note_refusal(self) -> None:
        """Records that a broker did not accept a signature. Does not block."""
        self._is_refused = True

    def sign(self, command: Command) -> Command:
        """Returns the request with the fields of the user. A signed request gets a new signature."""
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
        # A call of dataclasses.replace would cost as much as the signature.
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
    """Verifies one user's signatures, as a broker does."""

    def __init__(self, secret_key: str) -> None:
        self._key = _Key(secret_key)
        self._orders = _Orders()

    def accepts(self, command: Command, signed: Mapping[str, str]) -> bool:
        """Returns True if the request's signature fits these fields and the request's body."""
        values = "".join(self._orders.of(signed)(signed)).encode(errors="surrogatepass")
        made = self._key.signature(values, command.body)
        return compare_digest(made.encode(), signed.get(SIGNATURE, "").encode(errors="surrogatepass"))


class _Orders:
    """Reads the values of the signed fields in the order of the fields' names. The order of each set of names is found
    once."""

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
    """A secret key, with the states of both HMAC hashes after the padded key."""

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
    """Makes a reader of the values in ascending order of the names' UTF-16 units, like a TreeMap of strings."""
    ordered = sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    if len(ordered) == 1:
        name = ordered[0]
        return lambda fields: (fields[name],)
    return itemgetter(*ordered) if ordered else lambda _fields: ()
