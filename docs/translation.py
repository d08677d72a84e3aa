"""Which Chinese page says what its English page says: `python docs/translation.py` lists the pages that do not.

Each Chinese page ends with the name of its English page and a digest of the text that it was translated from. A page is
*behind* when the English text has another digest now. The commands, with the Chinese page (or several) as argument:

- `python docs/translation.py --seal docs/zh/index.md`: it was translated again. Copies the fenced blocks from the English page,
  which are the same in both, and writes the new digest.
- `python docs/translation.py --behind docs/zh/index.md`: nobody translates it now. The page tells its readers so.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[1]
#: Chinese pages that have no English page.
ALONE = frozenset({"docs/zh/glossary.md"})
_SEAL = re.compile(r"^<!-- of: (?P<english>\S+), (?P<digest>[0-9a-f]{12}) -->$", re.MULTILINE)
_BEHIND = "> 本页落后于英文版。以[英文版]({english})为准。\n\n"
_BLOCK = re.compile(r"^(?P<indent> *)```\w*\n.*?^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<target>[^)#:\s]*)(?:#[^)]*)?\)")
_CODE = re.compile(r"`([^`\n]+)`")
#: A link by its label, `[text][label]`, and what the label stands for.
_SOURCE = re.compile(r"\]\[[\w-]+\]|^\[[\w-]+\]: \S+$", re.MULTILINE)
_FIGURE = re.compile(r"\d(?:[\d.]*\d)?")


def english_of(chinese: str) -> str:
    """The English page of a Chinese one, both from the root of the tree."""
    return chinese.replace("docs/zh/", "docs/", 1).replace(".zh-CN.md", ".md")


def chinese_of(english: str) -> str:
    """The Chinese page of an English one, whether it exists or not."""
    return (
        english.replace("docs/", "docs/zh/", 1) if english.startswith("docs/") else english.replace(".md", ".zh-CN.md")
    )


def pages() -> list[str]:
    """Every Chinese page that has an English one."""
    found = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs/zh").rglob("*.md")]
    return sorted({"README.zh-CN.md", *found} - ALONE)


def read(page: str) -> str:
    """The text of a page; empty where there is none."""
    path = ROOT / page
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def digest(english: str) -> str:
    """Of the words of a page: where its lines break says nothing."""
    return hashlib.sha256(" ".join(english.split()).encode()).hexdigest()[:12]


def is_behind(chinese: str) -> bool:
    """Whether the English page has changed since, or the page is of no English page."""
    seal = _SEAL.search(read(chinese))
    return seal is None or seal["english"] != english_of(chinese) or seal["digest"] != digest(read(english_of(chinese)))


def says_so(chinese: str) -> bool:
    """Whether the page tells its readers that it is behind."""
    return _notice(chinese) in read(chinese)


def differences(chinese: str) -> list[str]:
    """What the two pages of one digest do not have in common, a line each."""
    return list(_differences(english_of(chinese), chinese))


def _differences(english: str, chinese: str) -> Iterator[str]:
    here, there = read(chinese), read(english)
    for name, of in (("headings", _headings), ("rows of tables", _rows)):
        if of(here) != of(there):
            yield f"{chinese}: {name} are {of(here)}, and {of(there)} in {english}"
    blocks, given = ([block[0] for block in _BLOCK.finditer(text)] for text in (here, there))
    if blocks != given:
        odd = [block for block in given if block not in blocks] or [block for block in blocks if block not in given]
        yield f"{chinese}: its fenced blocks are not those of {english}, in this order: {odd or 'another order'}"
    for name, of_text in (("code", _codes), ("figures", _figures), ("sources", _sources)):
        if lacking := of_text(there) - of_text(here):
            yield f"{chinese}: lacks {name} of {english}: {', '.join(sorted(lacking))}"
    if lacking := {_preferred(link) for link in _links(english)} - set(_links(chinese)) - {chinese}:
        yield f"{chinese}: lacks links of {english}, or links where there is a Chinese page: {', '.join(sorted(lacking))}"


def _headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", _BLOCK.sub("", text), re.MULTILINE)]


def _rows(text: str) -> list[int]:
    return [len(table.splitlines()) for table in re.findall(r"(?:^\|.*\n)+", _BLOCK.sub("", text), re.MULTILINE)]


def _prose(text: str) -> str:
    return re.sub(r"<!--.*?-->", "", _BLOCK.sub("", text), flags=re.DOTALL)


def _codes(text: str) -> set[str]:
    return set(_CODE.findall(_prose(text)))


def _figures(text: str) -> set[str]:
    prose = re.sub(r"\]\([^)]*\)", "]", _CODE.sub("", _prose(text)))
    return set(_FIGURE.findall(re.sub(r"(?<=\d)[ ,](?=\d{3})", "", prose)))


def _sources(text: str) -> set[str]:
    return set(_SOURCE.findall(_prose(text)))


def _links(page: str) -> Iterator[str]:
    for found in _LINK.finditer(_prose(read(page))):
        yield normpath(f"{Path(page).parent.as_posix()}/{found['target']}") if found["target"] else page


def _preferred(link: str) -> str:
    """What a Chinese page links to: the Chinese page or picture where there is one."""
    picture = re.sub(r"\.(svg|webp)$", r".zh.\1", link)
    chinese = picture if picture != link else chinese_of(link)
    return chinese if (ROOT / chinese).exists() else link


def _notice(chinese: str) -> str:
    return _BEHIND.format(english=relpath(english_of(chinese), Path(chinese).parent.as_posix()))


def seal(chinese: str) -> None:
    """Takes the blocks of the English page if it has as many, and its digest; the notice of being behind goes."""
    there = read(english_of(chinese))
    text = _SEAL.sub("", read(chinese).replace(_notice(chinese), "")).rstrip("\n")
    blocks = [block[0] for block in _BLOCK.finditer(there)]
    if len(blocks) == len(_BLOCK.findall(text)):
        given = iter(blocks)
        text = _BLOCK.sub(lambda _: next(given), text)
    text += f"\n\n<!-- of: {english_of(chinese)}, {digest(there)} -->\n"
    (ROOT / chinese).write_text(text, encoding="utf-8")


def tell(chinese: str) -> None:
    """Puts the notice of being behind below the title."""
    title, _, rest = read(chinese).partition("\n\n")
    if not says_so(chinese):
        (ROOT / chinese).write_text(f"{title}\n\n{_notice(chinese)}{rest}", encoding="utf-8")


def advice(chinese: str) -> str:
    """What somebody who changed the English page does now."""
    english = english_of(chinese)
    return (
        f"{english} has changed since {chinese} was translated from it. Say the same there, then run\n"
        f"    python docs/translation.py --seal {chinese}\n"
        f"If the Chinese text holds as it is, or only fenced blocks changed, run just that. If you write no Chinese, run\n"
        f"    python docs/translation.py --behind {chinese}\n"
        f"and its readers are told that the English page counts."
    )


def main(arguments: list[str]) -> int:
    """Acts on the named pages, or lists those that are behind."""
    acts = {"--seal": seal, "--behind": tell}
    if arguments and (arguments[0] not in acts or not set(arguments[1:]) <= set(pages())):
        sys.stderr.write(f"{__doc__}\nChinese pages: {' '.join(pages())}\n")
        return 2
    for page in arguments[1:]:
        acts[arguments[0]](page)
    for page in pages():
        if is_behind(page):
            told = ", and says so" if says_so(page) else ""
            sys.stdout.write(f"{page}: behind {english_of(page)}{told}\n")
        else:
            sys.stdout.writelines(f"{line}\n" for line in differences(page))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
