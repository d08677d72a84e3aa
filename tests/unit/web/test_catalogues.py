"""The texts of the pages: the first to see one that is missing would be who is on call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from reconciler.web.console.catalogue import catalogue_of
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
