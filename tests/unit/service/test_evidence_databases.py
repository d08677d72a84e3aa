"""A database that is left out of a list, or hidden behind another's name, is one that is never asked."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from reconciler.commands.asking.availability import (
    REDIS_REMEDY,
    ask_brokers,
    ask_databases,
    ask_redis,
    results_of,
    who_is_away,
)
from reconciler.commands.asking.witness_roles import witness_roles
from reconciler.commands.doctor.needed_rights import needed_rights
from reconciler.commands.status.accounting import Accounting
from reconciler.contract.secret import SecretText
from reconciler.contract.tables import OUTBOX
from reconciler.errors import ConfigurationError, DatabaseAway, DatabaseSilent
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.testing.memory_shards import MemoryShards
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import inbox_databases, outbox_databases
from reconciler.wiring.evidence import build_witnesses, inbox_evidence
from reconciler.wiring.rounds import topic_plans
from reconciler.wiring.sweep import open_outboxes
from reconciler.words import said
from tests.unit.service.test_outbox_identities import outbox_at

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
KEY = "7F00000100002A9F0000000000000090"


def settings_with(*producers: dict[str, object]) -> Settings:
    sections = [{"group": "shop", "topics": ["ORDERS"], **producer} for producer in producers]
    return load_settings(EXAMPLE, {"RECONCILER_PRODUCERS": json.dumps(sections)})


def test_one_url_and_a_list_of_one_mean_the_same() -> None:
    url = "postgresql://reader:hunter2@db/orders"
    one, several = settings_with({"outbox_url": url}), settings_with({"outbox_url": [url]})
    assert one == several
    assert one.producers[0].outbox_urls == (SecretText(url),)
    assert "hunter2" not in repr(one)


@pytest.mark.parametrize(
    ("urls", "told"),
    [
        ([], r"producers\[0\]\.outbox_url = a list: List should have at least 1 item"),
        (
            ["sqlite:////a", "sqlite:////b", "sqlite:////a"],
            r"producers\[0\]\.outbox_url = a list: a URL is listed twice",
        ),
        (["sqlite:////a", "oracle://u:hunter2@h/d"], r"producers\[0\]\.outbox_url\[1\] = oracle://h/d: expected a SQL"),
        ("oracle://u:hunter2@h/d", r"producers\[0\]\.outbox_url = oracle://h/d: expected a SQL"),
        (["sqlite:////a", None], r"producers\[0\]\.outbox_url\[1\] = \(hidden\)"),
        ({"a": "postgresql://u:hunter2@h/d"}, r"producers\[0\]\.outbox_url = a table"),
    ],
)
def test_a_list_that_names_nothing_or_something_twice_is_refused_without_its_passwords(urls: object, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        settings_with({"outbox_url": urls})
    assert "hunter2" not in str(refused.value)


def test_each_database_of_a_group_is_named_once_however_sections_and_lists_name_them() -> None:
    settings = settings_with(
        {"outbox_url": ["sqlite:////a", "sqlite:////b"]},
        {"outbox_url": "sqlite:////b", "topics": ["REFUNDS"]},
        {"outbox_url": "sqlite:////c", "topics": ["REFUNDS"]},
        {"outbox_url": "sqlite:////a", "group": "till"},
    )
    assert [(d.name, d.url.reveal(), d.setting) for d in outbox_databases(settings)] == [
        ("outbox of shop (1 of 3)", "sqlite:////a", "producers[0].outbox_url[0]"),
        ("outbox of shop (2 of 3)", "sqlite:////b", "producers[0].outbox_url[1]"),
        ("outbox of shop (3 of 3)", "sqlite:////c", "producers[2].outbox_url"),
        ("outbox of till", "sqlite:////a", "producers[3].outbox_url"),
    ]
    assert [d.name for d in inbox_databases(settings)] == ["inbox of ORDERS/billing"]
    assert not any("sqlite" in repr(d) for d in outbox_databases(settings))


def test_a_database_that_is_away_is_told_though_another_of_its_group_answers(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/gone.db", outbox_at(tmp_path / "there.db")]
    with Connections(settings_with({"outbox_url": urls})) as connections:
        asked = {name: ask for name, ask in ask_databases(connections).items() if name.startswith("outbox")}
        assert list(who_is_away(asked)) == ["outbox of shop (1 of 2)"]


def test_an_absence_needs_every_database_of_the_list(tmp_path: Path) -> None:
    first, second = outbox_at(tmp_path / "first.db"), outbox_at(tmp_path / "second.db")
    settings = settings_with({"outbox_url": [first, second]})
    assert not topic_plans(settings)[0].evidence.trusts_announcements
    with Connections(settings) as connections:
        assert build_witnesses(connections).outbox.look_up("ORDERS", {KEY: 0})[KEY].is_absent
        (tmp_path / "second.db").unlink()
    with Connections(settings) as connections:
        assert build_witnesses(connections).outbox.look_up("ORDERS", {KEY: 0})[KEY].is_unknown


def test_the_sweeper_opens_every_database_and_waits_only_if_all_are_away(tmp_path: Path) -> None:
    there, gone = outbox_at(tmp_path / "there.db"), f"sqlite:///{tmp_path}/nowhere/gone.db"
    with Connections(settings_with({"outbox_url": [gone, there]})) as connections:
        assert list(open_outboxes(connections)) == [gone, there]
    with (
        Connections(settings_with({"outbox_url": [gone, f"sqlite:///{tmp_path}/nowhere/lost.db"]})) as connections,
        pytest.raises(DatabaseAway),
    ):
        open_outboxes(connections)


def test_the_role_of_every_database_of_a_list_is_told(tmp_path: Path) -> None:
    urls = [outbox_at(tmp_path / "first.db"), outbox_at(tmp_path / "second.db")]
    with Connections(settings_with({"outbox_url": urls})) as connections:
        assert [said(s.database) for s in witness_roles(connections)] == [
            "outbox of shop (1 of 2)",
            "outbox of shop (2 of 2)",
        ]


def test_rights_and_commits_are_looked_at_in_every_database_of_a_list(tmp_path: Path) -> None:
    urls = [outbox_at(tmp_path / "first.db"), f"sqlite:///{tmp_path}/gone.db"]
    settings = settings_with({"outbox_url": urls}, {"outbox_url": urls[0], "topics": ["REFUNDS"]})
    names = [needed.database.name for needed in needed_rights(settings) if needed.database.tree == "outbox"]
    assert names == ["outbox of shop (1 of 2)", "outbox of shop (2 of 2)"]
    with Connections(settings) as connections:
        accounting = Accounting(
            connections,
            MemoryShards(connections.clock),
            inbox_evidence(connections),
            asked_ms=connections.clock.now_ms(),
            within_seconds=None,
        )
        links = [link for _, _, link in accounting._look_into_outboxes("ORDERS")]
        assert len(links) == 2
        assert said(links[1].cause).startswith("the outbox of shop (2 of 2) does not answer: ")
        assert len(accounting._look_into_outboxes("REFUNDS")) == 1


def test_the_right_to_answer_check_back_is_needed_in_the_databases_that_answer_alone(tmp_path: Path) -> None:
    answers, asked = (f"sqlite:///{tmp_path}/{name}.db" for name in ("answers", "asked"))
    settings = settings_with(
        {"outbox_url": answers, "answer_checks": True}, {"outbox_url": asked, "topics": ["REFUNDS"]}
    )
    needed = {one.database.url.reveal(): one.sweep for one in needed_rights(settings)}
    more = [right for right in needed[answers] if right not in needed[asked]]
    assert [(right.verb, right.table.name) for right in more] == [("INSERT", OUTBOX.name)]


def test_what_is_away_is_told_with_what_to_do() -> None:
    gone = {"RECONCILER_REDIS__URL": "redis://127.0.0.1:1/0", "RECONCILER_ROCKETMQ__NAME_SERVERS": "127.0.0.1:1"}
    with Connections(load_settings(EXAMPLE, gone)) as connections:
        away = who_is_away(ask_redis(connections) | ask_brokers(connections))
    assert str(away["redis"]).endswith(f"; {REDIS_REMEDY}")
    assert str(away["rocketmq"]).endswith("; start RocketMQ, or correct rocketmq.name_servers")


def test_dependencies_are_asked_side_by_side_and_one_with_two_names_once() -> None:
    both = threading.Barrier(2)
    times: list[int] = []

    def wait_for_the_other() -> None:
        both.wait(60)

    def wait_too() -> None:
        times.append(both.wait(60))

    def stand_still() -> None:
        times.append(0)
        raise DatabaseSilent("no answer in time")

    assert who_is_away({"a": wait_for_the_other, "b": wait_too}) == {}
    assert results_of({"a": wait_for_the_other, "b": wait_too}) == {"a": None, "b": None}
    times.clear()
    away = who_is_away({"outbox of a": stand_still, "outbox of b": stand_still})
    told = {name: str(why) for name, why in away.items()}
    assert told == {"outbox of a": "no answer in time", "outbox of b": "no answer in time"}
    assert len(times) == 1
