"""Chinese pages say what the English ones say: the same commands, figures, headings and links, in one vocabulary."""

# ruff: noqa: RUF001  (Chinese punctuation is what it is about)

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRANSLATION = runpy.run_path(str(ROOT / "docs/translation.py"))
PAGES: list[str] = TRANSLATION["pages"]()
WRITTEN = [*PAGES, *sorted(TRANSLATION["ALONE"])]
#: What else speaks Chinese: the console, notices, drawings.
CATALOGUES = sorted([*ROOT.glob("reconciler/words/*.toml"), *ROOT.glob("docs/**/*.toml")])
HAN = r"[\u4e00-\u9fff]"
POINTS = "，。；：？！、）"
#: Each is one habit of careless typesetting, and what it looks like.
SLIPS = {
    "no space between Chinese and Latin letters, digits or code": rf"{HAN}[A-Za-z0-9`]|[A-Za-z0-9`]{HAN}",
    "half-width punctuation behind Chinese": rf"{HAN}[,;:!?.()](?!\w*\))",
    "a space beside full-width punctuation": rf"[{POINTS}（]  ?[^\s|·]|[^\s|>·-] [{POINTS}]",
    "您 instead of 你": r"您",
    "a line break within a paragraph, which is shown as a space": r"^(?![#|])[^\n]+\n(?![#|>]|- |\d+\. |\s)",
    "slanted Chinese": rf"(?<!\*)\*(?={HAN})[^*\n`]*(?<={HAN})\*(?!\*)",
    "bold that GitHub does not show": rf"^(?:[^*\n]|\*\*[^*\n]*\*\*)*?\*\*[^*\n]*[{POINTS}”]\*\*[^\s{POINTS}]",
}


def prose(page: str) -> str:
    """Of a page, without fenced blocks, comments, and targets and sources of links; lines stay where they are."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(
        r"^( *)```.*?^\1```$", lambda block: re.sub(r"[^\n]", "", block[0]), text, flags=re.MULTILINE | re.DOTALL
    )
    return re.sub(r"<!--.*?-->|(?<=\])\([^)]*\)|^\[[\w-]+\]: \S+$", "", text, flags=re.MULTILINE)


def rivals() -> dict[str, str]:
    """Words that no page uses, each with the word of the glossary."""
    rows = re.findall(r"^\| ([^|]+?) \| .+ \| .+ \| (.*?) ?\|$", prose("docs/zh/glossary.md"), re.MULTILINE)
    return {rival: term for term, refused in rows for rival in refused.split("、") if rival and term != "术语"}


@pytest.mark.parametrize("page", PAGES)
def test_chinese_page_has_the_commands_figures_headings_and_links_of_its_english_page(page: str) -> None:
    assert (ROOT / TRANSLATION["english_of"](page)).is_file(), (
        "the English page is gone or has moved: move this one, too"
    )
    if not TRANSLATION["is_behind"](page):
        assert not TRANSLATION["differences"](page)


@pytest.mark.parametrize("page", PAGES)
def test_chinese_page_that_is_behind_says_so_to_its_readers(page: str) -> None:
    if not TRANSLATION["is_behind"](page):
        assert not TRANSLATION["says_so"](page), "it is no longer behind: python docs/translation.py --seal " + page
    elif not TRANSLATION["says_so"](page):
        pytest.fail(TRANSLATION["advice"](page))


@pytest.mark.parametrize("page", WRITTEN)
def test_a_link_is_marked_as_english_where_it_leads_to_an_english_page_and_nowhere_else(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    wrong = []
    for link in re.finditer(r"\[(?P<name>[^\]\n]*)\]\((?P<target>[^)#:\s]+\.md)(?:#[^)]*)?\)", text):
        target = (ROOT / page).parent.joinpath(link["target"]).resolve().relative_to(ROOT).as_posix()
        marked = text[link.end() :].startswith(("（英文）", "，英文）"))
        if link["name"] not in {"English", "英文版"} and marked is (target in WRITTEN):
            wrong.append(link[0])
    assert not wrong


@pytest.mark.parametrize("page", WRITTEN)
def test_no_page_uses_another_word_for_a_term_of_the_glossary(page: str) -> None:
    text = prose(page)
    if page == "docs/zh/glossary.md":
        text = re.sub(r"[^|\n]*\|[^|\n]*\|$", "", text, flags=re.MULTILINE)  # what others say, and what nobody writes
    assert not {rival: term for rival, term in rivals().items() if rival in text}, "write the second word of each"


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.name)
def test_nothing_else_that_speaks_chinese_uses_another_word(catalogue: Path) -> None:
    assert len(rivals()) > 80
    text = catalogue.read_text(encoding="utf-8")
    assert not {rival: term for rival, term in rivals().items() if rival in text}, "write the second word of each"


@pytest.mark.parametrize("page", WRITTEN)
def test_chinese_page_is_set_with_care(page: str) -> None:
    text = prose(page)
    found = [
        f"{page}:{text.count(chr(10), 0, slip.start()) + 1}: {name}: {slip[0]!r}"
        for name, pattern in SLIPS.items()
        for slip in re.finditer(pattern, text, re.MULTILINE)
    ]
    assert not found, "\n".join(found)


def test_careless_typesetting_is_seen_and_careful_one_is_not() -> None:
    careless = ["中a", "中,文", "中。 文", "您", "中\n文", "*中*", "**（中）**文"]
    seen = [[name for name, slip in SLIPS.items() if re.search(slip, text, re.MULTILINE)] for text in careless]
    assert seen == [[name] for name in SLIPS]
    careful = "# 中\n文 a，“b” `c`：[中](x)文 (d)。**中**文\n\n- 1 s\n- 2 s\n\n| 中 |\n|---|\n| 文 · a |\n"
    assert not [name for name, slip in SLIPS.items() if re.search(slip, careful, re.MULTILINE)]


class TestAPageOfOnesOwn:
    """The English page is changed under the hands of its translator."""

    @pytest.fixture
    def tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setitem(TRANSLATION["read"].__globals__, "ROOT", tmp_path)
        (tmp_path / "docs/zh").mkdir(parents=True)
        (tmp_path / "docs/page.md").write_text(
            "# Page\n\nWait 10 s, run `doctor`.\n\n1. Run:\n   ```bash\n   reconciler doctor\n   ```\n"
        )
        (tmp_path / "docs/zh/page.md").write_text(
            "# 页\n\n等 10 s，运行 `doctor`。\n\n1. 运行：\n   ```bash\n   reconciler doctor\n   ```\n"
        )
        TRANSLATION["seal"]("docs/zh/page.md")
        return tmp_path / "docs"

    def test_is_not_behind_before(self, tree: Path) -> None:
        assert not TRANSLATION["is_behind"]("docs/zh/page.md")
        assert not TRANSLATION["differences"]("docs/zh/page.md")

    def test_is_behind_after_a_word_and_not_after_a_line_break(self, tree: Path) -> None:
        text = (tree / "page.md").read_text()
        (tree / "page.md").write_text(text.replace("10 s, run", "10 s,\nrun"))
        assert not TRANSLATION["is_behind"]("docs/zh/page.md")
        (tree / "page.md").write_text(text.replace("Wait", "Sleep"))
        assert TRANSLATION["is_behind"]("docs/zh/page.md")

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("10 s", "20 s"),
            ("`doctor`", "`status`"),
            ("# Page", "## Page"),
            (" doctor\n   ```", " status\n   ```\n   ```\n   ok\n   ```"),
            ("run", "[run][why]"),
        ],
    )
    def test_a_seal_without_a_translation_is_found_out(self, tree: Path, old: str, new: str) -> None:
        (tree / "page.md").write_text((tree / "page.md").read_text().replace(old, new))
        TRANSLATION["seal"]("docs/zh/page.md")
        assert not TRANSLATION["is_behind"]("docs/zh/page.md")
        assert TRANSLATION["differences"]("docs/zh/page.md")

    def test_a_seal_takes_the_changed_command(self, tree: Path) -> None:
        (tree / "page.md").write_text((tree / "page.md").read_text().replace("reconciler doctor", "reconciler status"))
        TRANSLATION["seal"]("docs/zh/page.md")
        assert "reconciler status" in (tree / "zh/page.md").read_text()
        assert not TRANSLATION["differences"]("docs/zh/page.md")

    def test_tells_its_readers_until_it_is_sealed_again(self, tree: Path) -> None:
        (tree / "page.md").write_text((tree / "page.md").read_text().replace("Wait", "Sleep"))
        TRANSLATION["tell"]("docs/zh/page.md")
        assert "[英文版](../page.md)" in (tree / "zh/page.md").read_text()
        assert TRANSLATION["says_so"]("docs/zh/page.md")
        TRANSLATION["seal"]("docs/zh/page.md")
        assert not TRANSLATION["says_so"]("docs/zh/page.md")
