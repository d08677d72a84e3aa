"""`reconciler rights`: statements for one login of one or several roles, with the names of the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reconciler.cli.app import app
from reconciler.commands.rights import Server, role_of, statements_of
from reconciler.contract.least_rights import ROLES
from reconciler.errors import InvalidValue
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings

SETTINGS = """environment = "shop"
rocketmq.name_servers = "a:9876;b:9876"
redis.url = "{redis}"
ledger.url = "postgresql://run:marked@db:5432/ledger"
unique_key_topic.topics = {{ REFUNDS = "REFUND_KEYS" }}
[[producers]]
group = "orders"
topics = ["ORDERS", "REFUNDS"]
outbox_url = "postgresql://run:marked@db:5432/orders"
answer_checks = {answers}
[[subscriptions]]
topic = "ORDERS"
group = "billing"
inbox_url = "mysql://run:marked@my:3306/billing"
{more}
"""
ANNOUNCED = "announced_at_ms, settled_at_ms"
NOTIFIER = '[[notifiers]]\nname = "n"\nkind = "webhook"\nurl = "https://chat.example/marked"\n'


def settings_of(
    folder: Path, *, redis: str = "redis://:marked@cache:6379", answers: str = "false", more: str = ""
) -> Settings:
    path = folder / "reconciler.toml"
    path.write_text(SETTINGS.format(redis=redis, answers=answers, more=more))
    return load_settings(path, {})


def printed(settings: Settings, server: Server, *roles: str, plain_acl: bool = False) -> dict[str, tuple[str, ...]]:
    named = [role_of(role) for role in roles]
    found = statements_of(settings, server, named, login="someone", has_plain_acl=plain_acl)
    return {one.place: one.statements for one in found}


def test_each_database_has_the_grants_of_both_roles_and_columns_together(tmp_path: Path) -> None:
    found = printed(settings_of(tmp_path), "postgresql", "announcing-service", "sweep")
    assert found == {
        "postgresql://db:5432/orders": (
            f"GRANT SELECT, INSERT, UPDATE (state, {ANNOUNCED}), DELETE ON reconciler_outbox TO someone;",
            "GRANT SELECT, UPDATE (swept_at_ms) ON reconciler_outbox_identity TO someone;",
            "GRANT SELECT, INSERT, UPDATE (tags, version) ON reconciler_outbox_filter TO someone;",
        )
    }


def test_what_only_a_setting_needs_is_there_with_that_setting(tmp_path: Path) -> None:
    without = printed(settings_of(tmp_path), "postgresql", "sweep")
    answering = printed(settings_of(tmp_path, answers="true", more=NOTIFIER), "postgresql", "sweep")
    assert list(without) == ["postgresql://db:5432/orders"]
    assert "INSERT" not in without["postgresql://db:5432/orders"][0]
    assert "INSERT" in answering["postgresql://db:5432/orders"][0]
    assert "GRANT SELECT, INSERT, UPDATE ON reconciler_notice TO someone;" in answering["postgresql://db:5432/ledger"]


def test_mysql_names_a_host_and_postgresql_quotes_what_it_would_fold(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (of_mysql,) = statements_of(settings, "mysql", [role_of("run")], login="Some-one")
    of_postgresql = statements_of(settings, "postgresql", [role_of("console")], login="Some-one")
    assert of_mysql.statements == ("GRANT SELECT ON reconciler_inbox TO 'Some-one'@'%';",)
    assert of_postgresql[0].statements[0] == 'GRANT SELECT ON reconciler_candidate TO "Some-one";'


@pytest.mark.parametrize(
    ("url", "shown", "has_more"),
    [
        ("redis://:marked@cache:6379", "redis://cache:6379", False),
        ("redis+cluster://:marked@one:6379,two:6379", "redis+cluster://one:6379,two:6379", True),
    ],
)
def test_redis_has_one_line_and_on_a_cluster_the_commands_of_clusters(
    url: str, shown: str, has_more: bool, tmp_path: Path
) -> None:
    found = printed(settings_of(tmp_path, redis=url), "redis", "consuming-service", "announcements")
    ((place, (line,)),) = found.items()
    assert place == shown
    assert line.startswith(
        "ACL SETUSER someone on >PASSWORD ~reconciler:v1:{shop:*}:commit ~reconciler:v1:{shop:*}:half"
    )
    assert line.count("+sadd") == 1
    assert line.count("-@all") == 1
    assert ("+asking +cluster|slots +command" in line) is has_more


@pytest.mark.parametrize(
    ("url", "chooses"),
    [
        ("redis://cache:6379/0", False),
        ("rediss://cache:6379/3", True),
        ("redis://cache:6379?db=3", True),
        ("unix:///run/redis.sock", False),
        ("unix:///run/redis.sock?db=3", True),
        ("redis+sentinel://one:26379/shop", False),
        ("redis+sentinel://one:26379/shop/3", True),
    ],
)
def test_a_user_of_another_database_than_0_may_choose_it(url: str, chooses: bool, tmp_path: Path) -> None:
    ((line,),) = printed(settings_of(tmp_path, redis=url), "redis", "run").values()
    assert (" +select" in line) is chooses


def test_a_resource_of_brokers_is_named_once_with_the_actions_of_both_roles(tmp_path: Path) -> None:
    (lines,) = printed(settings_of(tmp_path), "brokers", "announcing-service", "consuming-service").values()
    target = "-n 'a:9876;b:9876' -c CLUSTER"
    others = "Topic:REFUNDS,Topic:RECONCILER_UNIQUE_KEY,Topic:REFUND_KEYS"
    assert lines == (
        f"mqadmin createUser {target} -u someone -p PASSWORD -t Normal",
        f"mqadmin createAcl {target} -s User:someone -r Topic:ORDERS -a Get,Pub,Sub -d Allow",
        f"mqadmin createAcl {target} -s User:someone -r {others} -a Pub -d Allow",
        f"mqadmin createAcl {target} -s User:someone -r Group:billing -a Get,Sub -d Allow",
    )


def test_plain_acl_has_one_line_an_account(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (sweeping,) = printed(settings, "brokers", "sweep", plain_acl=True).values()
    (creating,) = printed(settings, "brokers", "topics-create", plain_acl=True).values()
    head = "mqadmin updateAclConfig -n 'a:9876;b:9876' -c CLUSTER -a someone -s PASSWORD -i DENY -u DENY -m"
    assert sweeping == (f"{head} false -t RECONCILER_UNIQUE_KEY=PUB,REFUND_KEYS=PUB",)
    assert creating == (f"{head} true",)


@pytest.mark.parametrize(
    ("role", "login", "named"),
    [
        ("topics-create", "someone", "--role"),
        ("nobody", "someone", "announcing-service"),
        ("run", "a'; DROP TABLE x", "--login"),
        ("run", "", "--login"),
    ],
)
def test_what_cannot_be_printed_is_refused_with_its_name(role: str, login: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=named):
        statements_of(settings_of(tmp_path), "postgresql", [role_of(role)], login=login)


def _names(command: Any, *before: str) -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _names(inner, *before, name)
    if not hasattr(command, "commands"):
        yield " ".join(before)


def test_each_command_is_of_a_role_or_needs_no_rights_of_ours() -> None:
    needs_none = "broker|docs|rights|uninstall|notify|demo|audit|statement|config .*|db .*|web (user|token) .*"
    named = {name for role in ROLES for name in re.findall(r"`(?:reconciler )?([a-z ]+?)(?: --url)?`", role.does)}
    assert {name for name in _names(get_command(app)) if not re.fullmatch(needs_none, name)} == named - {"web"}
