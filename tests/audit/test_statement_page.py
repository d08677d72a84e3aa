"""docs/reference/statement.md: what an auditor without this product types, works."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.audit import signed_samples as samples
from tests.services.requirements import auditor_tools_missing, require

PAGE = (Path(__file__).parents[2] / "docs/reference/statement.md").read_text()


def run_page(tmp_path: Path, out: Path, evidence: Path, key: Path) -> subprocess.CompletedProcess[str]:
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    places = {"OUT": str(out), "EVIDENCE": str(evidence), "KEY": str(key), "NAME": "ORDERS--billing"}
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", block],
        env={**os.environ, **places},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_signature_outputs_and_inputs_are_checked_by_common_tools_alone(tmp_path: Path) -> None:
    require(auditor_tools_missing())
    key, public = samples.new_key(tmp_path)
    out, evidence = samples.write_signed(tmp_path, key)
    done = run_page(tmp_path, out, evidence, public)
    assert done.returncode == 0, done.stderr
    assert key.public.fingerprint in done.stdout
    assert "Signature Verified Successfully" in done.stdout
    for path in (
        out / "volume.json",
        evidence / "inbox/prefix=00/part-0.parquet",
        out / "statement/ORDERS--billing.sig",
    ):
        before = path.read_bytes()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert run_page(tmp_path, out, evidence, public).returncode != 0
        path.write_bytes(before)


def test_every_field_of_a_statement_is_explained(tmp_path: Path) -> None:
    key, _ = samples.new_key(tmp_path)
    out, _ = samples.write_signed(tmp_path, key)
    for name in json.loads((out / "statement/ORDERS--billing.json").read_bytes()):
        assert f"`{name}`" in PAGE, name
