from __future__ import annotations

import pytest


@pytest.mark.xdist_group("worker-groups")
def test_xdist_keeps_groups_on_one_worker(request: pytest.FixtureRequest) -> None:
    """Where groups are ignored each worker boots every broker, and nothing says so (pytest-xdist#1386)."""
    if not getattr(request.config.option, "loadgroup", False):
        assert "@" not in request.node.nodeid  # one process, or another distribution: nothing to keep
        return
    assert request.node.nodeid.endswith("@worker-groups")
