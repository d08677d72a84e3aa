"""A deployment that people look after in a browser: broker, Redis, `reconciler run` and `reconciler web` as processes.

with WatchedService(tmp_path) as service, service.logged_in(chromium, "olga") as watched:
    watched.page.get_by_role("link", name="Losses").click()
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from playwright.sync_api import Browser

from reconciler.web.access.roles import WebRole
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
"""


class WatchedService:
    """Confined to one test."""

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
        return f"http://127.0.0.1:{self._port}"

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
        self.web: Service = self.deployed.run("web", "--listen", f"127.0.0.1:{self._port}")
        eventually(self._answers, within_seconds=60)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", "/login")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def lose(self, count: int) -> Sequence[str]:
        """Business ids of so many messages that were committed and never reached the group; their loss is proved.

        The topic is on hold, so that nobody repairs them, and `run` has ended.
        """
        assert self.deployed.command("hold", self.deployed.topic, "--reason", "the test looks first").exit_code == 0
        keys = self.deployed.commit(count, lose=True, producer=self.producer)
        service = self.deployed.run("run")
        eventually(lambda: set(keys) <= set(self.deployed.repairs()), within_seconds=120)
        assert service.end() == 0
        rows = self.deployed.rows(self.deployed.outbox, "SELECT business_id FROM reconciler_outbox ORDER BY unique_key")
        assert len(rows) == count
        return rows

    @contextmanager
    def logged_in(self, chromium: Browser, name: str, *, scripts: bool = True) -> Iterator[WatchedPage]:
        """The first page, as one of PEOPLE sees it."""
        with opened(chromium, self.url, scripts=scripts) as watched:
            page = watched.page
            page.goto(f"{self.url}/")
            sign_in(page, name, PASSWORD)
            page.wait_for_url(f"{self.url}/")
            yield watched
