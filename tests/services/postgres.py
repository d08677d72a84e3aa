"""A private PostgreSQL server in a folder of the test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

import psycopg

from tests.polling import PATIENCE, eventually
from tests.services import requirements
from tests.services.private_server import PrivateServer
from tests.services.processes import Child, ServiceFailed, tail
from tests.services.requirements import postgres_missing as missing

__all__ = ["PostgresClone", "PostgresServer", "PostgresStandby", "missing"]

START_SECONDS = 60.0
USER = "reconciler"


class PostgresServer(PrivateServer):
    """initdb and postgres on a free loopback port, no fsync; trust authentication unless there is a password.

    ``create_database`` makes a fresh database in milliseconds, so tests share one server and no tables.
    As root it runs under the system's `postgres` user. ``url`` is SQLAlchemy's, over psycopg.
    """

    def __init__(self, *, options: dict[str, str] | None = None, password: str | None = None) -> None:
        programs = requirements.postgres_programs()
        if programs is None:
            raise ServiceFailed(missing() or "no PostgreSQL")
        self._programs = programs
        self._password = password
        super().__init__("reconciler-pg-", options=options)
        self._as_user = without_root(self.folder)

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "postgres.log"

    def url(self, database: str = "postgres") -> str:
        """For SQLAlchemy with psycopg."""
        login = USER if self._password is None else f"{USER}:{self._password}"
        return f"postgresql+psycopg://{login}@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Creates the cluster the first time, starts it, returns when it accepts logins."""
        data = self.folder / "data"
        if not data.exists():
            self._create(data)
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": "100",
            **self.options,
        }
        arguments: list[str | Path] = [*self._as_user, self._programs / "postgres", "-D", data]
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        self._child = Child(arguments, log=self.log, cwd=self.folder, environment=self.environment)
        self._child.until(self._ready, within_seconds=START_SECONDS, what="postgres")
        return self

    def _create(self, data: Path) -> None:
        login = ["--auth=trust"]
        if self._password is not None:
            file = self.folder / "password"
            file.write_text(self._password)
            login = ["--auth=scram-sha-256", f"--pwfile={file}"]
        self._run("initdb", "-D", data, "-U", USER, *login, "-E", "UTF8", "--locale=C", "--no-sync")
        (self.folder / "password").unlink(missing_ok=True)

    def stop(self) -> None:
        """Fast shutdown: clients are disconnected, work is rolled back."""
        if self._child is not None:
            self._child.stop(number=signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the whole server."""
        if self._child is not None:
            self._child.kill()
            # Killed, it leaves its pid file, which makes the next start suspicious.
            (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def create_database(self, prefix: str = "test") -> str:
        """A fresh database; returns its SQLAlchemy URL."""
        name = self._new_database_name(prefix)
        with self._login() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def _login(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self._password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=60,
        )

    def _ready(self) -> bool:
        try:
            self._login().close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [*self._as_user, str(self._programs / program), *(str(part) for part in arguments)]
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=120 * PATIENCE, cwd=self.folder, text=True
        )
        if done.returncode != 0:
            raise ServiceFailed(f"{program} ended with {done.returncode}\n{done.stderr}\n{tail(self.log)}")

    def _ask(self, sql: str) -> object:
        with self._login() as connection:
            row = connection.execute(sql.encode()).fetchone()
        return None if row is None else row[0]


def without_root(folder: Path) -> list[str]:
    """What goes before a command that refuses to run as root: it gets the user `postgres`, who gets the folder."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServiceFailed("setpriv is missing: apt-get install util-linux, or run the tests as a user")
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


class PostgresStandby(PostgresServer):
    """A hot standby of a running server, by streaming replication; its replay can be paused."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self._primary = primary

    def _create(self, data: Path) -> None:
        # -R writes standby.signal and where the primary is.
        source = ("-h", "127.0.0.1", "-p", str(self._primary.port), "-U", USER)
        self._run("pg_basebackup", "-D", data, *source, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")

    def pause(self) -> None:
        """Nothing is replayed any more; what comes in is kept."""
        self._ask("SELECT pg_wal_replay_pause()")
        eventually(lambda: self._ask("SELECT pg_get_wal_replay_pause_state()") == "paused", within_seconds=30)

    def resume(self) -> None:
        """Replays on."""
        self._ask("SELECT pg_wal_replay_resume()")

    def catch_up(self) -> None:
        """Returns when everything that is committed on the primary now has been replayed."""
        end = self._primary._ask("SELECT pg_current_wal_flush_lsn()")
        eventually(lambda: self._ask(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn") is True, within_seconds=30)


class PostgresClone(PostgresServer):
    """A copy of a running server's data that was started as a primary of its own: a clone, or a former primary."""

    def __init__(self, original: PostgresServer) -> None:
        super().__init__()
        self._original = original

    def _create(self, data: Path) -> None:
        source = ("-h", "127.0.0.1", "-p", str(self._original.port), "-U", USER)
        self._run("pg_basebackup", "-D", data, *source, "-X", "stream", "--checkpoint=fast", "--no-sync")
