"""Folders, files and packages of strangers that are named `consumers` and `producers` harm nothing of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("consumers", "producers")
#: The faces, and the modules that once imported plug-ins by the short names.
USE = """
import consumers, producers
from checkback_consumers import CommitRecorder, TransactionalConsumer, transactional_handler
from checkback_producers import Message, open_producer
import reconciler.commands.announcements, reconciler.commands.doctor.checks, reconciler.commands.sweep
import sqlalchemy as sa
handler = transactional_handler(sa.create_engine("sqlite://"), group="billing")(lambda message, connection: None)
producer = open_producer(group="g", environment="test", name_servers="127.0.0.1:1", outbox_url="sqlite:////nowhere.db")
print(consumers.WHOSE, producers.WHOSE, handler.group, producer.group)
"""


def used(*path: Path, cwd: Path) -> list[str]:
    """What a program prints that uses both; `path` comes first, as a service's own folder does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    script = cwd / "service.py"
    script.write_text(USE)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def stranger(folder: Path, name: str, *, is_file: bool) -> None:
    """A package or a module of that name."""
    place = folder / f"{name}.py" if is_file else folder / name / "__init__.py"
    place.parent.mkdir(exist_ok=True)
    place.write_text("WHOSE = 'theirs'\n")


@pytest.mark.parametrize("is_file", [False, True], ids=["folders", "files"])
def test_a_services_own_consumers_and_producers_and_ours_are_both_found(tmp_path: Path, *, is_file: bool) -> None:
    for name in NAMES:
        stranger(tmp_path, name, is_file=is_file)
    assert used(tmp_path, ROOT, ROOT / "producers", ROOT / "consumers", cwd=tmp_path) == [
        "theirs",
        "theirs",
        "billing",
        "g",
    ]


def wheel_of_strangers(folder: Path) -> Path:
    """A distribution that installs the import packages `consumers` and `producers`."""
    wheel = folder / "consumers-0.6.1-py3-none-any.whl"
    info = "consumers-0.6.1.dist-info"
    files = {f"{name}/__init__.py": "WHOSE = 'theirs'\n" for name in NAMES}
    files |= {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: consumers\nVersion: 0.6.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def test_a_distribution_with_a_package_named_consumers_overwrites_nothing_of_ours(tmp_path: Path) -> None:
    site = tmp_path / "site"
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    for package in packages:  # as our wheel installs them
        shutil.copytree(ROOT / package, site / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    ours = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--upgrade",
    ]
    subprocess.run(
        [*install, "--disable-pip-version-check", "--target", str(site), str(wheel_of_strangers(tmp_path))],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert {path: path.read_bytes() for path in ours} == ours
    service = tmp_path / "service"
    service.mkdir()
    assert used(site, cwd=service) == ["theirs", "theirs", "billing", "g"]
