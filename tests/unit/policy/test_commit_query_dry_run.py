"""When a dry run shows that a commit query can be trusted, and when only a person can say so."""

from __future__ import annotations

import pytest

from reconciler.contract.query_answers import NULL_STATE, YOUNG
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, unknown
from reconciler.policy.commit_query_dry_run import (
    Fitness,
    QueryAspect,
    QueryFinding,
    TriedHalf,
    shared_keys,
    trust,
    try_on_committed,
    try_on_rolled_back,
)

COMMITTED, CANCELLED = BusinessAnswer(BusinessState.COMMITTED), BusinessAnswer(BusinessState.ROLLED_BACK)
NULL, SILENT = unknown(NULL_STATE()), unknown(YOUNG(seconds=1))


def halves(*counted: tuple[int, BusinessAnswer | None]) -> list[TriedHalf]:
    answers = [answer for number, answer in counted for _ in range(number)]
    return [TriedHalf(unique_key=f"U{n}", key=f"o{n}", tags="", answer=answer) for n, answer in enumerate(answers)]


def told(finding: QueryFinding) -> tuple[str, str, int]:
    return finding.found.code.name, finding.fitness.value, len(finding.exceptions)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ([(500, COMMITTED)], ("query.committed-found", "fit", 0)),
        ([(495, COMMITTED), (5, None)], ("query.committed-found", "fit", 5)),
        ([(494, COMMITTED), (6, None)], ("query.committed-missed", "doubtful", 6)),
        ([(99, COMMITTED), (1, SILENT)], ("query.committed-found", "fit", 1)),
        ([(20, COMMITTED)], ("query.committed-found", "fit", 0)),
        ([(19, COMMITTED)], ("query.too-few", "doubtful", 0)),
        ([(500, CANCELLED)], ("query.committed-missed", "unfit", 500)),
        ([(3, None)], ("query.too-few", "unfit", 3)),
        ([], ("query.too-few", "doubtful", 0)),
    ],
)
def test_of_a_hundred_halves_that_ended_in_commit_one_may_be_missed(
    counted: list[tuple[int, BusinessAnswer | None]], expected: tuple[str, str, int]
) -> None:
    assert told(try_on_committed(halves(*counted))) == expected


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ([(500, None)], ("query.rolled-back-unfound", "fit", 0)),
        ([(250, CANCELLED), (245, NULL), (5, COMMITTED)], ("query.rolled-back-unfound", "fit", 5)),
        ([(494, None), (6, COMMITTED)], ("query.rolled-back-found", "doubtful", 6)),
        ([(20, None)], ("query.rolled-back-unfound", "fit", 0)),
        ([(19, None)], ("query.too-few", "doubtful", 0)),
        ([(2, COMMITTED)], ("query.rolled-back-found", "doubtful", 2)),
        ([], ("query.too-few", "doubtful", 0)),
        ([(500, SILENT)], ("query.unanswered", "unfit", 0)),
        ([(19, None), (481, SILENT)], ("query.unanswered", "unfit", 0)),
        ([(20, None), (480, SILENT)], ("query.rolled-back-unfound", "fit", 0)),
    ],
)
def test_what_had_no_answer_is_not_counted_among_those_that_are_not_committed(
    counted: list[tuple[int, BusinessAnswer | None]], expected: tuple[str, str, int]
) -> None:
    assert told(try_on_rolled_back(halves(*counted))) == expected


def test_exceptions_have_names_and_reasons() -> None:
    (half, *_) = try_on_committed(halves((99, COMMITTED), (1, NULL))).exceptions
    assert half.unique_key == "U99"
    assert half.says().as_dict()["fields"] == {
        "key": "o99", "state": "unknown", "why": {"code": "query.null-state", "fields": {}},
    }  # fmt: skip


def test_two_tries_of_one_key_and_tag_are_noted() -> None:
    def of(*pairs: tuple[str, str]) -> tuple[str, str, int]:
        return told(shared_keys(TriedHalf(unique_key="U", key=key, tags=tag, answer=None) for key, tag in pairs))

    assert of(("o1", "paid"), ("o1", "shipped"), ("o2", "paid")) == ("query.keys-own", "fit", 0)
    assert of(("o1", "paid"), ("o1", "paid"), ("o2", "paid")) == ("query.keys-shared", "noted", 0)
    assert of(("", "paid"), ("", "paid")) == ("query.keys-not-seen", "noted", 0)


@pytest.mark.parametrize(
    ("fitnesses", "expected"),
    [
        (("fit", "fit"), ("query.trusted", "fit", 0)),
        (("fit", "noted"), ("query.trusted-except", "noted", 0)),
        (("doubtful", "noted"), ("query.person-accepts", "doubtful", 0)),
        (("doubtful", "unfit"), ("query.not-trusted", "unfit", 0)),
    ],
)
def test_a_query_is_trusted_as_far_as_the_worst_that_was_found(
    fitnesses: tuple[str, str], expected: tuple[str, str, int]
) -> None:
    found = [
        QueryFinding(aspect=aspect, fitness=Fitness(fitness), found=NULL_STATE())
        for aspect, fitness in zip((QueryAspect.ROLLED_BACK_HALVES, QueryAspect.PLAN), fitnesses, strict=True)
    ]
    assert told(trust(found)) == expected
