"""One damaged value in a service's database stopped a topic: now it is the answer of its own key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.contract.announcement import decode_announcement
from reconciler.contract.schema import Column, Table
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import INBOX, OUTBOX
from reconciler.errors import MalformedInput
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.evidence import Presence
from reconciler.policy.sweeping import OutboxFact, SweepRules, SweptSubscription
from reconciler.sql.engines import open_engine
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import inbox, inbox_metadata, outbox, outbox_metadata
from tests.unit.damage.values import NO_UTF8, cases, damage

KEYS = [f"{number:032X}" for number in range(1, 9)]
BAD = KEYS[3]
OTHERS = [key for key in KEYS if key != BAD]
SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")

#: Whose row it is: of another key, or of another group, nobody could know that it is damaged.
WITHOUT = {OUTBOX.name: ("unique_key",), INBOX.name: ("unique_key", "consumer_group")}
#: Nobody reads these.
UNREAD = {INBOX.name: ("dedupe_key",)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service's database, made once: each test damages a copy of it."""
    path = tmp_path_factory.mktemp("filled") / "service.db"
    engine = open_engine(f"sqlite:///{path}")
    outbox_metadata.create_all(engine)
    inbox_metadata.create_all(engine)
    ensure_identity(engine)
    with engine.begin() as connection:
        for number, key in enumerate(KEYS):
            row: dict[str, Any] = {"unique_key": key, "topic": "ORDERS", "producer_group": "PG", "tag": "paid"}
            row |= {"properties": '{"a":"b"}', "body": b"body", "content_digest": b"d" * 32}
            connection.execute(sa.insert(outbox).values(state="NEW", created_at_ms=1_000 + number, **row))
            row = {"consumer_group": "billing", "unique_key": key, "topic": "ORDERS", "source": "consumer"}
            connection.execute(sa.insert(inbox).values(content_digest=b"d" * 32, applied_at_ms=1_000 + number, **row))
    engine.dispose()
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path))


@pytest.mark.parametrize(("table", "column", "value"), cases(OUTBOX, without=WITHOUT))
def test_a_damaged_outbox_row_hides_no_other_row(path: Path, table: Table, column: Column, value: Any) -> None:
    damage(path, table, column, value, where="unique_key = ?", arguments=(BAD,))
    group = CommitSource(producer_group="PG", topics=frozenset({"ORDERS"}), url=f"sqlite:///{path}")
    reader = SqlOutboxReader([group])
    found = reader.look_up("ORDERS", dict.fromkeys(KEYS, 0))
    reader.close()
    assert {key for key in KEYS if found[key].is_found} == set(OTHERS)
    assert found[BAD].presence is Presence.UNKNOWN
    assert found[BAD].damage is not None
    assert f"reconciler_outbox.{column.name} " in str(found[BAD].damage)


@pytest.mark.parametrize(("table", "column", "value"), cases(INBOX, without=WITHOUT))
def test_a_damaged_inbox_row_hides_no_other_effect(path: Path, table: Table, column: Column, value: Any) -> None:
    damage(path, table, column, value, where="unique_key = ?", arguments=(BAD,))
    engine = open_engine(f"sqlite:///{path}", read_only=True)
    evidence = SqlInboxEvidence({SUBSCRIPTION: [engine]})
    found = evidence.look_up(SUBSCRIPTION, KEYS)
    assert all(found[key].is_found for key in OTHERS)
    if column.name not in UNREAD[INBOX.name]:
        assert found[BAD].damage is not None
        assert f"reconciler_inbox.{column.name} " in str(found[BAD].damage)
    # The scan of an outage goes past it, to the last row and no further, for any place of the row.
    newest_ms = evidence.newest_ms(SUBSCRIPTION)
    assert newest_ms is not None
    assert newest_ms == 1_000 + len(KEYS) - 1
    seen: list[str] = []
    after: tuple[Any, Any] | None = None
    for _ in range(len(KEYS) + 1):
        page = evidence.applied_since(SUBSCRIPTION, since_ms=0, after=after, limit=1)
        if not page or not isinstance(page[-1].applied_at_ms, int | float) or page[-1].applied_at_ms > newest_ms:
            break  # as reconciler/policy/outage.py: no time is behind it
        seen += [row.unique_key for row in page if row.damage is None]
        after = (page[-1].applied_at_ms, page[-1].unique_key)
    else:
        raise AssertionError("the scan does not end")
    assert set(OTHERS) <= set(seen)
    engine.dispose()


class Broker:
    """Takes every announcement."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def send_announcement(self, message: AnnouncementMessage) -> None:
        self.keys += [key.unique_key for key in decode_announcement(message.body).keys]


#: Only what the sweeper reads of a row can stop it.
SWEPT = ("topic", "tag", "created_at_ms", "announced_at_ms")


@pytest.mark.unmeasured
@pytest.mark.parametrize("page_rows", [1, 3, 100])
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [case for case in cases(OUTBOX, without={}) if case.values[1].name in ("unique_key", *SWEPT)],
)
def test_a_damaged_row_in_a_page_stops_no_sweep(
    path: Path, table: Table, column: Column, value: Any, page_rows: int
) -> None:
    damage(path, table, column, value, where="unique_key = ?", arguments=(BAD,))
    engine = open_engine(f"sqlite:///{path}", read_only=True)
    outbox_of_ours, broker = SqlOutbox(f"sqlite:///{path}"), Broker()
    rules = SweepRules(sweep_after_seconds=0, settle_after_seconds=0, page_rows=page_rows)
    sweeper = Sweeper(
        [OutboxSource(producer_group="PG", outbox=outbox_of_ours)],
        announcer=Announcer(broker, AnnouncementRoute(environment="test", queues=4)),
        subscriptions=[SweptSubscription(subscription=SUBSCRIPTION, tags=None)],
        inboxes=SqlInboxEvidence({SUBSCRIPTION: [engine]}),
        rules=rules,
    )
    reports = [sweeper.sweep_once() for _ in range(2)]
    with engine.connect() as connection:
        states = {r.unique_key: r.state for r in connection.execute(sa.select(outbox.c.unique_key, outbox.c.state))}
    outbox_of_ours.close()
    engine.dispose()
    assert sorted(set(broker.keys) - {BAD}) == OTHERS
    assert all(states[key] == "SETTLED" for key in OTHERS)
    assert not any(report.failed_sources for report in reports)
    if BAD in states and states[BAD] == "NEW" and column.name not in ("created_at_ms", "announced_at_ms"):
        assert reports[0].damaged >= 1
        assert any(f"reconciler_outbox.{column.name} " in problem for problem in reports[0].problems)


def test_a_producer_does_not_take_a_damaged_row_for_a_commit(path: Path) -> None:
    state = next(column for column in OUTBOX.columns if column.name == "state")
    damage(path, OUTBOX, state, NO_UTF8, where="unique_key = ?", arguments=(BAD,))
    opened = SqlOutbox(f"sqlite:///{path}")
    with pytest.raises(MalformedInput, match=r"reconciler_outbox\.state "):
        opened.find(BAD)
    sound = opened.find(OTHERS[0])
    opened.close()
    assert isinstance(sound, OutboxFact)
    assert sound.is_committed
