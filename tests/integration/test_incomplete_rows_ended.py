"""reconciler incomplete: a person accepts or deletes the rows of handlers that committed halfway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import transactional_handler
from checkback_consumers.inbox import InboxAnswer
from checkback_consumers.message import ConsumedMessage, HandedOverMessage
from reconciler.cli.app import run
from reconciler.commands.acts.incomplete import WantedEnding, end_incomplete
from reconciler.contract.least_rights import INCOMPLETE, RUN, grants
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, Ending
from reconciler.contract.verdicts import Verdict
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.inquiry.delivery import EFFECTS_SEEN_MS, late_effects_ms
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.incomplete_rows import IncompleteRows
from reconciler.sql.tables import inbox
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.connections import Connections
from tests.settings_file import settings_file
from tests.unit.consumers.messages import business, effect_count, effects, message, new_key

OF = Subscription(environment="test", topic="ORDERS", group="billing")
HOUR_MS = 3_600_000


class Shop:
    """A ledger, an inbox, and a handler that commits halfway until it is mended."""

    def __init__(self, ledger_url: str, inbox_url: str, folder: Path) -> None:
        schema.upgrade(ledger_url, "ledger")
        schema.upgrade(inbox_url, "inbox")
        self.inbox_url = inbox_url
        self.ledger_engine, self.engine = open_engine(ledger_url), open_engine(inbox_url)
        business.create_all(self.engine)
        self.ledger = SqlLedger(self.ledger_engine)
        self.settings = folder / "reconciler.toml"
        self.write_settings(ledger_url, inbox_url)
        self.is_mended = False
        self.bill = transactional_handler(self.engine, group="billing")(self.handle)

    def write_settings(self, ledger_url: str, inbox_url: str) -> None:
        settings_file(self.settings.parent, ledger_url=ledger_url, of_subscription=f'inbox_url = "{inbox_url}"')

    def handle(self, received: ConsumedMessage, connection: sa.Connection) -> None:
        connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))
        if not self.is_mended:
            connection.exec_driver_sql("COMMIT")

    def halfway(self, unique_key: str | None = None, *, is_old: bool = True) -> HandedOverMessage:
        """A message whose handler has committed halfway, and whose key the reconciler has judged."""
        received = message(unique_key)
        assert self.bill(received) is ConsumeStatus.RECONSUME_LATER
        if is_old:
            with self.engine.begin() as connection:
                older = inbox.c.applied_at_ms - HOUR_MS
                of_key = inbox.c.unique_key == received.unique_key
                connection.execute(sa.update(inbox).where(of_key).values(applied_at_ms=older))
        seen = VerdictEntry(
            unique_key=received.unique_key, verdict=Verdict.INCOMPLETE, evidence={}, first_seen_ms=1,
            state=CandidateState.QUARANTINED, wait_seconds=0.0,
        )  # fmt: skip
        self.ledger.candidates.record(Shard(subscription=OF, number=0), [seen])
        return received

    def rows(self) -> dict[str, bool]:
        """Key -> whether its row is complete."""
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(inbox.c.unique_key, inbox.c.incomplete)).all()
        return {row.unique_key: row.incomplete is None for row in found}

    def state(self, received: HandedOverMessage) -> CandidateState:
        return self.ledger.candidates.of_keys(OF, [received.unique_key])[received.unique_key].state

    def command(self, *arguments: str) -> int:
        """Runs `reconciler incomplete` of this group."""
        of = ("--topic", "ORDERS", "--group", "billing", "--reason", "looked into the books")
        return run(["incomplete", *arguments, *of, "--config", str(self.settings), "--output", "json"])

    def dismiss(self, received: HandedOverMessage, *arguments: str) -> int:
        """Runs `reconciler dismiss` of its key."""
        of = ("--reason", "paid by hand", "--config", str(self.settings), "--output", "json")
        return run(["dismiss", received.unique_key, *arguments, *of])

    def close(self) -> None:
        self.engine.dispose()
        self.ledger_engine.dispose()


@pytest.fixture
def shop(new_database_url: Callable[[], str], tmp_path: Path) -> Iterator[Shop]:
    made = Shop(f"sqlite:///{tmp_path / 'ledger.db'}", new_database_url(), tmp_path)
    yield made
    made.close()


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_an_accepted_effect_is_a_duplicate_again_and_its_key_is_judged_anew(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, other = shop.halfway(), shop.halfway()
    assert shop.command("accept", ours.unique_key, "--dry-run") == 0
    assert [row["outcome"] for row in told(capsys)["keys"]] == ["would be accepted"]
    assert not any(shop.rows().values())
    assert shop.command("accept", ours.unique_key) == 0
    assert shop.rows() == {ours.unique_key: True, other.unique_key: False}
    assert shop.bill.apply(ours) is InboxAnswer.DUPLICATE
    assert shop.bill(other) is ConsumeStatus.RECONSUME_LATER
    assert (shop.state(ours), shop.state(other)) == (CandidateState.OPEN, CandidateState.QUARANTINED)
    (act,) = shop.ledger.reports.actions("test", only=LedgerFilter(), limit=9).rows
    assert (act.intent.command, act.intent.unique_key) == ("incomplete accept", ours.unique_key)
    assert act.result == "1 rows accepted"


def test_a_row_whose_handler_may_be_at_work_is_left_unless_a_person_says_that_none_is(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    received = shop.halfway(is_old=False)
    for only_shown in (["--dry-run"], []):
        assert shop.command("delete", received.unique_key, *only_shown) == 4
        (row,) = told(capsys)["keys"]
        assert row["outcome"].startswith("younger than 15 minutes, its handler may run: left")
    assert shop.rows() == {received.unique_key: False}
    assert shop.command("delete", received.unique_key, "--also-young") == 0
    assert shop.rows() == {}


def test_a_deleted_row_lets_the_next_delivery_run_the_handler(shop: Shop) -> None:
    received = shop.halfway()
    shop.is_mended = True
    assert shop.bill(received) is ConsumeStatus.RECONSUME_LATER, "a mended handler alone does not run twice"
    with shop.engine.begin() as connection:
        connection.execute(sa.delete(effects))  # the person undoes the half
    assert shop.command("delete", received.unique_key) == 0
    assert shop.bill.apply(received) is InboxAnswer.NEW
    assert shop.rows() == {received.unique_key: True}
    assert effect_count(shop.engine) == 1


def test_the_row_of_a_dismissed_key_is_not_deleted_before_the_dismissal_is_taken_back(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its row the next delivery would have an effect, beside what was done by hand."""
    received, other = shop.halfway(), shop.halfway()
    assert shop.dismiss(received) == 0
    capsys.readouterr()
    for how in (["--all", "--dry-run"], [received.unique_key], ["--all", "--yes"]):
        assert shop.command("delete", *how) == 4
        outcomes = {row["unique_key"]: row["outcome"] for row in told(capsys)["keys"]}
        assert outcomes.pop(received.unique_key) == (
            f"a person dismissed it, and its message would take effect: left (reconciler dismiss {received.unique_key} "
            "--take-back)"
        )
        assert "left" not in outcomes.get(other.unique_key, "")
    assert shop.rows() == {received.unique_key: False}
    assert shop.dismiss(received, "--take-back") == 0
    assert shop.command("delete", received.unique_key) == 0
    assert shop.rows() == {}


def test_a_row_is_left_whose_key_is_dismissed_while_a_person_confirms(shop: Shop) -> None:
    received = shop.halfway()
    wanted = WantedEnding(
        topic="ORDERS", group="billing", ending=Ending.DELETE, reason="undone", by="ann",
        confirm=lambda _: shop.dismiss(received) == 0,
    )  # fmt: skip
    with Connections(load_settings(shop.settings, {})) as connections:
        report = end_incomplete(connections, wanted, dry_run=False)
    assert report is not None
    assert report.exit_code == 4
    assert shop.rows() == {received.unique_key: False}


def test_a_key_that_was_dismissed_stays_so_when_its_row_is_accepted_afterwards(shop: Shop) -> None:
    received = shop.halfway()
    assert shop.dismiss(received) == 0
    (row,) = shop.ledger.candidates.of_keys(OF, [received.unique_key]).values()
    assert row.ask_again_at_ms is not None
    assert shop.command("accept", received.unique_key) == 0
    assert shop.rows() == {received.unique_key: True}
    assert shop.state(received) is CandidateState.SETTLED
    (effect,) = SqlInboxEvidence({OF: [shop.engine]}).look_up(OF, [received.unique_key]).values()
    assert late_effects_ms(row, effect) == frozenset(), "it is the row that was there"
    assert late_effects_ms(replace(row, evidence={EFFECTS_SEEN_MS: []}), effect) != frozenset()


def test_all_of_a_group_are_ended_at_once_and_those_whose_handler_may_run_are_left(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [shop.halfway() for _ in range(3)]
    young = shop.halfway(is_old=False)
    elsewhere = transactional_handler(shop.engine, group="stock")(shop.handle)
    of_others = message()
    assert elsewhere(of_others) is ConsumeStatus.RECONSUME_LATER
    assert shop.command("accept", "--all", "--yes") == 4, "one is left, and the exit code says so"
    outcomes = {row["unique_key"]: row["outcome"] for row in told(capsys)["keys"]}
    assert [outcomes[one.unique_key] for one in old] == ["accepted"] * 3
    assert "left" in outcomes[young.unique_key]
    found = shop.rows()
    assert [found[one.unique_key] for one in (*old, young, of_others)] == [True, True, True, False, False]


def test_what_changed_since_it_was_shown_is_left(shop: Shop) -> None:
    """Somebody deletes a row, and a redelivery of the same key commits halfway again."""
    received = shop.halfway()
    rows = IncompleteRows(shop.engine, OF)
    seen = rows.of_keys([received.unique_key])
    with shop.engine.begin() as connection:
        connection.execute(sa.delete(inbox))
    assert shop.bill(received) is ConsumeStatus.RECONSUME_LATER
    assert rows.end(seen, Ending.ACCEPT) == set()
    assert rows.end(seen, Ending.DELETE) == set()
    assert shop.rows() == {received.unique_key: False}
    assert rows.end(rows.of_keys([received.unique_key]), Ending.ACCEPT) == {received.unique_key}


def test_a_key_without_an_incomplete_row_is_told(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    key = new_key()
    assert shop.command("accept", key) == 4
    assert told(capsys)["keys"][0]["outcome"] == "no incomplete row"
    known = shop.halfway(f"AB{new_key()[2:]}").unique_key
    assert shop.command("accept", known.lower()) == 4
    assert told(capsys)["keys"][0]["outcome"] == f"no incomplete row; case counts, and this is known: {known}"
    assert shop.command("accept") == 2
    assert shop.command("accept", key, "--all") == 2


@pytest.mark.sql("postgres")
def test_a_login_that_only_reads_is_refused_by_name_and_the_owners_url_does_it(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(f"sqlite:///{tmp_path / 'ledger.db'}", postgres_url, tmp_path)
    logins: dict[str, str] = {}
    with shop.engine.begin() as connection:
        for role in (RUN, INCOMPLETE):
            name = logins[role.name] = f"{role.name}_{new_key()[-6:].lower()}"
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
            for grant in grants(role.inbox, login=name, is_mysql=False):
                connection.exec_driver_sql(grant)
    urls = {
        role: shop.engine.url.set(username=name, password="x", drivername="postgresql").render_as_string(
            hide_password=False
        )
        for role, name in logins.items()
    }
    try:
        received = shop.halfway()
        shop.write_settings(f"sqlite:///{tmp_path / 'ledger.db'}", urls["run"])
        assert shop.command("accept", received.unique_key) == 2
        assert "UPDATE (incomplete)" in capsys.readouterr().err
        owner = tmp_path / "owner_url"
        owner.write_text(urls["incomplete"])
        assert shop.command("accept", received.unique_key, "--url", f"@{owner}") == 0
        assert shop.rows() == {received.unique_key: True}
    finally:
        with shop.engine.begin() as connection:
            for name in logins.values():
                connection.exec_driver_sql(f"DROP OWNED BY {name}")
                connection.exec_driver_sql(f"DROP ROLE {name}")
        shop.close()
