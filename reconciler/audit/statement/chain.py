"""Verifies the chain of a subscription's statements. Each statement names the bytes of the statement before.

No number is missing or doubled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from reconciler.audit.statement.document import StatementFile
from reconciler.audit.statement.inputs import digest
from reconciler.audit.statement.verification import VerifyReport


def verify_chains(statements: Iterable[tuple[str, StatementFile]], report: VerifyReport) -> None:
    """Adds faults of all subscriptions' chains to the report.

    `statements` are pairs of a statement and its name for people.
    """
    chains: dict[tuple[str, str, str], list[tuple[str, StatementFile]]] = defaultdict(list)
    for name, statement in statements:
        chains[statement.subscription].append((name, statement))
    for _, chain in sorted(chains.items()):
        chain.sort(key=lambda link: (link[1].sequence, link[0]))
        _verify_beginning(*chain[0], report)
        for before, link in pairwise(chain):
            _verify_link(before, link, report)


def _verify_beginning(name: str, first: StatementFile, report: VerifyReport) -> None:
    previous = first.document.get("previous")
    if first.sequence == 1 and previous is None:
        return
    if first.sequence <= 1 or not isinstance(previous, dict):
        report.differ(name, f"number {first.sequence} does not fit a chain whose beginning it is", "/sequence")
        return
    before = f"the {first.sequence - 1} before it are not in this folder"
    report.skip([f"{name}: number {first.sequence} of its chain; {before} (verify all outputs together to see them)"])


def _verify_link(before: tuple[str, StatementFile], link: tuple[str, StatementFile], report: VerifyReport) -> None:
    (name_before, old), (name, new) = before, link
    subscription = f"{new.subscription[1]}/{new.subscription[2]}"
    if new.sequence == old.sequence:
        report.differ(name, f"number {new.sequence} of the chain of {subscription}, as {name_before} is", "/sequence")
        return
    if new.sequence > old.sequence + 1:
        missing = f"{old.sequence + 1}" + (f" to {new.sequence - 1}" if new.sequence > old.sequence + 2 else "")
        report.differ(name, f"statement {missing} of {subscription} is missing between {name_before} and this one")
        return
    previous: Any = new.document.get("previous")
    if not isinstance(previous, Mapping) or previous.get("sha256") != digest(old.data):
        report.differ(name, f"does not follow {name_before}: one of them was altered or replaced", "/previous/sha256")
    if new.start_ms < old.start_ms:
        report.differ(name, f"its window begins before the one of {name_before}", "/window/start_ms")
