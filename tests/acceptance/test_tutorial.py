"""docs/tutorial/first-loss.md, run as it is: only ports and the folder are other ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pages import Shell, blocks_of, run_step
from tests.services.ports import free_port

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).parents[2]


def test_every_step_of_the_tutorial_works_as_written(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "docs").symlink_to(ROOT / "docs")
    (repository / ".venv").symlink_to(Path(sys.prefix))
    folder = tmp_path / "tutorial"
    page = (ROOT / "docs/tutorial/first-loss.md").read_text(encoding="utf-8")
    for written, here in (
        ("/tmp/tutorial", str(folder)),
        ("9876", str(free_port(neighbours=(-2,)))),
        ("6379", str(free_port())),
    ):
        page = page.replace(written, here)
    steps = list(blocks_of(page))
    assert len(steps) == page.count("```bash\n")
    with Shell(repository) as shell:
        for step in steps:
            run_step(shell, step)
    assert not folder.exists()
