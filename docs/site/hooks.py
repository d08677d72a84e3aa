"""What the site needs beside mkdocs.yml: navigation from the two indexes, files of the repository, GitHub's Markdown."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import markdown
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

from reconciler.commands.docs import without_remarks
from reconciler.commands.glossary import with_glossary

ROOT = Path(__file__).parents[2]
TREES = {"en": "", "zh": "zh/"}
NAMES = {"en": "English", "zh": "中文"}
#: Name and description of the site; those in English are in mkdocs.yml.
CHINESE = {
    "site_name": "回查对账器",
    "site_description": "找出本地事务已提交、消费者却没有收到的 RocketMQ 事务消息。",
}
#: The switches of the theme's colours, which mkdocs.yml names in English.
CHINESE_SWITCHES = {"Light": "浅色", "Dark": "深色", "As the system": "跟随系统"}
#: Words beside the glossary's that people search for, and that a dictionary of everyday Chinese has not.
SEARCHED_WORDS = [
    "幂等",
    "去重",
    "死信",
    "补发",
    "重复消费",
    "扩容",
    "高可用",
    "链路追踪",
    "消息轨迹",
    "访问密钥",
    "消费位点",
]
#: The heading of an index whose pages are for readers who doubt or take part: their tab is shown beside these pages alone.
EVIDENCE = "Evidence"
#: What a page counts in the search where it is not 1: one that answers comes before those that only have the word.
WEIGHTS = {"index.md": 0.3, "glossary.md": 4.0, "runbooks/": 2.5, "how-to/scan.md": 2.5, "how-to/": 2.0, EVIDENCE: 0.3}
#: Where the site has the files of the repository outside docs that pages link.
REPOSITORY = "repository/"
PICTURES = (".svg", ".webp", ".png")
#: What of an index makes the navigation: headings, lines that name the list below them, pages.
_ENTRY = re.compile(
    r"^##+ (?P<heading>.+)$|^(?P<label>[^\W-][^\[\]|\n]*)[:\uff1a]$|\]\((?P<page>[\w/-]+\.md)\)", re.MULTILINE
)
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)")
_FENCE = re.compile(r"^ *(```|~~~)")
_LIST_ITEM = re.compile(r" *([-*]|\d+\.) ")
#: What begins a list in the middle of a paragraph: no number but the first.
_FIRST_ITEM = re.compile(r"([-*]|1\.) ")
_ALTERNATE = re.compile(r' *<link rel="alternate".*?>\n?')


class GitHubsLists(markdown.Extension):
    """Items of lists are indented by two columns, as GitHub reads them; Python-Markdown takes four."""

    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802  # Python-Markdown's name
        """Called once for each page."""
        md.tab_length = 2


def github_anchor(heading: str, separator: str) -> str:
    """The anchor that a code host gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Navigation and Markdown."""
    config.nav = [{language: _tree(language)} for language in TREES if (ROOT / "docs" / TREES[language]).is_dir()]
    config.mdx_configs["toc"]["slugify"] = github_anchor
    _english.update({option: config[option] for option in CHINESE})
    config.markdown_extensions.append(GitHubsLists())
    palette = config.theme["palette"]
    chinese = [{**one, "toggle": {**one["toggle"], "name": CHINESE_SWITCHES[one["toggle"]["name"]]}} for one in palette]
    _palettes.update({"en": palette, "zh": chinese})
    if len(config.nav) > 1:
        import jieba  # its import warns, which would end a test that reads this file alone

        for word in _terms():
            jieba.add_word(word)
    return config


def _terms() -> list[str]:
    """What people search for in Chinese: the terms of the glossary, and SEARCHED_WORDS."""
    columns = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/zh/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [*SEARCHED_WORDS, *re.findall(r"[\u4e00-\u9fff]+", " ".join(columns))]


def _beginnings() -> re.Pattern[str]:
    """Finds words of one character that a term begins with: the theme's search takes a query of such a term as this
    character and drops the rest. Words are told apart by \\u200b."""
    terms = _terms()
    beginnings = {term[0] for term in terms if len(term) > 1} - set(terms)
    return re.compile(f"\u200b([{''.join(sorted(beginnings))}])\u200b")


def _tree(language: str) -> list[Any]:
    """The tabs of a language, and the groups in them, as its index.md lists its pages below its own table; each page
    where it comes first, and under the name that it has itself."""
    index = f"{TREES[language]}index.md"
    text = (ROOT / "docs" / index).read_text(encoding="utf-8")
    tree: list[Any] = [index]
    listed: set[str] = set()
    group: list[Any] = []
    for found in _ENTRY.finditer(text, text.index("\n## ")):
        if heading := found["heading"]:
            tab: list[Any] = []
            tree.append({heading: tab})
            group = tab
        elif label := found["label"]:
            group = []
            tab.append({label: group})
        elif found["page"] not in listed:
            listed.add(found["page"])
            group.append(TREES[language] + found["page"])
    return _filled(tree)


def _filled(entries: list[Any]) -> list[Any]:
    """Without tabs and groups whose pages this language has not."""
    named = [{name: _filled(of) for name, of in one.items()} if isinstance(one, dict) else one for one in entries]
    return [one for one in named if not isinstance(one, dict) or any(one.values())]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds every file of the repository that a page links, and that is not in docs: pages, or their text as one."""
    pages = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    added = set()
    while pages:
        path, text = pages.pop()
        for link in _LINK.findall(text):
            target = _target(path, link)
            if target in added or files.get_file_from_path(_in_the_site(target)) or not (ROOT / target).is_file():
                continue
            added.add(target)
            content = (ROOT / target).read_text(encoding="utf-8")
            if target.endswith(".md"):
                pages.append((target, content))
            else:
                content = f"# {target}\n\n~~~~~{_language(target)}\n{content}\n~~~~~\n"
            file = File.generated(config, _in_the_site(target), content=content, inclusion=InclusionLevel.NOT_IN_NAV)
            files.append(file)
    return files


def _target(path: str, link: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(path), link))


def _in_the_site(target: str) -> str:
    """Where the site has a file of the repository; what is no page and no picture becomes a page."""
    if target.startswith("docs/") and target.endswith((".md", *PICTURES)):
        return target.removeprefix("docs/")
    return REPOSITORY + (target if target.endswith(".md") else f"{target}.md")


def _language(path: str) -> str:
    return {"py": "python", "yml": "yaml"}.get(suffix := path.rpartition(".")[2], suffix)


def on_page_markdown(text: str, page: Page, **_: object) -> str:
    """Links to files of the repository and to the glossary, and Python-Markdown's blank lines."""
    here = page.file.src_uri
    path = here.removeprefix(REPOSITORY) if here.startswith(REPOSITORY) else f"docs/{here}"
    if here.startswith(REPOSITORY):
        page.meta["search"] = {"exclude": True}  # who searches wants the page for users, and not how it came to be
    else:
        page.meta["search"] = {"boost": _weight(page)}
    if not (ROOT / path).is_file():
        return text  # the text of a file

    def linked(found: re.Match[str]) -> str:
        target = _target(path, found[1])
        return os.path.relpath(_in_the_site(target), os.path.dirname(here)) if (ROOT / target).is_file() else found[1]

    if path == f"docs/{here}":
        text = with_glossary(without_remarks(text), here)  # a remark within a list would end its item
    return _with_blank_lines(_LINK.sub(linked, text))


def _weight(page: Page) -> float:
    place = page.file.src_uri.removeprefix(TREES[_language_of(page)])
    if any(section.title == EVIDENCE for section in page.ancestors):
        return WEIGHTS[EVIDENCE]
    return next((weight for beginning, weight in WEIGHTS.items() if place.startswith(beginning)), 1.0)


def _with_blank_lines(text: str) -> str:
    """A list begins, a table begins and ends at a blank line; a code host needs none."""
    lines: list[str] = []
    is_code, is_list = False, False
    for line in text.splitlines():
        is_code ^= bool(_FENCE.match(line))
        before = lines[-1] if lines else ""
        if not is_code and before.strip():
            is_edge_of_a_table = line.startswith("|") != before.startswith("|")
            if is_edge_of_a_table or (_FIRST_ITEM.match(line) and not is_list):
                lines.append("")
        is_list = bool(_LIST_ITEM.match(line)) or (is_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines) + "\n"


def _language_of(page: Page) -> str:
    return "zh" if page.file.src_uri.startswith(TREES["zh"]) else "en"


_navigations: dict[str, Navigation] = {}
#: Without the tab of evidence.
_main: dict[str, Navigation] = {}
_english: dict[str, str] = {}
_palettes: dict[str, list[dict[str, Any]]] = {}


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """One navigation per language, with and without the tab of evidence."""
    _navigations.clear()
    _main.clear()
    for tree in nav.items:
        if not isinstance(tree, Section):
            raise PluginError(f"no tree of a language: {tree}")
        pages = [page for page in nav.pages if _language_of(page) == tree.title]
        for item in tree.children:
            item.parent = None
        for before, after in zip([None, *pages], [*pages, None], strict=True):
            if before is not None:
                before.next_page = after
            if after is not None:
                after.previous_page = before
        _navigations[tree.title] = Navigation(list(tree.children), pages)
        _main[tree.title] = Navigation([item for item in tree.children if item.title != EVIDENCE], pages)
    return nav


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, **_: object) -> dict[str, Any]:
    """The page in its language: name of the site, words of the theme, navigation, search, the switch to the other."""
    language = _language_of(page)
    config.theme["language"] = language
    config.theme["palette"] = _palettes[language]
    config.update(CHINESE if language == "zh" else _english)
    is_evidence = any(section.title == EVIDENCE for section in page.ancestors)
    context["nav"] = (_navigations if is_evidence else _main)[language]
    config.extra["scope"] = context["base_url"]
    context["base_url"] = os.path.relpath(TREES[language] or ".", os.path.dirname(page.file.dest_uri) or ".")
    config.extra["alternate"] = [
        {"name": NAMES[other], "lang": other, "link": _twin(page, other)} for other in _navigations
    ]
    return context


def _twin(page: Page, language: str) -> str:
    """The same page in a language, or the first page of that language."""
    place = page.file.src_uri.removeprefix(TREES[_language_of(page)])
    there = {one.file.src_uri: one.url for one in _navigations[language].pages}
    return there.get(TREES[language] + place, there[f"{TREES[language]}index.md"])


def on_post_page(output: str, **_: object) -> str:
    """Without what makes the theme ask for a sitemap beside every page: its twin is known already."""
    return _ALTERNATE.sub("", output)


def on_post_build(config: MkDocsConfig) -> None:
    """One search index a language; the plug-in `offline` has written both forms of the common one."""
    folder = Path(config.site_dir)
    found = json.loads((folder / "search/search_index.json").read_text(encoding="utf-8"))
    for language in _navigations:
        tree = TREES[language]
        docs = [
            entry | {"location": entry["location"].removeprefix(tree)}
            for entry in found["docs"]
            if entry["location"].startswith(TREES["zh"]) == (language == "zh")
        ]
        if language == "zh":
            beginning = _beginnings()
            docs = [entry | {name: beginning.sub(r"\1", entry[name]) for name in ("title", "text")} for entry in docs]
        text = json.dumps(found | {"docs": docs}, ensure_ascii=False, separators=(",", ":"))
        (folder / tree / "search").mkdir(parents=True, exist_ok=True)
        (folder / tree / "search/search_index.json").write_text(text, encoding="utf-8")
        (folder / tree / "search/search_index.js").write_text(f"var __index = {text}", encoding="utf-8")
