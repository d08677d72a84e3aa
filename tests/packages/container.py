"""The image built here, without an engine: buildah on a base that debootstrap makes, run by chroot on a read-only root.

The base stands for python:3.11-slim: the same Debian with its own Python 3.11. It is kept in the cache. Needs root.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.jars import cache_folder, locked
from tests.packages.tools import needed

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy/image/Dockerfile"
BASE = "localhost/debian-python:3.11"
TAG = "localhost/checkback-reconciler:test"
PACKAGES = "python3,python3-venv,ca-certificates,tzdata"
BUILD_SECONDS = 1_800
#: Private mounts: the root read-only, /tmp in memory, what is given at its place; then the login of the image.
RUN = """
set -e
mkdir -p "$0/etc/reconciler"
mount --bind "$0" "$0"
mount -t tmpfs tmpfs "$0/tmp"
mount --bind "$1" "$0/var/lib/reconciler"
mount --bind "$2" "$0/etc/reconciler"
mount -o remount,bind,ro "$0"
shift 2
exec chroot --userspec="$USERSPEC" "$0" env -i "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of the host that an engine would mount."""

    #: At /var/lib/reconciler; the image's login owns it.
    state: Path
    #: At /etc/reconciler.
    settings: Path


@dataclass(frozen=True, kw_only=True)
class Image:
    """What was built: where its files are, and how it is run."""

    root: Path
    configuration: dict[str, Any]

    def command(self, places: Places, *arguments: str) -> list[str]:
        """What runs the entry point with these arguments; none: with those of the image."""
        return self.program(places, *self._strings("Entrypoint"), *(arguments or self._strings("Cmd")))

    def program(self, places: Places, *words: str) -> list[str]:
        """What runs another program of the image, as its login."""
        run = [str(self.root), str(places.state), str(places.settings), *self._strings("Env"), *words]
        return ["unshare", "--mount", "env", f"USERSPEC={self.configuration['User']}", "sh", "-c", RUN, *run]

    def probe(self, places: Places) -> list[str]:
        """What asks for its health, as an engine does."""
        kind, *words = self.configuration["Healthcheck"]["Test"]
        assert kind == "CMD", "exec form"
        return self.program(places, *words)

    def _strings(self, name: str) -> list[str]:
        found: list[str] = self.configuration[name]
        return found


def make_debian(tree: Path, packages: str) -> None:
    """Debian with these packages, and with `python` by that name. The running test is skipped where none is got."""
    shutil.rmtree(tree, ignore_errors=True)
    step = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(tree)]
    done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        pytest.skip(f"debootstrap got no Debian: {done.stdout.splitlines()[-1:]}")
    (tree / "usr/bin/python").symlink_to("python3")


@contextmanager
def built_image() -> Iterator[Image]:
    """Builds the image and mounts it. The running test is skipped where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("mounts and chroot need root: sudo make test-packages")
    for program in ("buildah", "debootstrap"):
        needed(program, "apt-get install buildah debootstrap (Debian, Ubuntu)")
    folder = cache_folder() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    with locked("packages"):
        store = _Store(folder)
        store.said("rm", "--all")  # of a run that was killed: its image could never be removed
        store.make_base()
        store.build()
        container = store.said("from", "--pull-never", TAG)
        try:
            yield Image(root=Path(store.said("mount", container)), configuration=store.configuration())
        finally:
            store.said("rm", container)
            store.said("rmi", "--prune")


class _Store:
    """Images of these tests, apart from those of the machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = folder / "storage.conf"
        self._settings.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
        )

    def said(self, *arguments: str) -> str:
        """What buildah says on standard output; raises with all that it said."""
        done = subprocess.run(
            ["nice", "-n", "10", "buildah", *arguments],
            cwd=ROOT,
            env={**os.environ, "CONTAINERS_STORAGE_CONF": str(self._settings)},
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS,
        )
        assert done.returncode == 0, f"{shlex.join(arguments)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()

    def make_base(self) -> None:
        """Debian with Python, once."""
        if self.said("images", "--quiet", "--filter", f"reference={BASE}"):
            return
        tree = self._folder / "base"
        make_debian(tree, PACKAGES)
        container = self.said("from", "scratch")
        self.said("add", "--quiet", container, str(tree), "/")
        self.said("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(tree)

    def build(self) -> None:
        """The Dockerfile as it is; pip gets the settings of this machine, where it has some."""
        mounts = [
            f"--volume={place}:{place}:ro" for place in ("/etc/pip.conf", "/etc/ssl/certs") if Path(place).exists()
        ]
        self.said(
            "bud", "--isolation=chroot", "--pull-never", "--format=docker", "--layers=false", *mounts,
            f"--build-arg=PYTHON_IMAGE={BASE}", f"--file={DOCKERFILE}", f"--tag={TAG}", ".",
        )  # fmt: skip

    def configuration(self) -> dict[str, Any]:
        """What the image says about itself."""
        found: dict[str, Any] = json.loads(self.said("inspect", "--type=image", TAG))["Docker"]["config"]
        return found
