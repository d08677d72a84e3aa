"""`event` in the log is a word that one searches and alarms by: constant in every call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured  # reads the text of the product

ROOT = Path(__file__).parents[3]
PACKAGES = ("producers", "consumers", "reconciler")
METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOGGERS = frozenset({"log", "_log", "logger", "_logger"})
#: A word, or a word and the sentence about it.
EVENT = re.compile(r"[a-z][a-z0-9_]*(: \S.*)?", re.DOTALL)
#: Its words stand in a table, one for each event.
BY_CLASS = "reconciler/instrumentation/event_log.py"


def calls(source: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
            continue
        owner = node.func.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        is_made_here = isinstance(owner, ast.Call) and ast.unparse(owner.func) == "logging.getLogger"
        if name in LOGGERS or is_made_here or name == "logging":
            yield node


def wrong_calls(source: str) -> list[str]:
    wrong = []
    for call in calls(source):
        event = call.args[call.func.attr == "log"] if len(call.args) > (call.func.attr == "log") else None  # type: ignore[attr-defined]  # calls() gives methods only
        if not isinstance(event, ast.Constant) or not EVENT.fullmatch(str(event.value)):
            wrong.append(f"line {call.lineno}: {ast.unparse(call)[:90]}")
    return wrong


def test_every_log_call_of_the_product_begins_with_a_constant_word() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    wrong = {str(path.relative_to(ROOT)): wrong_calls(path.read_text()) for path in files}
    assert {path: found for path, found in wrong.items() if found and path != BY_CLASS} == {}
    assert sum(len(list(calls(path.read_text()))) for path in files) > 100, "the test must see the calls"


@pytest.mark.parametrize(
    "call",
    [
        'logger.info("%s came", key)',
        'log.warning(f"{key}_came")',
        "self._logger.error(key)",
        'logger.log(level, "A sentence: %s", key)',
        "logger.exception()",
        'logging.getLogger(__name__).info("came in late")',
    ],
)
def test_a_sentence_or_a_variable_is_no_word(call: str) -> None:
    assert len(wrong_calls(call)) == 1


def test_a_word_alone_or_before_its_sentence_is_one() -> None:
    assert wrong_calls('logger.info("key_came"); logger.log(level, "key_came: %s came", key)') == []
