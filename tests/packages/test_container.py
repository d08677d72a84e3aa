"""The image built from its Dockerfile, and run as an engine would run it that lets it write nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.packages.container import Image, Places
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.fixtures import RedisFactory
from tests.services.ports import is_free
from tests.services.processes import Child

pytestmark = [pytest.mark.timeout(2_000), pytest.mark.xdist_group("image")]

LOGIN = 10_001
METRICS_PORT = 9378
SETTINGS = """
environment = "packages"
[rocketmq]
name_servers = "{name_servers}"
[redis]
url_file = "/etc/reconciler/redis_url"
[ledger]
url = "sqlite:////var/lib/reconciler/ledger.db"
[[producers]]
group = "order-service"
topics = ["ORDERS"]
outbox_url = "sqlite:////var/lib/reconciler/orders.db"
[[subscriptions]]
topic = "ORDERS"
group = "billing"
inbox_url = "sqlite:////var/lib/reconciler/billing.db"
[history]
path = "/var/lib/reconciler/history"
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    tmp_path.chmod(0o755)
    found = Places(state=tmp_path / "state", settings=tmp_path / "settings")
    for folder in (found.state, found.settings):
        folder.mkdir()
        folder.chmod(0o755)
    os.chown(found.state, LOGIN, LOGIN)
    return found


def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_image_is_the_release_that_it_says_it_is(image: Image, places: Places) -> None:
    done = ran(image.command(places, "--version"))
    assert done.returncode == 0, done.stderr
    labels = image.configuration["Labels"]
    assert labels["org.opencontainers.image.version"] in done.stdout


def test_a_page_that_a_message_names_is_in_the_image(image: Image, places: Places) -> None:
    done = ran(image.command(places, "docs", "docs/runbooks/BreakerOpen.md"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# BreakerOpen\n")


def test_the_nightly_audit_runs_in_the_image_without_java(image: Image, places: Places) -> None:
    done = ran(image.program(places, "audit-due-days.sh"))
    assert "usage: audit-due-days.sh" in done.stderr
    needs = "import pyarrow, pandas, cryptography, psycopg, pymysql, opentelemetry, uvicorn, zstandard, lz4"
    done = ran(image.program(places, "python", "-c", needs))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_of_the_image_can_be_changed_by_the_login_that_it_runs_as(image: Image) -> None:
    find = ["find", str(image.root), "-xdev", "(", "-uid", str(LOGIN), "-o", "-perm", "-o+w", ")", "-not", "-type", "l"]
    found = {re.sub(f"^{image.root}", "", line) for line in ran(find).stdout.splitlines()}
    assert {path for path in found if not path.startswith(("/dev/", "/proc/"))} <= {
        "/var/lib/reconciler", "/tmp", "/var/tmp", "/run/lock",
    }  # fmt: skip


def test_run_serves_on_a_read_only_root_is_healthy_and_stops_when_it_is_told(
    image: Image, places: Places, new_redis_server: RedisFactory, tmp_path: Path
) -> None:
    if not is_free(METRICS_PORT):
        pytest.skip(f"port {METRICS_PORT} is in use: the image's processes listen there")
    redis = new_redis_server()
    with EmbeddedBroker() as broker:
        (places.settings / "redis_url").write_text(redis.url)
        (places.settings / "reconciler.toml").write_text(SETTINGS.format(name_servers=broker.name_servers))
        for words in (["config", "check"], *(["db", "upgrade", name] for name in ("ledger", "outbox", "inbox"))):
            done = ran(image.command(places, *words))
            assert done.returncode == 0, done.stdout + done.stderr
        done = ran(image.command(places, "topics", "create", "--business"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert ran(image.probe(places)).returncode == 1, "another process answers in its place"
        service = Child(image.command(places), log=tmp_path / "run.log")
        try:
            service.until(lambda: ran(image.probe(places)).returncode == 0, within_seconds=60, what="the image")
            assert service.stop(within_seconds=60) == 0, service.log.read_text()
        finally:
            service.kill()
