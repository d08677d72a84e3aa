"""Users of the embedded broker, their rights, and refusals in the words of real brokers.

If the broker has users, every request to the broker must be signed. Requests to the name server need no signature, as
on a real name server. Families 4.4 and 4.9 speak ACL 1.0 (PlainPermissionManager of 4.9.7). Family 5.x speaks
authentication and authorization (rocketmq-auth of 5.3.3).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.contract.named_files import require_file
from reconciler.embedded.families import Family
from reconciler.embedded.reply import Reply
from reconciler.errors import ConfigurationError, InvalidValue, warn_of_former_paths
from reconciler.rocketmq.wire.access_rights import (
    ADMIN_CODES,
    Action,
    Demand,
    Resource,
    acl_demands,
    authorization_demands,
)
from reconciler.rocketmq.wire.acl import ACCESS_KEY, SignatureVerifier
from reconciler.rocketmq.wire.codes import MQVersion, ResponseCode
from reconciler.rocketmq.wire.frame import Command

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_ANY = "*"


@dataclass(frozen=True, slots=True)
class Grant:
    """One right, which is an action on a topic, a group or the cluster. A name that ends in * covers all names with
    this beginning."""

    action: Action
    resource: Resource
    name: str

    @classmethod
    def read(cls, text: str) -> Grant:
        """Reads "PUB topic ORDERS", "SUB group billing*" or "GET cluster *". Raises InvalidValue."""
        try:
            action, resource, name = text.split()
            return cls(Action(action.upper()), Resource(resource.lower()), name)
        except ValueError as error:
            raise InvalidValue("rights", text, 'ACTION RESOURCE NAME, for example "PUB topic ORDERS"') from error

    def meets(self, demand: Demand) -> bool:
        """Returns True if this right grants the demand."""
        if self.resource is not demand.resource or self.action not in demand.actions:
            return False
        if self.name.endswith(_ANY):
            return demand.name.startswith(self.name[:-1])
        return self.name == demand.name


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUser:
    """A user of the broker. With `is_admin`, the user needs no rights: the user is an admin of ACL 1.0, or of type
    Super from 5.3 on."""

    access_key: str
    secret_key: str = field(repr=False)
    rights: tuple[str, ...] = ()
    is_admin: bool = False


class AccessControl:
    """Decides which requests a user may send. Only the broker's loop uses this class."""

    def __init__(self, users: Iterable[BrokerUser], family: Family, *, cluster: str) -> None:
        """Raises InvalidValue for an unreadable right, a user listed twice, or a family without access control."""
        if family.version < MQVersion.of_release("4.4.0"):
            raise InvalidValue("users", family.name, "family 4.4 or a newer one: older brokers have no access control")
        self._family = family
        self._cluster = cluster
        self._is_acl = family.version < MQVersion.of_release("5.3.0")
        self._users: dict[str, _KnownUser] = {}
        for user in users:
            if user.access_key in self._users:
                raise InvalidValue("users", user.access_key, "each user once")
            grants = tuple(Grant.read(text) for text in user.rights)
            self._users[user.access_key] = _KnownUser(user, SignatureVerifier(user.secret_key), grants)

    def refusal(self, request: Command, peer: str) -> Reply | None:
        """Returns the refusal of a request, or None if the request is allowed."""
        key = request.fields.get(ACCESS_KEY)
        if key is None:
            return self._refused("No accessKey is configured", "username cannot be null.")
        known = self._users.get(key)
        if known is None:
            return self._refused(f"No acl config for {key}", f"User:{key} is not found.")
        if not known.verifier.accepts(request, self._signed(request)):
            return self._refused(f"Check signature failed for accessKey={key}", "check signature failed.")
        if known.user.is_admin:
            return None
        return self._unauthorized(request, known, key, peer)

    def _unauthorized(self, request: Command, known: _KnownUser, key: str, peer: str) -> Reply | None:
        if self._is_acl:
            if request.code in ADMIN_CODES:
                text = f"Need admin permission for request code={request.code}, but accessKey={key} is not"
                return self._refused(text, "")
            demands = acl_demands(request.code, request.fields, request.body)
        else:
            demands = authorization_demands(request.code, request.fields, request.body, cluster=self._cluster)
        for demand in demands:
            if not any(grant.meets(demand) for grant in known.grants):
                resource = f"{demand.resource.capitalize()}:{demand.name}"
                host = peer.rpartition(":")[0]
                return self._refused(
                    f"No default permission for {demand.resource}:{demand.name}",
                    f"User:{key} has no permission to access {resource} from {host}, no matched policies.",
                )
        return None

    def _signed(self, request: Command) -> Mapping[str, str]:
        """Returns the fields that this release signs (PlainAccessResource.parse)."""
        version = self._family.version
        if _UNIQUE_KEY_QUERY not in request.fields:
            return request.fields
        leaves_out = version >= MQVersion.of_release("4.7.0") and (
            version < MQVersion.of_release("5.1.0") or request.version <= MQVersion.of_release("4.9.3")
        )
        if not leaves_out:
            return request.fields
        return {name: value for name, value in request.fields.items() if name != _UNIQUE_KEY_QUERY}

    def _refused(self, acl_text: str, text: str) -> Reply:
        if self._is_acl:
            where = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java)"
            remark = f"org.apache.rocketmq.acl.common.AclException: {acl_text}, {where}"
            return Reply(ResponseCode.SYSTEM_ERROR, remark)
        return Reply(ResponseCode.NO_PERMISSION, text)


@dataclass(frozen=True, slots=True)
class _KnownUser:
    user: BrokerUser
    verifier: SignatureVerifier
    grants: tuple[Grant, ...]


def read_users(path: Path) -> tuple[BrokerUser, ...]:
    """Reads the users of a TOML file. Each [[users]] has access_key, secret_key, rights and admin. Raises
    ConfigurationError if the file cannot be used."""
    try:
        require_file(path)
        listed = tomllib.loads(path.read_text(encoding="utf-8")).get("users")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no TOML"  # the text may hold a secret
        raise ConfigurationError(f"{path}: cannot be read: {why}; give a TOML file with [[users]]") from error
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"{path}: has no [[users]]; add one for each user of the broker")
    return tuple(_user(path, number, entry) for number, entry in enumerate(listed))


def _user(path: Path, number: int, entry: Any) -> BrokerUser:
    where = f"{path}: users[{number}]"
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where} is no table")
    unknown = sorted(entry.keys() - {"access_key", "secret_key", "rights", "admin"})
    if unknown:
        raise ConfigurationError(f"{where} has {', '.join(unknown)}; it takes access_key, secret_key, rights and admin")
    key, secret, rights = entry.get("access_key"), entry.get("secret_key"), entry.get("rights", [])
    if not isinstance(key, str) or not isinstance(secret, str) or not key or not secret:
        raise ConfigurationError(f"{where} needs access_key and secret_key, texts that are not empty")
    if not isinstance(rights, list) or not all(isinstance(text, str) for text in rights):
        raise ConfigurationError(f'{where}.rights is no list of texts such as "PUB topic ORDERS"')
    return BrokerUser(
        access_key=key, secret_key=secret, rights=tuple(rights), is_admin=entry.get("admin", False) is True
    )


warn_of_former_paths(__name__, {"BrokerUser": "reconciler.testing"})
