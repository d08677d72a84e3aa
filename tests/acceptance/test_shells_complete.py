"""The completion that people install, in the shells themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.command import RECONCILER
from tests.services.requirements import require

pytestmark = pytest.mark.acceptance

#: Each reads the script, and tells what it would offer for `reconciler sta` and a tabulator.
ASKED = {
    "bash": "source $SCRIPT; COMP_WORDS=(reconciler sta); COMP_CWORD=1; _reconciler_completion reconciler; "
    'printf "%s\\n" "${COMPREPLY[@]}"',
    # The widget that lists runs at a terminal only: what it would be given is printed.
    "zsh": "compdef() {}; _arguments() { print -r -- $@ }; source $SCRIPT; words=(reconciler sta); CURRENT=2; "
    "_reconciler_completion",
    "fish": 'source $SCRIPT; complete --do-complete "reconciler sta"',
}
OFFERED = {"bash": r"^(\w+)$", "zsh": r'"(\w+)":', "fish": r"^(\w+)\t"}
FLAGS = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}


@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_offers_the_commands_that_begin_so(shell: str, tmp_path: Path) -> None:
    require(None if shutil.which(shell) else f"{shell} is missing: apt-get install {shell} (Debian, Ubuntu)")
    environment = {**os.environ, "PATH": f"{RECONCILER.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    script = tmp_path / "completion"
    with script.open("w") as file:
        subprocess.run(
            [str(RECONCILER)],
            stdout=file,
            check=True,
            timeout=60,
            env=environment | {"_RECONCILER_COMPLETE": f"source_{shell}"},
        )
    ended = subprocess.run(
        [shell, *FLAGS[shell], "-c", ASKED[shell]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment | {"SCRIPT": str(script)},
    )
    assert ended.stderr == ""
    assert sorted(re.findall(OFFERED[shell], ended.stdout, re.MULTILINE)) == ["statement", "status"]
