"""Wheels of newer releases of some locked packages: what an index has on the day after the locks were written.

`python -m tests.services.newer_releases FOLDER` writes them, with nothing installed: PIP_FIND_LINKS=FOLDER then offers
them to every pip. They hold no code, so what takes one of them fails soon.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

#: Of tests, demo and build; two with an extra that somebody asks for (coverage, redis).
PACKAGES = ("coverage", "packaging", "redis", "rich", "sqlalchemy")
LOCK = Path(__file__).parents[2] / "requirements/ci.lock"


def newer_versions() -> dict[str, str]:
    """Package -> a version above the locked one, within each range that has room for a repaired release of it."""
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    return {name: f"{locked[name]}.post1" for name in PACKAGES}


def write_newer_releases(folder: Path) -> dict[str, str]:
    """Writes a wheel for each; returns newer_versions()."""
    newer = newer_versions()
    for name, version in newer.items():
        information = f"{name}-{version}.dist-info"
        files = {
            f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{file},,\n" for file in (*files, f"{information}/RECORD"))
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for file, text in {**files, f"{information}/RECORD": record}.items():
                wheel.writestr(file, text)
    return newer


if __name__ == "__main__":
    write_newer_releases(Path(sys.argv[1]))
