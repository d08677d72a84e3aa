"""Accidents that are tried twice: with a step that reads by itself, and with a common reader of its process."""

from __future__ import annotations

import pytest

from tests.unit.announcing.announcement_world import World


@pytest.fixture(params=["alone", "shared"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whole modules."""
    monkeypatch.setattr(World, "is_shared", request.param == "shared")
