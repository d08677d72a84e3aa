"""Types of single settings. If a type refuses a value, its message says what is expected instead."""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from reconciler.contract.secret import HIDDEN_SECRET, SecretText
from reconciler.contract.urls import read_address, read_database_url, read_redis_url
from reconciler.errors import InvalidValue

# org.apache.rocketmq.common.topic.TopicValidator and client.Validators allow %, |, a-z, A-Z, 0-9, _ and -.
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,160}")


#: A value of `subscriptions.since`: the subscription covers every message.
EVERYTHING = "everything"


class Section(BaseModel):
    """The base class of all sections. A section refuses unknown names, and cannot be changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=False)


def _host_list(value: str) -> str:
    hosts = [part.strip() for part in re.split(r"[;,]", value) if part.strip()]
    if not hosts:
        raise ValueError("expected host:port, several separated by ';'")
    for number, host in enumerate(hosts, start=1):
        if not _is_host_and_port(host):
            # The entry is not repeated, because it may be a URL with a password.
            raise ValueError(f"entry {number} of {len(hosts)} is no host:port; write a name server without http://")
    return ";".join(hosts)


def _is_host_and_port(text: str) -> bool:
    try:
        return read_address(text)[1] is not None
    except ValueError:
        return False


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value):
        raise ValueError("a topic has 1 to 127 of the characters a-z A-Z 0-9 _ - % |")
    return value


def _group(value: str) -> str:
    if not _GROUP.fullmatch(value):
        raise ValueError("a group has 1 to 160 of the characters a-z A-Z 0-9 _ - % |")
    return value


def require_group(what: str, value: str) -> str:
    """Returns the group's name that a person typed. Raises InvalidValue if it is not a valid name."""
    try:
        return _group(value)
    except ValueError as error:
        raise InvalidValue(what, value, str(error)) from None


def _tags(value: str) -> str:
    if split_tags(value) == frozenset():
        raise ValueError("names no tag: the group would take nothing; write '*' for all, or 'a || b'")
    return value


def _folder(value: str) -> str:
    if "://" in value or not value.isprintable():
        raise ValueError("expected a folder of this machine, and no URL")
    return value


def plain_secret(value: Any) -> SecretText:
    """Returns a secret that was given in any form. Raises ValueError for a value that is not a secret."""
    if isinstance(value, str):
        value = SecretText(value)
    if not isinstance(value, SecretText):
        raise ValueError("expected a text")  # noqa: TRY004 - pydantic takes this kind
    if not value.reveal():
        raise ValueError("is empty")
    return value


def _redis_url(value: Any) -> SecretText:
    secret = plain_secret(value)
    read_redis_url(secret.reveal())
    return secret


def _database_url(value: Any) -> SecretText:
    secret = plain_secret(value)
    read_database_url(secret.reveal())
    return secret


def no_duplicates(value: Any) -> Any:
    """Refuses a list with duplicates."""
    if isinstance(value, list) and len({str(v) for v in value}) != len(value):
        raise ValueError("an entry is listed twice; remove one")
    return value


def _one_or_several(value: Any, several: ValidatorFunctionWrapHandler) -> Any:
    """Makes a list of a single secret. Problems then name the setting without a position in a list."""
    if isinstance(value, str | SecretText):
        return [plain_secret(value)]
    return several(value)


def _one_or_several_urls(value: Any, several: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str | SecretText):
        return [_database_url(value)]
    urls: list[SecretText] = several(value)
    if len(set(urls)) != len(urls):
        raise ValueError("a URL is listed twice; remove one")
    return urls


def split_tags(expression: str) -> frozenset[str] | None:
    """Returns the tags of 'a || b'. Returns None for '*' or an empty text (FilterAPI.buildSubscriptionData, 4.9.7)."""
    if expression.strip() in {"", "*"}:
        return None
    return frozenset(tag.strip() for tag in expression.split("||") if tag.strip())


def read_since_ms(text: str) -> int:
    """Reads a time with a UTC offset. Returns it as milliseconds UTC since 1970. Raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError(f"expected a time such as 2026-11-26T12:00:00Z, or {EVERYTHING!r}")
    return round(at.timestamp() * 1000)


def _since(value: Any) -> str:
    """Turns a time value of TOML into a text."""
    text = value.isoformat() if isinstance(value, datetime) else value
    if not isinstance(text, str):
        raise ValueError(f"expected a time such as 2026-11-26T12:00:00Z, or {EVERYTHING!r}")  # noqa: TRY004 - pydantic
    if text != EVERYTHING:
        read_since_ms(text)
    return text


def require_listen(what: str, value: str) -> str:
    """Returns the address to listen on that a person typed. Raises InvalidValue if it is not a valid address."""
    try:
        return _listen(value)
    except ValueError as error:
        raise InvalidValue(what, value, str(error)) from None


def _listen(value: str) -> str:
    if not _is_host_and_port(value):
        raise ValueError("expected host:port, for example 127.0.0.1:8378 or [::1]:8378")
    return value


def _prefix(value: str) -> str:
    if value and not re.fullmatch(r"(/[A-Za-z0-9._~-]{1,64}){1,8}", value):
        raise ValueError("expected /name, without a slash at its end")
    return value


def _link(value: str) -> str:
    return re.sub(r"^(https?://)[^/?#]*@", r"\1", value).rstrip("/")


def _host_name(value: str) -> str:
    try:
        _, port = read_address(value)
    except ValueError:
        port = -1
    if port is not None:
        raise ValueError("expected a host's name or address, without a port and without https://")
    return value.lower()


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"expected an address or a network, for example 10.0.0.7 or 10.0.0.0/24 ({error})") from None


HostList = Annotated[str, AfterValidator(_host_list)]
HostName = Annotated[str, Field(max_length=300), AfterValidator(_host_name)]
Network = Annotated[str, Field(max_length=100), AfterValidator(_network)]
#: Name of an HTTP header (RFC 9110, 5.1). The underscore is refused, because some servers treat it as a hyphen.
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$"), AfterValidator(str.lower)]
ListenAddress = Annotated[str, Field(max_length=300), AfterValidator(_listen)]
#: A URL without a slash at its end. User and password are refused, because pages and notices show the URL.
LinkUrl = Annotated[str, Field(pattern=r"^https?://[!-~]{1,500}$"), AfterValidator(_link)]
UrlPrefix = Annotated[str, Field(max_length=600), AfterValidator(_prefix)]
Folder = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_folder)]
TagFilter = Annotated[str, Field(max_length=2_000), AfterValidator(_tags)]
#: The time from which a subscription covers messages.
Since = Annotated[str, BeforeValidator(_since)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86_400)]
TopicName = Annotated[str, AfterValidator(_topic)]
GroupName = Annotated[str, AfterValidator(_group)]
#: The form of a secret on a page and in a schema.
MASKED = (
    PlainSerializer(lambda _value: HIDDEN_SECRET),
    WithJsonSchema({"type": "string", "format": "password", "writeOnly": True}),
)
#: A secret is shown masked, and read with reveal(). URLs are secrets, because they contain passwords.
SecretValue = Annotated[SecretText, PlainValidator(plain_secret), *MASKED]
RedisUrl = Annotated[SecretText, PlainValidator(_redis_url), *MASKED]
DatabaseUrl = Annotated[SecretText, PlainValidator(_database_url), *MASKED]
#: One URL, or a list of URLs of databases that hold one table in parts.
DatabaseUrls = Annotated[list[DatabaseUrl], Field(min_length=1, max_length=1_000), WrapValidator(_one_or_several_urls)]
#: One secret, or a list of secrets. The first secret is used. The remaining secrets are still accepted.
SecretValues = Annotated[list[SecretValue], Field(min_length=1, max_length=10), WrapValidator(_one_or_several)]
