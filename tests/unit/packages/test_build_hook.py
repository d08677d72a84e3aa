"""What a build adds: pages that messages name, and a revision; a wrong one sends who looks for a fault elsewhere."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.contract import release

ROOT = Path(__file__).parents[3]
HOOK = runpy.run_path(str(ROOT / "deploy/build_hook.py"))
revision: Callable[[Path], str] = HOOK["revision"]


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOOK["VARIABLE"], raising=False)


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "--quiet", "--message", "One")
    return tmp_path


def test_a_tree_that_differs_from_its_commit_is_not_told_as_that_commit(tree: Path) -> None:
    commit = git(tree, "rev-parse", "HEAD")
    assert revision(tree) == commit
    (tree / "new.py").write_text("2\n")
    assert revision(tree) == f"{commit}+changes", "a module that git does not know is in the wheel, too"
    (tree / "new.py").unlink()
    (tree / "code.py").write_text("3\n")
    assert revision(tree) == f"{commit}+changes"


def test_a_tree_inside_of_another_repository_is_none_of_its_commits(tree: Path) -> None:
    unpacked = tree / "checkback_reconciler-0.2.0"
    unpacked.mkdir()
    assert revision(unpacked) == HOOK["UNKNOWN"]


def test_a_build_without_git_takes_what_it_is_told_and_refuses_what_no_log_line_takes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOOK["VARIABLE"], "1a2b3c4d")
    assert revision(tree) == "1a2b3c4d"
    monkeypatch.setenv(HOOK["VARIABLE"], "1a2b3c4d\x1b[2J")
    with pytest.raises(ValueError, match="is no revision"):
        revision(tree)
    monkeypatch.setenv(HOOK["VARIABLE"], "")
    monkeypatch.setenv("PATH", str(tree))
    assert revision(tree) == HOOK["UNKNOWN"]


@pytest.mark.parametrize("is_unpacked_sdist", [False, True], ids=["checkout", "sdist"])
@pytest.mark.parametrize(
    ("kind", "target", "adds"),
    [
        ("standard", "wheel", ["pages", "bill", "revision"]),
        ("standard", "sdist", ["revision"]),
        ("editable", "wheel", []),
    ],
)
def test_only_an_archive_gets_the_pages_a_bill_and_a_revision_that_it_lacks(
    tmp_path: Path, kind: str, target: str, adds: list[str], is_unpacked_sdist: bool
) -> None:
    (tmp_path / "docs/zh").mkdir(parents=True)
    for name in ("index.md", "zh/index.md", "drawn.svg", "taken.webp", "generate.py"):
        (tmp_path / "docs" / name).write_text(name)
    if is_unpacked_sdist:
        (tmp_path / "reconciler").mkdir()
        (tmp_path / HOOK["FILE"]).write_text("1a2b3c4d\n")
    hook: Any = HOOK["BuildHook"](str(tmp_path), {}, None, None, str(tmp_path), target)
    build_data: dict[str, Any] = {"force_include": {}, "sbom_files": []}
    hook.initialize(kind, build_data)
    added = build_data["force_include"]
    pages = ["reconciler/docs/drawn.svg", "reconciler/docs/index.md", "reconciler/docs/zh/index.md"]
    of_revision = [] if is_unpacked_sdist else [HOOK["FILE"]]
    assert list(added.values()) == [*("pages" in adds) * pages, *("revision" in adds) * of_revision]
    assert all(Path(source).exists() for source in added)
    bills = list(map(Path, build_data["sbom_files"]))
    assert [bill.name for bill in bills] == ("bill" in adds) * ["checkback-reconciler.cdx.json"]
    assert all(bill.exists() for bill in bills)
    hook.finalize(kind, build_data, "")
    written = [*bills, *(Path(source) for source, place in added.items() if place == HOOK["FILE"])]
    assert not any(file.exists() for file in written)


def test_a_wheel_without_pages_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no pages"):
        HOOK["pages"](tmp_path)


def test_a_checkout_asks_nobody_for_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*words: object, **options: object) -> None:
        raise AssertionError(f"a process was started: {words}")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    assert release.revision() == release.CHECKOUT
