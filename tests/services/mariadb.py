"""A private MariaDB server in a folder of the test."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Self

import pymysql

from tests.polling import PATIENCE
from tests.services import requirements
from tests.services.private_server import PrivateServer
from tests.services.processes import Child, ServiceFailed
from tests.services.requirements import mariadb_missing as missing

__all__ = ["MariaDBReplica", "MariaDBServer", "missing"]

START_SECONDS = 60.0
USER = "reconciler"
PASSWORD = "private"  # loopback, one test run


class MariaDBServer(PrivateServer):
    """mariadb-install-db and mariadbd on a private socket and a free loopback port.

    ``create_database`` makes a fresh database; ``url`` is SQLAlchemy's, over PyMySQL.
    """

    def __init__(self, *, options: dict[str, str] | None = None, password: str = PASSWORD) -> None:
        super().__init__("reconciler-my-", options=options)
        self._password = password

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "mariadb.log"

    @property
    def unix_socket(self) -> Path:
        """The private unix socket, where root needs no password."""
        return self.folder / "mariadb.sock"

    @property
    def temporary(self) -> Path:
        """Where its temporary tables are, and no other server's."""
        return self.folder / "temporary"

    def url(self, database: str = "mysql") -> str:
        """For SQLAlchemy with PyMySQL."""
        return f"mysql+pymysql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}?charset=utf8mb4"

    def start(self) -> Self:
        """Creates the data folder the first time, starts the server, returns when it accepts logins."""
        program = requirements.mariadb_server()
        if program is None:
            raise ServiceFailed(missing() or "no MariaDB")
        data = self.folder / "data"
        fresh = not data.exists()
        # A server that starts removes the temporary tables it finds: those of another one, too, in a folder they share.
        self.temporary.mkdir(exist_ok=True)
        # As root it insists on being told that root is meant; its files stay in a private folder.
        user = ["--user=root"] if os.geteuid() == 0 else []
        if fresh:
            self._install(data, user)
        settings = {
            "datadir": str(data),
            "tmpdir": str(self.temporary),
            "socket": str(self.unix_socket),
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "pid-file": str(self.folder / "mariadb.pid"),
            "innodb-flush-log-at-trx-commit": "0",
            "innodb-buffer-pool-size": "32M",
            "innodb-flush-method": "fsync",
            "skip-log-bin": "",
            "performance-schema": "OFF",
            **self.options,
        }
        arguments = [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]
        command = [program, "--no-defaults", *user, *arguments]
        self._child = Child(command, log=self.log, cwd=self.folder, environment=self.environment)
        self._child.until(self._ready, within_seconds=START_SECONDS, what="mariadbd")
        if fresh:
            self._execute(
                f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{self._password}'",
                f"CREATE USER '{USER}'@'localhost' IDENTIFIED BY '{self._password}'",
                f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION",
                f"GRANT ALL ON *.* TO '{USER}'@'localhost' WITH GRANT OPTION",
            )
        return self

    def stop(self) -> None:
        """SIGTERM: an orderly shutdown."""
        if self._child is not None:
            self._child.stop(within_seconds=30)

    def kill(self) -> None:
        """kill -9."""
        if self._child is not None:
            self._child.kill()

    def create_database(self, prefix: str = "test") -> str:
        """A fresh database in utf8mb4; returns its SQLAlchemy URL."""
        name = self._new_database_name(prefix)
        self._execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self.url(name)

    def _install(self, data: Path, user: list[str]) -> None:
        done = subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                *user,
            ],
            capture_output=True,
            check=False,
            timeout=120 * PATIENCE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        if done.returncode != 0:
            raise ServiceFailed(f"mariadb-install-db ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def _execute(self, *statements: str) -> object:
        """Value of the last one."""
        connection = pymysql.connect(unix_socket=str(self.unix_socket), user="root", connect_timeout=60)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                row = cursor.fetchone()
        finally:
            connection.close()
        return None if row is None else row[0]

    def _ready(self) -> bool:
        # The server greets first; PyMySQL would leak its socket when the connection is refused.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(2)
            try:
                connection.connect(str(self.unix_socket))
                return len(connection.recv(64)) > 5
            except OSError:
                return False


class MariaDBReplica(MariaDBServer):
    """A replica of a running server with a binary log, from its present state on; every login may write to it.

    It is started before the primary has anything but users: databases made later come to it.
    """

    def __init__(self, primary: MariaDBServer, *, options: dict[str, str] | None = None, name: str = "") -> None:
        """`name`: of the replication. The option `skip-log-bin`: without a binary log."""
        log = {} if "skip-log-bin" in (options or {}) else {"log-bin": "binary"}
        super().__init__(options={"server-id": "2", **log, **(options or {})})
        self._primary = primary
        self._name = name

    def start(self) -> Self:
        """Starts it and the replication."""
        super().start()
        position = self._primary._execute("SELECT @@gtid_binlog_pos")
        if "log-bin" in self.options:
            self._execute("RESET MASTER")  # what made its users
        self._execute(
            f"SET GLOBAL gtid_slave_pos = '{position}'",
            f"CHANGE MASTER '{self._name}' TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {self._primary.port}, "
            f"MASTER_USER = '{USER}', MASTER_PASSWORD = '{self._primary._password}', MASTER_USE_GTID = slave_pos",
            f"START SLAVE '{self._name}'",
        )
        return self

    def pause(self) -> None:
        """Nothing comes any more."""
        self._execute(f"STOP SLAVE '{self._name}'")

    def resume(self) -> None:
        """Replicates on."""
        self._execute(f"START SLAVE '{self._name}'")

    def catch_up(self) -> None:
        """Returns when everything that is committed on the primary now is here."""
        end = self._primary._execute("SELECT @@gtid_binlog_pos")
        if self._execute(f"SELECT MASTER_GTID_WAIT('{end}', 30)") != 0:
            raise ServiceFailed(f"the replica has not come to {end}")

    def promote(self) -> None:
        """It follows no server any more."""
        self._execute(f"STOP SLAVE '{self._name}'", f"RESET SLAVE '{self._name}' ALL")
