"""reconciler group rename: what it leaves in inbox, ledger and brokers, also where it died or two persons came."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.cli.app import run
from reconciler.commands.doctor.checks import examine
from reconciler.commands.renaming import group_rename
from reconciler.commands.renaming.group_rename import RenameReport, WantedRename, rename_group
from reconciler.commands.renaming.renamed_groups import told_of_renames
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.errors import ChangedMeanwhile
from reconciler.ledger.candidates import SqlCandidates
from reconciler.ledger.operator_actions import SqlOperatorActions
from reconciler.ledger.rounds import SqlRounds
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.push_consumer import ConsumeFrom, ConsumeStatus, PushConsumer, PushSettings
from reconciler.rocketmq.wire.message import Message
from reconciler.settings.file import load_settings
from reconciler.sql import renamed_group, schema
from reconciler.sql.engines import open_engine
from reconciler.sql.renamed_group import RenamedRows
from reconciler.sql.tables import idempotency_key, inbox, operator_action
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import begun, disposed
from tests.integration.consumers.test_renamed_rows import row
from tests.polling import eventually
from tests.services.patient_instance import patient_client, patient_instance
from tests.services.rocketmq import RealBroker
from tests.settings_file import settings_file
from tests.unit.consumers.messages import new_key

ENVIRONMENT, TOPIC, OLD, NEW = "test", "ORDERS", "billing", "invoices"
KEYS = [f"{number:032X}" for number in range(4)]


def of(group: str) -> Subscription:
    return Subscription(environment=ENVIRONMENT, topic=TOPIC, group=group)


class Shop:
    """A topic of one queue with three messages, which the old group has passed, and two inboxes with its rows."""

    def __init__(
        self, broker: EmbeddedBroker | RealBroker, folder: Path, new_url: Callable[[], str] | None = None
    ) -> None:
        self.broker, self.folder = broker, folder
        self.broker_name = broker.name if isinstance(broker, RealBroker) else "embedded"
        numbers = itertools.count()
        new_url = new_url or (lambda: f"sqlite:///{folder}/database-{next(numbers)}.db")
        self.inboxes = [new_url() for _ in range(2)]
        self.ledger_url, self.settings = new_url(), folder / "reconciler.toml"
        schema.upgrade(self.ledger_url, "ledger")
        for number, url in enumerate(self.inboxes):
            schema.upgrade(url, "inbox")
            self.write(url, row(number))
        self.write_settings(self.inboxes)
        self.client = patient_client()
        admin = Admin(self.client)
        admin.create_topic(broker.address, TOPIC, queues=1)
        admin.create_group(broker.address, OLD)
        self.send(TOPIC, 3)
        self.pass_to(3)

    def write_settings(self, inboxes: list[str]) -> None:
        settings_file(
            self.folder,
            "rocketmq.request_timeout_seconds = 20",
            environment=ENVIRONMENT,
            name_servers=self.broker.name_servers,
            ledger_url=self.ledger_url,
            topic=TOPIC,
            group=OLD,
            of_subscription=f"inbox_url = {json.dumps(inboxes)}" if inboxes else "",
        )

    @staticmethod
    def write(url: str, *rows: dict[str, Any]) -> None:
        with begun(url) as connection:
            connection.execute(sa.insert(inbox), list(rows))

    def send(self, topic: str, count: int, *, delay_level: int | None = None) -> str:
        """Returns the last one's key."""
        with patient_instance(self.broker.name_servers) as instance:
            for number in range(count):
                message = Message(topic=topic, body=b"%d" % number, delay_level=delay_level)
                sent = instance.sender("shop").send(message)
        return sent.unique_key

    def queue(self, topic: str = TOPIC) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=self.broker_name, queue_id=0)

    def pass_to(self, offset: int) -> None:
        Offsets(self.client).store(self.broker.address, self.queue(), OLD, offset)

    def offset(self, group: str) -> int | None:
        return Offsets(self.client).of_group(self.broker.address, self.queue(), group)

    def rename(
        self, capsys: pytest.CaptureFixture[str], *options: str, new: str = NEW, pulls: bool = True
    ) -> tuple[int, dict[str, Any]]:
        options = (*options, "--pulls") if pulls else options
        code = run(["group", "rename", OLD, new, "--config", str(self.settings), "--output", "json", *options])
        written = capsys.readouterr()
        return code, json.loads(written.out) if written.out else {"said": written.err}

    def rows(self, group: str) -> list[int]:
        """Of each inbox."""
        counts = []
        for url in self.inboxes:
            with disposed(open_engine(url)) as engine, engine.connect() as connection:
                query = sa.select(sa.func.count()).select_from(inbox).where(inbox.c.consumer_group == group)
                counts.append(connection.execute(query).scalar_one())
        return counts


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """On a broker of the family that a test names, else of 5.x."""
    with EmbeddedBroker(family=getattr(request, "param", "5.x")) as broker:
        made = Shop(broker, tmp_path)
        yield made
        made.client.close()


@pytest.fixture
def ledger(shop: Shop) -> Iterator[SqlLedger]:
    with disposed(open_engine(shop.ledger_url)) as engine:
        yield SqlLedger(engine, english=said)


def test_a_dry_run_shows_what_would_be_done_and_changes_nothing(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = shop.rename(capsys, "--dry-run")
    assert (code, report["done"], report["refused"]) == (0, False, [])
    assert [(one["rows"], one["missing"], one["copied"]) for one in report["inboxes"]] == [(1, 1, None)] * 2
    assert [one["offset"] for one in report["offsets"]] == [3]
    assert (shop.rows(NEW), shop.offset(NEW)) == ([0, 0], None)


def test_rows_of_every_inbox_offsets_and_what_the_ledger_knows_get_the_new_name(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.rounds.begin(of(OLD), at_ms=5)
    closed = VerdictEntry(
        unique_key=KEYS[0], verdict=Verdict.DELIVERED_NOT_APPLIED, evidence={}, first_seen_ms=1,
        state=CandidateState.QUARANTINED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=of(OLD), number=0), [closed])
    for copied in (1, 0):  # a second time it finds nothing to do
        code, report = shop.rename(capsys, "--yes")
        assert (code, report["done"], [one["copied"] for one in report["inboxes"]]) == (0, True, [copied] * 2)
    assert (shop.rows(OLD), shop.rows(NEW), shop.offset(NEW)) == ([1, 1], [1, 1], 3)
    assert SqlLedger(ledger.database.engine).rounds.since_ms(of(NEW)) == 5
    moved = ledger.candidates.of_keys(of(NEW), KEYS)
    assert moved[KEYS[0]].state is CandidateState.QUARANTINED
    assert not ledger.candidates.of_keys(of(OLD), KEYS)
    (act, _) = ledger.reports.actions(ENVIRONMENT, limit=5).rows
    assert (act.intent.command, act.intent.group) == ("group rename", OLD)


def test_a_round_under_the_new_name_before_the_rename_hides_nothing_and_takes_back_no_dismissal(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings and `run` came first; the old settings were put back then."""
    ledger.rounds.begin(of(OLD), at_ms=5)
    ledger.rounds.begin(of(NEW), at_ms=9)
    verdict = VerdictEntry(
        unique_key=KEYS[0], verdict=Verdict.QUARANTINED, evidence={"dismissed_by": "ann"}, first_seen_ms=1,
        state=CandidateState.SETTLED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=of(OLD), number=0), [verdict])
    anew = replace(verdict, state=CandidateState.QUARANTINED, evidence={})
    ledger.candidates.record(Shard(subscription=of(NEW), number=0), [anew])
    code, report = shop.rename(capsys, "--yes")
    assert (code, report["notes"][:-1]) == (0, [])  # the last one: the group was made
    assert SqlLedger(ledger.database.engine).rounds.since_ms(of(NEW)) == 5
    assert ledger.candidates.of_keys(of(NEW), KEYS)[KEYS[0]].is_dismissed


def test_a_time_that_the_login_may_not_change_is_left_to_a_person(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/integration/ledger/test_since_without_rights.py has the login."""
    ledger.rounds.begin(of(OLD), at_ms=5)
    monkeypatch.setattr(SqlRounds, "rename", lambda *_: False)
    _, report = shop.rename(capsys, "--yes")
    assert 'set `since = "1970-01-01T00:00:00.005' in report["notes"][0]


def test_a_group_that_had_no_round_answers_from_its_new_name_on(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop.rename(capsys, "--yes")[0] == 0
    noted = SqlLedger(ledger.database.engine).rounds
    assert noted.since_ms(of(NEW)) == noted.since_ms(of(OLD)) != 0


def closes(ledger: SqlLedger, key: str) -> None:
    """A round has given the key to people."""
    closed = VerdictEntry(
        unique_key=key, verdict=Verdict.DELIVERED_NOT_APPLIED, evidence={}, first_seen_ms=1,
        state=CandidateState.QUARANTINED, wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=of(OLD), number=0), [closed])


def test_an_effect_that_a_replay_worker_has_meanwhile_is_copied_before_the_new_name_goes_on(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """No broker knows the worker, and no offset moves by it. What was closed is closed for the old name meanwhile."""
    closes(ledger, KEYS[0])
    pages = itertools.count()

    def works(_seen: int, _of: int) -> None:
        if next(pages) == 1:
            shop.write(shop.inboxes[0], row(7))

    wanted = WantedRename(old=OLD, new=NEW, by="anna", pulls=True, progress=works)
    with (
        closing(Connections(load_settings(shop.settings, {}))) as connections,
        pytest.raises(ChangedMeanwhile, match=OLD),
    ):
        rename_group(connections, wanted, dry_run=False)
    assert set(ledger.candidates.of_keys(of(OLD), KEYS)) == {KEYS[0]}
    code, report = shop.rename(capsys, "--yes")
    assert (code, [one["copied"] for one in report["inboxes"]]) == (0, [1, 0])
    assert (shop.rows(OLD), shop.rows(NEW), shop.offset(NEW)) == ([2, 1], [2, 1], 3)


class Killed(BaseException):
    """As by kill -9."""


def test_a_rename_that_died_in_the_ledger_and_is_run_again_gives_back_what_was_closed(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old name goes on for a while: its rounds could send what was dismissed."""
    closes(ledger, KEYS[0])
    rename = SqlCandidates.rename

    def dies(*names: Any) -> int:
        rename(*names)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SqlCandidates, "rename", dies)
        patched.setattr(group_rename, "_give_back", lambda *_: None)
        patched.setattr(SqlOperatorActions, "end", lambda *_, **__: None)
        with suppress(Killed):
            shop.rename(capsys, "--yes")
    assert set(ledger.candidates.of_keys(of(NEW), KEYS)) == {KEYS[0]}
    shop.send(TOPIC, 1)
    for options in (("--dry-run",), ("--yes",)):
        owner = NEW if "--dry-run" in options else OLD
        assert shop.rename(capsys, *options)[0] == 1
        assert set(ledger.candidates.of_keys(of(owner), KEYS)) == {KEYS[0]}
    shop.pass_to(4)
    assert shop.rename(capsys, "--yes")[0] == 0
    shop.send(TOPIC, 1)
    assert shop.rename(capsys, "--yes")[0] == 1  # it has an end: nothing goes back
    assert set(ledger.candidates.of_keys(of(NEW), KEYS)) == {KEYS[0]}


def test_a_rename_that_is_ended_in_the_ledger_leaves_what_was_closed_to_the_old_name(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closes(ledger, KEYS[0])
    rename = SqlCandidates.rename

    def is_ended(*names: Any) -> int:
        if rename(*names) and names[-1] == of(NEW):
            raise KeyboardInterrupt
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(SqlCandidates, "rename", is_ended)
        with suppress(KeyboardInterrupt):
            shop.rename(capsys, "--yes")
    assert set(ledger.candidates.of_keys(of(OLD), KEYS)) == {KEYS[0]}
    assert shop.rename(capsys, "--yes")[0] == 0
    assert set(ledger.candidates.of_keys(of(NEW), KEYS)) == {KEYS[0]}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.sql("postgres"))])
def two_persons(request: pytest.FixtureRequest, shop: Shop) -> Shop:
    """Ledger and inboxes on the database that the parameter names."""
    if request.param != "sqlite":
        text, before = shop.settings.read_text(), [shop.ledger_url, *shop.inboxes]
        url = request.getfixturevalue("postgres_url")
        schema.upgrade(url, "ledger")
        schema.upgrade(url, "inbox")
        shop.write(url, row(0))
        shop.ledger_url, shop.inboxes = url, [url]
        text = text.replace(json.dumps(before[1:]), json.dumps([url]))
        shop.settings.write_text(text.replace(before[0], url))
    return shop


@pytest.mark.parametrize("pair", [(OLD, NEW), (OLD, "receipts"), (NEW, OLD)], ids="-".join)
def test_while_a_person_renames_a_group_nobody_else_renames_it(two_persons: Shop, pair: tuple[str, str]) -> None:
    """The second one comes at each step: the same pair, another new name, and back."""
    shop, (old, new), told = two_persons, pair, list[str]()
    other = shop.folder / "other.toml"
    other.write_text(shop.settings.read_text().replace(f'group = "{OLD}"', f'group = "{old}"'))

    def comes(*_: object) -> bool:
        with closing(Connections(load_settings(other, {}))) as connections:
            second = WantedRename(old=old, new=new, by="bert", pulls=True)
            report = rename_group(connections, second, dry_run=False)
        assert report is not None
        told.extend(report.refused)
        return not report.is_done

    def copies(seen: int, of: int) -> None:
        comes(seen, of)

    wanted = WantedRename(old=OLD, new=NEW, by="anna", pulls=True, confirm=comes, progress=copies)
    with closing(Connections(load_settings(shop.settings, {}))) as connections:
        report = rename_group(connections, wanted, dry_run=False)
    assert report is not None
    assert report.is_done
    assert set(told) == {"another rename is at work, or has died in the last 60 seconds"}
    assert (shop.rows(NEW), shop.rows("receipts"), shop.offset(NEW)) == (shop.rows(OLD), [0] * len(shop.inboxes), 3)


def test_of_persons_who_rename_at_the_same_moment_one_does_it_and_the_others_are_refused(two_persons: Shop) -> None:
    shop, names, begin = two_persons, [NEW, NEW, "receipts", "receipts"], Barrier(4)

    def renames_to(name: str) -> RenameReport | None:
        with closing(Connections(load_settings(shop.settings, {}))) as connections:
            begin.wait(timeout=60)
            return rename_group(connections, WantedRename(old=OLD, new=name, by=name, pulls=True), dry_run=False)

    with ThreadPoolExecutor(len(names)) as pool:
        reports = [report for report in pool.map(renames_to, names) if report is not None]
    done = {report.new for report in reports if report.is_done}
    assert len(done) == 1, reports
    assert all(report.is_done != bool(report.refused) for report in reports)
    ((name,), (other,)) = done, {NEW, "receipts"} - done
    assert (shop.rows(name), shop.rows(other)) == (shop.rows(OLD), [0] * len(shop.inboxes))
    assert (shop.offset(name), shop.offset(other)) == (3, None)


def test_the_place_of_a_person_who_died_is_taken_and_who_wakes_up_goes_no_further(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    closes(ledger, KEYS[0])

    def sleeps(_seen: int, _of: int) -> None:
        with ledger.database.engine.begin() as connection:
            connection.execute(sa.update(idempotency_key).values(lease_until_ms=1))
        assert shop.rename(capsys, "--yes")[0] == 0

    wanted = WantedRename(old=OLD, new=NEW, by="anna", pulls=True, progress=sleeps)
    with (
        closing(Connections(load_settings(shop.settings, {}))) as connections,
        pytest.raises(ChangedMeanwhile, match="another one = at work"),
    ):
        rename_group(connections, wanted, dry_run=False)
    assert set(ledger.candidates.of_keys(of(NEW), KEYS)) == {KEYS[0]}


def test_a_group_that_has_another_name_by_now_or_halfway_gets_no_third_one(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people have closed went to the second name: a round of the third one would send it."""
    with monkeypatch.context() as patched:
        patched.setattr(SqlOperatorActions, "end", lambda *_, **__: None)
        assert shop.rename(capsys, "--yes")[0] == 0
    halfway = f"the rename of {OLD} to {NEW} has no end: run that again first"
    assert shop.rename(capsys, "--yes", new="receipts")[1]["refused"] == [halfway]
    assert shop.rename(capsys, "--yes")[0] == 0
    done = f"{OLD} is {NEW} by a rename: give that one another name, or rename it back first"
    assert shop.rename(capsys, "--yes", new="receipts")[1]["refused"] == [done]
    text = shop.settings.read_text()
    shop.settings.write_text(text.replace(f'group = "{OLD}"', f'group = "{NEW}"'))
    assert run(["group", "rename", NEW, OLD, "--config", str(shop.settings), "--yes", "--pulls"]) == 0
    capsys.readouterr()
    shop.settings.write_text(text)
    assert shop.rename(capsys, "--yes", new="receipts")[0] == 0


def test_a_rename_that_dies_leaves_offsets_by_which_the_new_name_repeats_nothing(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of the new name that start all the same would else begin at the oldest message."""

    def dies(*_: object) -> int:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(RenamedRows, "copy", dies)
        patched.setattr(SqlOperatorActions, "end", lambda *_, **__: None)
        with suppress(Killed):
            shop.rename(capsys, "--yes")
    assert (shop.rows(NEW), shop.offset(NEW)) == ([0, 0], 3)
    with closing(Connections(load_settings(shop.settings, {}))) as connections:
        assert [said(line) for line in told_of_renames(connections)] == [
            f"the rename of {OLD} has no end: run `reconciler group rename` again before any member starts"
        ]
    assert shop.rename(capsys, "--yes")[0] == 0
    with closing(Connections(load_settings(shop.settings, {}))) as connections:
        assert list(told_of_renames(connections)) == []


def test_members_that_start_under_the_name_that_was_given_up_are_told(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop.rename(capsys, "--yes")[0] == 0
    text = shop.settings.read_text()
    shop.settings.write_text(text.replace(f'group = "{OLD}"', f'group = "{NEW}"'))
    settings = PushSettings(consume_from=ConsumeFrom.LAST)
    with (
        closing(Connections(load_settings(shop.settings, {}))) as connections,
        patient_instance(shop.broker.name_servers) as instance,
    ):
        assert list(told_of_renames(connections)) == []
        member = PushConsumer(OLD, instance=instance, settings=settings).subscribe(TOPIC, "*")
        with member.register_listener(lambda _: ConsumeStatus.RECONSUME_LATER):
            (line,) = eventually(lambda: list(told_of_renames(connections)), within_seconds=60)
    assert said(line).startswith(f"{OLD} was renamed, and 1 members are connected under that name: stop them")


def test_a_ledger_from_before_the_rename_makes_doctor_ask_nobody_to_configure_the_old_name(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was restored from a backup. Both names have inbox rows of the same keys, written at the same times."""
    assert shop.rename(capsys, "--yes")[0] == 0
    text = shop.settings.read_text()
    shop.settings.write_text(text.replace(f'group = "{OLD}"', f'group = "{NEW}"'))

    def told() -> list[str]:
        with closing(Connections(load_settings(shop.settings, {}))) as connections:
            return [
                one.found
                for one in (each.as_row() for each in examine(connections))
                if one.check == f"group {TOPIC}/{OLD}"
            ]

    assert told() == ["was renamed, and brokers keep its offsets"]
    with ledger.database.engine.begin() as connection:
        connection.execute(sa.delete(operator_action))
    assert told() == [f"reads the topic, is not configured, and its newest inbox rows are those of {NEW}"]
    for url in shop.inboxes:
        with begun(url) as connection:
            later = sa.update(inbox).where(inbox.c.consumer_group == NEW)
            connection.execute(later.values(applied_at_ms=inbox.c.applied_at_ms + 1))
    assert told() == ["reads the topic and is not configured"], "a group of its own has effects of its own"


#: A member whose process is stopped in the middle of a message: its row is written, its effect not committed.
STOPPED_MEMBER = """
import os, signal, sys
from checkback_consumers.effect import InboxEntry, SqlInbox
from reconciler.sql.engines import open_engine
entry = InboxEntry(group="billing", unique_key=sys.argv[2], topic="ORDERS", content_digest=bytes(32))
SqlInbox(open_engine(sys.argv[1])).apply_once(entry, lambda _: os.kill(os.getpid(), signal.SIGSTOP))
"""


@pytest.mark.parametrize("two_persons", [pytest.param("postgres", marks=pytest.mark.sql("postgres"))], indirect=True)
def test_a_member_that_stands_still_in_the_middle_of_a_message_has_its_effect_once_although_no_broker_knows_it(
    two_persons: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renamed_group, "WAIT_SECONDS", 0.5)
    shop, key = two_persons, new_key()
    with subprocess.Popen([sys.executable, "-c", STOPPED_MEMBER, shop.inboxes[0], key]) as member:
        try:
            eventually(
                lambda: os.waitid(os.P_PID, member.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), within_seconds=60
            )
            code, report = shop.rename(capsys, "--yes")
            (why,) = report["refused"]
            assert (code, "is not committed, end its process or transaction: transaction " in why) == (1, True)
            assert (shop.rows(NEW), shop.offset(NEW)) == ([0], None)
            member.send_signal(signal.SIGCONT)
            assert member.wait(timeout=60) == 0
        finally:
            member.kill()
    assert shop.rename(capsys, "--yes")[0] == 0
    assert shop.rows(NEW) == shop.rows(OLD) == [2]
