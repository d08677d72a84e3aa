"""A fact in words: each kind of field in both languages, and the pieces that a page marks up."""
# ruff: noqa: RUF001  (Chinese punctuation is what it is about)

from __future__ import annotations

import pytest

from reconciler.commands.asking.environment import OTHER_CLUSTER
from reconciler.commands.status.standstill import FAILED, QUARANTINED
from reconciler.contract.facts import COUNTED_MAX, Fact, Field
from reconciler.telling.account import (
    HELD,
    LATE_AFTER,
    MORE_BELOW,
    PERSON,
    SHARDS_WITHOUT_ROUND,
    UNREADABLE_TIME,
    UNTIL,
    WELL,
)
from reconciler.telling.life_events import HALF_PUT_BACK
from reconciler.words import LANGUAGES, Piece, counted, pieces, said

NOW_MS = 1_700_000_000_999
NOW = "2023-11-14T22:13:20Z"
UNTIL_NOW = UNTIL(at_ms=NOW_MS)


@pytest.mark.parametrize(
    ("fact", "english", "chinese"),
    [
        (
            UNREADABLE_TIME(group="shop", unique_key="K"),
            "the outbox of shop: created_at_ms of K is no time: mend the value",
            "shop 的发件箱：K 的 created_at_ms 不是有效时间：请改正该值",
        ),
        (OTHER_CLUSTER(why="a {b} `c`\n"), "a {b} `c`\n", "a {b} `c`\n"),
        (HALF_PUT_BACK(number=2), "half put back before check-back number 2", "第 2 次回查之前重新写入了半消息"),
        (
            FAILED(number=COUNTED_MAX),
            "failed repairs: 100000 (`reconciler list repairs --state FAILED`)",
            "修复失败：100000（`reconciler list repairs --state FAILED`）",
        ),
        (
            FAILED(number=COUNTED_MAX + 1),
            "failed repairs: more than 100000 (`reconciler list repairs --state FAILED`)",
            "修复失败：超过 100000（`reconciler list repairs --state FAILED`）",
        ),
        (UNTIL_NOW, f"every commit until {NOW} is accounted for", f"截至 {NOW} 的每一笔提交都已核对清楚"),
        (
            HELD(topics=("ORDERS", "REFUNDS"), until=UNTIL_NOW),
            (
                "Repairs of ORDERS, REFUNDS are on hold, until `reconciler resume TOPIC`; "
                f"every commit until {NOW} is accounted for"
            ),
            f"ORDERS、REFUNDS 的修复已被暂停，直到 `reconciler resume TOPIC`；截至 {NOW} 的每一笔提交都已核对清楚",
        ),
        (
            SHARDS_WITHOUT_ROUND(shards=("3",)),
            "shards 3 never had a round: is `reconciler run` alive, and what does its log say?",
            "分片 3 从未有过对账轮：`reconciler run` 是否在运行？它的日志里有什么？",
        ),
        (
            PERSON(needs=(OTHER_CLUSTER(why="A"), OTHER_CLUSTER(why="B")), until=UNTIL_NOW),
            f"A person is needed: A; B; every commit until {NOW} is accounted for",
            f"需要人工处理：A；B；截至 {NOW} 的每一笔提交都已核对清楚",
        ),
        (
            LATE_AFTER(
                at_ms=NOW_MS,
                subscription="ORDERS/billing",
                cause=MORE_BELOW(cause=OTHER_CLUSTER(why="A"), number=3),
            ),
            f"Commits after {NOW} are not accounted for: ORDERS/billing: A (and 3 more, below)",
            f"{NOW} 之后的提交尚未核对清楚：ORDERS/billing：A（另有 3 条，见下）",
        ),
    ],
    ids=lambda value: value.code.name if isinstance(value, Fact) else "",
)
def test_each_kind_of_field_has_its_form_in_each_language(fact: Fact, english: str, chinese: str) -> None:
    assert said(fact) == english
    assert {language: said(fact, language) for language in LANGUAGES} == {"en": english, "zh": chinese}
    assert "".join(piece.text for piece in pieces(fact, "zh")) == chinese


def test_a_count_beyond_what_is_counted_says_so() -> None:
    assert [counted(count) for count in (0, COUNTED_MAX)] == ["0", "100000"]
    assert [counted(COUNTED_MAX + 1, language) for language in LANGUAGES] == ["more than 100000", "超过 100000"]


def test_pieces_say_what_each_part_is_and_which_time_it_shows() -> None:
    needs = (QUARANTINED(number=COUNTED_MAX + 1), OTHER_CLUSTER(why="redis: gone"))
    assert list(pieces(PERSON(needs=needs, until=UNTIL_NOW))) == [
        Piece("A person is needed: "),
        Piece("quarantined keys: "),
        Piece("more than 100000", Field.COUNT),
        Piece(" (`reconciler list candidates --state QUARANTINED`)"),
        Piece("; "),
        Piece("redis: gone", Field.TEXT),
        Piece("; "),
        Piece("every commit until "),
        Piece(NOW, Field.TIME, NOW_MS),
        Piece(" is accounted for"),
    ]
    assert list(pieces(HELD(topics=("A", "B"), until=WELL(until=UNTIL_NOW)), "zh"))[:4] == [
        Piece("A", Field.NAMES),
        Piece("、"),
        Piece("B", Field.NAMES),
        Piece(" 的修复已被暂停，直到 `reconciler resume TOPIC`；"),
    ]
    assert list(pieces(HALF_PUT_BACK(number=2)))[1] == Piece("2", Field.NUMBER)
    assert next(pieces(UNREADABLE_TIME(group="shop", unique_key="K"), "zh")) == Piece("shop", Field.NAME)
