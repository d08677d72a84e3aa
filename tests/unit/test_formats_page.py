"""Page of the formats: each object has each member once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.page_blocks import DOCS

_ONE_OBJECT = re.compile(r"; |\. |: |of `outcomes`")
_LINES = (DOCS / "reference/formats.md").read_text(encoding="utf-8").splitlines()
OBJECTS = [one for line in _LINES if "`, `" in line for one in _ONE_OBJECT.split(line)]


@pytest.mark.parametrize("members", OBJECTS)
def test_an_object_has_each_member_once(members: str) -> None:
    twice = [name for name, times in Counter(re.findall(r"`([^`]+)`", members)).items() if times > 1]
    assert twice == []


def test_the_page_has_objects() -> None:
    assert len(OBJECTS) > 20
