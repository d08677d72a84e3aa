"""The rights of each *role* in Redis, in the databases and on the brokers. A role is one kind of process.

`doctor` and docs/reference/rights.md use these rights. Tests take each right away in turn. Two kinds of rights are left
out: those on a service's business tables, and those of the owner's login for `reconciler db upgrade`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from reconciler.contract import broker_rights, tables
from reconciler.contract.broker_rights import BrokerRight
from reconciler.contract.facts import Code, Fact
from reconciler.contract.keyspace import INBOX_PREFIX, PREFIX, identity_key, use_key
from reconciler.contract.schema import Table

#: The common beginning of a shard's keys. %s stands for the environment.
_SHARD = f"{PREFIX}{{%s:*}}:"

SqlVerb = Literal["SELECT", "INSERT", "UPDATE", "DELETE"]
Tree = Literal["outbox", "inbox", "ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUser:
    """What a login of Redis may do. A login has no rights but these."""

    name: str
    #: Patterns of keys. %s stands for the environment.
    keys: tuple[str, ...]
    #: Names of commands in the form that follows a + in ACL SETUSER. A subcommand follows a bar.
    commands: tuple[str, ...]

    def rules(self, *, environment: str, password: str, without: str | None = None) -> list[str]:
        """Returns the words after `user <name>` in a configuration, or after `ACL SETUSER <name>`."""
        keys = [f"~{pattern % environment}" for pattern in self.keys]
        return ["on", f">{password}", *keys, "-@all", *(f"+{one}" for one in self.commands if one != without)]

    def line(self, *, environment: str, password: str) -> str:
        """Returns the line for redis.conf or for an ACL file."""
        return f"user {self.name} {' '.join(self.rules(environment=environment, password=password))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRight:
    """One verb on one table."""

    verb: SqlVerb
    table: str
    #: The columns that an UPDATE writes, for a grant by column. Empty: any column.
    columns: tuple[str, ...] = ()
    #: True if only MySQL and MariaDB need the right, for ON DUPLICATE KEY UPDATE.
    only_mysql: bool = False
    #: The setting without which the right is not needed. Empty: the right is always needed.
    only_with: str = ""
    #: What the role leaves undone without the right. None: the role cannot work without the right.
    without_it: Fact | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of process, and everything that such a process needs."""

    name: str
    does: str
    redis: RedisUser | None = None
    outbox: tuple[SqlRight, ...] = ()
    inbox: tuple[SqlRight, ...] = ()
    ledger: tuple[SqlRight, ...] = ()
    brokers: tuple[BrokerRight, ...] = ()

    @property
    def login(self) -> str:
        """A name for the role's login. ACL 1.0 takes only names of more than six characters."""
        return f"reconciler_{self.name.replace(' ', '_')}"

    @property
    def databases(self) -> Mapping[Tree, tuple[SqlRight, ...]]:
        """Tree -> the role's rights on the tree's tables. The role does not reach a missing tree."""
        every: dict[Tree, tuple[SqlRight, ...]] = {"outbox": self.outbox, "inbox": self.inbox, "ledger": self.ledger}
        return {tree: rights for tree, rights in every.items() if rights}

    def rights_in(self, tree: str) -> tuple[SqlRight, ...]:
        """Returns the role's rights on the tables of a tree."""
        return next((rights for name, rights in self.databases.items() if name == tree), ())


def grants(rights: Iterable[SqlRight], *, login: str, is_mysql: bool) -> list[str]:
    """Returns one GRANT per table, without a semicolon. Rights that only a setting needs are included."""
    verbs: dict[str, list[str]] = {}
    for right in rights:
        if is_mysql or not right.only_mysql:
            columns = f" ({', '.join(right.columns)})" if right.columns else ""
            verbs.setdefault(right.table, []).append(f"{right.verb}{columns}")
    return [f"GRANT {', '.join(granted)} ON {table} TO {login}" for table, granted in verbs.items()]


#: What a role leaves undone if it lacks a right.
SINCE_UNKNOWN = Code("rights.since-unknown")
COMPLETE_AT_ONCE = Code("rights.complete-at-once")
REST_NOT_KEPT = Code("rights.rest-not-kept")
REST_UNSEEN = Code("rights.rest-unseen")
HALVES_NOT_KEPT = Code("rights.halves-not-kept")
HALVES_NOT_NAMED = Code("rights.halves-not-named")
#: Tables that a role can work without.
_WITHOUT_TABLE = {tables.SUBSCRIPTION.name: SINCE_UNKNOWN(), tables.HALF.name: HALVES_NOT_KEPT()}


def _on(table: Table, *verbs: SqlVerb, only_mysql: bool = False) -> tuple[SqlRight, ...]:
    without = _WITHOUT_TABLE.get(table.name)
    return tuple(SqlRight(verb=verb, table=table.name, only_mysql=only_mysql, without_it=without) for verb in verbs)


def _updates(table: Table, *columns: str) -> SqlRight:
    return SqlRight(verb="UPDATE", table=table.name, columns=columns)


# ----------------------------------------------------------------- Redis

#: Consuming services: CommitRecorder.
BUSINESS = RedisUser(name="business", keys=(_SHARD + "commit",), commands=("sadd",))
#: Consuming services that keep their inbox in Redis: RedisInbox.
INBOX = RedisUser(
    name="inbox",
    keys=(f"{INBOX_PREFIX}{{%s:*}}",),
    commands=("evalsha", "script|load", "hget", "hset", "pexpire", "unlink"),
)
#: `reconciler announcements`.
ANNOUNCER = RedisUser(
    name="announcer",
    keys=(
        *(_SHARD + "half", _SHARD + "apart", _SHARD + "offsets", _SHARD + "proofs", _SHARD + "announcement_lease:*"),
        *(use_key("%s"), identity_key("%s")),
    ),
    commands=("evalsha", "script|load", "hget", "hset", "sadd", "scard", "get", "set", "unlink", "ping"),
)
#: `reconciler run` and every other command: rounds, an announcement consumer of its own, scans after an outage.
RECONCILER = RedisUser(
    name="reconciler",
    keys=(_SHARD + "*",),
    commands=(
        "watch", "unwatch", "multi", "exec", "discard", "get", "set", "incrby", "time", "type", "hgetall", "hget",
        "hset", "hsetnx", "hdel", "zcard", "scard", "sdiffstore", "zunionstore", "zadd", "zinterstore", "zdiffstore",
        "zrangebyscore", "zrange", "zscore", "sadd", "srem", "smismember", "sscan", "zrem", "rename", "unlink",
        "pexpire", "info", "role", "config|get", "script|load", "eval", "evalsha", "ping",
    ),
)  # fmt: skip
#: Commands that each of these users needs in addition on the nodes of a Redis Cluster: to find the nodes, and to follow
#: a moving slot.
IN_A_CLUSTER = ("asking", "cluster|slots", "command")
#: The command that each of these users needs in addition if the URL names another database than 0.
IN_ANOTHER_DATABASE = ("select",)
REDIS_USERS = (BUSINESS, INBOX, ANNOUNCER, RECONCILER)

# ----------------------------------------------------------------- databases

_ALL_OF_LEDGER = (
    *(right for table in tables.LEDGER_TABLES for right in _on(table, "SELECT")),
    *_on(tables.CANDIDATE, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.REPAIR, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.ROUND, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.SUBSCRIPTION, "INSERT"),
    replace(_updates(tables.SUBSCRIPTION), without_it=REST_NOT_KEPT()),
    *_on(tables.HALF, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.FLOOR, "INSERT", "UPDATE"),
    *_on(tables.OUTAGE, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.HOLD, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.BROKER, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.ENVIRONMENT, "INSERT", "UPDATE"),
    *_on(tables.QUARANTINE, "INSERT", "DELETE"),
    *_on(tables.QUARANTINE, "UPDATE", only_mysql=True),
    *_on(tables.OPERATOR_ACTION, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.JOB, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.IDEMPOTENCY_KEY, "INSERT", "UPDATE", "DELETE"),
    *_on(tables.NOTICE, "INSERT", "UPDATE", "DELETE"),
)
_EVIDENCE_OF_OUTBOX = (*_on(tables.OUTBOX, "SELECT"), *_on(tables.OUTBOX_IDENTITY, "SELECT"))
_REVISION = {tree: SqlRight(verb="SELECT", table=table) for tree, table in tables.VERSION_TABLES.items()}
_HAND_OVERS = (*_on(tables.REPAIR, "SELECT", "UPDATE"), *_on(tables.HOLD, "SELECT"))
#: The rights that a process needs to send notices.
_TELLING = tuple(
    replace(right, only_with="notifiers", without_it=REST_UNSEEN() if right.without_it else None)
    for right in (
        *(
            right
            for table in (
                *(tables.CANDIDATE, tables.REPAIR, tables.ROUND),
                *(tables.SUBSCRIPTION, tables.OUTAGE, tables.HOLD),
            )
            for right in _on(table, "SELECT")
        ),
        *_on(tables.NOTICE, "SELECT", "INSERT", "UPDATE"),
    )
)
_APPLYING = (
    *_on(tables.INBOX, "SELECT", "INSERT"),
    replace(_updates(tables.INBOX, tables.INCOMPLETE), without_it=COMPLETE_AT_ONCE()),
)

# ----------------------------------------------------------------- roles

ANNOUNCING_SERVICE = Role(
    name="announcing service",
    does="a service with `checkback_producers`: sends half, END and announcement, writes the outbox row",
    brokers=broker_rights.OF_ANNOUNCING_SERVICE,
    outbox=(
        *_on(tables.OUTBOX, "SELECT", "INSERT"),
        _updates(tables.OUTBOX, "state", "announced_at_ms"),
        *_on(tables.OUTBOX_IDENTITY, "SELECT"),
    ),
)
CONSUMING_SERVICE = Role(
    name="consuming service",
    does="a service with `checkback_consumers`: writes inbox row and effect, adds keys to the commit set",
    brokers=broker_rights.OF_CONSUMING_SERVICE,
    redis=BUSINESS,
    inbox=_APPLYING,
)
RUN = Role(
    name="run",
    does="`reconciler run`, `once`, and the changes by hand: `repair`, `hold`, `resume`, `dismiss`, `rebuild`, "
    "`jobs cancel`, `query withdraw`, and `query accept`, which reads halves as `scan` does; `reconciler web` where it "
    "has users, who act",
    brokers=broker_rights.OF_RUN,
    redis=RECONCILER,
    outbox=_EVIDENCE_OF_OUTBOX,
    inbox=_on(tables.INBOX, "SELECT"),
    ledger=_ALL_OF_LEDGER,
)
SWEEP = Role(
    name="sweep",
    does="`reconciler sweep`: announces what a dead producer could not, settles and deletes outbox rows",
    brokers=broker_rights.OF_SWEEP,
    outbox=(
        *_EVIDENCE_OF_OUTBOX,
        _updates(tables.OUTBOX, "state", "announced_at_ms", "settled_at_ms"),
        *_on(tables.OUTBOX, "DELETE"),
        _updates(tables.OUTBOX_IDENTITY, "swept_at_ms"),
        *_on(tables.OUTBOX_FILTER, "SELECT", "INSERT"),
        _updates(tables.OUTBOX_FILTER, "tags", "version"),
        SqlRight(verb="INSERT", table=tables.OUTBOX.name, only_with="producers.answer_checks"),
    ),
    inbox=_on(tables.INBOX, "SELECT"),
    ledger=_TELLING,
)
ANNOUNCEMENTS = Role(
    name="announcements",
    does="`reconciler announcements`: the announcement consumers in a process of their own",
    brokers=broker_rights.OF_ANNOUNCEMENTS,
    redis=ANNOUNCER,
    ledger=(
        *_on(tables.HOLD, "SELECT"),
        *_on(tables.FLOOR, "SELECT"),
        *_on(tables.ROUND, "SELECT"),
        *_on(tables.OUTAGE, "SELECT", "INSERT"),
        *_on(tables.OUTAGE, "UPDATE", only_mysql=True),
        *_on(tables.ENVIRONMENT, "SELECT", "INSERT", "UPDATE"),
        *_on(tables.QUARANTINE, "SELECT", "INSERT"),
        *_on(tables.QUARANTINE, "UPDATE", only_mysql=True),
        *(
            replace(right, only_with="subscriptions.announcements")
            for right in _on(tables.HALF, "SELECT", "INSERT", "UPDATE")
        ),
    ),
)
REPLAY = Role(
    name="replay",
    does="`reconciler replay`, and a ReplayWorker inside a consuming service",
    redis=BUSINESS,
    inbox=_APPLYING,
    ledger=_HAND_OVERS,
)
INCOMPLETE = Role(
    name="incomplete",
    does="`reconciler incomplete --url`: accepts or deletes inbox rows whose handler committed halfway",
    inbox=(*_on(tables.INBOX, "SELECT"), _updates(tables.INBOX, tables.INCOMPLETE), *_on(tables.INBOX, "DELETE")),
)
GROUP_RENAME = Role(
    name="group rename",
    does="`reconciler group rename --url`: writes the inbox rows of a group under its new name",
    brokers=broker_rights.OF_GROUP_RENAME,
    inbox=(*_on(tables.INBOX, "SELECT"), *_on(tables.INBOX, "INSERT")),
)
TOPICS_CREATE = Role(
    name="topics create",
    does="`reconciler topics create`: makes the unique-key and probe topics",
    brokers=broker_rights.OF_TOPICS_CREATE,
)
SCAN = Role(
    name="scan",
    does="`reconciler scan`: reads half messages; it needs no database and no Redis",
    brokers=broker_rights.OF_SCAN,
)
DOCTOR = Role(
    name="doctor",
    does="`reconciler doctor`: tries the settings' logins, names each right that they lack for `run` and `sweep`",
    brokers=broker_rights.OF_DOCTOR,
    redis=RECONCILER,
    outbox=(*_on(tables.OUTBOX_IDENTITY, "SELECT"), *_on(tables.OUTBOX_FILTER, "SELECT"), _REVISION["outbox"]),
    inbox=(*_on(tables.INBOX, "SELECT"), _REVISION["inbox"]),
    ledger=(
        *_on(tables.ENVIRONMENT, "SELECT"),
        *(replace(right, only_with="notifiers") for right in _on(tables.NOTICE, "SELECT")),
        _REVISION["ledger"],
    ),
)
CONSOLE = Role(
    name="console",
    does="`reconciler status`, `list`, `explain`, `jobs list`, `jobs show`, `reconciler web` with `web.read_only`: "
    "they only look",
    brokers=broker_rights.OF_CONSOLE,
    redis=RECONCILER,
    outbox=_EVIDENCE_OF_OUTBOX,
    inbox=_on(tables.INBOX, "SELECT"),
    ledger=(
        *(
            right
            for table in tables.LEDGER_TABLES
            if table not in (tables.IDEMPOTENCY_KEY, tables.HALF)
            for right in _on(table, "SELECT")
        ),
        *(
            replace(right, only_with="producers.commit_queries", without_it=HALVES_NOT_NAMED())
            for right in _on(tables.HALF, "SELECT")
        ),
        *(replace(right, only_with="notifiers") for right in _on(tables.NOTICE, "INSERT", "UPDATE")),
    ),
)
ROLES = (
    ANNOUNCING_SERVICE,
    CONSUMING_SERVICE,
    RUN,
    SWEEP,
    ANNOUNCEMENTS,
    REPLAY,
    INCOMPLETE,
    GROUP_RENAME,
    TOPICS_CREATE,
    SCAN,
    DOCTOR,
    CONSOLE,
)
