"""A person names a message by the key that a commit query finds its row by: the ledger knows the halves of that key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.cli.app import run
from reconciler.commands.asking.business_ids import keys_named, messages_of
from reconciler.commands.rights import statements_of
from reconciler.contract import least_rights
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.policy.commit_query import digest_of
from reconciler.policy.ports.ledger import NotedHalf, VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.sql.schema import upgrade
from reconciler.sql.tables import half
from reconciler.wiring.connections import Connections
from tests.unit.embedded.check_back_stage import Stage, stage
from tests.unit.embedded.raw_client import TOPIC
from tests.unit.halves.shop_of_halves import settings_of

FIRST, SECOND, OTHER = (f"{number:032X}" for number in (1, 2, 3))


@pytest.fixture
def play() -> Iterator[Stage]:
    with stage("5.x") as made:
        yield made


@pytest.fixture
def config(tmp_path: Path, play: Stage) -> Path:
    """A half topic announces, and the ledger has noted two tries of order-4 and one of another order."""
    upgrade(f"sqlite:///{tmp_path}/ledger.db", "ledger")
    file = settings_of(play, tmp_path)
    for unique_key, order in ((FIRST, "order-4"), (SECOND, "order-4"), (OTHER, "ORDER-4")):
        play.half(unique_key, KEYS=order)
    with Connections(load_settings(file, {})) as connections:
        noted = [
            _noted(FIRST, "order-4", 1_000),
            _noted(SECOND, "order-4", 2_000),
            _noted(SECOND, "order-4", 2_500, broker="b"),
            _noted(OTHER, "ORDER-4", 3_000),
        ]
        assert connections.ledger.halves.note("test", TOPIC, noted)
        entry = VerdictEntry(
            unique_key=SECOND, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=2_000,
            state=CandidateState.OPEN, wait_seconds=0.0,
        )  # fmt: skip
        of = Subscription(environment="test", topic=TOPIC, group="billing")
        connections.ledger.candidates.record(Shard(subscription=of, number=0), [entry])
    return file


def _noted(unique_key: str, order: str, stored_at_ms: int, *, broker: str = "a") -> NotedHalf:
    digest = digest_of(order)
    return NotedHalf(
        unique_key=unique_key, broker=broker, key_digest=digest, tag_digest=None, stored_at_ms=stored_at_ms
    )


def test_the_life_of_each_half_of_a_query_key_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "order-4", "--config", str(config)]) == 0
    told = capsys.readouterr().out
    assert f"'order-4' is the query key of 2 half message(s) of {TOPIC}: {SECOND}, {FIRST}" in told
    newest, first = (told.index(f"Life of {unique_key}") for unique_key in (SECOND, FIRST))
    assert newest < first
    assert "LOST_CONFIRM" in told[:first]
    assert told.count("half message stored") == 2
    assert OTHER not in told
    assert "no outbox here" not in told, "the ledger has all halves that were read"
    assert "no outbox is configured" not in told, "a commit query is what proves commits"


def test_a_query_key_names_its_halves_for_lists_and_acts_once_each(config: Path) -> None:
    with Connections(load_settings(config, {})) as connections:
        found = messages_of(connections, "order-4", limit=9)
        assert (found.unique_keys, found.silent, found.older) == ((SECOND, FIRST), (), 0)
        assert messages_of(connections, "order-4", limit=1).older == 1
        assert keys_named(connections, "order-4", limit=9).unique_keys == (SECOND, FIRST)
        with pytest.raises(InvalidValue, match="no outbox has a message"):
            keys_named(connections, "order-5", limit=9)


def test_where_services_announce_the_halves_that_were_looked_up_are_known(config: Path) -> None:
    config.write_text(config.read_text().replace('announcements = "half_topic"', ""))
    with Connections(load_settings(config, {})) as connections:
        found = messages_of(connections, "order-4", limit=9)
    assert found.unique_keys == (SECOND, FIRST)
    assert [one.code.name for one in found.silent] == ["business.halves-looked-up"]


def test_a_ledger_without_the_table_of_halves_says_that_it_names_none(config: Path) -> None:
    settings = load_settings(config, {})
    with Connections(settings) as connections:
        engine = sa.create_engine(settings.ledger.url.reveal())
        half.drop(engine)
        engine.dispose()
        found = messages_of(connections, "order-4", limit=9)
    assert (found.messages, [one.code.name for one in found.silent]) == ((), ["business.halves-not-kept"])


def test_a_login_that_only_looks_reads_halves_where_a_query_proves_commits(config: Path) -> None:
    def reads_halves() -> bool:
        settings = load_settings(config, {"RECONCILER_LEDGER__URL": "postgresql://a@127.0.0.1/ledger"})
        found = statements_of(settings, "postgresql", [least_rights.CONSOLE], login="looks")
        return "GRANT SELECT ON reconciler_half TO looks;" in [line for one in found for line in one.statements]

    assert reads_halves()
    text = config.read_text().replace('announcements = "half_topic"', "")
    config.write_text(re.sub("commit_queries = .*", 'outbox_url = "postgresql://a@127.0.0.1/orders"', text))
    assert not reads_halves()
