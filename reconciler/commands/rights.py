"""`reconciler rights`: statements that give a login the rights of its roles at the servers of the settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from reconciler.contract import least_rights
from reconciler.contract.broker_rights import OF_ANNOUNCEMENTS, OF_HALF_TOPIC, BrokerRight, Right
from reconciler.contract.least_rights import (
    ANNOUNCING_SERVICE,
    IN_A_CLUSTER,
    IN_ANOTHER_DATABASE,
    SWEEP,
    TOPICS_CREATE,
    Role,
    SqlRight,
)
from reconciler.contract.urls import Url, read_database_url, read_url
from reconciler.errors import InvalidValue
from reconciler.settings.schema import Settings
from reconciler.wiring.databases import configured_databases

#: Placeholders for values that the settings lack.
PASSWORD, CLUSTER = "PASSWORD", "CLUSTER"
#: Roles that need only the topics of `[[producers]]`. All other roles need the topics of `[[subscriptions]]`.
_PRODUCERS_ALONE = (ANNOUNCING_SERVICE, SWEEP)
_WITH_PRODUCERS = (*_PRODUCERS_ALONE, TOPICS_CREATE)
#: `_LOGIN` matches names that no statement has to escape. `_PLAIN` matches names that PostgreSQL takes without quotes.
_LOGIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


#: The kinds of servers that have logins.
Server = Literal["brokers", "redis", "postgresql", "mysql"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements that an administrator runs in one place."""

    #: Host and database, or the servers of RocketMQ.
    place: str
    statements: tuple[str, ...]


def statements_of(
    settings: Settings, server: Server, roles: Sequence[Role], *, login: str, has_plain_acl: bool = False
) -> list[Statements]:
    """Returns one entry for each database, or one for Redis or the brokers. The statements contain no password.

    PASSWORD and CLUSTER are placeholders for values that the settings lack. `has_plain_acl`: the brokers have ACL 1.0
    (4.4 to 5.2). Raises InvalidValue if the roles need no such server.
    """
    if not _LOGIN.fullmatch(login):
        raise InvalidValue("--login", login, "give letters, digits and . _ - (64 at most)")
    match server:
        case "brokers":
            found = _at_brokers(settings, roles, login, has_plain_acl=has_plain_acl)
        case "redis":
            found = _at_redis(settings, roles, login)
        case _:
            found = _at_databases(settings, roles, login, is_mysql=server == "mysql")
    if not found:
        names = ", ".join(role.name for role in roles)
        raise InvalidValue("--role", names, f"it needs nothing in {server} that the settings name; name another role")
    return found


def role_of(name: str) -> Role:
    """Returns the role of this name. A hyphen in the name may stand for a space. Raises InvalidValue."""
    for role in least_rights.ROLES:
        if name in (role.name, role.name.replace(" ", "-")):
            return role
    names = ", ".join(role.name.replace(" ", "-") for role in least_rights.ROLES)
    raise InvalidValue("--role", name, f"give one of {names}")


def _at_databases(settings: Settings, roles: Sequence[Role], login: str, *, is_mysql: bool) -> list[Statements]:
    schemes = ("mysql", "mariadb") if is_mysql else ("postgresql",)
    rights: dict[str, list[SqlRight]] = {}
    for database in configured_databases(settings):
        url = read_database_url(database.url)
        if url.scheme in schemes:
            every = (right for role in roles for right in role.rights_in(database.tree))
            rights.setdefault(str(url), []).extend(right for right in every if _is_wanted(settings, right))
    named = f"'{login}'@'%'" if is_mysql else login if _PLAIN.fullmatch(login) else f'"{login}"'
    return [
        Statements(
            place=place,
            statements=tuple(
                f"{grant};" for grant in least_rights.grants(_merged(wanted), login=named, is_mysql=is_mysql)
            ),
        )
        for place, wanted in rights.items()
        if wanted
    ]


def _is_wanted(settings: Settings, right: SqlRight) -> bool:
    """Returns True if the settings make this right necessary."""
    match right.only_with:
        case "notifiers":
            return bool(settings.notifiers)
        case "subscriptions.announcements":
            return any(subscription.reads_halves for subscription in settings.subscriptions)
        case "producers.commit_queries":
            return any(producer.commit_queries for producer in settings.producers)
        case "producers.answer_checks":
            return any(producer.answer_checks for producer in settings.producers)
        case _:
            return True


def _merged(rights: Iterable[SqlRight]) -> Iterator[SqlRight]:
    """Yields one right for each verb and table.

    A right has the columns of all roles together. If one role needs all columns, the right has no list of columns.
    """
    merged: dict[tuple[str, str], SqlRight] = {}
    for right in rights:
        place = (right.table, right.verb)
        before = merged.get(place)
        if before is not None and right.columns and before.columns:
            columns = tuple(dict.fromkeys((*before.columns, *right.columns)))
            merged[place] = SqlRight(verb=right.verb, table=right.table, columns=columns)
        elif before is None or before.columns:
            merged[place] = right
    return iter(merged.values())


def _at_redis(settings: Settings, roles: Sequence[Role], login: str) -> list[Statements]:
    users = [role.redis for role in roles if role.redis is not None]
    if not users:
        return []
    url = read_url(settings.redis.url)
    of_place = IN_A_CLUSTER if url.scheme == "redis+cluster" else IN_ANOTHER_DATABASE if _is_numbered(url) else ()
    keys = dict.fromkeys(pattern for user in users for pattern in user.keys)
    commands = dict.fromkeys((*(command for user in users for command in user.commands), *of_place))
    user = least_rights.RedisUser(name=login, keys=tuple(keys), commands=tuple(commands))
    rules = user.rules(environment=settings.environment, password=PASSWORD)
    return [Statements(place=str(url), statements=(f"ACL SETUSER {login} {' '.join(rules)}",))]


def _is_numbered(url: Url) -> bool:
    """Returns True if the URL names another database than 0, so that a client has to choose this database."""
    places = {"redis": 0, "rediss": 0, "redis+sentinel": 1}
    parts = url.path.strip("/").split("/")
    place = places.get(url.scheme, len(parts))
    number = dict(url.parameters).get("db") or (parts[place] if place < len(parts) else "")
    return number not in ("", "0")


def _at_brokers(settings: Settings, roles: Sequence[Role], login: str, *, has_plain_acl: bool) -> list[Statements]:
    rights: dict[tuple[str, str], dict[Right, None]] = {}
    for role, right in [(one, right) for one in roles for right in _needed_at_brokers(settings, one)]:
        granted = right.acl if has_plain_acl else right.authorization
        for name in _filled(settings, role, right) if granted else ():
            rights.setdefault((right.kind, name), {}).update(dict.fromkeys(granted))
    if not rights:
        return []
    lines = _plain_acl(rights, login) if has_plain_acl else _authorization(rights, login)
    statements = tuple(mqadmin(settings, *line) for line in lines)
    return [Statements(place=settings.rocketmq.name_servers, statements=statements)]


def _needed_at_brokers(settings: Settings, role: Role) -> tuple[BrokerRight, ...]:
    takes_announcements = set(OF_ANNOUNCEMENTS) <= set(role.brokers)
    reads_halves = takes_announcements and any(one.reads_halves for one in settings.subscriptions)
    return (*role.brokers, *OF_HALF_TOPIC) if reads_halves else role.brokers


def mqadmin(settings: Settings, command: str, *arguments: str) -> str:
    """Returns an mqadmin line for the whole cluster of the settings' name servers.

    The administrator replaces CLUSTER in this line.
    """
    return shlex.join(("mqadmin", command, "-n", settings.rocketmq.name_servers, "-c", CLUSTER, *arguments))


def _filled(settings: Settings, role: Role, right: BrokerRight) -> Iterator[str]:
    """Yields the right's name once for each value that the settings have for its placeholders."""
    pairs: list[tuple[str, str]] = []
    if role not in _PRODUCERS_ALONE:
        pairs += [(section.topic, section.group) for section in settings.subscriptions]
    if role in _WITH_PRODUCERS:
        pairs += [(topic, "") for producer in settings.producers for topic in producer.topics]
    names = (
        right.filled(
            topic=topic,
            group=group,
            unique_key_topic=settings.unique_key_topic.name_for(topic),
            probe_topic=settings.rocketmq.probe_topic,
        )
        for topic, group in pairs
    )
    return iter(dict.fromkeys(names))


def _authorization(rights: dict[tuple[str, str], dict[Right, None]], login: str) -> Iterator[tuple[str, ...]]:
    """Yields arguments of mqadmin from 5.3 on (CreateUserSubCommand, CreateAclSubCommand).

    A second createAcl for a user adds resources.
    """
    yield ("createUser", "-u", login, "-p", PASSWORD, "-t", "Normal")
    resources: dict[tuple[Right, ...], list[str]] = {}
    for (kind, name), actions in rights.items():
        resources.setdefault(tuple(sorted(actions)), []).append(f"{kind.capitalize()}:{name}")
    for granted, names in resources.items():
        actions_text = ",".join(action.capitalize() for action in granted)
        yield ("createAcl", "-s", f"User:{login}", "-r", ",".join(names), "-a", actions_text, "-d", "Allow")


def _plain_acl(rights: dict[tuple[str, str], dict[Right, None]], login: str) -> Iterator[tuple[str, ...]]:
    """Yields arguments of mqadmin for ACL 1.0. UpdateAccessConfigSubCommand of 4.5 replaces the whole account."""
    is_admin = any("ADMIN" in actions for actions in rights.values())
    arguments = ["-a", login, "-s", PASSWORD, "-i", "DENY", "-u", "DENY", "-m", str(is_admin).lower()]
    for kind, option in (("topic", "-t"), ("group", "-g")):
        granted = [f"{name}={'|'.join(actions)}" for (of, name), actions in rights.items() if of == kind]
        arguments += [option, ",".join(granted)] if granted else []
    yield ("updateAclConfig", *arguments)
