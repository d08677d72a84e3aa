"""`reconciler uninstall`: prints the lines that remove the reconciler from the servers of the settings.

The command runs none of these lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from urllib.parse import unquote

from reconciler.commands.asking.brokers import READER_GROUPS, masters
from reconciler.commands.asking.environment import traces_of
from reconciler.commands.rights import Statements, mqadmin
from reconciler.commands.status.reading import read_status
from reconciler.commands.status.report import StatusReport
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.keyspace import keys_of
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.tables import INBOX_TABLES, LEDGER_TABLES, OUTBOX_TABLES, VERSION_TABLES, CandidateState
from reconciler.contract.urls import Url, read_database_url, read_url
from reconciler.errors import ReconcilerError
from reconciler.settings.schema import Settings
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import commit_evidence, configured_databases, effect_evidence

UNSETTLED = Code("uninstall.unsettled", number=Field.COUNT)
PENDING = Code("uninstall.pending", number=Field.NUMBER)
REPAIRS = Code("uninstall.repairs", number=Field.COUNT)
MEMBERS = Code("uninstall.members", group=Field.NAME, number=Field.NUMBER)
UNREAD = Code("uninstall.unread", why=Field.TEXT)

_TABLES = {"outbox": OUTBOX_TABLES, "inbox": INBOX_TABLES, "ledger": LEDGER_TABLES}
_UNITS = "reconciler reconciler-sweep reconciler-web reconciler-audit.timer"


class Step(StrEnum):
    """The steps of the removal, in order."""

    PROCESSES = "processes"
    #: Outboxes and inboxes, which prove what was committed and what took effect.
    EVIDENCE = "evidence"
    LEDGER = "ledger"
    LEDGER_TABLES = "ledger-tables"
    BROKERS = "brokers"
    REDIS = "redis"
    HISTORY = "history"
    LOGINS = "logins"
    FILES = "files"


def in_the_way(connections: Connections) -> list[Fact]:
    """Returns the reasons why outboxes and inboxes are still needed.

    Reasons are messages that are not settled, processes that still write, and what could not be found out.
    """
    found: dict[Fact, None] = {}
    for ask in (_of_status, _members):
        try:
            found |= dict.fromkeys(ask(connections))
        except ReconcilerError as error:
            found[UNREAD(why=str(error))] = None
    return list(found)


def _of_status(connections: Connections) -> Iterator[Fact]:
    return needed(read_status(connections, sees_check_services=False))


def needed(report: StatusReport) -> Iterator[Fact]:
    """Yields facts of `status` for which outboxes and inboxes are still needed as a proof."""
    yield from (*report.away, *report.late_lines, *report.unswept)
    if unsettled := sum(one.count for one in report.verdicts if one.state is not CandidateState.SETTLED):
        yield UNSETTLED(number=unsettled)
    if pending := sum(one.pending or 0 for one in report.subscriptions):
        yield PENDING(number=pending)
    if repairs := sum(one.count for one in report.repairs if one.state not in FINISHED_REPAIRS):
        yield REPAIRS(number=repairs)


def _members(connections: Connections) -> Iterator[Fact]:
    """Yields facts about members of groups with an inbox or an outbox. Members of other groups, such as stock Java
    services, write to none."""
    settings, admin = connections.settings, connections.admin
    addresses = masters(connections).values()
    consumers = dict.fromkeys(source.subscription.group for source, _ in effect_evidence(settings).inboxes)
    found = {
        group: {c.client_id for a in addresses for c in admin.consumer_connections(a, group)} for group in consumers
    }
    for group in dict.fromkeys(source.producer_group for source, _ in commit_evidence(settings).outboxes):
        connected = {c.client_id for address in addresses for c in admin.producer_connections(address, group)}
        found[group] = found.get(group, set()) | connected
    yield from (MEMBERS(group=group, number=len(clients)) for group, clients in found.items() if clients)


def environments_beside(connections: Connections) -> Sequence[str]:
    """Returns other environments with rows in the ledger. Raises DatabaseAway."""
    return traces_of(connections, before_ms=0).others


def steps_of(
    settings: Settings, *, beside: Sequence[str] | None, has_plain_acl: bool = False
) -> list[tuple[Step, Statements]]:
    """Returns the lines of every step. Each database comes once.

    `beside`: other environments with rows in the ledger. None: unknown. Unless `beside` is empty, the ledger's tables
    stay.
    """
    found = [(Step.PROCESSES, Statements(place="", statements=(f"systemctl disable --now {_UNITS}",)))]
    found += list(_databases(settings, owns_ledger=beside is not None and not beside))
    found.append((Step.BROKERS, _at_brokers(settings)))
    found.append((Step.REDIS, _in_redis(settings)))
    folders = [str(one) for one in (settings.history.path, settings.history.spool_path) if one is not None]
    if folders:
        found.append((Step.HISTORY, Statements(place="", statements=(shlex.join(("rm", "-r", *folders)),))))
    found += [(Step.LOGINS, logins) for logins in _logins(settings, has_plain_acl=has_plain_acl)]
    files = (
        "rm /etc/systemd/system/reconciler*.service /etc/systemd/system/reconciler*.timer",
        "rm /etc/sysusers.d/reconciler.conf",
        "systemctl daemon-reload",
        "rm -r /etc/reconciler /opt/reconciler",
        "userdel reconciler",
    )
    return [*found, (Step.FILES, Statements(place="", statements=files))]


def _databases(settings: Settings, *, owns_ledger: bool) -> Iterator[tuple[Step, Statements]]:
    trees: dict[str, dict[str, None]] = {}
    for database in configured_databases(settings):
        trees.setdefault(str(read_database_url(database.url)), {})[database.tree] = None
    for place, of_place in trees.items():
        dropped = [drop for tree in of_place if tree != "ledger" for drop in _drops(tree)]
        if dropped:
            yield Step.EVIDENCE, Statements(place=place, statements=tuple(dropped))
    for place, of_place in trees.items():
        if "ledger" in of_place:
            where = f"WHERE environment = '{settings.environment}'"
            rows = tuple(f"DELETE FROM {table.name} {where};" for table in LEDGER_TABLES)  # noqa: S608  # a name
            yield Step.LEDGER, Statements(place=place, statements=rows)
            if owns_ledger:
                yield Step.LEDGER_TABLES, Statements(place=place, statements=tuple(_drops("ledger")))


def _drops(tree: str) -> list[str]:
    return [f"DROP TABLE {name};" for name in (*(table.name for table in _TABLES[tree]), VERSION_TABLES[tree])]


def _at_brokers(settings: Settings) -> Statements:
    topics = dict.fromkeys(settings.unique_key_topic.name_for(one.topic) for one in settings.subscriptions)
    lines = [mqadmin(settings, "deleteTopic", "-t", topic) for topic in (*topics, settings.rocketmq.probe_topic)]
    lines += [mqadmin(settings, "deleteSubGroup", "-g", group) for group in READER_GROUPS]
    return Statements(place=settings.rocketmq.name_servers, statements=tuple(lines))


def _in_redis(settings: Settings) -> Statements:
    url = read_url(settings.redis.url)
    number = 1 if url.scheme == "redis+cluster" else 100
    pattern = shlex.quote(keys_of(settings.environment))
    line = f'redis-cli -u "$REDIS" --scan --pattern {pattern} | xargs -r -n {number} redis-cli -u "$REDIS" UNLINK'
    return Statements(place=str(url), statements=(line,))


def _logins(settings: Settings, *, has_plain_acl: bool) -> Iterator[Statements]:
    """Yields the lines that drop the logins of the URLs. `has_plain_acl`: the brokers have ACL 1.0."""
    of_database: dict[str, dict[str, None]] = {}
    for database in configured_databases(settings):
        url = read_database_url(database.url)
        if url.username and url.scheme != "sqlite":
            of_database.setdefault(str(url), {})[_drop_login(url, unquote(url.username))] = None
    yield from (Statements(place=place, statements=tuple(lines)) for place, lines in of_database.items())
    redis = read_url(settings.redis.url)
    if redis.username:
        yield Statements(place=str(redis), statements=(f"ACL DELUSER {unquote(redis.username)}",))
    key = settings.rocketmq.acl.access_key
    if key is not None:
        of_key = ("deleteAccessConfig", "-a", key) if has_plain_acl else ("deleteUser", "-u", key)
        yield Statements(place=settings.rocketmq.name_servers, statements=(mqadmin(settings, *of_key),))


def _drop_login(url: Url, name: str) -> str:
    """Returns the line that drops a login.

    On PostgreSQL the line fails while objects belong to the login, so it drops nothing that belongs to a service.
    """
    if url.scheme == "postgresql":
        return f'DROP ROLE "{name.replace(chr(34), chr(34) * 2)}";'
    return "DROP USER '{}'@'%';".format(name.replace("\\", "\\\\").replace("'", "''"))
