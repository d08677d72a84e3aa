"""The folder of the compose file: what it says, and a copy in which its script has made the secrets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.packages.tools import needed

FOLDER = Path(__file__).parents[2] / "deploy/compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def prepared_copy(place: Path) -> Path:
    """The folder's copy in this place, after prepare.sh. The running test is skipped without openssl."""
    needed("openssl", "apt-get install openssl (Debian, Ubuntu)")
    folder = place / "compose"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("secrets", ".env"))
    subprocess.run([folder / "prepare.sh"], check=True, timeout=60)
    return folder
