"""The search for marked secrets: it finds what is planted, and the suite's deployments do have secrets to be found."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.settings.file import load_settings
from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Service
from tests.acceptance.marked_secrets import FOLDER, MARK, leaks, marked, require_unmarked
from tests.polling import eventually

pytestmark = pytest.mark.acceptance

SECRET = marked("planted")


def in_a_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE repairs (answer TEXT)")
        db.execute("INSERT INTO repairs VALUES (?)", (f"no answer from redis://:{SECRET}@h",))


def in_parquet(path: Path) -> None:
    pq.write_table(pa.table({"detail": [SECRET] * 1000}), path, compression="zstd")


PLANTED: dict[str, Callable[[Path], object]] = {
    "log": lambda path: path.write_text(json.dumps({"event": "redis_away", "url": f"redis://:{SECRET}@h"})),
    "database": in_a_database,
    "parquet": in_parquet,
    "gzip": lambda path: path.write_bytes(gzip.compress(SECRET.encode())),
    "base64": lambda path: path.write_bytes(base64.b64encode(b"x:" + SECRET.encode())),
    "hex": lambda path: path.write_text(SECRET.encode().hex()),
    "utf-16": lambda path: path.write_text(SECRET, encoding="utf-16"),
}


@pytest.mark.parametrize("form", PLANTED)
def test_search_finds_a_planted_secret(form: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    PLANTED[form](tmp_path / "deep" / "written")
    (tmp_path / "deep" / "other.log").write_text("redis://127.0.0.1:6379")
    assert [path.name for path in leaks(tmp_path)] == ["written"]


def test_search_leaves_out_the_files_of_the_secrets_alone(tmp_path: Path) -> None:
    for folder in (FOLDER, "log"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "redis").write_text(SECRET)
    assert leaks(tmp_path) == [tmp_path / "log" / "redis"]


def test_secret_in_an_output_or_a_list_of_processes_fails_the_test_that_ran_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a secret at"):
        require_unmarked("fine", f"redis://:{SECRET}@h")
    with pytest.raises(AssertionError, match="list of processes"):
        reconciler("explain", SECRET)
    service = Service(tmp_path / "log", ["-c", "import signal; signal.pause()", SECRET], program=sys.executable)
    try:
        eventually(lambda: MARK in service.command_line, within_seconds=20)
    finally:
        service.process.kill()
        service.process.wait()


def test_deployments_have_marked_secrets_that_their_services_use(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    settings = load_settings(deployed.config, {})
    acl, tls, keys = settings.rocketmq.acl, settings.rocketmq.tls, settings.unique_key_topic.signature_secret
    assert acl.secret_key is not None
    assert tls.key_password is not None
    assert keys is not None
    for secret in (settings.redis.url, acl.secret_key, tls.key_password, *keys):
        assert MARK in secret.reveal()
    deployed.run("run")
    deployed.consume()
    lost = deployed.commit(2, lose=True)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
    shown = deployed.command("config", "show", "-o", "json")
    assert shown.exit_code == 0
    assert "url" in shown.stdout
    (deployed.folder / "planted.log").write_text(SECRET)
    with pytest.raises(AssertionError, match=r"planted\.log"):
        deployed.require_no_secret_written()
    (deployed.folder / "planted.log").unlink()
