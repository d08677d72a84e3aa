"""A machine of its own for one shell: networks, mounts and processes that end with it, `docker compose` on its path.

with machine(folder, state=tmp_path / "state") as shell:
    shell.run("docker compose up --detach --wait")
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.brokers.jars import broker_jars
from tests.compose.containers import PROGRAMS
from tests.compose.images import ROOT, Installed
from tests.import_path import import_path
from tests.pages import Shell
from tests.services.requirements import downloaded, postgres_programs, require
from tests.services.rocketmq import JVM

BLOCK_SECONDS = 240.0
#: The release of the compose file.
ROCKETMQ = "5.3.3"
_APART = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
#: What a machine needs of the kernel: its own network of two ends, and a layer over its files.
_TRIAL = """
ip link add one type veth peer name two && ip link add three type bridge && mount -t tmpfs tmpfs /mnt &&
cd /mnt && mkdir upper work root && mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
"""


def require_machines() -> None:
    """Skips where no machine can be made, in CI too: unlike a package, that is nothing a run could install."""
    for program, package in PROGRAMS.items():
        require(None if shutil.which(program) else f"{program} is missing: apt-get install {package} (Linux only)")
    if os.geteuid() != 0:
        pytest.skip("containers without an engine need root: run these tests with sudo")
    done = subprocess.run([*_APART, "sh", "-c", _TRIAL], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"this kernel gives no namespaces, bridge or overlay: {done.stderr.strip()}")


@contextmanager
def machine(folder: Path, *, state: Path, typed: str) -> Iterator[Shell]:
    """A shell in this folder, on a machine with nothing but the files of this one. `typed`: what a person answers."""
    programs = state / "bin"
    programs.mkdir(parents=True)
    docker = programs / "docker"
    docker.write_text(f'#!/bin/sh\nPYTHONPATH={import_path()} exec {sys.executable} -m tests.compose.docker "$@"\n')
    docker.chmod(0o755)
    (state / "typed").write_text(f"{typed}\n")
    _installed().write(state / "installed.json")
    engine = state / "engine"
    engine.mkdir()
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COMPOSE_STATE": str(engine),
        "COMPOSE_INSTALLED": str(state / "installed.json"),
        "TYPED": str(state / "typed"),
    }
    with Shell(folder, within=_APART, variables=variables, block_seconds=BLOCK_SECONDS) as shell:
        # In memory: a layer cannot lie on a file system that is a layer itself, as that of a container is.
        code, said = shell.run(f"mount -t tmpfs -o mode=755 tmpfs {engine}")
        assert code == 0, said
        yield shell


def _installed() -> Installed:
    jars = downloaded(lambda: broker_jars(ROCKETMQ))
    return Installed(
        python=sys.executable,
        import_path=import_path(),
        jars=str(jars),
        java_options=list(JVM),
        postgres=str(postgres_programs()),
        shared=list(dict.fromkeys(map(str, (ROOT, sys.prefix, sys.base_prefix, jars)))),
    )
