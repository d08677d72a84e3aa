"""The compose file, read by the library that Docker Compose reads it with. What it starts: tests/compose."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.packages.compose_folder import FOLDER, SERVICES
from tests.packages.programs import compose_reader

# The first run builds the reader.
pytestmark = pytest.mark.timeout(2_000)


def test_docker_compose_can_read_the_file(tmp_path: Path) -> None:
    text = (FOLDER / "compose.yml").read_text(encoding="utf-8")
    file = tmp_path / "compose.yml"
    file.write_text(re.sub(r"\$\{SECRETS_GROUP:[^}]*\}", "1000", text))  # the reader alone takes no variables
    done = subprocess.run([compose_reader(), str(file)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    project = yaml.safe_load(done.stdout)
    assert project["services"].keys() == SERVICES.keys()
    assert project["services"]["rights"]["entrypoint"][2].endswith('exec "$@"')
