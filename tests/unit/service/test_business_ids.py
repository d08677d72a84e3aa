"""A person names a message by its business id: never another one's, never one of several, for any text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import SystemClock
from reconciler.commands.acts.repair import _named
from reconciler.commands.asking import business_ids
from reconciler.commands.asking.business_ids import (
    NamedMessages,
    business_ids_of,
    keys_named,
    messages_of,
    require_name,
)
from reconciler.commands.list import list_rows
from reconciler.commands.notices import telling
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import DependencyAway, InvalidValue
from reconciler.evidence import outbox_inspection
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.tables import ledger_metadata, outbox, outbox_metadata
from reconciler.telling.ports.actions import Intent
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import begun, disposed, make_tables
from tests.polling import eventually
from tests.unit.channels.receiver import receiving

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
HOSTILE = ["'; DROP TABLE reconciler_outbox; --", "%", "order_1", "\x1b[2J", "größe", "😀", "a\\b", '"', "order 1"]


def key(number: int) -> str:
    return f"{number:032X}"


def settings_of(tmp_path: Path, *urls: str, notifiers: str = "[]") -> Settings:
    ledger = f"sqlite:///{tmp_path}/ledger-of-commands.db"
    make_tables(ledger, ledger_metadata)
    producers = [{"group": f"shop-{n}", "topics": ["ORDERS"], "outbox_url": url} for n, url in enumerate(urls)]
    given = {"RECONCILER_PRODUCERS": json.dumps(producers), "RECONCILER_LEDGER__URL": ledger}
    given["RECONCILER_NOTIFIERS"] = notifiers
    return load_settings(EXAMPLE, given | {"RECONCILER_SUBSCRIPTIONS": json.dumps([ORDERS])})


ORDERS = {"topic": "ORDERS", "group": "billing"}


def written(url: str, *rows: tuple[int, str | None, int], topic: str = "ORDERS") -> None:
    """Rows of (number of the key, business id, time)."""
    make_tables(url, outbox_metadata)
    with begun(url) as connection:
        for number, business_id, at_ms in rows:
            row = {"unique_key": key(number), "topic": topic, "producer_group": "shop", "state": "NEW"}
            connection.execute(sa.insert(outbox).values(**row, business_id=business_id, created_at_ms=at_ms))


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Iterator[Connections]:
    with Connections(settings_of(tmp_path, database_url)) as connections:
        yield connections


def found(connections: Connections, business_id: str, limit: int = 9) -> tuple[str, ...]:
    return messages_of(connections, business_id, limit=limit).unique_keys


def test_keys_are_named_by_the_outboxes_that_answer(database_url: str, tmp_path: Path) -> None:
    hostile = [(number + 4, text, 1) for number, text in enumerate(HOSTILE)]
    written(database_url, (1, "order-1", 1), (2, None, 1), (3, "order-3", 1), *hostile)
    with Connections(settings_of(tmp_path, database_url, f"sqlite:///{tmp_path}/nowhere/outbox.db")) as connections:
        assert business_ids_of(connections, [key(1), key(2), key(9_999)]) == {key(1): "order-1"}
        asked = [key(n + 4) for n in range(len(HOSTILE))]
        names = business_ids_of(connections, asked)
        assert [names[one] for one in asked] == HOSTILE
        assert business_ids_of(connections, []) == {}


@pytest.mark.parametrize(("more", "told"), [({}, "order-1"), ({"business_ids": False}, None)])
def test_a_notice_of_a_key_has_the_business_id_that_an_outbox_tells_unless_its_receiver_is_to_see_none(
    database_url: str, tmp_path: Path, more: dict[str, bool], told: str | None
) -> None:
    written(database_url, (1, "order-1", 1))
    with receiving() as receiver:
        notifier = {"name": "on-call", "kind": "webhook", "url": receiver.url, "notices": ["QUARANTINED"], **more}
        nowhere = f"sqlite:///{tmp_path}/nowhere/outbox.db"
        settings = settings_of(tmp_path, nowhere, database_url, notifiers=json.dumps([notifier]))
        of = Subscription(environment=settings.environment, topic="ORDERS", group="billing")
        waits = VerdictEntry(
            unique_key=key(1), verdict=Verdict.QUARANTINED, evidence={}, first_seen_ms=1,
            state=CandidateState.QUARANTINED, wait_seconds=0.0,
        )  # fmt: skip
        with Connections(settings) as connections:
            connections.ledger.candidates.record(Shard(subscription=of, number=0), [waits])
        with telling(settings, clock=SystemClock()):
            eventually(lambda: receiver.received, within_seconds=60)
    data = json.loads(receiver.received[0].body)["data"]
    assert (data["kind"], data["detail"], data["business_id"]) == ("QUARANTINED", key(1), told)


def test_all_messages_of_a_business_id_are_there_the_newest_first_and_the_rest_is_counted(
    opened: Connections, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        database_url, *((number, "order-1", 1000 + number) for number in range(9)), (10, "order-2", 1), (11, None, 1)
    )
    assert found(opened, "order-1") == tuple(key(number) for number in range(8, -1, -1))
    few = messages_of(opened, "order-1", limit=3)
    assert few.unique_keys == (key(8), key(7), key(6))
    assert few.older == 6
    assert [*map(said, few.left_out)] == ["6 older messages of business id 'order-1' are left out"]
    for module in (business_ids, outbox_inspection):
        monkeypatch.setattr(module, "ROWS_COUNTED_MAX", 4)
    (many,) = messages_of(opened, "order-1", limit=3).left_out
    assert said(many).startswith("more than 4 older")


def test_another_case_another_accent_or_a_space_more_is_another_business_id(
    opened: Connections, database_url: str
) -> None:
    """Also where the users' own migration made a column that folds them."""
    written(database_url, (1, "Order-é", 1))
    with disposed(open_engine(database_url)) as engine:
        if engine.dialect.name in {"mysql", "mariadb"}:
            with writing(engine) as connection:
                connection.exec_driver_sql(
                    "ALTER TABLE reconciler_outbox MODIFY business_id VARCHAR(160) COLLATE utf8mb4_general_ci"
                )
    for other in ("order-é", "Order-e", "Order-é ", " Order-é", "ORDER-É"):
        assert found(opened, other) == ()
    assert found(opened, "Order-é") == (key(1),)


def test_a_hostile_business_id_finds_its_own_message_alone(opened: Connections, database_url: str) -> None:
    written(database_url, *((number, text, 1) for number, text in enumerate(HOSTILE)))
    for number, text in enumerate(HOSTILE):
        named = keys_named(opened, text, limit=9)
        assert named.unique_keys == (key(number),)
        assert text in said(named.notes[0])
    with pytest.raises(InvalidValue, match="no UTF-8"):
        keys_named(opened, "\udcff", limit=9)
    with pytest.raises(InvalidValue, match="no outbox has a message of this business id, and it is no unique key"):
        keys_named(opened, "order 17", limit=9)


def test_a_business_id_that_is_also_a_unique_key_names_the_message_of_the_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    written(url, (10, key(11), 1), (11, "order-2", 1), (12, key(13), 1))
    with Connections(settings_of(tmp_path, url)) as connections:
        assert keys_named(connections, key(11), limit=9) == NamedMessages(unique_keys=(key(11),))
        by_business = keys_named(connections, key(13), limit=9)
        assert by_business.unique_keys == (key(12),)
        assert [*map(said, by_business.notes)] == [f"{key(13)!r} is a business id, of 1 message(s): {key(12)}"]
        assert keys_named(connections, key(99), limit=9).unique_keys == (key(99),)


def test_a_key_in_another_case_is_named_and_not_taken_for_the_one_that_was_asked_for(
    opened: Connections, database_url: str
) -> None:
    engine = open_engine(database_url)
    written(database_url, (0xABCDEF, "order-1", 1))
    with writing(engine) as connection:
        row = {**connection.execute(sa.select(outbox)).mappings().one()}
        go = key(0xABCDEF)[:-4] + key(0xABCDEF)[-4:].lower()
        connection.execute(sa.insert(outbox).values(row | {"unique_key": go, "business_id": "order-2"}))
    engine.dispose()
    assert keys_named(opened, f" {go} ", limit=9) == NamedMessages(unique_keys=(go,))
    assert keys_named(opened, key(0xABCDEF), limit=9) == NamedMessages(unique_keys=(key(0xABCDEF),))
    lower = key(0xABCDEF).lower()
    named = keys_named(opened, lower, limit=9)
    assert named.unique_keys == (lower,)
    assert [*map(said, named.notes)] == [f"case counts, and this is known: {key(0xABCDEF)}, {go}"]
    assert keys_named(opened, key(0xABCDE), limit=9).notes == ()


def test_a_repair_never_chooses_among_several_messages_of_one_business_id(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    written(url, (1, "order-1", 1_000), (2, "order-1", 2_000), (3, "order-2", 3_000))
    written(url, (4, "order-2", 4_000), (5, "order-3", 5_000), topic="PARCELS")
    with Connections(settings_of(tmp_path, url)) as connections:
        with pytest.raises(InvalidValue) as refused:
            _named(connections, "order-1", topic=None, dry_run=False)
        told = f"{key(2)} of ORDERS, NEW, written 1970-01-01T00:00:02Z; {key(1)} of ORDERS, NEW, written"
        assert told in str(refused.value)
        assert _named(connections, "order-1", topic=None, dry_run=True).unique_keys == (key(2), key(1))
        assert _named(connections, "order-2", topic=None, dry_run=False).unique_keys == (key(3),)
        with pytest.raises(InvalidValue, match="of other topics"):
            _named(connections, "order-3", topic=None, dry_run=False)


def test_while_an_outbox_is_away_nothing_is_chosen_and_what_the_others_have_is_shown(
    tmp_path: Path, new_database_url: Callable[[], str]
) -> None:
    here = new_database_url()
    written(here, (1, "order-1", 1))
    with Connections(settings_of(tmp_path, here, "postgresql://nobody@127.0.0.1:1/none")) as connections:
        seen = messages_of(connections, "order-1", limit=9)
        assert seen.unique_keys == (key(1),)
        assert [said(line).partition(":")[0] for line in seen.away] == ["outbox of shop-1"]
        with pytest.raises(DependencyAway, match="outbox of shop-1"):
            keys_named(connections, "order-1", limit=9)


def test_a_row_that_nobody_can_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    written(url, (1, "order-1", 1), (2, "order-1", 2))
    with begun(url) as connection:
        connection.execute(sa.update(outbox).where(outbox.c.unique_key == key(2)).values(state="GONE"))
    with Connections(settings_of(tmp_path, url)) as connections:
        seen = messages_of(connections, "order-1", limit=9)
        assert seen.unique_keys == (key(1),)
        assert "reconciler_outbox.state is 'GONE'" in " ".join(map(said, seen.damaged))
        with pytest.raises(InvalidValue, match="GONE"):
            _named(connections, "order-1", topic=None, dry_run=False)


def test_a_listing_of_a_business_id_shows_the_rows_of_its_messages_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/orders.db"
    written(url, (1, "order-1", 1), (2, "order-2", 2))
    settings = settings_of(tmp_path, url)
    with Connections(settings) as connections:
        for number in (1, 2):
            intent = Intent(
                by="anna", command="repair", topic="ORDERS", group="billing", unique_key=key(number), detail=""
            )
            connections.ledger.actions.begin(settings.environment, intent)
        listed = list_rows(connections, "actions", only=LedgerFilter(), limit=9, name="order-1")
        assert [row[5] for row in listed.rows] == [key(1)]
        assert len(list_rows(connections, "actions", only=LedgerFilter(), limit=9).rows) == 2


def test_a_listing_of_a_misspelt_topic_or_group_is_no_calm(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f"sqlite:///{tmp_path}/orders.db")
    with Connections(settings) as connections:
        found = list_rows(connections, "candidates", only=LedgerFilter(topic="ODERS", group="biling"), limit=9)
        right = list_rows(connections, "candidates", only=LedgerFilter(topic="ORDERS", group="billing"), limit=9)
    assert [*map(said, found.notes)] == [
        f"no [[subscriptions]] section has the {what}" for what in ("topic 'ODERS'", "group 'biling'")
    ]
    assert right.notes == []


def test_a_text_longer_than_any_name_is_neither_asked_for_nor_repeated_in_full() -> None:
    with pytest.raises(InvalidValue, match="161 characters; a business id has 160 at most") as caught:
        require_name("x" * 161)
    assert len(str(caught.value)) < 161
    assert require_name("x" * 160)
