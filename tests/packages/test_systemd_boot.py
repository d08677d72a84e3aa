"""The units under a systemd that runs: Debian in systemd-nspawn, the package of the image in it, servers beside it.

What hardening takes away shows here and nowhere else: a system call, memory that may be executed, a folder, a login.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.brokers.jars import cache_folder, locked
from tests.packages.container import Image, make_debian
from tests.packages.tools import needed
from tests.polling import eventually
from tests.services import postgres, redis_server
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.processes import Child
from tests.services.requirements import require

pytestmark = [pytest.mark.timeout(2_000), pytest.mark.xdist_group("image")]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,ca-certificates,tzdata"
BOOT_SECONDS = 90
SETTINGS = """
environment = "systemd"
[rocketmq]
name_servers = "{name_servers}"
[redis]
url = "redis://127.0.0.1:1/0"
[ledger]
url = "postgresql://127.0.0.1:1/ledger"
[[producers]]
group = "order-service"
topics = ["ORDERS"]
outbox_url = "postgresql://127.0.0.1:1/orders"
[[subscriptions]]
topic = "ORDERS"
group = "billing"
inbox_url = "postgresql://127.0.0.1:1/billing"
[history]
path = "/var/lib/reconciler/history"
[web]
users_file = "/var/lib/reconciler-web/users.json"
[[notifiers]]
name = "on-call"
kind = "slack"
url_file = "/etc/reconciler/notifiers/on-call-url"
"""
#: The block of the page that makes this file readable for every login.
NOTIFIERS = re.compile(
    r"^  ```bash\n(  groupadd --force --system reconciler-notifiers\n.*?)^  ```$", re.MULTILINE | re.DOTALL
)
LEDGER_OF_SWEEP = """[Service]
LoadCredential=ledger_url:/etc/reconciler/secrets/sweep/ledger_url
Environment=RECONCILER_LEDGER__URL_FILE=%d/ledger_url
"""


@dataclass(frozen=True, kw_only=True)
class Booted:
    """A system that runs, in name spaces of its own; the network is the host's."""

    root: Path
    leader: int

    def ran(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in it, as root."""
        enter = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, check=False, timeout=300)

    def end(self) -> None:
        """Kills all of it: without its first process the kernel ends the others, which would outlive systemd-nspawn."""
        with suppress(ProcessLookupError):
            os.kill(self.leader, signal.SIGKILL)

    def state(self, unit: str) -> dict[str, str]:
        """What systemd knows of a unit."""
        told = self.ran(
            "systemctl", "show", unit, "--property=ActiveState,SubState,Result,ExecMainStatus,NRestarts"
        ).stdout
        return dict(line.split("=", 1) for line in told.splitlines())

    def log(self, unit: str) -> str:
        """Its last lines."""
        return self.ran("journalctl", "--no-pager", "--lines=40", "--output=cat", f"--unit={unit}").stdout


@pytest.fixture(scope="module")
def booted(image: Image) -> Iterator[Booted]:
    require(postgres.missing())
    require(redis_server.missing())
    nspawn = needed("systemd-nspawn", "apt-get install systemd-container (Debian, Ubuntu)")
    with ExitStack() as stack:
        root = _debian()
        shutil.rmtree(root / "opt/reconciler", ignore_errors=True)
        subprocess.run(["cp", "-a", str(image.root / "opt/reconciler"), str(root / "opt")], check=True, timeout=300)
        _install(root, stack)
        command = [nspawn, f"--directory={root}", f"--machine=packages-{os.getpid()}", "--keep-unit", "--register=no"]
        system = Child([*command, "--boot", "--console=pipe"], log=root.parent / "boot.log")
        stack.callback(system.kill)
        system.until(lambda: _first_process(system.pid) is not None, within_seconds=BOOT_SECONDS, what="systemd-nspawn")
        found = Booted(root=root, leader=_first_process(system.pid) or 0)
        stack.callback(found.end)
        system.until(
            lambda: found.ran("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
            within_seconds=BOOT_SECONDS,
            what="systemd",
        )
        yield found


def _first_process(nspawn: int) -> int | None:
    """The systemd below systemd-nspawn; None: there is none yet, only the process that makes its name spaces."""
    for child in Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split():
        with suppress(FileNotFoundError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
    return None


def _debian() -> Path:
    """A tree with systemd, made once; what an earlier test left in it goes."""
    tree = cache_folder() / "packages/boot"
    with locked("packages-boot"):
        if not (tree / "usr/bin/python").is_symlink():
            make_debian(tree, PACKAGES)
    for left in ("etc/reconciler", "etc/systemd/system", "var/lib", "var/log/journal"):
        for one in (tree / left).glob("reconciler*" if left != "var/log/journal" else "*"):
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    shutil.rmtree(tree / "etc/reconciler", ignore_errors=True)
    return tree


def _install(root: Path, stack: ExitStack) -> None:
    """What docs/how-to/install-systemd.md says, in its order, with servers of this machine."""
    shutil.copy(DEPLOY / "audit/audit-due-days.sh", root / "opt/reconciler/bin")
    (root / "etc/sysusers.d").mkdir(exist_ok=True)
    shutil.copy(DEPLOY / "systemd/reconciler.sysusers.conf", root / "etc/sysusers.d/reconciler.conf")
    subprocess.run(["chroot", str(root), "systemd-sysusers"], check=True, timeout=60)
    for unit in [*(DEPLOY / "systemd").glob("*.service"), *(DEPLOY / "systemd").glob("*.timer")]:
        shutil.copy(unit, root / "etc/systemd/system")
    server = stack.enter_context(postgres.PostgresServer(password="owner"))
    redis = redis_server.RedisServer(root.parent / f"redis-{os.getpid()}", options={"maxmemory-policy": "noeviction"})
    stack.callback(shutil.rmtree, redis.folder, ignore_errors=True)
    stack.enter_context(redis)
    broker = stack.enter_context(EmbeddedBroker())
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True) as connection:
        for database in ("ledger", "orders", "billing"):
            connection.execute(f"CREATE DATABASE {database}".encode())
    urls = {
        name: server.url(database)
        for name, database in (("ledger", "ledger"), ("outbox", "orders"), ("inbox", "billing"))
    }
    for role in ("run", "sweep", "web", "audit"):
        folder = root / "etc/reconciler/secrets" / role
        folder.mkdir(parents=True)
        (folder / "redis_url").write_text(redis.url)
        for name, url in urls.items():
            (folder / f"{name}_url").write_text(url)
    (root / "etc/reconciler/secrets").chmod(0o700)
    settings = root / "etc/reconciler/reconciler.toml"
    settings.write_text(SETTINGS.format(name_servers=broker.name_servers))
    _drop_in(root, "reconciler-web", f"[Service]\nEnvironment=RECONCILER_WEB__LISTEN=127.0.0.1:{free_port()}\n")
    _drop_in(root, "reconciler-sweep", LEDGER_OF_SWEEP)
    page = (ROOT / "docs/how-to/notifier-secrets.md").read_text()
    assert textwrap.indent(LEDGER_OF_SWEEP, "  ") in page
    (root / "on-call-url").write_text("http://127.0.0.1:9/")
    steps = NOTIFIERS.findall(page)
    assert len(steps) == 1
    subprocess.run(["chroot", str(root), "bash", "-euc", f"cd /\n{steps[0]}"], check=True, timeout=60)
    (root / "password").write_text("correct horse battery staple")
    reconciler = ["chroot", str(root), "/opt/reconciler/bin/reconciler"]
    subprocess.run(["chroot", str(root), "install", "-d", "-m", "700", "-o", "reconciler-web", "-g", "reconciler-web",
                    "/var/lib/reconciler-web"], check=True, timeout=60)  # fmt: skip
    for words in (
        *(["db", "upgrade", name, "--url", f"@/etc/reconciler/secrets/run/{name}_url"] for name in urls),
        ["topics", "create", "--business"],
        ["web", "user", "add", "alice", "--role", "admin", "--password-file", "/password"],
    ):
        done = subprocess.run([*reconciler, *words], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


def _drop_in(root: Path, unit: str, text: str) -> Path:
    path = root / f"etc/systemd/system/{unit}.service.d/test.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("unit", ["reconciler", "reconciler-sweep", "reconciler-web"])
def test_a_unit_starts_works_and_stops_within_its_hardening(booted: Booted, unit: str) -> None:
    done = booted.ran("systemctl", "start", unit)
    assert done.returncode == 0, done.stderr + booted.log(unit)
    state = booted.state(unit)
    assert (state["ActiveState"], state["SubState"], state["NRestarts"]) == ("active", "running", "0"), booted.log(unit)
    assert booted.ran("systemctl", "stop", unit).returncode == 0
    state = booted.state(unit)
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0"), booted.log(
        unit
    )


def test_the_nightly_audit_reads_what_another_login_wrote(booted: Booted) -> None:
    spool = booted.root / "var/lib/reconciler/history/.spool"
    assert booted.ran("systemctl", "start", "reconciler").returncode == 0
    eventually(lambda: any(one.is_file() and one.stat().st_size > 0 for one in spool.rglob("*")), within_seconds=60)
    assert booted.ran("systemctl", "stop", "reconciler").returncode == 0, "the stop seals what was recorded"
    done = booted.ran("systemctl", "start", "reconciler-audit")
    log = booted.log("reconciler-audit")
    assert done.returncode != 0, "a service that began today has no answer for yesterday"
    assert booted.state("reconciler-audit")["ExecMainStatus"] == "2", log
    answers = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {answer["reason"] for answer in answers} == {"gap"}, log


def test_a_wrong_setting_is_tried_once(booted: Booted) -> None:
    wrong = _drop_in(booted.root, "reconciler", "[Service]\nEnvironment=RECONCILER_NO_SUCH=1\n")
    try:
        assert booted.ran("systemctl", "daemon-reload").returncode == 0
        assert booted.ran("systemctl", "start", "reconciler").returncode != 0
        state, log = booted.state("reconciler"), booted.log("reconciler")
        assert (state["ActiveState"], state["ExecMainStatus"], state["NRestarts"]) == ("failed", "2", "0"), log
        assert "no_such" in log.lower()
    finally:
        wrong.unlink()
        booted.ran("systemctl", "daemon-reload")
        booted.ran("systemctl", "reset-failed", "reconciler")
