"""The demo's plan: exactly the asked number of losses, of every kind, and the same again for the same seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.demo.job import DemoJob
from reconciler.demo.plan import LOSSES, MESSAGES_MAX, PRODUCERS, MessageFate, consumer_kills, plan_messages
from reconciler.errors import InvalidValue

sizes = st.integers(1, 300).flatmap(lambda messages: st.tuples(st.just(messages), st.integers(1, messages)))


@given(sizes, st.integers(0, 1 << 32))
def test_as_many_get_lost_as_were_asked_for(size: tuple[int, int], seed: int) -> None:
    messages, lose = size
    plan = plan_messages(messages, lose, seed)
    assert sum(one.fate in LOSSES for one in plan) == lose
    assert sum(one.fate is MessageFate.DELIVER for one in plan) == messages - lose
    assert sum(one.fate is MessageFate.ROLL_BACK for one in plan) == max(1, messages // 20)
    assert [one.number for one in plan] == list(range(len(plan)))


@given(sizes, st.integers(0, 1 << 32))
def test_the_first_message_is_a_loss_of_a_producer_that_lives(size: tuple[int, int], seed: int) -> None:
    assert plan_messages(*size, seed)[0].fate is MessageFate.END_DROPPED


@given(sizes, st.integers(0, 1 << 32))
def test_only_the_dead_groups_process_sends_what_its_death_loses(size: tuple[int, int], seed: int) -> None:
    for one in plan_messages(*size, seed):
        assert (one.producer == PRODUCERS) == (one.fate is MessageFate.GROUP_DEAD)
        assert 0 <= one.producer <= PRODUCERS


def test_every_kind_of_loss_happens_and_kills_stay_few() -> None:
    kinds = Counter(one.fate for one in plan_messages(400, 100, 7) if one.fate in LOSSES)
    assert kinds.keys() == LOSSES
    assert kinds[MessageFate.KILLED_BEFORE_END] == kinds[MessageFate.KILLED_BEFORE_ANNOUNCING] == 8


def test_each_process_of_a_demo_reads_the_job_that_was_written(tmp_path: Path) -> None:
    job = DemoJob(
        run="a1",
        folder=str(tmp_path),
        name_servers="127.0.0.1:9876",
        redis_url="redis://127.0.0.1:6379/0",
        messages=40,
        lose=8,
        seed=1,
        shards=4,
        repair_order=("end", "hand-over"),
        accept_unverified_redis=True,
        is_audited=False,
    )
    job.write()
    assert DemoJob.read(job.path) == job


def test_a_seed_repeats_the_demo_and_another_one_does_not() -> None:
    assert plan_messages(40, 8, 1) == plan_messages(40, 8, 1)
    assert plan_messages(40, 8, 1) != plan_messages(40, 8, 2)


@pytest.mark.parametrize(
    ("messages", "lose", "option"),
    [(0, 1, "--messages"), (MESSAGES_MAX + 1, 1, "--messages"), (5, 0, "--lose"), (5, 6, "--lose")],
)
def test_a_demo_that_cannot_be_is_refused_by_its_option(messages: int, lose: int, option: str) -> None:
    with pytest.raises(InvalidValue, match=option):
        plan_messages(messages, lose, 1)


@given(st.integers(1, 2_000), st.integers(0, 1 << 32))
def test_few_consumers_are_killed_and_the_same_ones_again(messages: int, seed: int) -> None:
    kills = consumer_kills(messages, seed)
    assert len(kills) == min(3, messages // 20)
    assert all(0 <= number < messages for number in kills)
    assert kills == consumer_kills(messages, seed)
