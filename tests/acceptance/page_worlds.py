"""What the readers of pages have when a page begins: an empty folder, or a deployment that runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from checkback_producers.producer import TransactionalProducer
from reconciler.rocketmq.wire.message import Message
from reconciler.sql.engines import open_engine
from tests.acceptance.deployment import Deployment
from tests.acceptance.units import Units
from tests.acceptance.warm_commands import warm_command
from tests.ended import Ended
from tests.pages import Beginning, SqliteDatabase
from tests.polling import eventually
from tests.services.ports import answers, free_port

__all__ = ["PageDeployment"]

ROOT = Path(__file__).parents[2]
#: As pages write them.
FOLDERS = {"/etc/reconciler": "etc", "/var/lib/reconciler": "var", "/run/secrets": "secrets", "/opt/reconciler": "opt"}


class PageDeployment(Deployment):
    """The deployment of the how-to pages: topic ORDERS, groups order-service and billing, environment production.

    `systemctl` starts its processes and its Redis. `here` of `beginning` has what stands in the place of its ports
    and folders.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        """`options`: those of Deployment."""
        self.redis_port = free_port()
        url = f"redis://127.0.0.1:{self.redis_port}/0"
        super().__init__(folder / FOLDERS["/etc/reconciler"], redis_url=url, **options)
        self.topic, self.group, self.producer_group = "ORDERS", "billing", "order-service"
        self.environment, self.unique_key_topic = "production", "RECONCILER_UNIQUE_KEY"
        self.home = folder
        self.programs = folder / "programs"
        self.units = Units(folder)
        #: Number of an order -> its unique key.
        self.keys: dict[int, str] = {}
        self._sender: TransactionalProducer | None = None
        self._listens = {port: free_port() for port in ("8378", "9378")}

    def __enter__(self) -> Self:
        for name in FOLDERS.values():
            (self.home / name).mkdir(parents=True, exist_ok=True)
        self.programs.mkdir()
        (self.programs / "reconciler").symlink_to(warm_command())
        (self.home / "opt" / "bin").symlink_to(self.programs)
        self.units.install(self.programs)
        self.units.define(self._units())
        self.start("redis-server")
        eventually(lambda: answers(self.redis_port), within_seconds=60)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.units.end_all()

    @property
    def inbox(self) -> Path:
        """The database of the group."""
        return self.folder / f"{self.group}.db"

    def file_of(self, secret: str) -> Path:
        """The file that holds it."""
        return self.home / FOLDERS["/run/secrets"] / secret

    def secret(self, name: str, text: str) -> None:
        """A file of /run/secrets."""
        self.file_of(name).write_text(text)

    def log(self, unit: str) -> str:
        """What its processes printed."""
        return (self.home / f"{unit}.log").read_text(errors="replace")

    def sign_with(self, secret: str) -> None:
        """The producer leaves; the next one signs with another secret."""
        self.stop_sending()
        self._secrets["signature_secret"] = secret

    def stop_sending(self) -> None:
        """The producer leaves."""
        if self._sender is not None:
            self._sender.shutdown()
            self._sender = None

    def stop_services(self) -> None:
        """Producer and consumers leave."""
        self.stop_sending()
        self._stack.close()

    def _units(self) -> Mapping[str, Sequence[str]]:
        units = {
            file.stem: re.search(r"^ExecStart=(.*)$", file.read_text(), re.MULTILINE)[1]  # type: ignore[index]  # each has one
            for file in (ROOT / "deploy/systemd").glob("*.service")
        }
        started = {
            name: words.replace("/opt/reconciler/bin", str(self.programs)).split() for name, words in units.items()
        }
        listen = f"RECONCILER_WEB__LISTEN=127.0.0.1:{self._listens['8378']}"
        started["reconciler-web"] = ["env", listen, *started["reconciler-web"]]
        data = self.redis_data = self.home / "redis"
        data.mkdir()
        words = f"redis-server --port {self.redis_port} --dir {data} --appendonly yes --maxmemory-policy noeviction"
        return {**started, "redis-server": [*words.split(), "--save", ""]}

    def start(self, *units: str) -> None:
        """Units, with the settings."""
        self.do("start", *units)

    def do(self, act: str, *units: str) -> None:
        """As `systemctl` in the reader's shell."""
        subprocess.run([self.programs / "systemctl", act, *units], check=True, env=self._variables())

    def until_well(self) -> None:
        """Waits until rounds have accounted for what was committed."""
        eventually(lambda: self.command("status").stdout.startswith("All is well"), within_seconds=90)

    def wait_for_outage(self) -> None:
        """Waits until the reconciler has noticed that its Redis is away."""
        eventually(lambda: self.rows(self.ledger, "SELECT reason FROM reconciler_outage"), within_seconds=60)

    def command(self, *arguments: str, timeout_seconds: float = 120) -> Ended:
        """Runs `reconciler ...` and waits for its end."""
        program, variables = self.programs / "reconciler", self._variables()
        ended = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=timeout_seconds, env=variables, check=False
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def place(self, number: int, *, lose: bool = False) -> str:
        """Commits an order with the business id order-NUMBER, whose END_TRANSACTION and check-backs are dropped."""
        self.keys[number] = key = self._keys.next_key()
        if lose:
            self._dropped.add(key)
        self._sender = self._sender or self.producer()
        message = Message(topic=self.topic, body=b'{"order": %d}' % number, unique_key=key)
        engine = open_engine(f"sqlite:///{self.outbox}", lock_timeout_seconds=30)
        with self._sender.transaction(message, business_id=f"order-{number}") as tx, engine.begin() as connection:
            tx.record(connection)
        engine.dispose()
        return key

    def _variables(self) -> dict[str, str]:
        path = f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "RECONCILER_CONFIG": str(self.config)}

    def beginning(self, *, names: dict[str, Any] | None = None, **given: Callable[[], object]) -> Beginning:
        """For `run_page`: the reader's shell knows where the settings are."""
        folders = {written: str(self.home / name) for written, name in FOLDERS.items()}
        ports = {"9876": self.name_servers.rpartition(":")[2], "6379": str(self.redis_port)}
        ports |= {written: str(here) for written, here in self._listens.items()}
        plain = self.ledger_url.replace("+psycopg", "")
        return Beginning(
            folder=self.folder,
            here={**folders, **ports},
            variables={
                **{name: self._variables()[name] for name in ("PATH", "RECONCILER_CONFIG")},
                "REDIS": self.redis_url,
                "LEDGER": plain,
            },
            settings=self.config,
            names=names or {},
            databases={
                "outbox": SqliteDatabase(self.outbox),
                "inbox": SqliteDatabase(self.inbox),
                "ledger": SqliteDatabase(self.ledger),
            },
            given=given,
        )
