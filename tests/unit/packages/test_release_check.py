"""Before a release is built: what would make two releases of one name, or one that no commit is the source of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.release_check import problems

DAY = "2026-11-25"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that can be released."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_DATE", f"{DAY}T12:00:00Z")
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, changelog=f"# Changelog\n\n## 1.2.0 ({DAY})\n- New.\n\n## 1.1.0 (2026-01-01)\n")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "commit.gpgsign=false", *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, *, changelog: str) -> None:
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Release 1.2.0")


def test_a_release_that_is_ready_has_no_problem(tree: Path) -> None:
    assert problems(tree) == []


def test_a_file_that_is_in_no_commit_is_told(tree: Path) -> None:
    (tree / "forgotten.py").write_text("")
    (problem,) = problems(tree)
    assert "forgotten.py" in problem


def test_a_second_release_of_one_name_is_told(tree: Path) -> None:
    git(tree, "tag", "v1.2.0")
    (problem,) = problems(tree)
    assert "v1.2.0 exists" in problem


@pytest.mark.parametrize("heading", ["1.2.0 (unreleased)", "1.2.0 (2026-11-24)", f"1.1.0 ({DAY})", None])
def test_a_changelog_without_this_release_and_its_day_is_told(tree: Path, heading: str | None) -> None:
    commit(tree, changelog="# Changelog\n" + (f"\n## {heading}\n" if heading else ""))
    (problem,) = problems(tree)
    assert f"'## 1.2.0 ({DAY})'" in problem
