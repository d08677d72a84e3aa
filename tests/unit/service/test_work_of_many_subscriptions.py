"""What processes make of their settings before they ask anybody: work that grows with the subscriptions, and no faster.

A function that walks through all subscriptions for each subscription, or for each topic of each query, is not noticed
with five of them, and takes most of a turn with two hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.commands.asking.availability import database_away
from reconciler.commands.diagnosis import listed
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.sql.schema import upgrade
from reconciler.wiring import commit_queries, databases
from reconciler.wiring.announcements import build_announcement_consumer, stored_halves
from reconciler.wiring.connections import Connections
from reconciler.wiring.rounds import RoundAssembly, topic_plans
from reconciler.words import said
from tests.counted_lines import counted_lines, grown_faster
from tests.unit.service.many_subscriptions import SHAPES, settings_text

FEW, MANY = 50, 200


def _databases(settings: Settings) -> None:
    databases.configured_databases(settings)
    databases.outbox_databases_of_topics(settings)


def _parts(settings: Settings) -> None:
    """Everything that `run` makes before its first turn."""
    with Connections(settings) as connections:
        build_announcement_consumer(connections)
        stored_halves(connections)
        assembly = RoundAssembly(connections)
        for topic in assembly.plans:
            assembly.rounds_of(topic)


def _decisions(settings: Settings) -> None:
    """What each topic asks before it sends anything that a query proves lost."""
    with Connections(settings) as connections:
        for plan in topic_plans(settings):
            commit_queries.why_not_accepted(connections, plan.topic)


@pytest.fixture(params=SHAPES)
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Path]:
    """Writes the settings of so many subscriptions, with an upgraded ledger."""

    def written(number: int) -> Path:
        upgrade(f"sqlite:///{tmp_path}/{number}.db", "ledger")
        file = tmp_path / f"{number}.toml"
        nobody = "127.0.0.1:1"
        text = settings_text(request.param, number, tmp_path, name_servers=nobody, redis_url=f"redis://{nobody}/0")
        file.write_text(text)
        return file

    return written


def lines_of(file: Path) -> Counter[str]:
    settings = load_settings(file, {})
    for work in (_databases, topic_plans, _parts, _decisions):
        work(settings)  # imports, and files that are read once, are no work of a call
    with counted_lines() as found:
        settings = load_settings(file, {})
        for work in (_databases, topic_plans, _parts, _decisions):
            work(settings)
    return found


@pytest.mark.unmeasured
def test_no_function_works_more_than_four_times_as_much_for_200_subscriptions_as_for_50(
    write: Callable[[int], Path],
) -> None:
    few, many = (lines_of(write(number)) for number in (FEW, MANY))
    assert few.total() > FEW * 100, "nothing was counted"
    assert grown_faster(few, many, times=MANY / FEW) == {}
    assert many.total() <= MANY / FEW * few.total()


@pytest.mark.unmeasured
def test_a_walk_through_all_for_each_is_found() -> None:
    def walk(number: int) -> Counter[str]:
        facts = [databases.LEDGER() for _ in range(number)]
        with counted_lines() as found:
            for _ in facts:
                for fact in facts:
                    said(fact)
        return found

    assert "words/saying.py:said" in grown_faster(walk(10), walk(40), times=4)


def test_a_list_of_a_thousand_servers_can_be_said() -> None:
    servers = [databases.database_fact("outbox", f"shop-{number}") for number in range(1_000)]
    assert said(listed(servers)) == ", ".join(map(said, servers))
    assert said(listed(servers[:1])) == said(servers[0])
    assert said(database_away(servers, "refused")).count("shop-") == 1_000
