"""The compose file's own scripts, logins and settings, on servers of this machine in the place of its containers.

Its brokers, images and networks are not there: an embedded broker stands for the first, and addresses are replaced.
"""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.import_path import import_path
from tests.packages.compose_folder import FOLDER, SERVICES, prepared_copy
from tests.packages.programs import compose_reader
from tests.packages.tools import needed
from tests.services import postgres, redis_server
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.processes import Child
from tests.services.requirements import require

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("compose")]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class World:
    """A prepared copy of the folder whose addresses are those of servers here."""

    folder: Path

    def environment(self, name: str, **more: str) -> dict[str, str]:
        """Variables of a service, and what a process here needs besides."""
        own = {key: self.moved(value) for key, value in SERVICES[name].get("environment", {}).items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        config = str(self.folder / "reconciler.toml")
        return {"PATH": path, "PYTHONPATH": import_path(), "RECONCILER_CONFIG": config, **own, **more}

    def moved(self, text: str) -> str:
        """A text of the file with the places of this machine."""
        return text.replace("/run/secrets", str(self.folder / "secrets")).replace("$$", "$")

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a service with its own entry point, and its command or other arguments."""
        service = SERVICES[name]
        words = [*service.get("entrypoint", ["reconciler"]), *(arguments or service["command"])]
        return subprocess.run(
            list(map(self.moved, words)),
            env=self.environment(name),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require(postgres.missing())
    require(redis_server.missing())
    needed("psql", "apt-get install postgresql-client (Debian, Ubuntu)")
    folder = prepared_copy(tmp_path_factory.mktemp("compose"))
    secrets = folder / "secrets"
    with ExitStack() as stack:
        server = stack.enter_context(postgres.PostgresServer(password="first"))
        users = {"aclfile": str(secrets / "redis_users"), "maxmemory-policy": "noeviction"}
        redis = redis_server.RedisServer(tmp_path_factory.mktemp("redis"), options=users)
        stack.enter_context(redis)
        broker = stack.enter_context(EmbeddedBroker())
        for place in [*secrets.iterdir(), folder / "reconciler.toml"]:
            text = place.read_text()
            for here, there in (
                ("@postgres:5432", f"@127.0.0.1:{server.port}"),
                ("@redis:6379", f"@127.0.0.1:{redis.port}"),
                ("namesrv:9876", broker.name_servers),
                ("/var/lib/reconciler", str(folder / "state")),
                ("/run/secrets", str(secrets)),
            ):
                text = text.replace(here, there)
            place.chmod(0o600)
            place.write_text(text)
        made = World(folder=folder)
        _make_databases(made, server)
        yield made


def _make_databases(world: World, server: postgres.PostgresServer) -> None:
    """As the container's first start does: the owner first, then the script, as the owner."""
    there = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PATH": os.environ["PATH"]}
    password = (world.folder / "secrets/owner_password").read_text().strip()
    make = f"CREATE ROLE owner SUPERUSER LOGIN PASSWORD '{password}'"
    first = ["psql", "--quiet", "--username", postgres.USER, "--dbname", "postgres", "--command", make]
    subprocess.run(first, env={**there, "PGPASSWORD": "first"}, check=True, timeout=60)
    script = world.folder / "postgres/databases.sh"
    script.write_text(world.moved(script.read_text()))
    subprocess.run([script], env={**there, "PGPASSWORD": password, "POSTGRES_USER": "owner"}, check=True, timeout=60)
    done = world.run("tables")
    assert done.returncode == 0, done.stdout + done.stderr
    rights = ["psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--username", "owner", "--dbname", "orders"]
    rights += ["--file", str(world.folder / "postgres/rights.sql")]
    subprocess.run(rights, env={**there, "PGPASSWORD": password}, check=True, timeout=60)
    done = world.run("topics")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_has_every_right_that_doctor_knows_of(world: World) -> None:
    done = world.run("run", "doctor", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_a_process_is_ready_with_the_logins_that_it_is_given(world: World, name: str, tmp_path: Path) -> None:
    port = free_port()
    more = {"RECONCILER_METRICS__LISTEN": f"127.0.0.1:{port}"}
    words = [sys.executable, "-m", "reconciler", *SERVICES[name]["command"]]
    with_log = Child(words, log=tmp_path / "log", environment=world.environment(name, **more))
    try:
        with_log.until(lambda: _status(f"http://127.0.0.1:{port}/readyz") == 200, within_seconds=60, what=name)
        assert with_log.stop() == 0, with_log.log.read_text()
    finally:
        with_log.kill()


def test_the_console_answers_its_health_check_with_the_certificate_that_was_made(world: World, tmp_path: Path) -> None:
    port = free_port()
    words = [sys.executable, "-m", "reconciler", *SERVICES["web"]["command"][:-1], f"0.0.0.0:{port}"]
    (world.folder / "state").mkdir(exist_ok=True)
    password = tmp_path / "password"
    password.write_text("correct horse battery staple")
    done = world.run("web", "web", "user", "add", "alice", "--role", "admin", "--password-file", str(password))
    assert done.returncode == 0, done.stderr
    console = Child(words, log=tmp_path / "log", environment=world.environment("web"))
    try:
        console.until(lambda: _status(f"https://127.0.0.1:{port}/livez") == 200, within_seconds=60, what="web")
        assert "web_file_open" not in console.log.read_text()
        assert console.stop() == 0, console.log.read_text()
    finally:
        console.kill()


def test_the_audit_answers_for_a_day_that_has_no_history_yet(world: World) -> None:
    entrypoint = [
        word.replace("/var/lib/reconciler", str(world.folder / "state")) for word in SERVICES["audit"]["entrypoint"]
    ]
    entrypoint[0] = str(ROOT / "deploy/audit/audit-due-days.sh")
    entrypoint[entrypoint.index("/etc/reconciler/reconciler.toml")] = str(world.folder / "reconciler.toml")
    environment = world.environment("audit", AUDIT_DAYS="1")
    done = subprocess.run(entrypoint, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert yaml.safe_load(done.stdout)["reason"] in ("gap", "window", "inputs"), done.stdout


def test_docker_compose_can_read_the_file(tmp_path: Path) -> None:
    text = (FOLDER / "compose.yml").read_text(encoding="utf-8")
    file = tmp_path / "compose.yml"
    file.write_text(re.sub(r"\$\{SECRETS_GROUP:[^}]*\}", "1000", text))  # the reader alone takes no variables
    done = subprocess.run([compose_reader(), str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    project = yaml.safe_load(done.stdout)
    assert project["services"].keys() == SERVICES.keys()
    assert project["services"]["rights"]["entrypoint"][2].endswith('exec "$@"')


def test_prometheus_takes_its_configuration_and_rules(world: World) -> None:
    promtool = needed("promtool", "apt-get install prometheus (Debian, Ubuntu)")
    file = world.folder / "prometheus.yml"
    file.write_text(file.read_text().replace("/etc/prometheus", str(ROOT / "deploy/prometheus")))
    done = subprocess.run([promtool, "check", "config", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _status(url: str) -> int:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    with suppress(OSError), urllib.request.urlopen(url, timeout=5, context=unchecked) as answer:
        return int(answer.status)
    return 0
