"""Operations are read at 3 a.m.: what they tell people to look for exists, and all of it is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from reconciler.cli.app import app
from reconciler.contract.verdicts import QUARANTINING, Verdict
from reconciler.instrumentation.event_log import WORDS
from reconciler.policy import events
from reconciler.words.catalogue import sentences

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
EVENTS_PAGE = (ROOT / "docs/reference/operations.md").read_text(encoding="utf-8")
COMMANDS = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}


@pytest.mark.parametrize("kind", get_args(events.Event))
def test_event_is_explained_to_the_person_on_call(kind: type[events.Event]) -> None:
    assert f"`{WORDS[kind][0]}`" in EVENTS_PAGE


@pytest.mark.parametrize("verdict", sorted(QUARANTINING | {Verdict.EXPIRED}))
def test_verdict_that_needs_a_person_is_explained(verdict: Verdict) -> None:
    assert verdict.value in PAGE


@pytest.mark.parametrize(
    ("page", "language", "label"),
    [("docs/how-to/on-call.md", "en", r"\*([^*]+)\*"), ("docs/zh/how-to/on-call.md", "zh", "“([^”]+)”")],
)
def test_pages_and_buttons_of_the_console_at_night_are_there(page: str, language: str, label: str) -> None:
    section = (ROOT / page).read_text(encoding="utf-8").split("\n## ")[2]
    named = re.findall(label, "".join(row for row in section.splitlines(keepends=True) if row.startswith("| ")))
    assert len(named) > 20
    assert set(named) <= set(sentences(language).values())


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`|\$ |/)reconciler ([a-z]+)", text, re.MULTILINE))
    assert named <= COMMANDS, named - COMMANDS


#: What a person would have to keep the same in several places -> the page that has it; the others link it.
ONE_PLACE = {
    r"\b1 when a person must look": "docs/reference/operations.md",
    r"member of this group consume it directly": "docs/how-to/troubleshooting.md",
    r"CONFIG SET maxmemory": "docs/runbooks/RedisDown.md",
    r"becomes MEMORY_LOST when Redis comes back empty": "docs/how-to/troubleshooting.md",
    r"close the outage row": "docs/explanation/how-it-works.md",
    r"sign of life is later than": "docs/reference/databases.md",
}


@pytest.mark.parametrize("fact", ONE_PLACE)
def test_a_fact_stands_on_one_page(fact: str) -> None:
    pages = [one for one in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"] if "zh" not in one.parts]
    having = [one.relative_to(ROOT).as_posix() for one in pages if re.search(fact, one.read_text(encoding="utf-8"))]
    assert having == [ONE_PLACE[fact]]


def test_each_set_up_says_how_far_it_is_supported() -> None:
    page = (ROOT / "docs/reference/set-ups.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert {support.split(",")[0] for _set_up, support, *_ in rows[1:]} == {"supported", "weaker", "refused"}
