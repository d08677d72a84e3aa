"""Logins of databases with exactly the rights of their role: it works; without any one of them it names the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.effect import SqlInbox
from checkback_consumers.hand_over_rows import HandOverRows
from checkback_consumers.inbox import InboxEntry
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import CheckedHalf, OutboxEntry
from reconciler.commands.diagnosis import DiagnosisRow
from reconciler.commands.doctor.checks import examine
from reconciler.commands.doctor.needed_rights import NeededRights
from reconciler.commands.doctor.rights import diagnosis_of
from reconciler.commands.rights import statements_of
from reconciler.commands.topics import create_topics
from reconciler.contract.least_rights import (
    ANNOUNCEMENTS,
    ANNOUNCING_SERVICE,
    CONSOLE,
    CONSUMING_SERVICE,
    DOCTOR,
    REPLAY,
    RUN,
    SWEEP,
    TOPICS_CREATE,
    Role,
    SqlRight,
    Tree,
    grants,
)
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import (
    VERSION_TABLES,
    CandidateState,
    HoldKind,
    JobKind,
    JobState,
    NoticeKind,
    RepairState,
    Rung,
)
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import DatabaseAway, ReconcilerError
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.commit_query import digest_of
from reconciler.policy.ports.announcing import AnnouncementQueue, RefusedAnnouncement
from reconciler.policy.ports.ledger import NotedHalf, RepairChange
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.rights import Right, refused_rights
from reconciler.sql.tables import inbox_metadata, ledger_metadata, outbox_metadata, repair
from reconciler.telling.conversations import Pace, after_standing, new_conversation
from reconciler.telling.ports.actions import Intent
from reconciler.telling.ports.idempotency import KeyedRequest
from reconciler.telling.ports.jobs import JobChange, WantedJob
from reconciler.telling.ports.notices import Place, StandingTrouble
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import named_database
from tests.contract.ledger.rows import entry, key, new_environment, round_done, shard
from tests.settings_file import NOWHERE, settings_file

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
        for tree in schema.TREES:
            schema.upgrade(url, tree)
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
        pytest.param("mariadb", marks=[pytest.mark.sql("mariadb"), pytest.mark.nightly]),
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
        tell_people(SqlLedger(opened(url, stack)), new_environment())


def run(url: str) -> None:
    with ExitStack() as stack:
        engine, environment = opened(url, stack), new_environment()
        ledger = SqlLedger(engine)
        judge(ledger, environment)
        repair_one(ledger, environment)
        keep_rounds(ledger, environment)
        brake(ledger, environment)
        get_over_an_outage(ledger, environment)
        work_on_a_job(ledger, environment)
        for seen in (["broker-a", "broker-b"], ["broker-a"], ["broker-a", "broker-b"], ["broker-a"]):
            ledger.brokers.note(environment, "ORDERS", seen, keep_seconds=60)
        assert ledger.brokers.note(environment, "ORDERS", ["broker-a"], keep_seconds=-1) == {"broker-a"}
        use_environment(ledger, environment)
        refused = RefusedAnnouncement(queue=QUEUE, queue_offset=1, reason="SHAPE", detail="no key", body=b"x")
        ledger.announcements.quarantine(environment, [refused])
        ledger.actions.end(ledger.actions.begin(environment, Intent(by="test", command="hold")), "done")
        tell_people(ledger, environment)
        # Rows of a day to come are old, too.
        deleted = SqlRetention(ledger.database, keep_days=-1).delete_old(environment)
        counts = (deleted.candidates, deleted.repairs, deleted.rounds, deleted.quarantined, deleted.outages)
        assert (*counts, deleted.actions, deleted.jobs, deleted.notices) == (1, 1, 1, 1, 1, 1, 1, 2)
        outbox = SqlOutboxReader([CommitSource(producer_group=GROUP, topics=frozenset({"ORDERS"}), url=url)])
        stack.callback(outbox.close)
        for found in outbox.look_up("ORDERS", {next_key(): 0}).values():
            assert "denied" not in str(found), str(found)
        ask_inbox(url, stack)


def tell_people(ledger: SqlLedger, environment: str) -> None:
    """Everything that a notifier reads, and one message of an audit."""
    notices, now_ms = ledger.notices, ledger.notices.now_ms()
    notices.begin(environment, "on-call")
    notices.standing(environment, [])
    losses: Place = (NoticeKind.LOSS_PROVED, "ORDERS", "billing")
    notices.past(environment, [(losses, 1), ((NoticeKind.OUTAGE, None, None), 1)])
    ledger.reports.last_rounds(Subscription(environment=environment, topic="ORDERS", group="billing"))
    found = new_conversation(environment, "on-call", (NoticeKind.AUDIT_VIOLATION, None, None), born_ms=1)
    trouble = StandingTrouble(kind=NoticeKind.AUDIT_VIOLATION, since_ms=1)
    pace = Pace(interval_seconds=1, reminder_seconds=1, gather_seconds=0)
    decided = after_standing(found, trouble, pace=pace, now_ms=now_ms, new_id=next_key)
    assert decided is not None
    assert notices.write(decided)
    (waits,) = (one for one in notices.conversations(environment) if one.waiting is not None)
    mine = notices.claim(waits, token="t", lease_seconds=9)
    assert mine is not None
    assert notices.told(mine, token="t")


def use_environment(ledger: SqlLedger, environment: str) -> None:
    for _ in range(2):
        ledger.environment_uses.renew(environment, frozenset({"broker-a"}), by="test")
    assert ledger.environment_uses.current(environment) is not None


def judge(ledger: SqlLedger, environment: str) -> None:
    """One key: looked at twice, settled, and to be asked about again."""
    number, of = next(_numbers), shard(environment)
    ledger.candidates.record(of, [entry(number)])
    ledger.candidates.record(of, [entry(number)])
    assert ledger.candidates.open_due(of.subscription, shards=[of.number], limit=1)
    settled = entry(number, Verdict.REJECTED, CandidateState.SETTLED, ask_again_seconds=0)
    ledger.candidates.record(of, [settled])
    assert ledger.candidates.to_ask_again(of.subscription, limit=1)
    ledger.candidates.ask_later(of.subscription, [key(number)], seconds=None)


def repair_one(ledger: SqlLedger, environment: str) -> None:
    unique_key = next_key()
    ledger.repairs.open(environment, "ORDERS", unique_key, rung=Rung.END)
    (row,) = ledger.repairs.claimable(environment, "ORDERS", scope="*", limit=1)
    assert ledger.repairs.claim(row, token="t", lease_seconds=9) is not None
    assert ledger.repairs.change(row, RepairChange(state=RepairState.DONE, rung=Rung.END), token="t") is not None


def keep_rounds(ledger: SqlLedger, environment: str) -> None:
    """A round, the one after it, and the undone one that Redis took back."""
    of = shard(environment)
    for generation in (1, 2, 3):
        ledger.rounds.store(round_done(of, generation, at_ms=generation))
    assert ledger.rounds.void_after(of, epoch="test:one", generation=2) == 1
    last = ledger.rounds.last(of)
    assert last is not None
    assert last.generation == 2
    for offset in (7, 8):
        ledger.rounds.raise_floor(of.subscription, {"broker-a/0": offset})
    seen = ledger.announcements.floor(of.subscription, QUEUE)
    assert seen is not None
    assert seen.queue_offset == 8


def brake(ledger: SqlLedger, environment: str) -> None:
    assert ledger.holds.place(environment, "ORDERS", HoldKind.BREAKER, by="test", reason="many")
    assert ledger.holds.renew(environment, "ORDERS")
    assert ledger.holds.active(environment)
    assert ledger.holds.lift(environment, "ORDERS", HoldKind.BREAKER)


def get_over_an_outage(ledger: SqlLedger, environment: str) -> None:
    outage = ledger.outages.open(environment, reason="MEMORY_LOST", noticed_by="test")
    ledger.outages.note_reason(outage, "MEMORY_LOST")
    ledger.outages.advance(outage, scan_position={"complete": True}, scanned=1)
    ledger.outages.finish(outage)
    assert ledger.outages.current(environment) is None


def work_on_a_job(ledger: SqlLedger, environment: str) -> None:
    """Placed by a request with a key, claimed, and done; a request that nobody answers is forgotten."""
    request = KeyedRequest(by="test", key=next_key(), digest=b"1")
    noted = ledger.idempotency_keys.begin(environment, request, lease_seconds=9)
    wanted = WantedJob(job_id=next_key(), kind=JobKind.REPAIR, request={}, by="test")
    assert ledger.jobs.place(environment, wanted).state is JobState.QUEUED
    assert ledger.idempotency_keys.answer(environment, request, token=noted.token, status=202, answer="{}")
    claimed = ledger.jobs.claim(environment, token="t", lease_seconds=9)
    assert claimed is not None
    assert ledger.jobs.change(claimed, JobChange(ends=JobState.DONE), lease_seconds=9) is not None
    other = KeyedRequest(by="test", key=next_key(), digest=b"2")
    noted = ledger.idempotency_keys.begin(environment, other, lease_seconds=9)
    ledger.idempotency_keys.forget(environment, other, token=noted.token)


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
        assert ledger.announcements.open_outage_reason(environment)
        half = NotedHalf(unique_key=next_key(), broker="a", key_digest=None, tag_digest=None, stored_at_ms=1)
        for digest in (None, digest_of("7")):
            ledger.halves.note(environment, "ORDERS", [replace(half, key_digest=digest)], replaces=True)
        use_environment(ledger, environment)


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
        ledger.environment_uses.current(environment)
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
        ledger.halves.of_keys(environment, "ORDERS", [digest_of("order-1")])  # without the right it names none
        outbox = OutboxInspector(engine)
        outbox.known([next_key()])
        outbox.oldest_unannounced(producer_group=GROUP, topic="ORDERS")
        ask_inbox(url, stack)
        tell_people(ledger, environment)


#: Of `run` and `console` what is only read where another row asks for it is left to the test of doctor, below.
ROLES: list[tuple[Role, Work, frozenset[str]]] = [
    (ANNOUNCING_SERVICE, announce_and_answer, frozenset()),
    (CONSUMING_SERVICE, apply_once, frozenset()),
    (RUN, run, frozenset({"reconciler_outbox_identity"})),
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
            if right.without_it:
                assert refusal(work, server.url) == "", f"{right} is not needed for what the role did before"
            elif right.table not in elsewhere:
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
    run = RUN.databases[tree]
    asked = {str(right) for right in run}
    # Of the ledger `sweep` needs only what `run` needs, too.
    sweeps = [right for right in SWEEP.databases.get(tree, ()) if tree != "ledger" or str(right) not in asked]
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
            found = diagnosis_of(needed, refused_rights(engine, (*needed.run, *needed.sweep))).as_row()
            assert found.level == "note" if right.without_it else found.level in ("fail", "note"), right
            assert right.verb in found.remedy
            assert right.table in found.remedy
            server.allow([right])
    finally:
        for right in rights:
            server.take(right)
        engine.dispose()


def test_an_upgrade_with_the_login_of_run_sends_to_the_owner_of_the_tables(server: Server) -> None:
    server.allow(server.rights(RUN))
    version = VERSION_TABLES["ledger"]
    at = f"UPDATE {version} SET version_num = '{{}}'"
    server.run(at.format(schema.base("ledger")))
    try:
        with pytest.raises(DatabaseAway, match="upgrade as the owner of the tables") as caught:
            schema.upgrade(server.url, "ledger")
    finally:
        server.run(at.format(schema.head("ledger")))
    assert "GRANT" not in str(caught.value)


def as_asked(rights: list[SqlRight]) -> tuple[Right, ...]:
    return tuple(Right(right.verb, TABLES[right.table], right.columns, right.without_it) for right in rights)


def settings_of(server: Server, folder: Path, *, name_servers: str = NOWHERE) -> Settings:
    """The login for everything; each group has the one database twice, so that doctor compares them."""
    again = f"{server.url}{'&' if '?' in server.url else '?'}connect_timeout=3"
    twice = f'["{server.url}", "{again}"]'
    path = settings_file(
        folder,
        name_servers=name_servers,
        ledger_url=server.url,
        producer_group=GROUP,
        of_producers=f"outbox_url = {twice}",
        of_subscription=f'tags = "a"\ninbox_url = {twice}',
        sections='[[notifiers]]\nname = "on-call"\nkind = "webhook"\nurl = "http://127.0.0.1:1/"',
    )
    return load_settings(path, {})


def examined(settings: Settings) -> list[DiagnosisRow]:
    """What doctor finds."""
    with Connections(settings) as connections:
        return [one.as_row() for one in examine(connections)]


def of_databases(findings: list[DiagnosisRow]) -> list[DiagnosisRow]:
    """What doctor found in databases besides the lines on the rights of `run` and `sweep`."""
    trees = ("ledger", "outbox", "inbox", "notifier")
    return [f for f in findings if any(t in f.check for t in trees) and not f.check.startswith("rights in")]


def test_doctor_reads_with_exactly_its_rights_and_names_each_that_is_taken_away(server: Server, tmp_path: Path) -> None:
    rights, settings = server.rights(DOCTOR), settings_of(server, tmp_path)
    server.allow(rights)
    try:
        before = of_databases(examined(settings))
        assert not [f for f in before if "denied" in f.found or "GRANT" in f.remedy]
        for right in rights:
            server.take(right)
            findings = examined(settings)
            assert of_databases(findings) != before, f"{right} is not needed"
            told = [f for f in findings if right.table in f"{f.found}{f.remedy}"]
            assert any("GRANT SELECT" in f.remedy for f in told), f"{right} is not named: {told}"
            server.allow([right])
    finally:
        for right in rights:
            server.take(right)


def test_doctor_with_the_printed_rights_of_run_finds_nothing_to_mend_in_databases(
    server: Server, tmp_path: Path
) -> None:
    rights, settings = server.rights(RUN), settings_of(server, tmp_path)
    (printed,) = statements_of(settings, "mysql" if server.is_mysql else "postgresql", [RUN], login=LOGIN)
    server.run(*(line.removesuffix(";").replace("'%'", "'127.0.0.1'") for line in printed.statements))
    try:
        found = {f.check: f for f in examined(settings)}
        assert found["ledger"].level == "note"
        assert found["ledger"].remedy == "GRANT SELECT ON reconciler_alembic_version_ledger"
        assert found["rights in the ledger"].level == "ok"
        # MariaDB hides the tables that only a sweep needs.
        outboxes = [f for check, f in found.items() if check.startswith("rights in the outbox")]
        assert [f.level for f in outboxes] == ["note", "note"]
    finally:
        for right in rights:
            server.take(right)


def test_topics_are_made_by_a_login_without_any_right_in_a_database(server: Server, tmp_path: Path) -> None:
    assert (TOPICS_CREATE.redis, TOPICS_CREATE.databases) == (None, {})
    with EmbeddedBroker() as broker:
        made = create_topics(settings_of(server, tmp_path, name_servers=broker.name_servers), business_queues=1)
    assert {one.topic for one in made} == {"RECONCILER_UNIQUE_KEY", "RECONCILER_PROBE", "ORDERS"}
