"""A role is one kind of process. Each role needs the rights that are listed here, and no others. Tests give processes
exactly these rights, and take away one after the other. [Security](../how-to/security.md#least-rights) says more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.contract import broker_rights, least_rights
from reconciler.words import said


def lines() -> Iterator[str]:
    """Which role needs what, as lines to be pasted."""
    roles = least_rights.ROLES
    yield "| role | what it is | user of Redis | databases |"
    yield "|---|---|---|---|"
    for role in roles:
        redis = f"`{role.redis.name}`" if role.redis else "none"
        yield f"| {role.name} | {role.does} | {redis} | {', '.join(role.databases) or 'none'} |"
    yield from ("", *_redis_users())
    yield from (
        "## Databases",
        "",
        "LOGIN stands for the role's login. On MySQL and MariaDB write LOGIN as `'name'@'host'`, and the database before each",
        "table (`orders.reconciler_outbox`). A heading names the role and the tables that its login reaches. On MySQL the",
        "logins of `run`, `console` and `doctor` need, at each server of an outbox or inbox, `GRANT SELECT ON",
        "performance_schema.replication_connection_configuration TO LOGIN;`, too",
        "([why](databases.md#replicas-and-splitting-proxies)). Tables that no",
        "`reconciler db` made have no `reconciler_alembic_version_` table: leave its line out.",
        "",
        "A commit query or an effect query has a login of its own, which may read its tables and nothing else: [how to make",
        "it](../how-to/commit-queries.md#write-a-query).",
        "",
    )
    for role in roles:
        yield from _grants_of(role)
    yield from _broker_rights(roles)


def _redis_users() -> list[str]:
    in_a_cluster = " ".join(f"+{command}" for command in least_rights.IN_A_CLUSTER)
    in_another_database = " ".join(f"+{command}" for command in least_rights.IN_ANOTHER_DATABASE)
    return [
        "## Redis",
        "",
        "Lines for redis.conf or an ACL file. ENV stands for the setting `environment`, `...` for the password. The user",
        "`inbox` is for a consuming service that keeps its inbox in Redis.",
        "",
        "```",
        *(user.line(environment="ENV", password="...") for user in least_rights.REDIS_USERS),  # noqa: S106  # shows its place
        "```",
        "",
        f"On a Redis Cluster each user needs `{in_a_cluster}`, too. Where a URL ends with the number of another database",
        f"than 0, its user needs `{in_another_database}`, too.",
        "",
        "A consuming service may have `~reconciler:v1:{ENV:*}:meta` and `+hget` besides: then it notices at its start if it is",
        "configured with another number of shards than the reconciler.",
        "",
        "Without `~reconciler:v1:{ENV:*}:proofs`, which users of 0.2.0 lack, the user `announcer` works as before, with two",
        "differences: a broker that gives offsets a second time is noticed only while the process runs, and no floor in SQL is",
        "proved. If Redis then loses everything, all announcements that the brokers keep are read again, not those behind the",
        "floor: nothing is lost or done twice, but rounds and inboxes have that many keys to compare, and Redis needs room for",
        "them. `doctor` has a note on each subscription whose floors have no proof.",
        "",
    ]


def _broker_rights(roles: Sequence[least_rights.Role]) -> list[str]:
    return [
        "## Brokers",
        "",
        "TOPIC and GROUP stand for each of your business topics and consumer groups, UNIQUE_KEY_TOPIC for",
        "`unique_key_topic.name` (and each name in `unique_key_topic.topics`), PROBE_TOPIC for `rocketmq.probe_topic`. ACL 1.0",
        "is RocketMQ 4.4 to 5.2; authorization is RocketMQ from 5.3 on. Every request needs a signature. A producer's heartbeat",
        "and END_TRANSACTION need no right. `replay` asks no broker, so it is not in the table. A name `*` is any name. For",
        "[groups that pop](../explanation/groups-that-pop.md) there is a table of its own. `GROUP_TOPIC` is `GROUP+TOPIC` on",
        "brokers with `enableRetryTopicV2`.",
        "",
        "| role | on | name | ACL 1.0 | authorization | why |",
        "|---|---|---|---|---|---|",
        *(f"| {role.name} {_broker_right(right)}" for role in roles for right in role.brokers),
        "",
        "### Groups that pop",
        "",
        "What `run`, `doctor` and `console` need besides for each group that pops a topic. With `enableRetryTopicV2` of the",
        "broker the names have `+` in place of `_`.",
        "",
        "| on | name | ACL 1.0 | authorization | why |",
        "|---|---|---|---|---|",
        *map(_broker_right, broker_rights.OF_GROUPS_THAT_POP),
        "",
        "### Subscriptions that read half messages",
        "",
        'What `run`, `announcements`, `doctor` and `console` need besides with `announcements = "half_topic"`.',
        "",
        "| on | name | ACL 1.0 | authorization | why |",
        "|---|---|---|---|---|",
        *map(_broker_right, broker_rights.OF_HALF_TOPIC),
    ]


def _grants_of(role: least_rights.Role) -> Iterator[str]:
    for tree, rights in role.databases.items():
        yield from (f"### {role.name}: {tree}", "", "```sql")
        yield from (f"{grant};" for grant in least_rights.grants(rights, login="LOGIN", is_mysql=False))
        of_mysql = [right for right in rights if right.only_mysql]
        if of_mysql:
            yield "-- on MySQL and MariaDB also"
            yield from (f"{grant};" for grant in least_rights.grants(of_mysql, login="LOGIN", is_mysql=True))
        yield from ("```", "")
        yield from (f"`{right}` is needed only with `{right.only_with}`.\n" for right in rights if right.only_with)
        yield from (f"Without `{right}` {said(right.without_it)}.\n" for right in rights if right.without_it)


def _broker_right(right: broker_rights.BrokerRight) -> str:
    acl, later = (", ".join(rights) or "none" for rights in (right.acl, right.authorization))
    return f"| {right.kind} | `{right.name}` | {acl} | {later} | {right.why} |"
