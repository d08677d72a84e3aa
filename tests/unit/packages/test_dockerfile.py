"""The Dockerfile as text: what a build without an engine cannot show, and what must not change by accident."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = re.sub(r"\s*\\\n\s*", " ", (ROOT / "deploy/image/Dockerfile").read_text(encoding="utf-8"))
STEPS = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]
LAST_STAGE = STEPS[max(number for number, (word, _) in enumerate(STEPS) if word == "FROM") :]


def steps(word: str) -> list[str]:
    return [rest for step, rest in LAST_STAGE if step == word]


@pytest.mark.parametrize("word", ["ENTRYPOINT", "CMD", "HEALTHCHECK"])
def test_no_shell_stands_between_the_engines_signals_and_the_process(word: str) -> None:
    (rest,) = steps(word)
    words = json.loads(rest[rest.index("[") :])
    assert all(isinstance(one, str) for one in words)


def test_the_image_runs_as_a_number_that_is_not_root() -> None:
    assert [re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user) is not None for user in steps("USER")] == [True]


def test_a_build_of_tomorrow_has_the_python_and_packages_of_today() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)", TEXT, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.11\.\d+-slim-bookworm", base)
    installs = re.findall(r"pip (?:--python \S+ )?install ([^&]*)", TEXT)
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-deps" in one for one in installs)


def test_the_image_names_the_release_and_licence_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (label,) = steps("LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', label))
    assert labels["version"] == project["version"]
    assert labels["licenses"] == project["license"]
    assert labels["description"] == project["description"]


def test_what_is_copied_reaches_the_build_and_nothing_else_does() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    own = [rest for step, rest in STEPS if step == "COPY" and not rest.startswith("--from")]
    copied = {source for rest in own for source in rest.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
