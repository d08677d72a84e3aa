"""Types of single settings: each refuses a value with what is expected instead."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidatorFunctionWrapHandler, WrapValidator

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})")
# org.apache.rocketmq.common.topic.TopicValidator and client.Validators: %, |, a-z, A-Z, 0-9, _ and -.
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,160}")

REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")
DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mariadb")


def _host_list(value: str) -> str:
    hosts = [part.strip() for part in re.split(r"[;,]", value) if part.strip()]
    if not hosts:
        raise ValueError("expected host:port, several separated by ';'")
    for host in hosts:
        found = _HOST.fullmatch(host)
        if not found or not 0 < int(found["port"]) < 65_536:
            raise ValueError(f"{host!r} is no host:port")
    return ";".join(hosts)


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value):
        raise ValueError("a topic has 1 to 127 of the characters a-z A-Z 0-9 _ - % |")
    return value


def _group(value: str) -> str:
    if not _GROUP.fullmatch(value):
        raise ValueError("a group has 1 to 160 of the characters a-z A-Z 0-9 _ - % |")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    url = urlsplit(value.get_secret_value())
    if url.scheme not in REDIS_SCHEMES or not (url.path if url.scheme == "unix" else url.hostname):
        raise ValueError(f"expected a URL that begins with {', '.join(s + '://' for s in REDIS_SCHEMES)}")
    if "," in url.netloc:  # several sentinels or cluster nodes
        _host_list(url.netloc.rpartition("@")[2])
    else:
        _require_port(url)
    return value


def _database_url(value: SecretStr) -> SecretStr:
    url = urlsplit(value.get_secret_value())
    if url.netloc.count("@") > 1:
        # urlsplit ends the password at the last @, SQLAlchemy's make_url at the first.
        raise ValueError("percent-encode the @ of the password (%40), and other characters that a URL gives a meaning")
    if "password" in parse_qs(url.query):
        raise ValueError("put the password before the host, where it is masked: dialect://user:password@host/database")
    dialect = url.scheme.split("+")[0]
    if dialect not in DATABASE_SCHEMES:
        raise ValueError(f"expected a SQLAlchemy URL of {', '.join(DATABASE_SCHEMES)}")
    if dialect == "sqlite" and not url.path.strip("/"):
        raise ValueError("expected sqlite:////absolute/path: a database in memory cannot be shared by processes")
    if dialect != "sqlite" and not url.path.strip("/"):
        raise ValueError("the URL names no database: dialect://user:password@host:port/database")
    _require_port(url)
    return value


def _require_port(url: Any) -> None:
    try:
        _ = url.port
    except ValueError:
        # The error's text repeats what stands there, which is a piece of a password that is not percent-encoded.
        raise ValueError("malformed port; special characters of a password are percent-encoded") from None


def no_duplicates(value: Any) -> Any:
    """Refuses a list that names something twice."""
    if isinstance(value, list) and len({str(v) for v in value}) != len(value):
        raise ValueError("an entry stands twice; remove one")
    return value


def _one_or_several(value: Any, several: ValidatorFunctionWrapHandler) -> Any:
    """A single URL is a list of one; what is wrong with it is told of the setting, not of a place in a list."""
    if isinstance(value, str):
        return [_database_url(SecretStr(value))]
    urls: list[SecretStr] = several(value)
    if len({url.get_secret_value() for url in urls}) != len(urls):
        raise ValueError("a URL stands twice; remove one")
    return urls


def split_tags(expression: str) -> frozenset[str] | None:
    """Tags of 'a || b'; None for '*' or nothing (FilterAPI.buildSubscriptionData, 4.9.7)."""
    if expression.strip() in {"", "*"}:
        return None
    return frozenset(tag.strip() for tag in expression.split("||") if tag.strip())


HostList = Annotated[str, AfterValidator(_host_list)]
TopicName = Annotated[str, AfterValidator(_topic)]
GroupName = Annotated[str, AfterValidator(_group)]
#: URLs carry passwords: shown masked, read with get_secret_value().
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
#: One URL, or a list of them: databases that hold one table in parts.
DatabaseUrls = Annotated[list[DatabaseUrl], Field(min_length=1, max_length=1_000), WrapValidator(_one_or_several)]
