"""A Lua file that does not compile, that a plug-in forgot to pack, or that writes a global, fails only in Redis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lupa.lua51 import LuaRuntime

from reconciler.shards import round_leases, sharers
from reconciler.shards import sets as redis_sets
from reconciler.shards.round_commands import ROUND_SHA
from tests.simulation.known_scripts import SHA_OF_SCRIPT

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(path for folder in ("reconciler", "producers", "consumers") for path in (ROOT / folder).rglob("*.lua"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_that_redis_would_refuse(path: Path) -> None:
    """As Redis does: the text is the body of a function, and an assignment to a global is an error."""
    lua = LuaRuntime()
    lua.compile(path.read_text())
    names = set(re.findall(r"^\s*(\w+)(?:, \w+)* =", path.read_text(), re.MULTILINE))
    assigned = {name for name in names if not re.search(rf"\blocal (?:\w+, )*{name}\b", path.read_text())}
    assert not assigned


def test_a_script_that_no_module_loads() -> None:
    loaded = {
        name
        for folder in ("reconciler", "consumers", "producers")
        for module in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'(?:script_text|RedisScript)\("[\w.]+", "(\w+\.lua)"\)', module.read_text())
    }
    assert loaded == {path.name for path in SCRIPTS}


def test_a_changed_script_leaves_its_twin_in_the_simulation_behind() -> None:
    """The simulation runs a changed script by Lua, slowly, until its twin and its hash have followed."""
    texts = {
        "admit": redis_sets._ADMIT, "look": round_leases._LOOK,
        "take lease": redis_sets._TAKE_LEASE, "release lease": redis_sets._RELEASE_LEASE,
        "sharers": sharers._SHARERS,
    }  # fmt: skip
    found = {name: script.sha for name, script in texts.items()}
    found["round"] = ROUND_SHA
    assert found == SHA_OF_SCRIPT
