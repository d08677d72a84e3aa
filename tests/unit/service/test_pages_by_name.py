"""Pages that messages name: on a host without the repository `reconciler docs` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.app import run
from reconciler.commands import docs
from reconciler.errors import ConfigurationError, UsageError

ROOT = Path(__file__).parents[3]
HOMES = ("reconciler", "producers", "consumers", "config", "deploy/prometheus")
MENTIONS = sorted(
    {
        found[0]
        for home in HOMES
        for path in (ROOT / home).rglob("*")
        if path.suffix in {".py", ".toml", ".html", ".yml"} and "docs" not in path.relative_to(ROOT).parts
        for found in docs.MENTION.finditer(path.read_text(encoding="utf-8"))
    }
)


def test_every_page_and_section_that_a_message_names_is_shown() -> None:
    assert len(MENTIONS) > 20
    assert "docs/how-to/install.md#extras" in MENTIONS
    assert all(docs.find(mention).startswith("#") for mention in MENTIONS)


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("BreakerOpen", "# BreakerOpen\n\n**page**"),
        ("runbooks/BreakerOpen", "# BreakerOpen\n\n**page**"),
        ("docs/zh/runbooks/BreakerOpen.md", "# BreakerOpen：熔断，修复停止\n\n**page**"),  # noqa: RUF001  (Chinese punctuation)
        ("how-to/install.md#Extras", "## Extras\n"),
        ("zh", "# 回查对账器"),
        ("docs/", "# "),
    ],
)
def test_a_page_is_found_by_what_a_person_calls_it(name: str, begins: str) -> None:
    assert docs.find(name).startswith(begins)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "no such page"),
        ("../CONTRIBUTING", "no such page"),
        ("console", "how-to/console.md, reference/console.md"),
        ("how-to/install.md#nowhere", "no section nowhere"),
    ],
)
def test_a_page_that_there_is_not_is_refused_with_the_way_to_the_list(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        docs.find(name)
    assert "`reconciler docs" in str(raised.value)


def test_a_section_ends_at_the_next_of_its_depth_and_no_line_of_code_is_a_heading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "# Page\n<!-- a remark -->\n## One\n```bash\n# two\n<!-- kept -->\n```\n### Below\n## Two\nend\n"
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(docs, "folder", lambda: tmp_path)
    monkeypatch.setattr(docs, "page_names", lambda: frozenset({"page.md"}))
    assert docs.find("page#one") == "## One\n```bash\n# two\n<!-- kept -->\n```\n### Below\n"
    assert docs.find("page#two") == "## Two\nend\n"
    assert docs.find("page") == text.replace("<!-- a remark -->\n", "")


def test_an_error_that_names_a_page_says_the_command_that_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def upgrade(_url: str, _tree: str) -> str:
        raise ConfigurationError("GRANT what docs/reference/rights.md lists, as docs/reference/rights.md says")

    monkeypatch.setattr("reconciler.commands.db.upgrade_database", upgrade)
    assert run(["db", "upgrade", "ledger", "--url", "sqlite:////tmp/never-opened.db"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[1:] == ["`reconciler docs docs/reference/rights.md` shows that page"]
    assert run(["docs", "docs/reference/rights.md"]) == 0
    shown = capsys.readouterr()
    assert shown.out == docs.find("rights")
    assert shown.err == ""
