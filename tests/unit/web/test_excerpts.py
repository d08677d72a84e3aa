"""A text without end, a document without end, and letters that run to the left."""

from __future__ import annotations

import json

import pytest

from reconciler.contract.visible_text import excerpt
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.cursors import CURSOR_CHARACTERS_MAX, cursor_of, position_of
from reconciler.web.excerpts import DEPTH_MAX, TEXT_CHARACTERS_MAX, excerpts, shown
from reconciler.web.exchange import json_response
from reconciler.words import LANGUAGES

LONG = "x" * 100_000
CUT = "x" * TEXT_CHARACTERS_MAX + "… (cut: 100000 characters)"


def test_a_long_text_is_whole_or_cut_without_a_word() -> None:
    assert excerpt("12345", 5) == "12345"
    assert excerpt("123456", 5) == "12345… (cut: 6 characters)"
    document = {"a": LONG, LONG: [LONG, {"b": LONG}], "c": (1, None, 2.5, True)}
    cut = {"a": CUT, CUT: [CUT, {"b": CUT}], "c": [1, None, 2.5, True]}
    assert json.loads(json_response(document).body) == cut
    assert json.loads(json_response([LONG], is_whole=True).body) == [LONG]
    assert shown(LONG) == CUT


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_long_name_makes_a_sentence_without_end(language: str) -> None:
    text = catalogue_of(language).text("outcome.by", name=LONG)
    assert "cut: 100000 characters" in text
    assert len(text) < TEXT_CHARACTERS_MAX + 200


def test_a_document_without_end_needs_a_stack_without_end() -> None:
    deep: object = "core"
    for _ in range(900):
        deep = [deep]
    found, levels = excerpts({"a": deep}), 0
    assert isinstance(found, dict)
    inner = found["a"]
    while isinstance(inner, list):
        (inner,), levels = inner, levels + 1
    assert (levels, inner) == (DEPTH_MAX - 1, "… (cut: too deep)")


def test_a_cursor_behind_the_longest_names_is_cut_or_refused() -> None:
    position = ("\U0001f468" * 160, "漢" * 160, "\U0001242b" * 160, 2**63 - 1)
    cursor = cursor_of("candidates", position)
    assert cursor is not None
    assert len(cursor) <= min(CURSOR_CHARACTERS_MAX, TEXT_CHARACTERS_MAX)
    assert position_of("candidates", cursor) == position


def test_letters_that_run_to_the_left_turn_the_sentence_around_them() -> None:
    words = catalogue_of("en")
    assert "\u2068\u05e9\u05dc\u05d5\u05dd\u2069" in words.text("outcome.by", name="\u05e9\u05dc\u05d5\u05dd")
    assert "\u2068" not in words.text("outcome.by", name="Zürich 支付")
    assert "\u202e" not in words.text("outcome.by", name="\u202e\u05e9\u05dc\u05d5\u05dd")
