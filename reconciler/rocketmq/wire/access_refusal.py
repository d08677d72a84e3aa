"""Reads a refusal by access control from an answer. The refusal says what was lacking, and which right to grant.

Up to 5.2, brokers answer with code 1 and an AclException as remark (PlainPermissionManager). From 5.3 on, they answer
with NO_PERMISSION (16) and the text of an AuthenticationException or AuthorizationException. The codes 1 and 16 also
have other meanings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.errors import AccessRefused, Lacking
from reconciler.rocketmq.wire.access_rights import Demand, Resource, acl_demands, authorization_demands
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command

#: Finds the text of the exception, which stands between its class and the first line of its stack.
_ACL = re.compile(r"AclException: (.*?)(?:, org\.apache\.rocketmq\.|$)", re.DOTALL)
_SHOWN_CHARACTERS = 300
_PATTERNS = (
    (Lacking.USER, re.compile(r"No acl config for (?P<user>.+)")),
    (Lacking.USER, re.compile(r"No PlainAccessResource for accessKey=(?P<user>.+)")),
    (Lacking.USER, re.compile(r"User:(?P<user>.+?) is (?:not found|disabled)")),
    (Lacking.SECRET, re.compile(r"Check signature failed for accessKey=(?P<user>.+)")),
    (Lacking.SECRET, re.compile(r"check signature failed|Authentication failed")),
    (Lacking.SIGNATURE, re.compile(r"No accessKey is configured|username cannot be null|extFields value is null")),
    (Lacking.RIGHT, re.compile(r"No default permission for (?P<kind>topic|group):(?P<name>[^,]+)")),
    (Lacking.RIGHT, re.compile(r"Need admin permission for request code=\d+, but accessKey=(?P<user>.+) is not")),
    (
        Lacking.RIGHT,
        re.compile(r"User:(?P<user>.+?) has no permission to access (?P<kind>Topic|Group|Cluster):(?P<name>\S+) from"),
    ),
    (Lacking.RIGHT, re.compile(r"Authorization failed")),
)


def access_refusal(answer: Command, code: int, fields: Mapping[str, str], address: str) -> AccessRefused | None:
    """Returns the refusal in an answer to this request. Returns None if the answer is no refusal."""
    if answer.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION):
        return None
    remark = answer.remark or ""
    acl = _ACL.search(remark)
    if acl is None and answer.code != ResponseCode.NO_PERMISSION:
        return None
    said = remark if acl is None else acl[1].strip()
    for lacking, pattern in _PATTERNS:
        match = pattern.search(said)
        if match is not None:
            return _refusal(lacking, match.groupdict(), answer, said, code, fields, address)
    # An unknown AclException is a refusal. Code 16 alone may mean a topic without write permission.
    return None if acl is None else _refusal(Lacking.RIGHT, {}, answer, said, code, fields, address)


def _refusal(
    lacking: Lacking,
    named: Mapping[str, str | None],
    answer: Command,
    said: str,
    code: int,
    fields: Mapping[str, str],
    address: str,
) -> AccessRefused:
    right = _right(named, answer, code, fields) if lacking is Lacking.RIGHT else ""
    return AccessRefused(
        lacking,
        request=f"{_name(code)} at {address}",
        user=named.get("user") or fields.get("AccessKey", ""),
        right=right,
        code=answer.code,
        remark=said[:_SHOWN_CHARACTERS],
    )


def _right(named: Mapping[str, str | None], answer: Command, code: int, fields: Mapping[str, str]) -> str:
    """Returns the missing right with its resource, in the words of a grant."""
    is_acl = answer.code == ResponseCode.SYSTEM_ERROR
    demands = acl_demands(code, fields, b"") if is_acl else authorization_demands(code, fields, b"")
    kind, name = (named.get("kind") or "").lower(), named.get("name") or ""
    if not kind:
        return " and ".join(str(demand) for demand in demands)
    for demand in demands:
        if demand.resource == kind and (demand.name == name or demand.resource is Resource.CLUSTER):
            return str(Demand(resource=demand.resource, name=name, actions=demand.actions))
    # This case is a consumer's heartbeat or lock. The demands of these requests are unknown here, because the body is
    # not kept.
    return f"SUB on {kind} {name}"


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
