"""Helm, Docker Compose's reader, schemas of Kubernetes, brought into the cache folder once: built by Go, or by pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.brokers.jars import cache_folder, locked
from tests.packages.tools import needed
from tests.services.locks import constraints

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/reconciler"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
#: What Docker Compose reads files with.
COMPOSE_READER = "github.com/compose-spec/compose-go/v2/cmd@v2.9.1"
SCHEMAS = "kubernetes-validate==1.37.0"
BUILD_SECONDS = 1_800
RELEASE = "shop"


def helm() -> str:
    """The program. The running test is skipped where it can be neither found nor built."""
    return _built("helm", HELM)


def compose_reader() -> str:
    """The program that reads a compose file and prints the whole project."""
    return _built("cmd", COMPOSE_READER)


def _built(name: str, module: str) -> str:
    folder = cache_folder() / "go" / module.replace("/", "_")
    program = folder / name
    with locked("go"):
        if not program.exists():
            go = needed("go", "Go 1.24 or newer builds it")
            there = {**os.environ, "GOBIN": str(folder), "GOFLAGS": ""}
            _brought(["nice", "-n", "10", go, "install", "-ldflags", "-s -w", module], environment=there)
    return str(program)


def validator() -> str:
    """The program that holds manifests against the schemas of Kubernetes' own API."""
    folder = cache_folder() / "kubernetes-validate" / SCHEMAS.rpartition("=")[2]
    program = folder / "bin/kubernetes-validate"
    with locked("kubernetes-validate"):
        if not program.exists():
            _brought([sys.executable, "-m", "venv", str(folder)])
            pip = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
            _brought([*pip, "--constraint", str(constraints(folder)), SCHEMAS])
    return str(program)


def _brought(command: list[str], *, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")


def ran(*words: str, values: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """What helm says of the chart with these values, which the folder gets as `values.yml`.

    The chart is for releases from 1.27 on, which helm does not know by itself.
    """
    file = folder / "values.yml"
    file.write_text(yaml.safe_dump(values))
    command = [helm(), *words, str(CHART), "--values", str(file), "--kube-version", "1.31.0"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def rendered(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The manifests of a release with these values. The folder gets them as `manifests.yml`, too."""
    done = ran("template", RELEASE, values=values, folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "manifests.yml").write_text(done.stdout)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def pods(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Component -> the template of its pods: `metadata` and `spec`."""
    found: dict[str, dict[str, Any]] = {}
    for document in manifests:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return found
