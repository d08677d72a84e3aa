"""A deployment that people look after in a browser: broker, Redis, `reconciler run` and `reconciler web` as processes.

with WatchedService(tmp_path) as service, service.logged_in(chromium, "olga") as watched:
    watched.page.get_by_role("link", name="Losses").click()
"""

from __future__ import annotations

import http.client
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from playwright.sync_api import Browser

from reconciler.web.roles import WebRole
from tests.acceptance.deployment import Deployment, Service
from tests.console.watched_page import WatchedPage, opened, sign_in
from tests.polling import eventually
from tests.services import redis_server
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.ports import free_port
from tests.services.redis_server import RedisServer
from tests.services.requirements import require
from tests.unit.web.web_world import PASSWORD, with_user

#: One person of each role.
PEOPLE = {"vera": WebRole.VIEWER, "olga": WebRole.OPERATOR, "adam": WebRole.ADMIN}

_SETTINGS = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
[repairs]
check_back_wait_seconds = 0
claim_lease_seconds = 10
# So slow that a bulk repair can be interrupted on every machine.
rate_per_second = 40
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMessage:
    """One message whose END_TRANSACTION never arrived."""

    unique_key: str
    business_id: str


class WatchedService:
    """Of one module, whose tests leave it without a hold and without `reconciler run`."""

    def __init__(self, folder: Path, *, web: str = "") -> None:
        """`web`: more settings of the section."""
        require(redis_server.missing())
        self._folder = folder
        self._web = web
        self._port = free_port()
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Of the console, without a slash at the end."""
        return _url(self._port)

    def __enter__(self) -> Self:
        users_file = self._folder / "users.json"
        for name, role in PEOPLE.items():
            with_user(users_file, name, role)
        with ExitStack() as stack:
            redis = stack.enter_context(RedisServer(self._folder / "redis"))
            broker = stack.enter_context(EmbeddedBroker())
            self.deployed = stack.enter_context(
                Deployment(
                    self._folder / "deployment",
                    redis_url=redis.url,
                    name_servers=broker.name_servers,
                    settings=f'{_SETTINGS}\n[web]\nusers_file = "{users_file}"\n{self._web}',
                )
            )
            self.producer = self.deployed.producer()
            self.start_web()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_web(self) -> None:
        """`reconciler web`, which answers by now."""
        self.web = self._started(self._port)

    @contextmanager
    def only_looking(self) -> Iterator[str]:
        """The address of one more `reconciler web`, which has web.read_only, within the block."""
        port = free_port()
        service = self._started(port, {"RECONCILER_WEB__READ_ONLY": "true"})
        yield _url(port)
        assert service.end() == 0, service.output[-2000:]

    def _started(self, port: int, variables: Mapping[str, str] | None = None) -> Service:
        service = self.deployed.run("web", "--listen", f"127.0.0.1:{port}", variables=variables)
        eventually(lambda: _answers(port), within_seconds=60)
        return service

    def lose(self, count: int) -> Sequence[LostMessage]:
        """So many messages that were committed and never reached the group.

        Their loss is proved by a `run` that repairs nothing and has ended.
        """
        keys = self.deployed.commit(count, lose=True, producer=self.producer)
        with self.running({"RECONCILER_REPAIRS__ENABLED": "false"}):
            eventually(lambda: self.open_losses().issuperset(keys), within_seconds=120)
        business_ids = self.business_ids()
        return [LostMessage(unique_key=key, business_id=business_ids[key]) for key in keys]

    def business_ids(self) -> dict[str, str]:
        """Unique key -> business id, of every message that was committed."""
        with closing(sqlite3.connect(self.deployed.outbox)) as outbox:
            return dict(outbox.execute("SELECT unique_key, business_id FROM reconciler_outbox").fetchall())

    @contextmanager
    def running(self, variables: Mapping[str, str] | None = None) -> Iterator[None]:
        """`reconciler run` within the block."""
        service = self.deployed.run("run", variables=variables)
        yield
        eventually(lambda: service.takes_signals, within_seconds=60)
        assert service.end() == 0, service.output[-2000:]

    def record(self) -> dict[str, list[tuple[object, ...]]]:
        """Table -> rows: everything that an act changes, but the answers that are kept for repeated requests."""
        tables = ("candidate", "repair", "hold", "job", "operator_action")
        with closing(sqlite3.connect(self.deployed.ledger)) as ledger:
            return {table: ledger.execute(f"SELECT * FROM reconciler_{table}").fetchall() for table in tables}

    def actions_of(self, name: str) -> list[tuple[str, str, str]]:
        """Command, unique key (or none) and details of what one of PEOPLE did, the first one first."""
        found = "SELECT command, unique_key, detail FROM reconciler_operator_action WHERE by = ? ORDER BY started_at_ms"
        with closing(sqlite3.connect(self.deployed.ledger)) as ledger:
            return ledger.execute(found, (f"web:{name}",)).fetchall()

    def open_losses(self) -> set[str]:
        """Keys whose loss is proved, and not yet that they took effect."""
        sql = "SELECT unique_key FROM reconciler_candidate WHERE state = 'OPEN' AND loss_verdict IS NOT NULL"
        return set(self.deployed.rows(self.deployed.ledger, sql))

    def keys_done(self) -> int:
        """Of the only job that has not ended; 0: there is none."""
        sql = "SELECT done FROM reconciler_job WHERE ended_at_ms IS NULL"
        return next(iter(self.deployed.rows(self.deployed.ledger, sql)), 0)

    def lease_job_until(self, at_ms: int) -> None:
        """As if the process that does the only open job had given its sign of life then."""
        with closing(sqlite3.connect(self.deployed.ledger, timeout=30)) as ledger, ledger:
            ledger.execute("UPDATE reconciler_job SET lease_until_ms = ? WHERE ended_at_ms IS NULL", (at_ms,))

    @contextmanager
    def logged_in(
        self, chromium: Browser, name: str, *, url: str | None = None, scripts: bool = True
    ) -> Iterator[WatchedPage]:
        """The first page, as one of PEOPLE sees it. `url`: of another server than `self.web`."""
        url = url or self.url
        with opened(chromium, url, scripts=scripts) as watched:
            page = watched.page
            page.goto(f"{url}/")
            sign_in(page, name, PASSWORD)
            page.wait_for_url(f"{url}/")
            eventually(lambda: _shows_the_status(watched, f"{url}/"), within_seconds=60)
            yield watched


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _shows_the_status(watched: WatchedPage, first: str) -> bool:
    """False, and loads the page again, if it said that no status has been read yet: it says so after 4 s, and a slow
    machine takes longer."""
    unread = f"503: {first}"
    if unread not in watched.troubles:
        return True
    watched.troubles[:] = [one for one in watched.troubles if one != unread]
    watched.page.goto(first)
    return unread not in watched.troubles


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/login")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
