"""The page of costs: its commands exist, and the figures of a message are those that were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/costs.md").read_text(encoding="utf-8")
MEASURED: dict[str, Any] = json.loads((ROOT / "benchmarks/results/message-costs.json").read_text(encoding="utf-8"))


def row(name: str) -> str:
    """The line of a table."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name}")]
    return line


def test_every_command_on_the_page_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", PAGE)) <= targets
    modules = re.findall(r"`python -m benchmarks\.(\w+)`", PAGE)
    files = re.findall(r"`python benchmarks/(\w+)\.py`", PAGE)
    assert modules
    assert [name for name in (*modules, *files) if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []


def test_figures_of_a_message_are_those_that_were_measured() -> None:
    sends, receives = MEASURED["producer"], MEASURED["consumer"]
    statements = (int(sends["block"]["statements"]), int(receives["handler"]["statements"]))
    assert re.findall(r"\d+", row("statements with the plug-in")) == [str(count) for count in statements]
    bare = (int(sends["bare"]["statements"]), int(receives["bare"]["statements"]))
    assert re.findall(r"\d+", row("statements without")) == [str(count) for count in bare]
    requests = sends["block"]["SEND_MESSAGE_V2"] + sends["block"]["END_TRANSACTION"]
    assert f"{requests:.1f}" in row("requests to the broker")
    assert re.findall(r"[\d.]+", row("time of the transaction")) == [f"{one['times']:.1f}" for one in (sends, receives)]
    assert re.findall(r"[\d.]+", row("added, ms")) == [f"{one['added_ms']:.1f}" for one in (sends, receives)]
    sizes = (sends["row_bytes"], sends["row_bytes_with_body"], receives["row_bytes"])
    assert re.findall(r"\d[\d ]*\d", row("row with its indexes")) == [f"{size:,}".replace(",", " ") for size in sizes]
