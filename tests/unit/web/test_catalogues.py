"""The languages of the pages: the first to see a key that one lacks would be who is on call."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.web.console.catalogue import catalogue_of
from reconciler.words import LANGUAGES

CONSOLE = Path(__file__).parents[3] / "reconciler/web/console"
SOURCES = [*CONSOLE.rglob("*.html"), *CONSOLE.rglob("*.py")]
#: t("key", name=...) of templates, words.text("key", name=...) of code; a key may be put together.
_TEXT = re.compile(r"""(?:\bt|\.text)\(\s*f?["']([\w.{}-]+)["']((?:[^()]|\([^()]*\))*)\)""")
_FAMILY = re.compile(r"""(?:\bword|\.word)\(\s*["']([\w.-]+?)\.?["'](?: ~ \w+)?,""")
_HAN = re.compile("[\u4e00-\u9fff]")


def places(text: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


def used_texts() -> Iterator[tuple[str, re.Pattern[str], frozenset[str]]]:
    """Where, a pattern of the key, and the places that are filled."""
    for path in SOURCES:
        for key, arguments in _TEXT.findall(path.read_text()):
            given = re.findall(r"(\w+)=(?!=)", re.sub(r"\([^()]*\)", "", arguments))
            if "**" in arguments:
                given += ["subscription", "cause"]
            parts = re.sub(r"\\{.*?\\}", r"[\\w-]+", re.escape(key)) + (r"[\w-]+" if key.endswith(".") else "")
            yield path.name, re.compile(parts), frozenset(given)


def families() -> frozenset[str]:
    return frozenset(family for path in SOURCES for family in _FAMILY.findall(path.read_text()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_the_keys_and_places_of_the_others(language: str) -> None:
    english, other = catalogue_of("en").texts, catalogue_of(language).texts
    assert other.keys() == english.keys()
    assert {key: places(text) for key, text in other.items()} == {key: places(text) for key, text in english.items()}
    assert not [key for key, text in other.items() if not text.strip()]


def test_what_is_said_in_english_only_is_a_name() -> None:
    chinese, english = catalogue_of("zh").texts, catalogue_of("en").texts
    same = [key for key, text in chinese.items() if not _HAN.search(text) and text != english[key]]
    assert not [key for key in same if any(map(str.isalpha, chinese[key]))]


def test_every_text_that_a_page_asks_for_is_there_with_its_places() -> None:
    texts = catalogue_of("en").texts
    for source, key, given in used_texts():
        found = [text for name, text in texts.items() if key.fullmatch(name)]
        assert found, (source, key.pattern)
        assert not [text for text in found if not places(text) <= given], (source, key.pattern)


def test_no_text_is_left_that_no_page_asks_for() -> None:
    patterns = [key for _, key, _ in used_texts()]
    assert not [
        key
        for key in catalogue_of("en").texts
        if not any(key.startswith(f"{family}.") for family in families())
        and not any(pattern.fullmatch(key) for pattern in patterns)
    ]


def test_every_family_that_a_page_asks_for_has_words() -> None:
    keys = catalogue_of("en").texts
    assert not [family for family in families() if not any(key.startswith(f"{family}.") for key in keys)]


def test_a_value_that_is_filled_in_is_neither_markup_nor_a_place() -> None:
    text = str(catalogue_of("en").text("base.request", id="<b>{id}\u202e</b>"))
    assert text == "Request &lt;b&gt;{id}\\u{202E}&lt;/b&gt;"
    assert catalogue_of("en").word("navigation", "<i>") == "&lt;i&gt;"
