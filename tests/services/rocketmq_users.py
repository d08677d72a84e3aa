"""Users of real brokers with access control: their files, and the requests that make them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials
from reconciler.rocketmq.wire.answers import require_success
from reconciler.rocketmq.wire.frame import Command
from tests.services.rocketmq import ClusterTls, RealBroker, RocketMQCluster

ADMIN = AclCredentials(access_key="administrator", secret_key="secret-of-the-administrator")
#: (Action, kind, name).
Right = tuple[str, str, str]

_AUTH = "org.apache.rocketmq.auth"
_KEYS = {"accessKey": "administrator", "secretKey": "secret-of-the-administrator"}
#: AuthConfig of 5.3.3 to 5.5.0; the broker calls itself and name servers with the inner credentials.
AUTHORIZATION = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "administrator", "password": "secret-of-the-administrator"}),
    "innerClientAuthenticationCredentials": json.dumps(_KEYS),
}
#: AUTH_CREATE_USER and AUTH_CREATE_ACL of RequestCode, 5.3.
_CREATE_USER, _CREATE_ACL = 3001, 3006


def is_acl(version: str) -> bool:
    """Whether this release has ACL 1.0."""
    return version.startswith("4.")


def secured_cluster(
    version: str, users: Mapping[str, Sequence[Right]], *, secret: str, tls: ClusterTls | None = None, **properties: str
) -> RocketMQCluster:
    """A cluster, not started, whose broker lets these users in, and the administrator."""
    secured = {"aclEnable": "true"} if is_acl(version) else AUTHORIZATION
    cluster = RocketMQCluster(version, properties=secured | properties, tls=tls)
    if is_acl(version):
        _write_plain_acl(cluster.broker(), users, secret)
    return cluster


def create_users(
    cluster: RocketMQCluster,
    users: Mapping[str, Sequence[Right]],
    *,
    secret: str,
    tls: TlsSettings | None = None,
) -> None:
    """Makes the users in a running cluster from 5.3 on; older ones read them from a file."""
    if not is_acl(cluster.version):
        create_users_at(cluster.broker().address, users, secret=secret, tls=tls)


def create_users_at(
    address: str, users: Mapping[str, Sequence[Right]], *, secret: str, tls: TlsSettings | None = None
) -> None:
    """Makes the users in one running broker from 5.3 on."""
    with RemotingClient(acl=ADMIN, tls=tls) as client:
        for user, rights in users.items():
            body = {"username": user, "password": secret, "userType": "Normal", "userStatus": "enable"}
            _ask(client, address, _CREATE_USER, {"username": user}, body)
            entries = [
                {"resource": f"{kind.capitalize()}:{name}", "actions": actions, "sourceIps": [], "decision": "Allow"}
                for (kind, name), actions in _by_resource(rights).items()
            ]
            policy = {"subject": f"User:{user}", "policies": [{"policyType": "Custom", "entries": entries}]}
            _ask(client, address, _CREATE_ACL, {"subject": f"User:{user}"}, policy)


def _by_resource(rights: Sequence[Right]) -> dict[tuple[str, str], list[str]]:
    """One entry for each resource: a second one would replace the first."""
    actions: dict[tuple[str, str], list[str]] = {}
    for action, kind, name in rights:
        actions.setdefault((kind, name), []).append(action.capitalize())
    return actions


def _ask(client: RemotingClient, address: str, code: int, fields: dict[str, str], body: object) -> None:
    command = Command(code=code, fields=fields, body=json.dumps(body).encode())
    require_success(client.request(address, command), f"request {code}")


def _write_plain_acl(broker: RealBroker, users: Mapping[str, Sequence[Right]], secret: str) -> None:
    lines = ["accounts:"]
    lines += _account(ADMIN.access_key, ADMIN.current_secret_key(), [("ADMIN", "broker", "*")])
    for user, rights in users.items():
        lines += _account(user, secret, rights)
    (broker.folder / "conf" / "plain_acl.yml").write_text("\n".join(lines) + "\n")


def _account(user: str, secret: str, rights: Sequence[Right]) -> list[str]:
    lines = [f"  - accessKey: {user}", f"    secretKey: {secret}"]
    lines += [f"    admin: {'true' if any(action == 'ADMIN' for action, _, _ in rights) else 'false'}"]
    lines += ["    defaultTopicPerm: DENY", "    defaultGroupPerm: DENY"]
    for kind in ("topic", "group"):
        granted: dict[str, list[str]] = {}
        for action, of, name in rights:
            if of == kind:
                granted.setdefault(name, []).append(action)
        if granted:
            lines.append(f"    {kind}Perms:")
            lines += [f"      - '{name}={'|'.join(actions)}'" for name, actions in granted.items()]
    return lines
