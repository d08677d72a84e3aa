"""A copied outbox has its original's identity: marks and rows of the two could not be told apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reconciler.commands.doctor.checks import check_identities
from reconciler.commands.safety import require_own_identities
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.sql.identity import ensure_identity
from reconciler.sql.tables import outbox_metadata
from reconciler.wiring.connections import Connections
from tests.engines import with_tables

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"


def outbox_at(path: Path) -> str:
    """The URL of an outbox that has an identity."""
    with with_tables(f"sqlite:///{path}", outbox_metadata) as engine:
        ensure_identity(engine)
    return f"sqlite:///{path}"


def connections_to(*urls: str) -> Connections:
    sections = ", ".join(f'{{"group": "shop", "topics": ["ORDERS"], "outbox_url": "{url}"}}' for url in urls)
    return Connections(load_settings(EXAMPLE, {"RECONCILER_PRODUCERS": f"[{sections}]"}))


def test_a_copied_outbox_is_refused_by_name(tmp_path: Path) -> None:
    first = outbox_at(tmp_path / "first.db")
    shutil.copyfile(tmp_path / "first.db", tmp_path / "copy.db")
    with connections_to(first, f"sqlite:///{tmp_path}/copy.db") as connections:
        with pytest.raises(ConfigurationError, match=r"producers\[0\].*producers\[1\].*one identity"):
            require_own_identities(connections)
        (finding,) = check_identities(connections)
        assert finding.level == "fail"


def test_one_url_in_two_sections_and_a_database_that_is_away_are_no_copies(tmp_path: Path) -> None:
    first, second = outbox_at(tmp_path / "first.db"), outbox_at(tmp_path / "second.db")
    with connections_to(first, first, second, f"sqlite:///{tmp_path}/gone.db") as connections:
        require_own_identities(connections)
        assert not list(check_identities(connections))
