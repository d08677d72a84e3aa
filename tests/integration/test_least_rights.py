"""Logins of databases with exactly the rights of their role: it works; without any one of them it names the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count

import pytest
import sqlalchemy as sa

from checkback_consumers.effect import SqlInbox
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.inbox import InboxEntry
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import CheckedHalf, OutboxEntry
from reconciler.commands.doctor.rights import diagnosis_of
from reconciler.contract.least_rights import (
    ANNOUNCEMENTS,
    ANNOUNCING_SERVICE,
    CONSOLE,
    CONSUMING_SERVICE,
    REPLAY,
    RUN,
    SWEEP,
    Role,
    SqlRight,
    Tree,
    grants,
)
from reconciler.contract.subscription import Subscription
from reconciler.errors import ReconcilerError
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports import AnnouncementQueue, LedgerFilter, RefusedAnnouncement
from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import inbox_metadata, ledger_metadata, outbox_metadata, repair
from reconciler.wiring.databases import named_database
from reconciler.wiring.rights import NeededRights
from tests.contract.ledger.rows import key, new_environment

LOGIN, PASSWORD = "role", "role"
TABLES = {
    table.name: table for tree in (outbox_metadata, inbox_metadata, ledger_metadata) for table in tree.sorted_tables
}
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=0)
GROUP = "orders"
_numbers = count(1)

#: URL of the login; everything that the role does there.
Work = Callable[[str], None]


class Server:
    """One database with all tables, and a login whose rights are changed."""

    def __init__(self, url: str) -> None:
        self.owner = open_engine(url)
        self.is_mysql = self.owner.dialect.name != "postgresql"
        self.login = f"'{LOGIN}'@'127.0.0.1'" if self.is_mysql else LOGIN
        self.url = self.owner.url.set(username=LOGIN, password=PASSWORD).render_as_string(hide_password=False)
        for metadata in (outbox_metadata, inbox_metadata, ledger_metadata):
            metadata.create_all(self.owner)
        ensure_identity(self.owner)
        self.run(f"CREATE {'USER' if self.is_mysql else 'ROLE'} {self.login} {self._password()}")

    def _password(self) -> str:
        return f"IDENTIFIED BY '{PASSWORD}'" if self.is_mysql else f"LOGIN PASSWORD '{PASSWORD}'"

    def run(self, *statements: str) -> None:
        with self.owner.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rights(self, role: Role) -> list[SqlRight]:
        """Those that this kind of server needs, each once."""
        every = (right for rights in role.databases.values() for right in rights)
        return list(dict.fromkeys(right for right in every if self.is_mysql or not right.only_mysql))

    def allow(self, rights: list[SqlRight]) -> None:
        self.run(*grants(rights, login=self.login, is_mysql=self.is_mysql))

    def take(self, right: SqlRight) -> None:
        (grant,) = grants([right], login=self.login, is_mysql=self.is_mysql)
        self.run(grant.replace("GRANT ", "REVOKE ").replace(" TO ", " FROM "))

    def close(self) -> None:
        if self.is_mysql:
            self.run(f"DROP USER {self.login}")
        else:
            self.run(f"DROP OWNED BY {LOGIN}", f"DROP ROLE {LOGIN}")
        self.owner.dispose()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with closing(Server(request.getfixturevalue(f"{request.param}_server").create_database())) as made:
        yield made


def next_key() -> str:
    return key(next(_numbers))


def opened(url: str, stack: ExitStack) -> sa.Engine:
    engine = open_engine(url)
    stack.callback(engine.dispose)
    return engine


def an_entry() -> OutboxEntry:
    return OutboxEntry(
        unique_key=next_key(), topic="ORDERS", producer_group=GROUP, tag=None, message_keys=None, business_id="7",
        half_broker=None, half_commit_log_offset=None, half_queue_offset=None, properties=None, body=None,
        content_digest=None,
    )  # fmt: skip


def record_one(url: str, outbox: SqlOutbox, stack: ExitStack) -> str:
    entry = an_entry()
    with opened(url, stack).begin() as connection:
        outbox.record(connection, entry)
    return entry.unique_key


def a_half() -> CheckedHalf:
    return CheckedHalf(
        unique_key=next_key(), topic="ORDERS", producer_group=GROUP, tag=None, born_timestamp_ms=1, check_times=1,
        outbox_mark=None,
    )  # fmt: skip


def announce_and_answer(url: str) -> None:
    with ExitStack() as stack, closing(SqlOutbox(url)) as outbox:
        recorded = record_one(url, outbox, stack)
        assert outbox.find(recorded) is not None
        assert outbox.mark_announced([recorded]) == 1
        assert outbox.insert_tombstone(a_half())


def apply_once(url: str) -> None:
    with ExitStack() as stack:
        inbox = SqlInbox(opened(url, stack))
        entry = InboxEntry(group="billing", unique_key=next_key(), topic="ORDERS")
        inbox.apply_once(entry, lambda _connection: None)
        inbox.apply_once(entry, lambda _connection: None)


def sweep(url: str) -> None:
    with ExitStack() as stack, closing(SqlOutbox(url)) as outbox:
        outbox.mark_swept()
        outbox.insert_tombstone(a_half())
        rows = outbox.unannounced(GROUP, older_than_seconds=0, limit=10).facts
        keys = [row.unique_key for row in rows] or [next_key()]
        outbox.mark_announced(keys)
        outbox.announced(GROUP, older_than_seconds=0, limit=10, after=None)
        outbox.mark_settled(keys)
        outbox.reopen(keys)
        place = ("ORDERS", f"group-{next(_numbers)}")
        assert outbox.write_settled_tags(GROUP, place, None, instead_of=None)
        assert outbox.settled_tags(GROUP)[place].tags is None
        assert outbox.write_settled_tags(GROUP, place, frozenset({"a"}), instead_of=1)
        outbox.delete_finished(GROUP, older_than_seconds=0, limit=10)
        ask_inbox(url, stack)


def ask_inbox(url: str, stack: ExitStack) -> None:
    of = Subscription(environment="test", topic="ORDERS", group="billing")
    evidence = SqlInboxEvidence({of: [opened(url, stack)]})
    for found in evidence.look_up(of, [next_key()]).values():
        assert "denied" not in str(found), str(found)


def announcements(url: str) -> None:
    with ExitStack() as stack:
        ledger, environment = SqlLedger(opened(url, stack)), new_environment()
        ledger.holds.active(environment)
        of = Subscription(environment=environment, topic="ORDERS", group="billing")
        assert ledger.announcements.floor(of, QUEUE) is None
        refused = RefusedAnnouncement(queue=QUEUE, queue_offset=1, reason="SHAPE", detail="no key", body=b"x")
        ledger.announcements.quarantine(environment, [refused])
        ledger.announcements.open_outage(environment, reason="MEMORY_LOST", noticed_by="test")
        assert ledger.announcements.has_open_outage(environment)


def replay(url: str) -> None:
    with ExitStack() as stack:
        rows = HandOverRows(opened(url, stack))
        rows.active("test")
        (row, *_) = rows.claimable("test", "ORDERS", scope="billing", limit=1)
        claimed = rows.claim(row, token="t", lease_seconds=0)
        assert claimed is not None
    apply_once(url)


def look(url: str) -> None:
    with ExitStack() as stack:
        engine = opened(url, stack)
        ledger, environment = SqlLedger(engine), new_environment()
        reports = ledger.reports
        ledger.jobs.page(environment, limit=1)
        of = Subscription(environment=environment, topic="ORDERS", group="billing")
        reports.life(environment, next_key())
        reports.verdict_counts(environment)
        reports.repair_counts(environment)
        reports.last_rounds(of)
        reports.holds(environment)
        reports.floors(of)
        reports.outages(environment, limit=1)
        reports.actions(environment, only=LedgerFilter(), limit=1)
        reports.quarantined(environment, limit=1)
        outbox = OutboxInspector(engine)
        outbox.has_row(next_key())
        outbox.oldest_unannounced(producer_group=GROUP, topic="ORDERS")
        ask_inbox(url, stack)


#: Of `console` what is only read where another row asks for it is left to the test of doctor, below.
ROLES: list[tuple[Role, Work, frozenset[str]]] = [
    (ANNOUNCING_SERVICE, announce_and_answer, frozenset()),
    (CONSUMING_SERVICE, apply_once, frozenset()),
    (SWEEP, sweep, frozenset()),
    (ANNOUNCEMENTS, announcements, frozenset()),
    (REPLAY, replay, frozenset()),
    (CONSOLE, look, frozenset({"reconciler_outbox_identity", "reconciler_broker"})),
]


def refusal(work: Work, url: str) -> str:
    """What the work says when it fails; empty: it does not."""
    try:
        work(url)
    except (ReconcilerError, sa.exc.DBAPIError, AssertionError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("role", "work", "elsewhere"), ROLES, ids=[role.name for role, _, _ in ROLES])
def test_role_works_with_its_rights_and_names_each_that_is_taken_away(
    server: Server, role: Role, work: Work, elsewhere: frozenset[str]
) -> None:
    with server.owner.begin() as connection:
        connection.execute(sa.delete(repair))
        connection.execute(
            sa.insert(repair).values(
                environment="test", topic="ORDERS", scope="billing", unique_key=next_key(), state="OPEN",
                rung="hand-over", attempts=0, next_at_ms=0, created_at_ms=1, message="{}",
            )
        )  # fmt: skip
    rights = server.rights(role)
    server.allow(rights)
    try:
        work(server.url)
        for right in rights:
            server.take(right)
            if right.table not in elsewhere:
                told = refusal(work, server.url)
                assert right.table in told, f"{right} is not named: {told}"
                assert "denied" in told or "GRANT" in told, f"{right} is not named as a right: {told}"
            server.allow([right])
        work(server.url)
    finally:
        for right in rights:
            server.take(right)


@pytest.mark.parametrize("tree", ["outbox", "inbox", "ledger"])
def test_doctor_names_every_right_of_run_and_sweep_that_is_missing(server: Server, tree: Tree) -> None:
    run, sweeps = RUN.databases[tree], SWEEP.databases.get(tree, ())
    rights = list(dict.fromkeys(right for right in (*run, *sweeps) if server.is_mysql or not right.only_mysql))
    of_run = [right for right in rights if right in run]
    needed = NeededRights(
        database=named_database(server.url, tree),
        run=as_asked(of_run),
        sweep=as_asked([right for right in rights if right not in run]),
    )
    engine = open_engine(server.url)
    server.allow(rights)
    try:
        assert diagnosis_of(needed, refused_rights(engine, (*needed.run, *needed.sweep))).level == "ok"
        for right in rights:
            server.take(right)
            found = diagnosis_of(needed, refused_rights(engine, (*needed.run, *needed.sweep)))
            assert found.level in ("fail", "note"), right
            assert right.verb in found.remedy
            assert right.table in found.remedy
            server.allow([right])
    finally:
        for right in rights:
            server.take(right)
        engine.dispose()


def as_asked(rights: list[SqlRight]) -> tuple[Right, ...]:
    return tuple(Right(right.verb, TABLES[right.table], right.columns) for right in rights)
