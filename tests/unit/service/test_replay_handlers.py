"""A replay worker for a group whose rows its handler would never take is refused before it asks any database."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from checkback_consumers import transactional_handler
from reconciler.commands.replay import run_replay
from reconciler.errors import InvalidValue
from reconciler.settings.file import load_settings

EXAMPLE = Path("config/reconciler.toml")


def nothing(_message: object, _connection: object) -> None:
    """No effect."""


def no_connection() -> sqlite3.Connection:
    """Nobody may ask for one."""
    raise AssertionError("the inbox was asked")


of_shipping = transactional_handler(no_connection, group="shipping", topics="ORDERS")(nothing)
of_refunds = transactional_handler(no_connection, group="billing", topics=["REFUNDS", "CREDITS"])(nothing)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("of_shipping", "--group = 'billing': the handler is decorated for group 'shipping'"),
        ("of_refunds", "--topic = 'ORDERS': the handler is decorated for CREDITS, REFUNDS"),
    ],
)
def test_handler_of_another_group_or_topic_never_waits_for_rows_in_vain(name: str, told: str) -> None:
    settings = load_settings(EXAMPLE, {})
    with pytest.raises(InvalidValue) as raised:
        run_replay(settings, threading.Event(), handler=f"{__name__}:{name}", topic="ORDERS", group="billing")
    assert told in str(raised.value)
