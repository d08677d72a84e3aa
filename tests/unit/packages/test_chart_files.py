"""The chart as text: values and their schema agree, versions are the project's. As helm renders it: tests/packages."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from reconciler.settings.file import load_settings

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/reconciler"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def names(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> tuple[set[str], set[str]]:
    """Paths of the values, and of what the schema describes; lists and free tables are leaves."""
    described = schema.get("properties", {})
    ours, theirs = {f"{prefix}{name}" for name in values}, {f"{prefix}{name}" for name in described}
    for name, value in values.items():
        if isinstance(value, dict) and "properties" in described.get(name, {}):
            below = names(value, described[name], f"{prefix}{name}.")
            ours, theirs = ours | below[0], theirs | below[1]
    return ours, theirs


def test_the_schema_describes_the_values_that_there_are() -> None:
    ours, described = names(VALUES, SCHEMA)
    assert ours == described - {"global"}, "helm gives `global` to every chart"
    jsonschema.validate(VALUES, SCHEMA)


def test_a_value_that_nothing_reads_is_not_offered() -> None:
    templates = "".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))
    read = set(re.findall(r"\.Values\.([\w.]+)", templates)) | set(re.findall(r"\.values\.(\w+)", templates))
    read |= {part for name in read for part in name.split(".")}
    read |= set(re.findall(r"\$values\.(\w+)", templates)) | {"run", "sweep"}  # of a list of components
    ours, _ = names(VALUES, SCHEMA)
    assert {name for name in ours if name.rpartition(".")[2] not in read} == set()


def test_the_chart_is_of_the_release_that_it_installs() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_secret_files_are_secrets_of_the_settings(tmp_path: Path) -> None:
    for component in ("run", "sweep", "web", "prepare", "audit"):
        environ = {}
        for setting, key in VALUES[component]["secretFiles"].items():
            kind = "redis" if setting.startswith("redis") else "postgresql"
            (tmp_path / key).write_text(f"{kind}://name:password@there.example.org/0")
            environ[f"RECONCILER_{setting.replace('.', '__').upper()}_FILE"] = str(tmp_path / key)
        settings = load_settings(ROOT / "config/reconciler.toml", environ)
        assert "password" in settings.subscriptions[0].inbox_urls[0].reveal()
