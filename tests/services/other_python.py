"""Where another release of Python is: `python -m tests.services.other_python 3.13` prints the path of its program.

Candidates are `python3.13` in each folder of PATH, then what pyenv and uv have. Each is run before it is taken: a
version manager's shim has the name and refuses, and a Python without venv makes no environment. Without one that works
nothing is printed, and standard error says so; with CI=true that is exit code 1. Needs nothing installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RUN_SECONDS = 60
#: Ends with 0 for this release with what makes environments.
_PROBE = "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1])"


def candidates(release: str) -> Iterator[Path]:
    """Programs that may be this release, the likeliest first."""
    name = f"python{release}"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and os.access(Path(folder, name), os.X_OK):
            yield Path(folder, name)
    root = _said("pyenv", "root")
    if root:
        yield from sorted(Path(root, "versions").glob(f"{release}*/bin/{name}"))
    found = _said("uv", "python", "find", "--no-python-downloads", release)
    if found:
        yield Path(found)


def other_python(release: str) -> Path | None:
    """The first candidate that runs, is this release and can make an environment."""
    return next((one for one in candidates(release) if _runs(str(one), "-c", _PROBE, release)[0]), None)


def _said(program: str, *words: str) -> str:
    return _runs(program, *words)[1] if shutil.which(program) else ""


def _runs(*command: str) -> tuple[bool, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False, ""
    return done.returncode == 0, done.stdout.strip() if done.returncode == 0 else ""


def main(release: str) -> int:
    """Prints it, or says that there is none."""
    found = other_python(release)
    if found is not None:
        sys.stdout.write(f"{found}\n")
        return 0
    sys.stderr.write(f"no Python {release} with venv works here: install python{release}-venv, or one by pyenv or uv\n")
    return int(os.environ.get("CI", "").lower() in {"1", "true", "yes"})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
