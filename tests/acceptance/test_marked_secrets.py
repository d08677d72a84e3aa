"""The search for marked secrets: it finds what is planted, and the suite's deployments do have secrets to be found."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from reconciler.settings.file import load_settings
from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.marked_secrets import (
    FOLDER,
    MARK,
    marked,
    require_no_secret_in_files,
    require_no_secret_in_tables,
    require_unmarked,
)
from tests.polling import eventually
from tests.services.mariadb import MariaDBServer
from tests.services.mariadb import missing as mariadb_missing
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.requirements import require

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
SECRET = marked("planted")


@pytest.fixture
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not searched when the test has ended."""
    return tmp_path_factory.mktemp("planted")


def in_a_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE repairs (answer TEXT)")
        db.execute("INSERT INTO repairs VALUES (?)", (f"no answer from redis://:{SECRET}@h",))


def in_parquet(path: Path) -> None:
    pq.write_table(pa.table({"detail": [SECRET] * 1000}), path, compression="zstd")


FORMS: dict[str, Callable[[Path], object]] = {
    "log": lambda path: path.write_text(json.dumps({"event": "redis_away", "url": f"redis://:{SECRET}@h"})),
    "database": in_a_database,
    "parquet": in_parquet,
    "gzip": lambda path: path.write_bytes(gzip.compress(SECRET.encode())),
    "base64": lambda path: path.write_bytes(base64.b64encode(b"x:" + SECRET.encode())),
    "hex": lambda path: path.write_text(SECRET.encode().hex()),
    "utf-16": lambda path: path.write_text(SECRET, encoding="utf-16"),
}


@pytest.mark.parametrize("form", FORMS)
def test_search_finds_a_planted_secret(form: str, planted: Path) -> None:
    (planted / "deep").mkdir()
    FORMS[form](planted / "deep" / "written")
    (planted / "deep" / "other.log").write_text("redis://127.0.0.1:6379")
    with pytest.raises(AssertionError, match=r"a secret in files: deep/written$"):
        require_no_secret_in_files(planted)


def test_search_leaves_out_the_files_of_the_secrets_alone(planted: Path) -> None:
    for folder in (FOLDER, "log"):
        (planted / folder).mkdir()
        (planted / folder / "redis").write_text(SECRET)
    with pytest.raises(AssertionError, match=r"a secret in files: log/redis$"):
        require_no_secret_in_files(planted)


@pytest.mark.sql
def test_search_finds_a_secret_in_a_row_of_a_database_server(own_postgres: PostgresServer) -> None:
    url = own_postgres.create_database()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE repairs (number INTEGER, answer TEXT)"))
        connection.execute(sa.text("CREATE TABLE rounds (number INTEGER)"))
    require_no_secret_in_tables(url)
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO repairs VALUES (1, :answer)"), {"answer": SECRET * 1000})
    engine.dispose()
    with pytest.raises(AssertionError, match=r"a secret in tables: repairs$"):
        require_no_secret_in_tables(url)


def test_secret_in_an_output_or_an_argument_fails_the_test_that_ran_the_command() -> None:
    with pytest.raises(AssertionError, match="a secret at"):
        require_unmarked("fine", f"redis://:{SECRET}@h")
    with pytest.raises(AssertionError, match="a secret at"):
        reconciler("explain", SECRET)


_LEAKING_TESTS = """
import logging, subprocess, sys
from tests.acceptance.marked_secrets import marked
from tests.polling import eventually

SECRET = marked("planted")

def test_nothing(tmp_path):
    (tmp_path / "log").write_text("calm")

def test_file(tmp_path):
    (tmp_path / "log").write_text(SECRET)

def test_log():
    logging.getLogger("checkback_producers.sweeper").debug("away", extra={"url": SECRET})

def test_output():
    print(SECRET)

def test_process_that_has_ended(process_lists):
    command = [sys.executable, "-S", "-c", "input()", SECRET]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        eventually(lambda: process.pid in process_lists._found, within_seconds=20)
        process.communicate(b"\\n")
"""


def test_a_test_that_leaks_fails_and_its_neighbours_do_not(planted: Path) -> None:
    (planted / "test_leaking.py").write_text(_LEAKING_TESTS)
    options = ["-p", "tests.acceptance.leak_watch", "-p", "no:cacheprovider", "-rfE", "--tb=no", "-q"]
    folders = [f"--rootdir={planted}", f"--basetemp={planted / 'temporary'}"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *folders, str(planted / "test_leaking.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "300"},  # no line is cut
        check=False,
    )
    told = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+) - .*a secret in", ended.stdout, re.MULTILINE))
    assert told == {"test_file", "test_log", "test_output", "test_process_that_has_ended"}, ended.stdout
    assert ended.returncode == 1


def test_deployments_have_marked_secrets_that_their_services_use(
    own_postgres: PostgresServer, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment(ledger_url=own_postgres.create_database())
    settings = load_settings(deployed.config, {})
    acl, tls, keys = settings.rocketmq.acl, settings.rocketmq.tls, settings.unique_key_topic.signature_secret
    assert acl.secret_key is not None
    assert tls.key_password is not None
    assert keys is not None
    for secret in (settings.redis.url, settings.ledger.url, acl.secret_key, tls.key_password, *keys):
        assert MARK in secret.reveal()
    deployed.run("run")
    deployed.consume()
    lost = deployed.commit(2, lose=True)
    eventually(lambda: deployed.effects() == sorted(lost), within_seconds=120)
    shown = deployed.command("config", "show", "-o", "json")
    assert shown.exit_code == 0
    assert "url" in shown.stdout


@pytest.mark.slow
@pytest.mark.sql
def test_refused_logins_and_a_database_that_is_away_show_no_password(
    own_postgres: PostgresServer, new_deployment: DeploymentFactory
) -> None:
    require(mariadb_missing())
    deployed = new_deployment(ledger_url=own_postgres.create_database())
    with MariaDBServer(password=marked("mariadb")) as mariadb:
        wrong = {
            "ledger": deployed.ledger_url,
            "outbox": mariadb.create_database(),
            "redis": deployed.redis_url,
            "inbox": f"postgresql://reconciler:@127.0.0.1:{free_port()}/away",
        }
        settings = deployed.config.read_text()
        for name, url in wrong.items():
            deployed.file_of(name).write_text(re.sub(r":[^:@/]*@", f":{marked('wrong')}@", url))
            plain = f'{name}_url = "sqlite:///'
            settings = re.sub(f'{plain}.*"', f'{name}_url_file = "{deployed.file_of(name)}"', settings)
        deployed.config.write_text(settings)
        doctor = deployed.command("doctor", "-o", "json")
        for said in ("invalid username-password", "Access denied", "password authentication failed", "refused"):
            assert said in doctor.stdout, doctor.stdout + doctor.stderr
        commands = (("status",), ("once",), ("list",), ("explain", "A" * 32), ("config", "check"), ("topics", "create"))
        for command in commands:
            deployed.command(*command)
        services = [deployed.run(command) for command in ("run", "sweep", "announcements")]
        eventually(lambda: all("waits" in service.output for service in services), within_seconds=60)
        assert [service.end() for service in services] == [0] * len(services)
