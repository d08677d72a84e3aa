"""Services that could do nothing are refused before they ask any database: a replay worker whose handler would never
take a row, a sweeper without an outbox."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from checkback_consumers import transactional_handler
from reconciler.commands.replay import run_replay
from reconciler.commands.sweep import run_sweeper
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from tests.settings_file import settings_file

EXAMPLE = Path("config/reconciler.toml")


def nothing(_message: object, _connection: object) -> None:
    """No effect."""


def no_connection() -> sqlite3.Connection:
    """Nobody may ask for one."""
    raise AssertionError("the inbox was asked")


of_shipping = transactional_handler(no_connection, group="shipping", topics="ORDERS")(nothing)
of_refunds = transactional_handler(no_connection, group="billing", topics=["REFUNDS", "CREDITS"])(nothing)


@pytest.mark.parametrize(
    ("handler", "group", "told"),
    [
        (f"{__name__}:of_shipping", "billing", "--group = 'billing': the handler is decorated for group 'shipping'"),
        (f"{__name__}:of_refunds", "billing", "--topic = 'ORDERS': the handler is decorated for CREDITS, REFUNDS"),
        ("no_such_package.handlers:bill", "billing", "No module named"),
        ("json:no_such_function", "billing", "no attribute"),
        ("json:dumps", "strangers", "no [[subscriptions]] section has them"),
    ],
)
def test_worker_that_would_wait_for_rows_in_vain_is_refused(handler: str, group: str, told: str) -> None:
    settings = load_settings(EXAMPLE, {})
    with pytest.raises(ConfigurationError) as raised:
        run_replay(settings, threading.Event(), handler=handler, topic="ORDERS", group=group)
    assert told in str(raised.value)
    assert raised.value.exit_code == 2


def test_sweeper_without_an_outbox_has_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing to sweep") as raised:
        run_sweeper(load_settings(settings_file(tmp_path), {}), threading.Event())
    assert raised.value.exit_code == 2
