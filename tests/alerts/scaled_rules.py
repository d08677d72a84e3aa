"""Alert rules in a hurry: every duration of them divided by one factor, and numbers of keys by another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.services.prometheus import milliseconds

#: A minute of the rules is a second of the tests.
FACTOR = 60.0

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_RANGE = re.compile(r"\[((?:\d+(?:ms|[smhdw]))+)\]")
#: Between terms, and not within a label's value.
_TERM = re.compile(r'(\s(?:or|and|unless)\s)(?=(?:[^"]*"[^"]*")*[^"]*$)')
_COMPARISON = re.compile(r"^(?P<left>.*\s(?:>=|<=|==|!=|>|<)\s+)(?P<number>\d+(?:\.\d+)?)(?P<end>\s*)$", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\w*")
#: A metric in seconds: ages, and times that `time() - ...` makes an age of.
_IN_SECONDS = re.compile(r"\w+_seconds\b")
_KEYS = re.compile(r"\w+_ids\b")


def scaled_rules(groups: Sequence[dict[str, Any]], factor: float, *, keys_factor: float = 1.0) -> dict[str, Any]:
    """A file of rules. `groups`: as PrometheusServer.rules() gives them. `for`, ranges and thresholds are divided."""
    return {
        "groups": [
            {"name": group["name"], "rules": [_scaled_rule(rule, factor, keys_factor) for rule in group["rules"]]}
            for group in groups
        ]
    }


def _scaled_rule(rule: dict[str, Any], factor: float, keys_factor: float) -> dict[str, Any]:
    return {
        "alert": rule["name"],
        "expr": scaled_expression(rule["query"], factor, keys_factor=keys_factor),
        "for": milliseconds(rule["duration"] / factor),
        "labels": rule["labels"],
        "annotations": rule["annotations"],
    }


def scaled_expression(query: str, factor: float, *, keys_factor: float = 1.0) -> str:
    """The expression with its ranges, and the numbers that a metric in seconds is compared with, divided.

    `keys_factor`: the same for metrics that count keys. Shares stay. Raises ValueError for a number or a modifier that
    it does not understand.
    """
    return "".join(_scaled_term(term, factor, keys_factor) for term in _TERM.split(query))


def _scaled_term(term: str, factor: float, keys_factor: float) -> str:
    found = _COMPARISON.match(term)
    left, number, end = (found["left"], found["number"], found["end"]) if found else (term, "", "")
    bare = re.sub(r'"[^"]*"', '""', _RANGE.sub("", left))
    if _NUMBER.search(bare) or re.search(r"\[|@|\boffset\b", bare):
        raise ValueError(f"{term.strip()}: only ranges and a number at the end of a comparison can be divided")
    if number and _IN_SECONDS.search(bare):
        number = f"{float(number) / factor:g}"
    elif number and _KEYS.search(bare):
        number = f"{float(number) / keys_factor:g}"
    return _RANGE.sub(lambda range_: f"[{milliseconds(seconds_of(range_[1]) / factor)}]", left) + number + end


def seconds_of(duration: str) -> float:
    """Of a range (`1h30m`), or of an age as summaries tell it (`8m 15s`, `9.5s`)."""
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall(r"([\d.]+)(ms|[smhdw])", duration))
