"""MariaDB without a STRICT mode: a business id that it would change on write has no effect under another one's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from checkback_consumers.effect import Inbox, SqlInbox
from checkback_consumers.handler import TransactionalHandler
from checkback_consumers.inbox import InboxAnswer, InboxEntry
from checkback_consumers.message import ConsumedMessage, business_id
from reconciler.errors import InvalidValue
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.sql.tables import inbox
from tests.integration.consumers.faces import InboxInLoop
from tests.integration.producers.faces import async_engine
from tests.services.mariadb import MariaDBServer
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message, new_key

pytestmark = pytest.mark.sql("mariadb")

MONEY_BAG = "\N{MONEY BAG}"


@pytest.fixture
def engine(mariadb_server: MariaDBServer) -> Iterator[sa.Engine]:
    """An inbox whose business ids have three bytes a character."""
    with inbox_engine(mariadb_server.create_database()) as opened:
        with opened.begin() as connection:
            change = "MODIFY dedupe_key VARCHAR(160) CHARACTER SET utf8 COLLATE utf8_bin"
            connection.exec_driver_sql(f"ALTER TABLE reconciler_inbox {change}")
        yield opened


def lenient(engine: sa.Engine) -> Callable[[], Any]:
    """Connections of a service in a legacy mode."""
    url = make_url(engine.url)

    def connect() -> Any:
        return pymysql.connect(
            host=url.host, port=url.port or 3306, user=url.username, password=url.password or "",
            database=url.database, charset="utf8mb4", init_command="SET SESSION sql_mode = ''",
        )  # fmt: skip

    return connect


@pytest.fixture(params=["threads", "asyncio"])
def box(request: pytest.FixtureRequest, engine: sa.Engine) -> Iterator[Inbox]:
    """The inbox of such a service: cases with it hold on both faces."""
    if request.param == "threads":
        yield SqlInbox(lenient(engine))
        return
    legacy = engine.url.update_query_dict({"init_command": "SET SESSION sql_mode = ''"})
    made = InboxInLoop(request.getfixturevalue("loop"), async_engine(legacy.render_as_string(hide_password=False)))
    yield made
    made.close()


def pay(unique_key: str) -> Callable[[Any], object]:
    def effect(connection: Any) -> None:
        raw = connection.connection if isinstance(connection, sa.Connection) else connection
        with closing(raw.cursor()) as cursor:
            cursor.execute("INSERT INTO effects (unique_key, amount) VALUES (%s, 1)", (unique_key,))

    return effect


def entry(**changes: Any) -> InboxEntry:
    return InboxEntry(group="billing", unique_key=new_key(), topic="ORDERS", **changes)


def test_a_business_id_that_would_become_question_marks_has_no_effect(engine: sa.Engine, box: Inbox) -> None:
    asked = entry(dedupe_key=f"order {MONEY_BAG}")
    with pytest.raises(InvalidValue, match=r"reconciler_inbox\.dedupe_key = .*utf8mb4"):
        box.apply_once(asked, pay(asked.unique_key))
    assert effect_count(engine) == 0
    with engine.connect() as connection:
        assert connection.execute(sa.select(inbox.c.unique_key)).all() == []


def test_a_business_id_that_the_column_can_hold_has_its_effect_once(engine: sa.Engine, box: Inbox) -> None:
    one, again = entry(dedupe_key="订单 1"), entry(dedupe_key="订单 1")
    assert box.apply_once(one, pay(one.unique_key)) is InboxAnswer.NEW
    assert box.apply_once(again, pay(again.unique_key)) is InboxAnswer.DUPLICATE_BUSINESS
    assert effect_count(engine) == 1


def test_a_group_that_is_cut_has_no_effect(engine: sa.Engine, box: Inbox) -> None:
    asked = InboxEntry(group="g" * 161, unique_key=new_key(), topic="ORDERS")
    with pytest.raises(InvalidValue, match=r"reconciler_inbox\.consumer_group"):
        box.apply_once(asked, pay(asked.unique_key))
    assert effect_count(engine) == 0


def test_the_message_comes_again_until_the_column_can_hold_its_business_id(engine: sa.Engine, box: Inbox) -> None:
    def handle(received: ConsumedMessage, connection: Any) -> None:
        pay(received.unique_key or "")(connection)

    handler = TransactionalHandler(handle, group="billing", inbox=box, dedupe_by=business_id)
    received = message(BUSINESS_ID=f"order {MONEY_BAG}")
    assert handler(received) is ConsumeStatus.RECONSUME_LATER
    with engine.begin() as connection:
        change = "MODIFY dedupe_key VARCHAR(160) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        connection.exec_driver_sql(f"ALTER TABLE reconciler_inbox {change}")
    assert handler(received) is ConsumeStatus.CONSUME_SUCCESS
    assert effect_count(engine, received.unique_key) == 1


def test_plain_texts_of_fitting_length_cost_no_statement(engine: sa.Engine) -> None:
    """On one face: both send what one procedure makes, and here its statements are counted."""
    counts: dict[str, int] = {}
    for dedupe_key in ("order 0", "order 1", "订单 2"):  # with the first one the inbox is asked for its columns
        sent: list[str] = []
        with engine.connect() as connection:
            sa.event.listen(connection, "before_cursor_execute", lambda _1, _2, sql, *_, s=sent: s.append(sql))
            SqlInbox(lambda c=connection: c).apply_once(  # type: ignore[misc]  # the default binds the loop's value
                entry(dedupe_key=dedupe_key), lambda c: c.execute(effects.insert().values(unique_key="k", amount=1))
            )
        counts[dedupe_key] = len(sent)
    assert counts["订单 2"] - counts["order 1"] == 1
