"""A private pgbouncer before a private PostgreSQL server: transactions of one client go to several sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import psycopg
from sqlalchemy.engine import make_url

from tests.services import requirements
from tests.services.postgres import USER, PostgresServer, without_root
from tests.services.private_server import PrivateServer
from tests.services.processes import Child, ServiceFailed
from tests.services.requirements import pgbouncer_missing as missing

__all__ = ["PgBouncer", "missing"]

START_SECONDS = 20.0
SESSIONS = 8


class PgBouncer(PrivateServer):
    """Transaction mode, eight sessions a database, each transaction on the next of them; its defaults otherwise.

    So it refuses start-up parameters, and knows nothing of prepared statements where its release does not. stop() is
    at once: clients and sessions are disconnected.
    """

    def __init__(self, server: PostgresServer, *, options: dict[str, str] | None = None) -> None:
        program = requirements.pgbouncer_program()
        if program is None:
            raise ServiceFailed(missing() or "no pgbouncer")
        self._program = program
        self._server = server
        super().__init__("reconciler-pgb-", options=options)

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / "pgbouncer.log"

    def through(self, url: str) -> str:
        """The same database of the server, reached through the pooler."""
        return make_url(url).set(port=self.port).render_as_string(hide_password=False)

    def create_database(self, prefix: str = "test") -> str:
        """A fresh database; returns its SQLAlchemy URL through the pooler."""
        return self.through(self._server.create_database(prefix))

    def start(self) -> Self:
        """Returns when it accepts logins."""
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(self.folder / "users.txt"),
            "pool_mode": "transaction",
            "default_pool_size": str(SESSIONS),
            "server_round_robin": "1",
            "server_idle_timeout": "5",  # every test has a database of its own, and the server 100 sessions
            **self.options,
        }
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._server.port}", "[pgbouncer]"]
        (self.folder / "users.txt").write_text(f'"{USER}" ""\n')
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines + [f"{k} = {v}" for k, v in settings.items()]))
        command: list[str | Path] = [*without_root(self.folder), self._program, self.folder / "pgbouncer.ini"]
        self._child = Child(command, log=self.log, cwd=self.folder)
        self._child.until(self._ready, within_seconds=START_SECONDS, what="pgbouncer")
        return self

    def _ready(self) -> bool:
        try:
            psycopg.connect(host="127.0.0.1", port=self.port, user=USER, dbname="postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
