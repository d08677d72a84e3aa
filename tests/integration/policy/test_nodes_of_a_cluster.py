"""Outboxes and inboxes that are read from a node of a Galera cluster: every node calls itself a primary, and one whose
applier is held lacks what another one has committed.

Brokers, Redis and ledger are in memory; the databases are real.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from checkback_consumers.effect import SqlInbox
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_producers.check_answer import decide
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import CheckedHalf, Outcome
from reconciler.audit.collect.selection import Selection, read_rows
from reconciler.audit.collect.sources import Source
from reconciler.contract.answers import NO_ROW_DOUBTED, NODE
from reconciler.contract.evidence_layout import OUTBOX_EVIDENCE
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DatabaseAway
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.evidence.outbox_inspection import OutboxInspector
from reconciler.evidence.witness_role import NOT_PRIMARY, read_role
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Lookup, OutboxRow
from reconciler.sql import tables
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.renamed_group import RenamedRows
from reconciler.sql.witness_database import BEHIND, LET_IT_APPLY, WitnessDatabase
from reconciler.wiring.databases import database_fact
from tests.engines import disposed
from tests.integration.policy.test_replicas_as_witnesses import Databases, Pair, judged, verdict_of, world_of
from tests.polling import eventually
from tests.services import galera
from tests.services.galera import GaleraNode
from tests.services.requirements import require
from tests.unit.policy.world import PRODUCER_GROUP, TOPIC, World, key

NOT_PROVED = "not proved to be a primary"

pytestmark = pytest.mark.xdist_group("galera")

#: The deadline of a statement in these tests.
SECONDS = 2.0
TOPICS = frozenset({TOPIC})


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[GaleraNode, GaleraNode]]:
    """Two nodes; the second one's applier can be held."""
    require(galera.missing())
    with GaleraNode() as first, GaleraNode(first) as second:
        yield first, second


@pytest.fixture
def databases(cluster: tuple[GaleraNode, GaleraNode]) -> Iterator[Databases]:
    """Fresh ones, read from the second node."""
    opened = Databases(Pair(*cluster))
    yield opened
    opened.close()


def causal_reads(databases: Databases) -> int:
    assert isinstance(databases.replica, GaleraNode)
    return databases.replica.causal_reads()


def let_go_once_it_waits(databases: Databases, text: str = "reconciler_outbox") -> None:
    """The applier goes on once a statement with the text waits for it."""
    node = databases.replica
    assert isinstance(node, GaleraNode)
    eventually(lambda: node.is_waited_for(text), within_seconds=8)
    node.resume()


def reader_of(databases: Databases, *, seconds: float = SECONDS) -> SqlOutboxReader:
    """On the second node, with a short deadline."""
    read = CommitSource(producer_group=PRODUCER_GROUP, topics=TOPICS, url=databases.replica_url)
    return SqlOutboxReader([read], statement_seconds=seconds)


@pytest.mark.set_up("outbox or inbox on a node of a Galera cluster (MariaDB)")
def test_a_commit_that_a_node_lacks_whose_applier_is_held_is_no_rejection(databases: Databases) -> None:
    with closing(reader_of(databases)) as reader:
        world = world_of(outbox=reader)
        process = world.process()
        half = world.broker.send_half(key(1))
        databases.replica.pause()
        databases.commit(World().commit_locally(key(1), half, created_at_ms=world.clock.now_ms()))
        world.announce(key(1))
        verdict, state, reason = judged(world, process, key(1))
        assert (verdict, state) == (Verdict.UNKNOWN, CandidateState.OPEN)
        assert NOT_PROVED in reason
        assert BEHIND in reason
    databases.replica.resume()
    # Another process: this one waits before it asks again. What the node lacks comes in its own time.
    with closing(reader_of(databases, seconds=60.0)) as reader:
        world.__dict__.update(outbox=reader)
        judged(world, world.process(), key(1))
    row = world.candidate(key(1))
    assert row is not None
    assert row.loss_verdict is Verdict.LOST_CONFIRM


def test_an_effect_that_a_node_lacks_whose_applier_is_held_is_neither_missing_nor_a_loss(databases: Databases) -> None:
    engine = open_engine(databases.replica_url, read_only=True, statement_seconds=SECONDS)
    world = world_of(inbox=SqlInboxEvidence({World().subscriptions[0]: [engine]}))
    process = world.process()
    databases.replica.pause()
    delivered = world.deliver(1)
    world.clock.advance(20)
    world.broker.offsets["billing"] = len(world.broker.copies)  # consumed; the commit set was lost with Redis
    (copy,) = world.broker.copies
    databases.commit(world.inbox_row("billing", delivered, copy.content_digest))
    world.clock.advance(30)
    world.rounds(process, 12, consume=False)
    verdict, state, reason = verdict_of(world, delivered)
    assert (verdict, state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert NOT_PROVED in reason
    databases.replica.resume()
    databases.replica.catch_up()
    world.rounds(process, 12, consume=False)
    assert verdict_of(world, delivered)[0] is Verdict.CONSUMED, "what a node has is an effect"
    engine.dispose()


@pytest.mark.set_up("outbox or inbox on a node of a Galera cluster (MariaDB)")
def test_a_missing_row_counts_after_one_wait_for_the_cluster_and_a_row_that_is_there_needs_none(
    databases: Databases,
) -> None:
    databases.commit(World().commit_locally(key(1)))
    databases.replica.catch_up()
    evidence = SqlInboxEvidence({World().subscriptions[0]: [databases.engine]})
    before = causal_reads(databases)
    assert databases.reader.look_up(TOPIC, {key(1): 2**62})[key(1)].is_found
    assert causal_reads(databases) == before
    found = databases.reader.look_up(TOPIC, {key(1): 2**62, key(2): 2**62, key(3): 2**62})
    assert [found[key(number)].is_absent for number in (1, 2, 3)] == [False, True, True]
    assert causal_reads(databases) == before + 1
    assert evidence.look_up(World().subscriptions[0], [key(1)])[key(1)].is_absent
    assert causal_reads(databases) == before + 2
    with databases.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT @@wsrep_sync_wait").scalar() == 0, "nothing is left to the session"


@pytest.mark.nightly
def test_a_row_that_comes_while_the_statement_waits_is_found(databases: Databases) -> None:
    databases.replica.pause()
    databases.commit(World().commit_locally(key(1)))
    found: list[Lookup[OutboxRow]] = []
    asking = threading.Thread(target=lambda: found.append(databases.reader.look_up(TOPIC, {key(1): 2**62})[key(1)]))
    asking.start()
    let_go_once_it_waits(databases)
    asking.join()
    assert found[0].is_found


@pytest.mark.nightly
def test_a_held_node_costs_one_deadline_and_what_it_has_counts_on(databases: Databases) -> None:
    databases.commit(World().commit_locally(key(1)))
    databases.replica.catch_up()
    databases.replica.pause()
    with closing(reader_of(databases)) as reader:
        began = time.monotonic()
        assert reader.look_up(TOPIC, {key(1): 1, key(2): 1})[key(2)].is_unknown
        assert time.monotonic() - began >= SECONDS / 2
        before = causal_reads(databases)
        for _ in range(20):
            found = reader.look_up(TOPIC, {key(1): 1, key(2): 1})
            assert found[key(1)].is_found, "the database is not away"
            assert found[key(2)].is_unknown
        assert causal_reads(databases) == before, "it is not asked to wait again at once"


@pytest.mark.nightly
def test_a_sign_of_life_proves_an_outbox_absence_on_a_held_node(databases: Databases) -> None:
    now_ms = databases.sweep()
    databases.replica.catch_up()
    databases.replica.pause()
    with closing(reader_of(databases)) as reader:
        found = reader.look_up(TOPIC, {key(1): now_ms - 60_000, key(2): now_ms + 60_000})
        assert found[key(1)].is_absent, "what was committed before the sign of life came before it"
        assert found[key(2)].is_unknown


@pytest.mark.nightly
def test_a_node_is_told_as_a_primary_and_a_held_one_with_its_remedy(databases: Databases) -> None:
    with closing(SqlOutbox(databases.replica_url)) as outbox:
        outbox.mark_swept()  # a node may be swept
    for tree in ("outbox", "inbox"):
        assert read_role(databases.engine, database=database_fact(tree, "n"), tree=tree).role.is_primary is True
    databases.replica.pause()
    engine = open_engine(databases.replica_url, read_only=True, statement_seconds=SECONDS)
    role = read_role(engine, database=database_fact("inbox", "n"), tree="inbox")
    assert role.is_doubted
    assert role.is_blind(60)
    assert role.found == (NOT_PRIMARY(kind=NODE()),)
    assert LET_IT_APPLY() in role.what_proves(60)
    assert role.product.name == "Galera"
    rows = OutboxInspector(engine).newest_of_business("order-1", limit=5)
    assert rows.doubt == NO_ROW_DOUBTED(doubt=NOT_PRIMARY(kind=NODE()))
    engine.dispose()


@pytest.mark.nightly
def test_a_business_id_is_looked_for_again_after_the_wait(databases: Databases) -> None:
    databases.replica.pause()
    with writing(databases.primary) as connection:
        values = {"unique_key": key(1), "topic": TOPIC, "producer_group": "g", "state": "NEW", "created_at_ms": 1}
        connection.execute(sa.insert(tables.outbox).values(**values, business_id="order-1"))
    found: list[int] = []

    def ask() -> None:
        found.append(len(OutboxInspector(databases.engine).newest_of_business("order-1", limit=5).newest))

    asking = threading.Thread(target=ask)
    asking.start()
    let_go_once_it_waits(databases, "wsrep_sync_wait")
    asking.join()
    assert found == [1]


@pytest.mark.nightly
def test_a_login_that_may_read_nothing_but_the_table_waits(databases: Databases) -> None:
    login = f"reader_{sa.make_url(databases.url).database}"[-30:]
    with writing(databases.primary) as connection:
        connection.exec_driver_sql(f"CREATE USER '{login}'@'localhost' IDENTIFIED BY 'private'")
        connection.exec_driver_sql(f"GRANT SELECT ON reconciler_inbox TO '{login}'@'localhost'")
    databases.replica.catch_up()
    engine = open_engine(sa.make_url(databases.replica_url).set(username=login).render_as_string(hide_password=False))
    database = WitnessDatabase(engine, tables.inbox)
    assert database.unread() == ()
    before = causal_reads(databases)
    assert database.role().is_primary is True
    assert causal_reads(databases) == before + 1
    engine.dispose()


@pytest.mark.set_up("producers and consumers that write to several nodes of a Galera cluster")
@pytest.mark.nightly
def test_a_check_back_on_a_held_node_rolls_nothing_back_that_another_node_has_committed(databases: Databases) -> None:
    """Its tombstone meets the row in the certification of its COMMIT, which waits as long as the applier is held."""
    with closing(SqlOutbox(databases.replica_url, statement_seconds=SECONDS)) as outbox:
        half = CheckedHalf(
            unique_key=key(1),
            topic=TOPIC,
            producer_group=PRODUCER_GROUP,
            tag=None,
            born_timestamp_ms=1,
            check_times=1,
            outbox_mark=outbox.identity(),
        )
        databases.replica.pause()
        databases.commit(World().commit_locally(key(1)))
        answer = decide(outbox, half, is_final=True)
        assert answer.outcome is Outcome.UNKNOWN, answer.reason
    databases.replica.resume()
    databases.replica.catch_up()
    for url in (databases.url, databases.replica_url):
        with disposed(open_engine(url)) as engine, reading(engine) as connection:
            assert connection.scalars(sa.select(tables.outbox.c.state)).all() == ["ANNOUNCED"], "as it was committed"
    with closing(SqlOutbox(databases.url)) as outbox:
        assert decide(outbox, half, is_final=True).outcome is Outcome.COMMIT


@pytest.mark.set_up("producers and consumers that write to several nodes of a Galera cluster")
@pytest.mark.parametrize(
    "unique_key", [key(1), pytest.param(key(2), marks=pytest.mark.nightly)], ids=["key", "business id"]
)
def test_a_second_effect_on_another_node_ends_at_its_commit_and_its_redelivery_is_a_duplicate(
    databases: Databases, unique_key: str
) -> None:
    first = InboxEntry(group="billing", unique_key=key(1), topic=TOPIC, dedupe_key="order-1")
    second = replace(first, unique_key=unique_key)
    writer = open_engine(databases.replica_url)
    with writing(databases.primary) as connection:
        connection.exec_driver_sql("CREATE TABLE payment (id INT AUTO_INCREMENT PRIMARY KEY)")
    databases.replica.catch_up()

    def pay(connection: sa.Connection) -> None:
        connection.exec_driver_sql("INSERT INTO payment VALUES (NULL)")

    databases.replica.pause()
    assert SqlInbox(databases.primary).apply_once(first, pay) is InboxAnswer.NEW
    refused: list[object] = []

    def again() -> None:
        try:
            SqlInbox(writer).apply_once(second, pay)
        except OperationalError as error:
            refused.append(error.orig.args[0] if error.orig else None)

    working = threading.Thread(target=again)
    working.start()
    let_go_once_it_waits(databases, "COMMIT")
    working.join()
    assert refused == [1213], "a deadlock"
    answer = InboxAnswer.DUPLICATE if second == first else InboxAnswer.DUPLICATE_BUSINESS
    assert SqlInbox(writer).apply_once(second, pay) is answer
    for engine in (databases.primary, writer):
        with reading(engine) as connection:
            assert connection.exec_driver_sql("SELECT COUNT(*) FROM payment").scalar() == 1
    writer.dispose()


@pytest.mark.nightly
def test_the_audit_reads_what_the_cluster_has_committed_or_ends_without_a_judgement(databases: Databases) -> None:
    source = Source(kind="database", address=databases.replica_url, option="--outbox g")
    selection = Selection(layout=OUTBOX_EVIDENCE, table="reconciler_outbox")
    databases.replica.pause()
    databases.commit(World().commit_locally(key(1)))
    counts: list[int] = []
    reading = threading.Thread(target=lambda: counts.extend(page.num_rows for page in read_rows(source, selection)))
    reading.start()
    let_go_once_it_waits(databases, "SELECT 1")
    reading.join()
    assert sum(counts) == 1


@pytest.mark.nightly
def test_a_group_is_not_renamed_on_a_node_that_may_lack_its_rows(databases: Databases) -> None:
    engine = open_engine(databases.replica_url, statement_seconds=SECONDS)
    rows = RenamedRows(engine, old="billing", new="invoices")
    world = World()
    databases.replica.pause()
    databases.commit(world.inbox_row("billing", key(1), None))
    for look in (rows.count, lambda: rows.copy(lambda _: None)):
        with pytest.raises(DatabaseAway, match="has not shown that it is up to date"):
            look()
    databases.replica.resume()
    engine.dispose()
    other = RenamedRows(databases.primary, old="billing", new="invoices")
    assert other.copy(lambda _: None) == 1
