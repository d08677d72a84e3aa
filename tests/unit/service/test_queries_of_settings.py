"""Commit queries that the settings name in place of an outbox: topics that they prove, and what their databases say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.clock import ManualClock
from reconciler.commands.doctor.needed_rights import needed_rights
from reconciler.commands.rights import statements_of
from reconciler.commands.status.reading import weaker_evidence
from reconciler.contract import least_rights
from reconciler.contract.secret import secret_text
from reconciler.errors import ConfigurationError, InvalidValue
from reconciler.policy.commit_query import BusinessAnswer
from reconciler.policy.evidence import StoredMessage
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.wiring.commit_queries import OpenQueries, configured_queries
from reconciler.wiring.databases import commit_evidence
from reconciler.wiring.rounds import topic_plans
from reconciler.wiring.subscriptions import unique_key_topics
from tests.settings_file import commit_queries_file, settings_file
from tests.unit.policy.fake_broker import FakeBroker
from tests.unit.policy.world import PRODUCER_GROUP, key

Make = Callable[..., Settings]
SHADOW = "[repairs]\ntopics = { ORDERS = false, BILLS = false }\n"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(producers: str, more: str = SHADOW, *, topics: tuple[str, ...] = ("ORDERS",)) -> Settings:
        subscriptions = "".join(f'[[subscriptions]]\ntopic = "{topic}"\ngroup = "billing"\n' for topic in topics)
        sections = "\n".join((producers, subscriptions, more))
        return load_settings(settings_file(tmp_path, producer_group="", group="", sections=sections), {})

    return made


def section(file: Path, *topics: str, more: str = "") -> str:
    return f'[[producers]]\ngroup = "shop"\ntopics = {list(topics)}\ncommit_queries = "{file}"\n{more}\n'


def test_a_topic_of_a_query_trusts_no_announcement(make: Make, tmp_path: Path) -> None:
    file = commit_queries_file(tmp_path, "ORDERS", "OTHERS")
    quiet = '[[producers]]\ngroup = "quiet"\ntopics = ["BILLS"]\n'
    settings = make(section(file, "ORDERS") + quiet, topics=("ORDERS", "BILLS"))
    commits = commit_evidence(settings)
    found = {topic: commits.of_topic(topic) for topic in ("ORDERS", "BILLS")}
    assert {topic: (one.asks_business, one.trusts_announcements) for topic, one in found.items()} == {
        "ORDERS": (True, False),
        "BILLS": (False, True),
    }
    assert not commits.has_outbox
    assert configured_queries(settings).keys() == {"ORDERS"}


@pytest.mark.parametrize(
    ("more", "repairs", "part"),
    [
        ("", "", "set repairs.topics.ORDERS = false"),
        ("", "[repairs]\nenabled = false\ntopics = { ORDERS = true }\n", "set repairs.topics.ORDERS = false"),
        ('outbox_url = "sqlite:////tmp/o.db"', SHADOW, "stands in place of outbox_url"),
        ("answer_checks = true", SHADOW, "answer_checks = true needs outbox_url"),
        ('[[producers]]\ngroup = "other"\ntopics = ["ORDERS"]\n', SHADOW, "ORDERS is in another [[producers]] section"),
    ],
)
def test_a_query_that_could_send_or_is_not_alone_is_refused(
    make: Make, tmp_path: Path, more: str, repairs: str, part: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make(
            section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS", more=more),
            repairs.replace(", BILLS = false", ""),
        )
    assert part in str(refused.value)


def test_a_file_of_queries_that_is_missing_is_told_under_its_setting(make: Make, tmp_path: Path) -> None:
    quiet = '[[producers]]\ngroup = "quiet"\ntopics = ["BILLS"]\n'
    settings = make(section(tmp_path / "nowhere.toml", "ORDERS") + quiet, topics=("ORDERS", "BILLS"))
    with pytest.raises(InvalidValue, match=r"^producers\[0\].commit_queries = .*nowhere.toml"):
        configured_queries(settings)


def test_shadow_mode_of_all_topics_is_enough(make: Make, tmp_path: Path) -> None:
    make(section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS"), "[repairs]\nenabled = false\n")


SENDS = "[repairs]\nenabled = false\ntopics = { ORDERS = true }\n"


def half_section(group: str, *, idempotent: bool) -> str:
    return (
        f'[[subscriptions]]\ntopic = "ORDERS"\ngroup = "{group}"\nannouncements = "half_topic"\n'
        f"consumers_are_idempotent = {str(idempotent).lower()}\n"
    )


def test_what_a_query_proves_lost_is_sent_where_it_is_said_and_each_group_recognises_duplicates(
    make: Make, tmp_path: Path
) -> None:
    orders = section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS")
    both = half_section("billing", idempotent=True) + half_section("stock", idempotent=True)
    (plan,) = topic_plans(make(orders, SENDS + both, topics=()))
    assert plan.sends_by_query
    shadow = SENDS.replace("true", "false")
    one_does_not = half_section("billing", idempotent=True) + half_section("stock", idempotent=False)
    (plan,) = topic_plans(make(orders, shadow + one_does_not, topics=()))
    assert not plan.sends_by_query
    announced = one_does_not.replace('announcements = "half_topic"\n', "").replace("= false", "= true")
    for unsaid in (SENDS + one_does_not, SENDS + announced, both):
        with pytest.raises(ConfigurationError) as refused:
            make(orders, unsaid, topics=())
        assert "consumers_are_idempotent = true in each [[subscriptions]] section" in str(refused.value)


HALVES = '[[subscriptions]]\ntopic = "ORDERS"\ngroup = "stock"\nannouncements = "half_topic"\n'


@pytest.mark.parametrize("other", ["", 'outbox_url = "sqlite:////tmp/o.db"'])
def test_halves_that_nothing_but_an_outbox_or_nothing_at_all_could_judge_are_refused(make: Make, other: str) -> None:
    """A half proves no commit, and one without an outbox row may have been committed by a service that has none."""
    with pytest.raises(ConfigurationError) as refused:
        make(f'[[producers]]\ngroup = "quiet"\ntopics = ["ORDERS"]\n{other}\n', HALVES)
    assert "a half proves no commit, and producers[0], which sends ORDERS, has no commit_queries" in str(refused.value)


def test_one_deployment_reads_announcements_and_halves(make: Make, tmp_path: Path) -> None:
    quiet = '[[producers]]\ngroup = "quiet"\ntopics = ["BILLS"]\n'
    orders = section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS")
    settings = make(orders + quiet, SHADOW + HALVES, topics=("ORDERS", "BILLS"))
    plans = {plan.group: plan.reads_halves for topic in topic_plans(settings) for plan in topic.subscriptions}
    assert plans == {"billing": False, "stock": True}
    weaker = {
        str(plan.subscription): [code.code.name for code in weaker_evidence(topic, plan, has_inbox=True)]
        for topic in topic_plans(settings)
        for plan in topic.subscriptions
    }
    assert weaker == {
        "ORDERS/billing": ["status.no-outbox", "status.by-query"],
        "ORDERS/stock": ["status.no-outbox", "status.by-query", "status.by-halves"],
        "BILLS/billing": ["status.no-outbox"],
    }
    assert unique_key_topics(settings) == ("RECONCILER_UNIQUE_KEY",)
    assert not commit_evidence(settings).of_topic("ORDERS").trusts_announcements
    (statements,) = statements_of(settings, "brokers", [least_rights.RUN], login="run")
    assert "Group:TOOLS_CONSUMER" in " ".join(statements.statements)


def test_whoever_reads_halves_notes_them_and_needs_the_right_to(make: Make, tmp_path: Path) -> None:
    def granted(more: str) -> bool:
        settings = make(
            section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS"), SHADOW.replace(", BILLS = false", "") + more
        )
        ledger = secret_text("postgresql://run@db/ledger")
        settings = settings.model_copy(update={"ledger": settings.ledger.model_copy(update={"url": ledger})})
        found = statements_of(settings, "postgresql", [least_rights.ANNOUNCEMENTS], login="reads")
        return "GRANT SELECT, INSERT, UPDATE ON reconciler_half TO reads;" in [s for of in found for s in of.statements]

    assert (granted(""), granted(HALVES)) == (False, True)


def test_a_login_that_may_not_note_halves_fails_where_queries_prove_commits(make: Make, tmp_path: Path) -> None:
    """A note alone would leave every half unread."""

    def goes_on_without(settings: Settings) -> set[bool]:
        (ledger,) = (one for one in needed_rights(settings) if one.database.tree == "ledger")
        return {right.without_it is not None for right in ledger.run if right.table.name == "reconciler_half"}

    shadow = SHADOW.replace(", BILLS = false", "")
    assert goes_on_without(make(section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS"), shadow)) == {False}
    announced = '[[producers]]\ngroup = "shop"\ntopics = ["ORDERS"]\n'
    assert goes_on_without(make(announced, shadow)) == {True}


def test_the_ledger_keeps_halves_for_as_long_as_brokers_do(make: Make, tmp_path: Path) -> None:
    one = section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS")
    shadow = "[repairs]\nenabled = false\n"
    make("ledger.keep_days = 4\nrounds.retention_hours = 72\n" + one, shadow)
    with pytest.raises(ConfigurationError, match=r"keep_days = 4: must be 4\.5 or more"):
        make("ledger.keep_days = 4\nrounds.retention_hours = 84\n" + one, shadow)


def test_a_file_that_is_edited_keeps_its_meaning_for_the_process(make: Make, tmp_path: Path) -> None:
    settings = make(section(commit_queries_file(tmp_path, "ORDERS"), "ORDERS"), SHADOW.replace(", BILLS = false", ""))
    before = configured_queries(settings)
    commit_queries_file(tmp_path, "ORDERS", key="UNIQ_KEY")
    assert configured_queries(settings) == before
    (tmp_path / "queries.toml").write_text("half of a fi")
    assert commit_evidence(settings).asks_business


def test_a_file_without_the_topic_is_a_usage_error(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make(section(commit_queries_file(tmp_path, "OTHERS"), "ORDERS"), SHADOW.replace(", BILLS = false", ""))
    with pytest.raises(InvalidValue, match="no query of this topic"):
        configured_queries(settings)
    assert run(["config", "check", "--config", str(tmp_path / "reconciler.toml")]) == 2
    assert "no query of this topic" in capsys.readouterr().err


@contextmanager
def opened(folder: Path, file: Path) -> Iterator[tuple[OpenQueries, ManualClock]]:
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, status TEXT)")
        rows = [("a", "PAID"), ("b", "CANCELLED"), ("n", None), ("s", "SHIPPED")]
        shop.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    from reconciler.wiring.commit_queries import read_commit_queries

    clock = ManualClock()
    configured = {one.query.topic: one for one in read_commit_queries(file)}
    with closing(OpenQueries(configured, clock=clock)) as queries:
        yield queries, clock


def half(number: int, **changes: object) -> StoredMessage:
    sent = FakeBroker(ManualClock()).send_half(key(number))
    assert sent.producer_group == PRODUCER_GROUP
    return replace(sent, **changes)  # type: ignore[arg-type]


def says(answer: BusinessAnswer) -> str:
    return answer.state.value if answer.why is None else answer.why.code.name


@pytest.mark.parametrize(
    ("source", "carry"),
    [
        ("KEYS", lambda value: {"properties": {"KEYS": value}}),
        ("property:orderNo", lambda value: {"properties": {"orderNo": value}}),
        ("body:order.number", lambda value: {"body": b'{"order": {"number": "%s"}}' % value.encode()}),
        ("UNIQ_KEY", lambda value: {"unique_key": value}),
    ],
)
def test_the_row_is_found_by_the_key_in_the_half(
    tmp_path: Path, source: str, carry: Callable[[str], dict[str, object]]
) -> None:
    with opened(tmp_path, commit_queries_file(tmp_path, "ORDERS", key=source)) as (queries, clock):
        now = {"store_timestamp_ms": clock.now_ms()}
        found = queries.look_up("ORDERS", {value: half(1, **carry(value), **now) for value in "abns"} | {
            "again": half(2, **carry("a"), **now), "none": half(3, **carry("missing"), **now),
        })  # fmt: skip
        assert {name: says(answer) for name, answer in found.items()} == {
            "a": "committed", "b": "rolled-back", "n": "query.null-state", "s": "query.other-state",
            "again": "committed", "none": "query.young",
        }  # fmt: skip


@pytest.mark.parametrize("keys", ["", "a b"])
def test_a_half_without_its_one_key_is_unknown_and_asks_nothing(tmp_path: Path, keys: str) -> None:
    with opened(tmp_path, commit_queries_file(tmp_path, "ORDERS")) as (queries, _):
        (tmp_path / "shop.db").unlink()
        found = queries.look_up("ORDERS", {"x": half(1, properties={"KEYS": keys})})
        assert says(found["x"]) == "query.no-key"


def test_a_missing_row_counts_once_no_transaction_may_bring_it(tmp_path: Path) -> None:
    with opened(tmp_path, commit_queries_file(tmp_path, "ORDERS", seconds=60.0)) as (queries, clock):
        now_ms = clock.now_ms()
        first = half(1, properties={"KEYS": "x"}, store_timestamp_ms=now_ms, born_timestamp_ms=0)
        put_back = replace(first, check_times=3, born_timestamp_ms=now_ms - 61_000)
        found = queries.look_up("ORDERS", {"first": first, "put back": put_back})
        assert {name: says(answer) for name, answer in found.items()} == {
            "first": "query.young",
            "put back": "no-row",
        }
        clock.advance(61)
        assert says(queries.look_up("ORDERS", {"first": first})["first"]) == "no-row"


def test_a_database_that_is_away_is_unknown(tmp_path: Path) -> None:
    with opened(tmp_path, commit_queries_file(tmp_path, "ORDERS")) as (queries, _):
        (tmp_path / "shop.db").unlink()
        assert says(queries.look_up("ORDERS", {"x": half(1, properties={"KEYS": "a"})})["x"]) == "query.no-answer"
