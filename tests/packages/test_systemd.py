"""What systemd itself says of the units, without a running systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packages.tools import needed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/systemd"
SERVICES = sorted(FOLDER.glob("*.service"))
EXPOSURE_MAX = 2.0


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = needed("systemd-analyze", "apt-get install systemd (Debian, Ubuntu)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_a_process_that_is_taken_over_reaches_little_of_its_host(unit: Path) -> None:
    said = analyze("security", "--offline=true", "--no-pager", str(unit)).stdout
    found = re.search(rf"exposure level for {unit.name}: ([\d.]+)", said)
    assert found is not None, said
    assert float(found[1]) < EXPOSURE_MAX, said


def test_systemd_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    programs = tmp_path / "opt/reconciler/bin"
    programs.mkdir(parents=True)
    for name in ("reconciler", "audit-due-days.sh"):
        shutil.copy(needed("true", "coreutils"), programs / name)
    for standard in Path("/lib/systemd/system").iterdir():
        if standard.suffix in (".target", ".slice") and standard.is_file():
            shutil.copy(standard, units)
    mine = [Path(shutil.copy(unit, units)) for unit in sorted([*SERVICES, *FOLDER.glob("*.timer")])]
    done = analyze("verify", f"--root={tmp_path}", "--man=no", *map(str, mine))
    complaints = [line for line in done.stderr.splitlines() if "reconciler" in line]
    assert (complaints, done.returncode) == ([], 0)
