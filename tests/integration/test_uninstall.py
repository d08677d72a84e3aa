"""reconciler uninstall: what it prints removes everything, and leaves out the proof of what is not settled yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.cli.app import run
from reconciler.commands.asking.brokers import READER_GROUPS
from reconciler.commands.status.report import StatusReport
from reconciler.commands.uninstall import Step, needed, steps_of
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from reconciler.rocketmq.consumer.push_consumer import PushConsumer, PushSettings
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import candidate
from reconciler.telling.ports.reports import RepairCount, VerdictCount
from reconciler.words import said
from tests.engines import begun, disposed
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.settings_file import NOWHERE, settings_file
from tests.unit.web.reports import ORDERS, facts_of, report_of, status_of

REDIS = 'redis-cli -u "$REDIS"'
MORE = """[history]
path = "/var/lib/reconciler/it's history"
[rocketmq.acl]
access_key = "someone"
secret_key = "marked"
"""


def settings_of(folder: Path, *, name_servers: str = NOWHERE, more: str = "", **urls: str) -> Path:
    return settings_file(
        folder,
        "rocketmq.request_timeout_seconds = 20",
        'unique_key_topic.topics = { ORDERS = "ORDER_KEYS" }',
        name_servers=name_servers,
        redis_url=f"redis://reconciler:marked@{NOWHERE}/0",
        ledger_url=urls["ledger"],
        of_producers=f'outbox_url = "{urls["outbox"]}"',
        of_subscription=f'inbox_url = "{urls["inbox"]}"',
        sections=more,
    )


@pytest.fixture
def urls(new_database_url: Callable[[], str]) -> dict[str, str]:
    """Outbox and inbox share a database."""
    shared = new_database_url()
    made = {"outbox": shared, "inbox": shared, "ledger": new_database_url()}
    for tree, url in made.items():
        schema.upgrade(url, tree)
    return made


def run_lines(settings: Settings, urls: dict[str, str], *, beside: tuple[str, ...] | None) -> None:
    """What an administrator does with the lines of databases."""
    engines = {step: urls["outbox" if step is Step.EVIDENCE else "ledger"] for step in Step}
    for step, one in steps_of(settings, beside=beside):
        if step not in (Step.EVIDENCE, Step.LEDGER, Step.LEDGER_TABLES):
            continue
        with begun(engines[step]) as connection:
            for line in one.statements:
                connection.exec_driver_sql(line)


def tables(url: str) -> list[str]:
    with disposed(open_engine(url)) as engine:
        return sa.inspect(engine).get_table_names()


def environments(url: str) -> Iterator[str]:
    with disposed(open_engine(url)) as engine, engine.connect() as connection:
        yield from connection.execute(sa.select(candidate.c.environment)).scalars()


def note(url: str, *named: str) -> None:
    with begun(url) as connection:
        for name in named:
            row = {
                "environment": name, "topic": "ORDERS", "consumer_group": "billing", "unique_key": "A" * 32, "shard": 0,
                "state": "SETTLED", "verdict": "CONSUMED", "evidence": "{}", "first_seen_ms": 1, "next_at_ms": 1,
                "attempts": 0, "updated_at_ms": 1,
            }  # fmt: skip
            connection.execute(sa.insert(candidate), row)


def test_the_printed_statements_leave_no_table(urls: dict[str, str], tmp_path: Path) -> None:
    run_lines(load_settings(settings_of(tmp_path, **urls), {}), urls, beside=())
    assert (tables(urls["outbox"]), tables(urls["ledger"])) == ([], [])


def test_the_rows_of_another_environment_stay_in_its_ledger(urls: dict[str, str], tmp_path: Path) -> None:
    note(urls["ledger"], "test", "other")
    run_lines(load_settings(settings_of(tmp_path, **urls), {}), urls, beside=("other",))
    assert list(environments(urls["ledger"])) == ["other"]


def sqlite_of(folder: Path) -> dict[str, str]:
    made = {tree: f"sqlite:///{folder}/{tree}.db" for tree in ("outbox", "inbox", "ledger")}
    for tree, url in made.items():
        schema.upgrade(url, tree)
    return made


def uninstall(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    code = run(["uninstall", "--print", "--config", str(path), "--output", "json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_everything_else_is_printed_in_its_order_with_the_names_of_the_settings_and_no_password(
    tmp_path: Path,
) -> None:
    urls = {tree: f"{kind}://login:marked@db:1/{tree}" for tree, kind in
            (("outbox", "postgresql"), ("inbox", "mysql"), ("ledger", "sqlite"))}  # fmt: skip
    urls["ledger"] = f"sqlite:///{tmp_path}/ledger.db"
    steps = steps_of(load_settings(settings_of(tmp_path, more=MORE, **urls), {}), beside=None)
    assert list(dict.fromkeys(step for step, _ in steps)) == [one for one in Step if one is not Step.LEDGER_TABLES]
    lines = [
        line for step, one in steps if step not in (Step.EVIDENCE, Step.LEDGER, Step.FILES) for line in one.statements
    ]
    assert lines == [
        "systemctl disable --now reconciler reconciler-sweep reconciler-web reconciler-audit.timer",
        "mqadmin deleteTopic -n 127.0.0.1:1 -c CLUSTER -t ORDER_KEYS",
        "mqadmin deleteTopic -n 127.0.0.1:1 -c CLUSTER -t RECONCILER_PROBE",
        *(f"mqadmin deleteSubGroup -n 127.0.0.1:1 -c CLUSTER -g {group}" for group in READER_GROUPS),
        f"{REDIS} --scan --pattern 'reconciler:v1:{{test:*' | xargs -r -n 100 {REDIS} UNLINK",
        "rm -r '/var/lib/reconciler/it'\"'\"'s history'",
        'DROP ROLE "login";',
        "DROP USER 'login'@'%';",
        "ACL DELUSER reconciler",
        "mqadmin deleteUser -n 127.0.0.1:1 -c CLUSTER -u someone",
    ]
    assert "marked" not in str(steps)


def test_a_login_is_dropped_by_its_name_and_not_by_the_text_of_the_url(tmp_path: Path) -> None:
    urls = {tree: f"postgresql://sh%C3%B6p%20%25:marked@db:1/{tree}" for tree in ("outbox", "inbox", "ledger")}
    path = settings_of(tmp_path, **urls)
    path.write_text(path.read_text().replace("redis://reconciler:", "redis://sh%C3%B6p:"))
    steps = steps_of(load_settings(path, {}), beside=())
    lines = [line for step, one in steps if step is Step.LOGINS for line in one.statements]
    assert lines == [*['DROP ROLE "shöp %";'] * 3, "ACL DELUSER shöp"]


def test_while_something_is_away_no_outbox_and_no_inbox_is_dropped_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings_of(tmp_path, **sqlite_of(tmp_path))
    code, printed = uninstall(path, capsys)
    assert (code, [one["step"] for one in printed["uninstall"] if "reconciler_outbox" in str(one)]) == (4, [])
    assert printed["needed"]
    code, printed = uninstall(path, capsys, "--although-needed")
    assert (code, len([one for one in printed["uninstall"] if one["step"] == "evidence"])) == (0, 2)
    assert printed["needed"]


def test_without_print_nothing_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", "--config", str(settings_of(tmp_path, **sqlite_of(tmp_path)))]) == 2
    assert capsys.readouterr().out == ""


def test_a_member_that_is_connected_keeps_its_inbox_and_one_of_a_group_without_an_inbox_keeps_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = '[[subscriptions]]\ntopic = "ORDERS"\ngroup = "stock"\n'
    with EmbeddedBroker() as broker, patient_instance(broker.name_servers) as instance:
        admin, broker_at = Admin(instance.client), broker.address
        admin.create_topic(broker_at, "ORDERS", queues=1)
        path = settings_of(tmp_path, name_servers=broker.name_servers, more=without, **sqlite_of(tmp_path))
        with ExitStack() as members:
            for group in ("billing", "stock"):
                member = PushConsumer(group, instance=instance, settings=PushSettings()).subscribe("ORDERS", "*")
                members.enter_context(member.register_listener(lambda _: ConsumeStatus.CONSUME_SUCCESS))
            eventually(lambda: len(admin.consumer_connections(broker_at, "stock")) == 1, within_seconds=60)
            wanted = {"code": "uninstall.members", "fields": {"group": "billing", "number": 1}}
            eventually(lambda: wanted in uninstall(path, capsys)[1]["needed"], within_seconds=60)
            found = uninstall(path, capsys)[1]["needed"]
    assert [one["fields"]["group"] for one in found if one["code"] == "uninstall.members"] == ["billing"]


def verdict(state: CandidateState) -> VerdictCount:
    return VerdictCount(
        subscription=ORDERS, state=state, verdict=Verdict.UNKNOWN, loss_verdict=None, count=2, oldest_ms=1
    )


def repair(state: RepairState) -> RepairCount:
    return RepairCount(topic="ORDERS", scope="*", state=state, rung=Rung.END, attempted=0, count=2)


@pytest.mark.parametrize(
    ("report", "reasons"),
    [
        (report_of(), []),
        (report_of(verdicts=(verdict(CandidateState.SETTLED),), repairs=(repair(RepairState.DONE),)), []),
        (report_of(verdicts=(verdict(CandidateState.OPEN),)), ["2 keys are not settled"]),
        (report_of(verdicts=(verdict(CandidateState.QUARANTINED),)), ["2 keys are not settled"]),
        (report_of(repairs=(repair(RepairState.SENT),)), ["2 repairs are not over"]),
        (report_of(status_of(pending=3)), ["3 keys are pending"]),
        (report_of(away=facts_of("redis is away")), ["redis is away"]),
        (report_of(status_of(late=("swept last",))), ["ORDERS/billing: swept last"]),
        (report_of(unswept=facts_of("nobody sweeps")), ["nobody sweeps"]),
    ],
)
def test_proof_is_needed_while_a_key_is_not_settled_a_repair_is_not_over_or_not_all_is_known(
    report: StatusReport, reasons: list[str]
) -> None:
    assert [said(reason) for reason in needed(report)] == reasons
