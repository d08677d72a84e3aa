"""Effect queries that the settings name in place of inboxes: which subscriptions they prove, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.clock import ManualClock
from reconciler.commands.status.reading import weaker_evidence
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.policy.evidence import StoredMessage
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.commit_queries import OpenQueries, configured_queries
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.effect_queries import configured_effect_queries, read_effect_queries
from reconciler.wiring.rounds import topic_plans
from tests.settings_file import commit_queries_file, effect_queries_file, settings_file
from tests.unit.policy.fake_broker import FakeBroker
from tests.unit.policy.world import key

Make = Callable[..., Settings]
HALVES = 'announcements = "half_topic"\n'


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(**of_groups: str) -> Settings:
        sections = "".join(
            f'[[subscriptions]]\ntopic = "ORDERS"\ngroup = "{group}"\n{more}\n' for group, more in of_groups.items()
        )
        by = f'commit_queries = "{commit_queries_file(tmp_path, "ORDERS")}"'
        lines = "repairs.topics = { ORDERS = false }"
        return load_settings(settings_file(tmp_path, lines, of_producers=by, group="", sections=sections), {})

    return made


def by_query(file: Path) -> str:
    return f'{HALVES}effect_query = "{file}"\n'


def test_each_subscription_has_its_own_proof_of_effects(make: Make, tmp_path: Path) -> None:
    file = effect_queries_file(tmp_path, "billing", "other")
    settings = make(
        billing=by_query(file), stock=HALVES, points=f'{HALVES}inbox_url = "sqlite:///{tmp_path}/inbox.db"\n'
    )
    (topic,) = topic_plans(settings)
    assert {plan.group: plan.asks_effects for plan in topic.subscriptions} == {
        "billing": True, "stock": False, "points": False,
    }  # fmt: skip
    found = effect_evidence(settings)
    assert [one.group for one in found.unknown] == ["stock"]
    assert [source.subscription.group for source, _ in found.inboxes] == ["points"]
    weaker = {
        plan.group: [code.code.name for code in weaker_evidence(topic, plan, has_inbox=False)]
        for plan in topic.subscriptions
    }
    assert weaker["billing"][-2:] == ["status.by-halves", "status.effects-by-query"]
    assert weaker["stock"][-1] == "status.no-inbox"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (
            f'{HALVES}inbox_url = "sqlite:////tmp/i.db"\n',
            "effect_query stands in place of inbox_url, which is set, too",
        ),
        ("", 'effect_query needs announcements = "half_topic"'),
    ],
)
def test_a_second_proof_or_a_service_that_announces_is_refused(
    make: Make, tmp_path: Path, more: str, part: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make(billing=f'{more}effect_query = "{effect_queries_file(tmp_path, "billing")}"\n')
    assert f"subscriptions[0].{part}" in str(refused.value)


def test_rows_that_are_kept_too_short_are_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="inbox_keep_days = 2"):
        make(billing=by_query(effect_queries_file(tmp_path, "billing")) + "inbox_keep_days = 2\n")


def test_a_file_of_queries_that_is_missing_is_told_under_its_setting(make: Make, tmp_path: Path) -> None:
    settings = make(stock=HALVES, billing=by_query(tmp_path / "nowhere.toml"))
    with pytest.raises(InvalidValue, match=r"^subscriptions\[1\].effect_query = .*nowhere.toml"):
        configured_effect_queries(settings)


def test_a_file_without_the_group_is_an_error(make: Make, tmp_path: Path) -> None:
    settings = make(stock=by_query(effect_queries_file(tmp_path, "billing")))
    with pytest.raises(InvalidValue, match="no query of this topic and group"):
        configured_effect_queries(settings)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("committed = ['PAID']", "takes applied, database_url"),
        ("longest_transaction_seconds = 9", "takes applied"),
        ("key_type = 'number'", "expected one of"),
    ],
)
def test_a_section_that_does_not_fit_is_refused(tmp_path: Path, more: str, part: str) -> None:
    with pytest.raises(InvalidValue, match=part):
        read_effect_queries(effect_queries_file(tmp_path, "billing", more=more))


def test_two_queries_of_one_group_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="each topic and group has one query at most"):
        read_effect_queries(effect_queries_file(tmp_path, "billing", "billing"))


def test_an_acceptance_holds_for_no_other_effect_query(make: Make, tmp_path: Path) -> None:
    """It is added, changed, and taken out: each of these is another digest."""

    def digest(**of_groups: str) -> str:
        return configured_queries(make(**of_groups))["ORDERS"].digest

    one = effect_queries_file(tmp_path, "billing", "stock")
    other = effect_queries_file(
        tmp_path, "billing", name="other.toml", database_url=f"sqlite:///{tmp_path}/elsewhere.db"
    )
    alone, with_one, with_other = digest(billing=HALVES), digest(billing=by_query(one)), digest(billing=by_query(other))
    both = digest(billing=by_query(one), stock=by_query(one))
    assert len({alone, with_one, with_other, both}) == 4
    assert both == digest(stock=by_query(one), billing=by_query(one)), "the order has no meaning"


@contextmanager
def opened(folder: Path) -> Iterator[OpenQueries]:
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE bills (number TEXT PRIMARY KEY, status TEXT)")
        rows = [("a", "BILLED"), ("b", "NEW"), ("n", None), ("s", "SENT")]
        shop.executemany("INSERT INTO bills VALUES (?, ?)", rows)
    found = read_effect_queries(effect_queries_file(folder, "billing"))
    with closing(OpenQueries({}, clock=ManualClock(), effects=found)) as queries:
        yield queries


def copy(number: int, keys: str) -> StoredMessage:
    return replace(FakeBroker(ManualClock()).send_half(key(number)), properties={"KEYS": keys})


BILLING = Subscription(environment="test", topic="ORDERS", group="billing")


def test_the_effect_is_found_by_the_query_key(tmp_path: Path) -> None:
    with opened(tmp_path) as queries:
        found = queries.effects(BILLING, {one: copy(1, one) for one in ("a", "b", "n", "s", "x")} | {"no": copy(1, "")})
    assert {name: str(answer.presence) for name, answer in found.items()} == {
        "a": "FOUND", "b": "ABSENT", "x": "ABSENT", "n": "UNKNOWN", "s": "UNKNOWN", "no": "UNKNOWN",
    }  # fmt: skip


def test_a_database_that_is_away_has_no_absence(tmp_path: Path) -> None:
    with opened(tmp_path) as queries:
        (tmp_path / "shop.db").unlink()
        found = queries.effects(BILLING, {"x": copy(1, "x")})
    assert found["x"].is_unknown
    assert "query.no-answer" in str(found["x"].reason)


def test_a_database_that_is_away_for_long_does_not_hold_its_callers_up(tmp_path: Path) -> None:
    """The thread of all topics' rounds asks. It must not wait for the end of the query's rest."""
    clock = ManualClock()
    with closing(
        OpenQueries({}, clock=clock, effects=read_effect_queries(effect_queries_file(tmp_path, "billing")))
    ) as queries:
        for _ in range(10):
            found = queries.effects(BILLING, {"x": copy(1, "x")})
            assert found["x"].is_unknown
    assert clock.monotonic_seconds() < 10
