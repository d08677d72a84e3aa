"""The texts of the pages: the first to see one that is missing would be who is on call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from reconciler.contract.outcomes import BY_VERDICT, HANDED_REFUSED
from reconciler.contract.verdicts import Verdict, what_ends
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.moments import moment
from reconciler.web.console.saying import kept_on_page, on_page
from reconciler.words import LANGUAGES, said
from tests.unit.words.test_catalogue import entries, places

CONSOLE = Path(__file__).parents[3] / "reconciler/web/console"
SOURCES = [*CONSOLE.rglob("*.html"), *CONSOLE.rglob("*.py")]
#: t("key", name=...) of templates, words.text("key", name=...) of code; a key may be put together.
_TEXT = re.compile(r"""(?:\bt|\.text)\(\s*f?["']([\w.{}-]+)["']((?:[^()]|\([^()]*\))*)\)""")
_FAMILY = re.compile(r"""(?:\bword|\.word)\(\s*["']([\w.-]+?)\.?["'](?: ~ \w+)?,""")
_HAN = re.compile("[\u4e00-\u9fff]")
#: Code -> its sentences by language.
TEXTS = dict(entries("console*.toml"))


def used_texts() -> Iterator[tuple[str, re.Pattern[str], frozenset[str]]]:
    """Where, a pattern of the key, and the places that are filled."""
    for path in SOURCES:
        for key, arguments in _TEXT.findall(path.read_text()):
            given = re.findall(r"(\w+)=(?!=)", re.sub(r"\([^()]*\)", "", arguments))
            parts = re.sub(r"\\{.*?\\}", r"[\\w-]+", re.escape(key)) + (r"[\w-]+" if key.endswith(".") else "")
            yield path.name, re.compile(parts), frozenset(given)


@cache
def families() -> frozenset[str]:
    return frozenset(family for path in SOURCES for family in _FAMILY.findall(path.read_text()))


def test_what_is_said_in_english_only_is_a_name() -> None:
    bare = {code: entry for code, entry in TEXTS.items() if not _HAN.search(entry["zh"])}
    assert not [
        code for code, entry in bare.items() if entry["zh"] != entry["en"] and any(map(str.isalpha, entry["zh"]))
    ]


def test_every_text_that_a_page_asks_for_is_there_with_its_places() -> None:
    texts = catalogue_of("en").texts
    for source, key, given in used_texts():
        found = [text for name, text in texts.items() if key.fullmatch(name)]
        assert found, (source, key.pattern)
        assert not [text for text in found if not set(places(text)) <= given], (source, key.pattern)


def test_no_text_is_left_that_no_page_asks_for() -> None:
    patterns = [key for _, key, _ in used_texts()]
    assert len(TEXTS) > 500
    assert not [
        code
        for code in TEXTS
        if not any(code.startswith(f"{family}.") for family in families())
        and not any(pattern.fullmatch(code) for pattern in patterns)
    ]


def test_every_family_that_a_page_asks_for_has_words() -> None:
    assert not [family for family in families() if not any(code.startswith(f"{family}.") for code in TEXTS)]


def test_a_value_that_is_filled_in_is_neither_markup_nor_a_place() -> None:
    text = str(catalogue_of("en").text("base.request", id="<b>{id}\u202e</b>"))
    assert text == "Request &lt;b&gt;{id}\\u{202E}&lt;/b&gt;"
    assert catalogue_of("en").word("navigation", "<i>") == "&lt;i&gt;"


def test_every_command_that_a_sentence_begins_ends_in_it() -> None:
    texts = [text for _, entry in entries() for text in entry.values()]
    assert len(texts) > 1_000
    assert not [text for text in texts if text.count("`") % 2]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_command_is_marked_as_a_whole_with_the_values_in_it(language: str) -> None:
    for verdict in Verdict:
        assert "`" not in on_page(what_ends(verdict, "K1"), catalogue_of(language), moment)
    shown = on_page(what_ends(Verdict.COLLISION, "<K1>"), catalogue_of(language), moment)
    assert "<code>reconciler dismiss &lt;K1&gt;</code>" in shown


@pytest.mark.parametrize("verdict", Verdict)
def test_why_nothing_is_handed_over_is_told_in_the_language_of_the_page(verdict: Verdict) -> None:
    why = HANDED_REFUSED(why=BY_VERDICT(verdict=str(verdict), ending=what_ends(verdict, "K1")))
    kept = {"reason": said(why), "fact": why.as_dict()}
    assert 'lang="en"' not in kept_on_page(kept, catalogue_of("zh"), moment, text="reason")
