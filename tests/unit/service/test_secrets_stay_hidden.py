"""Hundreds of generated URLs with marked secrets in every place, through everything that prints: no mark comes out."""

from __future__ import annotations

import logging
import random
import sqlite3
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.audit.collect.configuration import read_configuration, with_configured
from reconciler.audit.collect.sources import parse_sources
from reconciler.audit.errors import AuditError
from reconciler.cli.app import run
from reconciler.commands.db import upgrade_database
from reconciler.contract.urls import read_url, shown_url, shown_value
from reconciler.demo.classic.sets import open_classic_client
from reconciler.errors import ReconcilerError
from reconciler.instrumentation.log import configure_logging
from reconciler.settings.file import load_settings
from reconciler.shards.access import open_client
from reconciler.sql.driver_errors import away
from reconciler.sql.engines import open_engine
from reconciler.wiring.databases import inbox_databases, outbox_databases
from tests.examples import examples

EXAMPLE = Path("config/reconciler.toml")
URLS = examples(500)
#: Those that go through whole commands, which look for services.
COMMANDS_EVERY = URLS // 5
#: Nobody listens there.
NOWHERE = "127.0.0.1:1"
DATABASES = ("postgresql", "postgresql+psycopg", "postgresql+asyncpg", "mysql", "mariadb+pymysql", "mysql+typo")
REDIS = ("redis", "rediss", "redis+sentinel", "unix")
PARAMETERS = ("password", "passwd", "sslpassword", "sslkey", "ssl_key", "ssl_password", "sentinel_password", "options",
              "application_name", "client_name", "username", "user", "token", "foo", "sslmode")  # fmt: skip


#: Settings that may be given a URL.
PLACES = (
    "REDIS__URL",
    "LEDGER__URL",
    "PRODUCERS__0__OUTBOX_URL",
    "SUBSCRIPTIONS__0__INBOX_URL",
    "ROCKETMQ__NAME_SERVERS",
    "REDIS__URL_FILE",
    "LEDGER__KEEP_DAYS",
    "SUBSCRIPTIONS__0__TOPIC",
    "REDIS",
)


@dataclass(frozen=True)
class Marked:
    """A URL and the pieces of it that must stay hidden."""

    url: str
    marks: tuple[str, ...]
    is_redis: bool


def marked_urls(seed: int) -> Iterator[Marked]:
    rng = random.Random(seed)

    def mark() -> str:
        # Digits alone look like a port.
        return str(rng.randrange(20_000, 60_000)) + rng.choice(["", f"S{rng.getrandbits(40):X}"])

    for number in range(URLS):
        is_redis = bool(rng.getrandbits(1))
        scheme = rng.choice(REDIS if is_redis else DATABASES)
        user, password, query, fragment, marks = "app", "", "", "", []
        match number % 5:
            case 0:
                marks = [mark(), mark()]
                user, password = marks
            case 1:
                marks = [mark(), mark()]
                password = rng.choice("@#/?%:[]&=+ \\").join(marks)
            case 2:
                marks = [mark(), mark()]
                password = quote(rng.choice("@#/?%:").join(marks), safe="")
            case 3:
                marks = [mark()]
                query = f"?{rng.choice(PARAMETERS)}={marks[0]}"
            case 4:
                marks = [mark()]
                fragment = f"#{marks[0]}"
        login = f"{user}:{password}@" if password else rng.choice(["", f"{user}@"])
        if scheme == "unix":
            place = "/run/redis.sock"
        else:
            place = NOWHERE + {"redis+sentinel": "/service", "redis": "/0", "rediss": "/0"}.get(scheme, "/orders")
        yield Marked(f"{scheme}://{login}{place}{query}{fragment}", tuple(marks), is_redis)


def told(error: BaseException) -> str:
    return f"{error}\n{error!r}\n" + "".join(traceback.format_exception(error))


def of_clients(marked: Marked) -> Iterator[str]:
    """What drivers are opened with, and what is said when they fail."""
    yield shown_url(marked.url)
    yield shown_value(marked.url)
    for opened in (open_client, open_classic_client, open_engine):
        try:
            client = opened(marked.url)
        except ReconcilerError as error:
            yield told(error)
            continue
        if opened is open_engine:
            read = read_url(marked.url)
            yield repr(client).replace(f"{read.username}:", "")  # SQLAlchemy's, which hides the password
            yield str(away(sqlite3.OperationalError(f"{NOWHERE}: no\nentry for {read.password}"), client))  # type: ignore[arg-type]  # an engine


def of_settings(marked: Marked, number: int) -> Iterator[str]:
    """Settings that hold it where it belongs, and where it does not."""
    belongs = PLACES[0] if marked.is_redis else PLACES[1 + number % 3]
    for name in (belongs, PLACES[number % len(PLACES)]):
        environ = {f"RECONCILER_{name}": marked.url}
        try:
            settings = load_settings(EXAMPLE, environ)
            databases = [*outbox_databases(settings), *inbox_databases(settings)]
            yield f"{settings!r} {settings.model_dump_json()} {databases!r}"
        except ReconcilerError as error:
            yield told(error)
        try:
            read = read_configuration(EXAMPLE, environ)
            yield f"{read!r} {with_configured(parse_sources(), read)!r}"
        except AuditError as error:
            yield told(error)


def of_audit(marked: Marked) -> Iterator[str]:
    url = marked.url
    for given in (
        {"outbox": [f"shop={url}"]},
        {"outbox": [url]},
        {"outbox": [f"shop=@{url}"]},
        {"inbox": [f"ORDERS/billing={url}"]},
        {"inbox": [url]},
        {"effects": [f"ORDERS/billing={url}"]},
        {"ledger": url},
    ):
        try:
            yield repr(parse_sources(**given))
        except AuditError as error:
            yield told(error)


def command_lines(marked: Marked) -> Iterator[list[str]]:
    yield ["config", "check"]
    yield ["config", "show"]
    yield ["doctor"]
    yield ["explain", "F" * 32]
    yield ["list"]
    yield ["db", "upgrade", "ledger"]
    yield ["db", "upgrade", "ledger", "--url", marked.url]
    yield ["db", "upgrade", "ledger", "--url", f"@{marked.url}"]


@pytest.mark.unmeasured
def test_no_secret_of_a_url_is_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sqlite = f"sqlite:///{tmp_path}/all.db"
    for name in ("LEDGER__URL", "PRODUCERS__0__OUTBOX_URL", "SUBSCRIPTIONS__0__INBOX_URL"):
        monkeypatch.setenv(f"RECONCILER_{name}", sqlite)
    for tree in ("ledger", "outbox", "inbox"):
        upgrade_database(sqlite, tree)
    monkeypatch.setenv("RECONCILER_CONFIG", str(EXAMPLE))
    monkeypatch.setenv("RECONCILER_ROCKETMQ__NAME_SERVERS", NOWHERE)
    capfd.readouterr()
    for number, marked in enumerate(marked_urls(seed=19)):
        outputs = [*of_clients(marked), *of_settings(marked, number), *of_audit(marked)]
        if number % COMMANDS_EVERY == number // COMMANDS_EVERY:  # each place in its turn
            name = "REDIS__URL" if marked.is_redis else "LEDGER__URL"
            with monkeypatch.context() as patched:
                patched.setenv(f"RECONCILER_{name}", marked.url)
                for arguments in command_lines(marked):
                    assert run(arguments) in (0, 1, 2, 3), (arguments, marked)
            outputs += capfd.readouterr()
        for mark in marked.marks:
            assert not [text for text in outputs if mark in text], marked


def test_no_secret_of_a_database_that_is_away_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    mark = f"M{random.Random(19).getrandbits(40):X}"
    engine = open_engine(f"postgresql://app:{mark}@{NOWHERE}/orders?sslpassword={mark}")
    try:
        raise away(sqlite3.OperationalError(f"fe_sendauth: {mark}"), engine)
    except ReconcilerError as error:
        logging.getLogger("reconciler").exception("turn_failed", extra={"error": str(error), "engine": engine})
    logged = capfd.readouterr().err
    assert "postgresql://127.0.0.1:1/orders" in logged
    assert mark not in logged
