"""The site of docs (mkdocs.yml), built as `make site` does: whole, without a network, and read from a folder."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.console.watched_page import Look, opened

#: Built once.
pytestmark = pytest.mark.xdist_group("site")

ROOT = Path(__file__).parents[2]
#: What a browser asks for by itself: all but links of <a>, which a reader follows.
_ASKED_FOR = re.compile(
    r"""<(?!a\b)\w[^>]*?\s(?:href|src|srcset|action|poster|data)=["']?((?:https?:)?//[^"'\s>]+)|url\(["']?(https?:[^)]+)"""
)


def built(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = built(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    asked = [(page.name, found[0]) for page in pages for found in _ASKED_FOR.finditer(page.read_text(encoding="utf-8"))]
    assert not asked
    # Drawn by a script from another host, were it there.
    assert not [page.name for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    ("page", "name", "other"),
    [("", "Check-back reconciler", "回查对账器"), ("zh/", "回查对账器", "Check-back reconciler")],
)
def test_the_site_has_a_name_in_each_language(site: Path, page: str, name: str, other: str) -> None:
    shown = (site / page / "tutorial/first-loss.html").read_text(encoding="utf-8")
    heads = re.findall(r"<title>[^<]*|<header.*?</header>", shown, re.DOTALL)
    assert len(heads) == 2
    assert all(name in head and other not in head for head in heads)


@pytest.mark.parametrize(
    ("page", "switches"), [("", {"Light", "Dark", "As the system"}), ("zh/", {"浅色", "深色", "跟随系统"})]
)
def test_the_switches_of_colours_are_named_in_the_language_of_the_page(
    site: Path, page: str, switches: set[str]
) -> None:
    shown = (site / page / "tutorial/first-loss.html").read_text(encoding="utf-8")
    assert set(re.findall(r'<label[^>]* title="([^"]+)" for="__palette', shown)) == switches


def test_each_language_searches_its_own_pages(site: Path) -> None:
    english, chinese = (
        json.loads((site / tree / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
        for tree in (".", "zh")
    )
    assert not [entry["location"] for entry in english if entry["location"].startswith("zh/")]
    assert [entry["location"] for entry in chinese if "\u200b" in entry["text"]]
    assert all((site / "zh" / entry["location"].partition("#")[0]).is_file() for entry in chinese)


#: What people search for: the page that answers comes first.
SEARCHED = {
    "index.html": {
        "watermark": "runbooks/WatermarkStuck",
        "glossary": "glossary",
        "troubleshooting": "how-to/troubleshooting",
        "uninstall": "how-to/uninstall",
        "msgId": "glossary",
        "pytest": "how-to/testing",
        "alembic": "how-to/fastapi",
        "FastAPI lifespan": "how-to/fastapi",
        "Celery": "how-to/celery",
        "capacity": "reference/capacity",
        "Java": "how-to/other-languages",
        "exit code 3": "reference/exit-codes",
        "lost message": "runbooks/LostMessages",
        "Kubernetes": "how-to/install-chart",
        "RocketMQ 5": "how-to/hosted-rocketmq",
    },
    "zh/index.html": {
        "熔断器": "runbooks/BreakerOpen",
        "消息丢失": "runbooks/LostMessages",
        "半消息": "how-to/scan",
        "回查": "explanation/how-it-works",
        "幂等": "how-to/receiving",
        "死信": "runbooks/Quarantined",
        "扩容": "how-to/another-run",
        "链路追踪": "reference/traces",
        "术语表": "glossary",
        "msgId": "reference/operations",
        "卸载": "how-to/uninstall",
        "容量规划": "reference/capacity",
        "常见现象": "how-to/troubleshooting",
        "pytest": "how-to/testing",
        "alembic": "how-to/fastapi",
        "FastAPI lifespan": "how-to/fastapi",
        "Celery": "how-to/celery",
        "退出码 3": "reference/exit-codes",
        "exit code 3": "reference/exit-codes",
        "钉钉": "how-to/notifications",
    },
}


@pytest.mark.parametrize("page", SEARCHED)
def test_the_search_works_from_a_folder_and_finds_what_people_search_for(
    chromium: Browser, site: Path, page: str
) -> None:
    with opened(chromium, site.as_uri()) as watched:
        watched.page.goto(f"{site.as_uri()}/{page}")
        for words, place in SEARCHED[page].items():
            query = watched.page.locator("[data-md-component=search-query]")
            query.fill(words)
            query.press("End")  # the theme asks for results when a key comes up
            first = ".md-search-result__item:first-child > .md-search-result__link"
            expect(watched.page.locator(f"{first}[href*='{place}']").first, words).to_be_attached(timeout=30_000)
        assert not watched.troubles


def test_the_side_bar_has_the_groups_of_the_index_and_the_headings_of_the_pages(site: Path) -> None:
    for page, group, title in (
        ("reference/settings.html", "Programs", "Settings"),
        ("how-to/sending.html", "Write a service", "For the team that sends"),
        ("how-to/console.html", "Console and notices", "Serve the console and the HTTP API"),
        ("reference/holes.html", "Evidence", "The 58 holes of the original design"),
        ("zh/how-to/audit.html", "审计", "运行审计"),
        ("zh/how-to/tls.html", "权限、密钥与 TLS", "启用 TLS"),
    ):
        shown = " ".join((site / page).read_text(encoding="utf-8").split())
        bar, content = shown.partition('<nav class="md-nav md-nav--primary')[2].split("<article", 1)
        assert re.search(rf"> {group} <", bar), (page, group)
        assert bar.count(f"> {title} <") > 0, (page, title)
        assert re.search(rf"<h1[^>]*>{title}<", content)


def test_no_group_of_the_side_bar_has_more_than_ten_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    tabs = runpy.run_path(str(ROOT / "docs/site/hooks.py"))["_tree"]("en")
    groups = [group for tab in tabs if isinstance(tab, dict) for group in _groups(tab)]
    assert len(groups) > 20
    assert {name: pages for name, pages in groups if pages > 10} == {"Runbooks": 15}  # by the names of the alerts


def _groups(section: dict[str, list[Any]]) -> list[tuple[str, int]]:
    """Each section with the number of pages right below it."""
    [(name, of)] = section.items()
    below = [group for one in of if isinstance(one, dict) for group in _groups(one)]
    return [(name, sum(isinstance(one, str) for one in of)), *below]


def test_evidence_is_no_tab_of_the_pages_for_users_and_one_beside_its_own(site: Path) -> None:
    tabs = {
        page: re.findall(r'class="md-tabs__link">\s*([^<]+?)\s*<', (site / page).read_text(encoding="utf-8"))
        for page in ("index.html", "how-to/sending.html", "reference/holes.html")
    }
    assert "Evidence" in tabs["reference/holes.html"]
    assert tabs["index.html"] == tabs["how-to/sending.html"] == tabs["reference/holes.html"][:-1]
    assert 'href="reference/holes.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_steps_with_code_between_them_are_one_list(site: Path) -> None:
    pages = [page for room in ("tutorial", "how-to", "runbooks") for page in site.glob(f"**/{room}/*.html")]
    told = [(page.name, step) for page in pages for step in re.findall(r"(?m)^(?:<p>)?\d+\. .{20}", _article(page))]
    assert len(pages) > 150
    assert not told


def _article(page: Path) -> str:
    text = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    return re.sub(r"<pre\b.*?</pre>", "", text, flags=re.DOTALL)


def test_no_page_is_wider_than_a_telephone(chromium: Browser, site: Path) -> None:
    with opened(chromium, site.as_uri(), look=Look(width=360)) as watched:
        for page in ("index", "reference/settings", "reference/holes"):
            watched.page.goto(f"{site.as_uri()}/{page}.html")
            assert watched.overflow_pixels() <= 0, page
        assert not watched.troubles


PLANTED = {
    "[no page](nowhere.md)": "contains a link 'nowhere.md', but the target 'how-to/nowhere.md' is not found",
    "[no heading](../index.md#nowhere)": "does not contain an anchor '#nowhere'",
    "[no heading here](#nowhere)": "contains a link '#nowhere', but there is no such anchor on this page",
    "[no file of the repository](../../config/nowhere.toml)": "'../../config/nowhere.toml', but the target",
}


def test_a_broken_link_or_anchor_and_a_page_that_no_index_lists_fail_the_build(tmp_path: Path) -> None:
    pages = tmp_path / "docs"
    shutil.copytree(ROOT / "docs/site", pages / "site")
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    (pages / "how-to").mkdir()
    (pages / "index.md").write_text("# Pages\n\n## Tasks\n- [a task](how-to/task.md)\n")
    (pages / "how-to/task.md").write_text("# A task\n")
    assert built(tmp_path / "mkdocs.yml", tmp_path / "whole").returncode == 0
    (pages / "how-to/task.md").write_text("# A task\n" + "\n\n".join(PLANTED) + "\n")
    (pages / "how-to/forgotten.md").write_text("# Forgotten\n")
    done = built(tmp_path / "mkdocs.yml", tmp_path / "broken")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert not [link for link, complaint in PLANTED.items() if complaint not in told], told
    assert "how-to/forgotten.md" in told
    assert "5 warnings" in told + done.stdout
