"""reconciler group rename: what stands in its way."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.contract.least_rights import GROUP_RENAME, RUN, grants
from reconciler.contract.subscription import Shard
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.evidence import waiting_retries
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.consumer.push_consumer import ConsumeFrom, ConsumeStatus, PushConsumer, PushSettings
from reconciler.rocketmq.wire.codes import retry_topic
from reconciler.shards.access import open_client
from reconciler.shards.round_leases import RedisRoundLeases
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import repair, round_row
from reconciler.telling.ports.paging import LedgerFilter
from tests.contract.ledger.rows import round_done
from tests.integration import test_group_rename as renaming
from tests.integration.consumers.test_renamed_rows import row
from tests.integration.test_group_rename import ENVIRONMENT, KEYS, NEW, OLD, TOPIC, Shop, of
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer
from tests.unit.consumers.messages import new_key

#: The fixtures of the tests that let it happen.
shop, ledger = renaming.shop, renaming.ledger


def test_half_of_an_effect_is_ended_before_its_group_gets_another_name(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write(shop.inboxes[1], row(7, incomplete="a transaction"))
    code, report = shop.rename(capsys, "--yes")
    assert (code, ["1 inbox rows of billing are incomplete" in why for why in report["refused"]]) == (1, [True])
    assert (shop.rows(NEW), shop.offset(NEW)) == ([0, 0], None)


def test_urls_that_lead_elsewhere_than_the_settings_stand_in_the_way(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The members of the new name would find no row."""
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    schema.upgrade(empty, "inbox")
    for urls in ([empty, empty], [shop.inboxes[0]], [shop.inboxes[0], empty]):
        code, report = shop.rename(capsys, "--yes", *(part for url in urls for part in ("--url", url)))
        assert (code, ["--url leads elsewhere than inbox_url" in why for why in report["refused"]]) == (1, [True])
    assert shop.rows(NEW) == [0, 0]
    code, report = shop.rename(capsys, "--yes", *(part for url in shop.inboxes for part in ("--url", url)))
    assert (code, report["done"]) == (0, True)


@pytest.mark.parametrize("group", [OLD, NEW])
def test_a_connected_member_of_either_name_stands_in_the_way(
    shop: Shop, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    settings = PushSettings(consume_from=ConsumeFrom.LAST)
    with (
        patient_instance(shop.broker.name_servers) as instance,
        PushConsumer(group, instance=instance, settings=settings)
        .subscribe(TOPIC, "*")
        .register_listener(lambda _: ConsumeStatus.RECONSUME_LATER),
    ):
        code, report = shop.rename(capsys, "--yes", "--leave-waiting")
    assert code == 1
    assert any(f"members are connected, stop them: {group}: " in why for why in report["refused"])
    assert shop.rows(NEW) == [0, 0]


def test_messages_that_wait_stand_in_the_way_and_only_those_of_topics_may_be_left(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.pass_to(2)
    code, report = shop.rename(capsys, "--yes")
    assert (code, [f"1 in {TOPIC} queue 0" in why for why in report["refused"]]) == (1, [True])
    assert shop.rename(capsys, "--dry-run", "--leave-waiting")[0] == 0
    Admin(shop.client).create_topic(shop.broker.address, retry_topic(OLD), queues=1)
    shop.send(retry_topic(OLD), 2)
    code, report = shop.rename(capsys, "--yes", "--leave-waiting")
    assert (code, [f"2 in {retry_topic(OLD)} queue 0" in why for why in report["refused"]]) == (1, [True])
    assert (shop.rows(NEW), shop.offset(NEW)) == ([0, 0], None)


@pytest.mark.parametrize("shop", ["4.9", "5.x"], indirect=["shop"])
def test_a_failed_message_between_two_tries_stands_in_the_way_although_no_queue_of_the_group_has_it(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in (retry_topic(OLD), retry_topic("stock"), TOPIC):
        Admin(shop.client).create_topic(shop.broker.address, topic, queues=1)
    shop.send(retry_topic("stock"), 40, delay_level=18)
    shop.send(TOPIC, 1, delay_level=17)
    assert shop.rename(capsys, "--dry-run")[0] == 0
    key = shop.send(retry_topic(OLD), 1, delay_level=18)
    code, report = shop.rename(capsys, "--yes", "--leave-waiting")
    assert (code, report["refused"]) == (
        1, [f"failed messages of {OLD} wait for their next try, start it until they are done: {key}"],
    )  # fmt: skip
    monkeypatch.setattr(waiting_retries, "SCANNED_MAX", 10)
    code, report = shop.rename(capsys, "--dry-run")
    assert (code, "embedded has more than 10 delayed messages: failed messages of" in str(report["notes"])) == (0, True)


@pytest.mark.parametrize("shop", ["4.9", "5.x"], indirect=["shop"])
def test_a_retry_that_was_delivered_from_its_delay_waits_in_its_queue_and_nowhere_else(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    Admin(shop.client).create_topic(shop.broker.address, retry_topic(OLD), queues=1)
    shop.send(retry_topic(OLD), 1, delay_level=1)
    waits_there = f"failed messages wait for {OLD}, start it until it has passed them: 1 in {retry_topic(OLD)} queue 0"

    def only_there() -> bool:
        refused = shop.rename(capsys, "--dry-run")[1]["refused"]  # of both, where it is delivered between two looks
        return [why.startswith(waits_there) for why in refused] == [True]

    eventually(only_there, within_seconds=20)


@pytest.mark.parametrize("shop", ["4.4"], indirect=["shop"])
def test_a_broker_that_does_not_show_what_waits_for_its_next_try_is_told_and_stops_no_rename(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = shop.rename(capsys, "--yes")
    assert (code, report["done"]) == (0, True)
    assert "have worked for a grace period after the last member stopped" in report["notes"][0]


def test_what_only_the_old_name_can_end_stands_in_the_way(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = VerdictEntry(
        unique_key=KEYS[1], verdict=Verdict.RETRYING, evidence={}, first_seen_ms=1, state=CandidateState.OPEN,
        wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=of(OLD), number=0), [seen])
    code, report = shop.rename(capsys, "--yes")
    assert (code, [KEYS[1] in why for why in report["refused"]]) == (1, [True])
    assert ledger.reports.candidates(ENVIRONMENT, limit=5, only=LedgerFilter(group=NEW)).rows == []


@pytest.mark.redis
@pytest.mark.parametrize("group", [OLD, NEW])
def test_rounds_of_either_name_stand_in_the_way_until_their_process_has_given_them_up(
    shop: Shop, redis_server: RedisServer, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    text = shop.settings.read_text()
    shop.settings.write_text(text.replace("redis://127.0.0.1:1/0", redis_server.url))
    with closing(open_client(redis_server.url, timeout_seconds=5)) as client:
        leases, shard = RedisRoundLeases(client), Shard(subscription=of(group), number=3)
        token = "host:7:ab"
        assert leases.take(shard, token=token, lease_seconds=60)
        code, report = shop.rename(capsys, "--yes")
        assert (code, report["refused"]) == (
            1, [f"rounds are at work, stop `reconciler run` (one that was killed is over soon): {of(group)}: {token}"],
        )  # fmt: skip
        leases.release(shard, token=token)
        assert shop.rename(capsys, "--yes")[0] == 0


def test_while_redis_is_away_a_young_round_in_the_ledger_says_that_rounds_are_at_work(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.rounds.store(round_done(Shard(subscription=of(OLD), number=3), 1, 1))
    ledger.rounds.store(round_done(Shard(subscription=of("stock"), number=3), 1, 1))
    code, report = shop.rename(capsys, "--yes")
    assert (code, [f": {of(OLD)}" in why for why in report["refused"]]) == (1, [True])
    for older_ms, is_refused in ((100_000, True), (30_000, False)):  # a shard at rest has a round a minute
        with ledger.database.engine.begin() as connection:
            connection.execute(sa.update(round_row).values(stored_at_ms=round_row.c.stored_at_ms - older_ms))
        assert shop.rename(capsys, "--yes")[0] == int(is_refused)


@pytest.mark.parametrize(
    ("scope", "state", "token", "stands"),
    [
        ("*", RepairState.SENT, None, True),
        ("*", RepairState.SENDING, "host:7:ab", True),
        ("*", RepairState.OPEN, "host:7:ab", True),
        ("*", RepairState.OPEN, None, False),
        ("*", RepairState.DONE, None, False),
        ("stock", RepairState.SENT, None, False),
    ],
)
def test_a_copy_that_is_on_its_way_to_the_old_name_stands_in_the_way_and_one_that_other_groups_lack_does_not(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str], scope: str, state: RepairState,
    token: str | None, stands: bool,
) -> None:  # fmt: skip
    lost = VerdictEntry(
        unique_key=KEYS[1], verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=1, state=CandidateState.OPEN,
        wait_seconds=0.0,
    )  # fmt: skip
    ledger.candidates.record(Shard(subscription=of(OLD), number=0), [lost])
    ledger.repairs.open_all(ENVIRONMENT, TOPIC, dict.fromkeys(KEYS[1:3], Rung.END))
    with ledger.database.engine.begin() as connection:
        connection.execute(sa.update(repair).values(scope=scope, state=state.value, token=token, lease_until_ms=1))
    code, report = shop.rename(capsys, "--yes")
    why = f"repairs of {TOPIC} are under way for {OLD}, let `reconciler run` end them: {KEYS[1]}"
    assert (code, report["refused"]) == ((1, [why]) if stands else (0, []))


@pytest.mark.parametrize("state", [RepairState.OPEN, RepairState.SENDING, RepairState.SENT])
def test_a_message_that_is_handed_over_to_the_old_name_stands_in_the_way_until_it_is_done(
    shop: Shop, ledger: SqlLedger, capsys: pytest.CaptureFixture[str], state: RepairState
) -> None:
    scopes = {KEYS[2]: OLD, KEYS[3]: "shipping"}
    ledger.repairs.open_all(ENVIRONMENT, TOPIC, dict.fromkeys(scopes, Rung.HAND_OVER))

    def becomes(state: RepairState) -> None:
        with ledger.database.engine.begin() as connection:
            for key, scope in scopes.items():
                change = sa.update(repair).where(repair.c.unique_key == key)
                connection.execute(change.values(scope=scope, state=state.value))

    becomes(state)
    code, report = shop.rename(capsys, "--yes")
    assert (code, report["refused"]) == (
        1, [f"messages are handed over to {OLD}, let `reconciler replay` end them: {KEYS[2]}"],
    )  # fmt: skip
    assert (shop.rows(NEW), shop.offset(NEW)) == ([0, 0], None)
    becomes(RepairState.DONE)
    assert shop.rename(capsys, "--yes")[0] == 0


@pytest.mark.parametrize(("shop", "is_shown"), [("4.9", True), ("5.x", False)], indirect=["shop"])
def test_where_a_broker_shows_pulling_by_members_only_a_person_says_that_the_group_pulls(
    shop: Shop, capsys: pytest.CaptureFixture[str], is_shown: bool
) -> None:
    code, report = shop.rename(capsys, "--yes", pulls=False)
    assert (code, report["done"]) == (0 if is_shown else 1, is_shown)
    assert ["--pulls" in why for why in report["refused"]] == ([] if is_shown else [True])
    assert shop.offset(NEW) == (3 if is_shown else None)
    assert shop.rename(capsys, "--yes")[0] == 0


def test_a_group_without_a_database_for_its_inbox_keeps_its_name(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write_settings([])
    code, report = shop.rename(capsys, "--yes")
    assert (code, "An inbox in Redis cannot get another name" in report["said"]) == (2, True)


@pytest.mark.parametrize(("new", "why"), [(OLD, "the old name"), ("a group!", "characters")])
def test_a_name_that_cannot_be_meant_is_refused(
    shop: Shop, capsys: pytest.CaptureFixture[str], new: str, why: str
) -> None:
    code, report = shop.rename(capsys, "--yes", new=new)
    assert (code, why in report["said"]) == (2, True)


@pytest.mark.sql("postgres")
def test_a_login_that_only_reads_is_refused_by_name_and_the_owners_url_does_it(
    shop: Shop, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema.upgrade(postgres_url, "inbox")
    shop.write(postgres_url, row(1))
    owner = open_engine(postgres_url)
    logins: dict[str, str] = {}
    with owner.begin() as connection:
        for role in (RUN, GROUP_RENAME):
            name = logins[role.name] = f"login_{len(logins)}_{new_key()[-6:].lower()}"
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
            for grant in grants(role.inbox, login=name, is_mysql=False):
                connection.exec_driver_sql(grant)
    urls = {
        role: owner.url.set(username=name, password="x", drivername="postgresql").render_as_string(hide_password=False)
        for role, name in logins.items()
    }
    try:
        shop.write_settings([urls["run"]])
        code, report = shop.rename(capsys, "--yes")
        assert (code, "SELECT and INSERT on reconciler_inbox" in report["said"]) == (2, True)
        secret = tmp_path / "owner_url"
        secret.write_text(urls["group rename"])
        code, report = shop.rename(capsys, "--yes", "--url", f"@{secret}")
        assert (code, [one["copied"] for one in report["inboxes"]]) == (0, [1])
    finally:
        with owner.begin() as connection:
            for name in logins.values():
                connection.exec_driver_sql(f"DROP OWNED BY {name}")
                connection.exec_driver_sql(f"DROP ROLE {name}")
        owner.dispose()
