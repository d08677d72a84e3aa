"""Every alert of [deploy/prometheus/rules.yml](../../deploy/prometheus/rules.yml), in its order.

`for` is how long the expression holds before the alert fires. Severity `page` wakes a person; a `ticket` can wait
for the next working day. The [metrics](metrics.md) are described on a page of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[1] / "deploy/prometheus/rules.yml"


def lines() -> Iterator[str]:
    """Below the title: a table, then the expression of each."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    yield from ("| alert | for | severity | runbook |", "|---|---|---|---|")
    for rule in rules:
        name = rule["alert"]
        page = Path("..") / Path(rule["annotations"]["runbook_url"]).relative_to("docs")
        yield f"| [{name}](#{name.lower()}) | {rule['for']} | {rule['labels']['severity']} | [what to do]({page}) |"
    for rule in rules:
        yield from ("", f"## {rule['alert']}", "", "```promql", rule["expr"].strip(), "```")
        yield from ("", "It says:", "", "```text", rule["annotations"]["summary"], "```")
