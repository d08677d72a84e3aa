"""The demo's business effect: one row in the transaction of the inbox row. The table accepts duplicates, so that the
demo can count them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from reconciler.sql.database_time import now_ms

_EFFECTS = sa.table(
    "effects", sa.column("consumer_group"), sa.column("key"), sa.column("number"), sa.column("applied_at_ms")
)


def apply_effect(message: Any, connection: sa.Connection) -> None:
    """Writes the effect. The demo's consumers call it, and so does `reconciler replay` for hand-overs."""
    connection.execute(
        sa.insert(_EFFECTS).values(
            consumer_group=Path(connection.engine.url.database or "").stem,
            key=message.unique_key,
            number=json.loads(message.body)["number"],
            applied_at_ms=now_ms("sqlite"),
        )
    )


def die() -> None:
    """Kills this process, like kill -9."""
    os.kill(os.getpid(), 9)
