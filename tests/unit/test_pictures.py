"""The pictures of docs/explanation are what the search and the drawings say, and everybody can read them."""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from docs.drawing import files
from docs.drawing.canvas import GROUNDS, INKS, WIDTH, Canvas, width_of, wrapped
from tests.console.picture_words import FOLDER, WORDS, is_in_the_catalogue
from tests.model import stories

PICTURES = files.pictures()
DOCS = Path(__file__).parents[2] / "docs"
_SVG = "{http://www.w3.org/2000/svg}"


def test_every_file_is_what_is_drawn_and_no_other_lies_there() -> None:
    lying = {path.name: path.read_text(encoding="utf-8") for path in files.FOLDER.glob("*.svg")}
    assert lying == PICTURES, "run: make pictures"


def test_every_accident_of_the_model_is_drawn_and_shown_on_its_page() -> None:
    page = stories.PAGE.read_text(encoding="utf-8")
    for weakened in stories.WEAKENED:
        name = f"{weakened.picture}.svg"
        assert name in PICTURES
        assert f"](pictures/{name})" in page


def test_no_page_loads_a_large_picture_and_none_is_left_behind() -> None:
    taken = sorted(DOCS.rglob("*.webp"))
    sizes = [path.stat().st_size for path in taken]
    assert sizes
    assert max(sizes) <= 60 * 1024
    assert sum(sizes) < 1024 * 1024
    assert all(path.read_bytes()[8:12] == b"WEBP" for path in taken)
    shown = {path.name for page in DOCS.rglob("*.md") for path in pictures_of(page)}
    shown |= {path.name for path in pictures_of(DOCS.parent / "README.md")}
    lying = {path.name for path in (*taken, *files.FOLDER.glob("*.svg"))}
    assert {name for name in lying if ".zh." not in name} <= shown


def test_what_a_picture_of_the_console_says_is_still_said_by_the_product() -> None:
    words: dict[str, list[str]] = json.loads(WORDS.read_text(encoding="utf-8"))
    assert set(words) == {path.name for path in FOLDER.glob("*.webp")} - {"audit-report.webp"}
    assert all(len(texts) > 10 for texts in words.values())
    language = {name: "zh" if ".zh." in name else "en" for name in words}
    old = [(name, text) for name in words for text in words[name] if not is_in_the_catalogue(text, language[name])]
    assert not old, "run: make pictures"


def pictures_of(page: Path) -> list[Path]:
    return [Path(address) for address in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))]


def test_the_chinese_table_has_no_text_that_is_drawn_no_more() -> None:
    assert set(files.CHINESE) == set(files.sentences())


@pytest.mark.parametrize("name", PICTURES)
def test_who_does_not_see_a_picture_is_told_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name])
    title, told = root.findtext(f"{_SVG}title"), root.findtext(f"{_SVG}desc")
    assert title
    assert told is not None
    assert len(told) > 60
    assert root.attrib["role"] == "img"
    assert [root.find(f"{_SVG}*[@id='{one}']") is None for one in root.attrib["aria-labelledby"].split()] == [False] * 2


@pytest.mark.parametrize("theme", [1, 2], ids=["light", "dark"])
def test_every_ink_stands_out_from_every_ground(theme: int) -> None:
    for ink in INKS:
        for ground in GROUNDS:
            assert contrast(ink[theme], ground[theme]) >= 4.5, (ink, ground)


def contrast(one: str, other: str) -> float:
    """By WCAG 2: (L1 + 0.05) / (L2 + 0.05)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("text", [text for text in files.CHINESE.items() if len(text[0]) > 90])
def test_a_text_that_is_broken_into_lines_keeps_its_letters_and_its_room(text: tuple[str, str]) -> None:
    for one in text:
        lines = wrapped(one, 200)
        assert len(lines) > 1
        assert max(width_of(line) for line in lines) <= 215, "a mark at the end may hang over"
        assert "".join(lines).replace(" ", "") == one.replace(" ", "")
        assert not any(unicodedata.category(line[0]) in ("Po", "Pe") for line in lines)


def test_a_text_that_would_be_cut_off_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer words"):
        Canvas().text(WIDTH - 10, 20, "reconciler")
