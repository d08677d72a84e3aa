"""The gate of `make test`: policy that lost a branch, a product that lost its tests, a policy file that moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.coverage_gate import POLICY, failures

ROOT = Path(__file__).parents[2]


def report(**changed: Any) -> dict[str, Any]:
    totals = {"percent_covered": 91.0, "num_branches": 200, "covered_branches": 180}
    files: dict[str, Any] = {name: {"missing_lines": [], "missing_branches": []} for name in POLICY}
    return {"totals": totals, "files": files} | changed


def test_enough_coverage_passes() -> None:
    assert not list(failures(report()))


def test_a_product_that_lost_its_tests_is_named_with_its_share() -> None:
    low = {"percent_covered": 84.9, "num_branches": 200, "covered_branches": 169}
    assert [line.split(":")[0] for line in failures(report(totals=low))] == ["lines and branches", "branches"]
    assert "84.9 %" in next(failures(report(totals=low)))


def test_many_lines_do_not_hide_branches_that_nothing_takes() -> None:
    (line,) = failures(report(totals={"percent_covered": 92.0, "num_branches": 100, "covered_branches": 84}))
    assert line.startswith("branches: 84.0 %")


def test_one_untaken_branch_of_the_policy_is_named() -> None:
    files = report()["files"] | {
        "reconciler/policy/judging/judge.py": {"missing_lines": [], "missing_branches": [[7, 9], [12, -3]]}
    }
    (line,) = failures(report(files=files))
    assert line.startswith("reconciler/policy/judging/judge.py")
    assert line.endswith("branches: 7->9, 12->exit")


def test_a_policy_file_that_nothing_imports_is_no_full_coverage() -> None:
    files = {name: kept for name, kept in report()["files"].items() if name != "reconciler/policy/repairing/repair.py"}
    (line,) = failures(report(files=files))
    assert line.startswith("reconciler/policy/repairing/repair.py: not measured")


def test_every_policy_file_exists() -> None:
    assert not [name for name in POLICY if not (ROOT / name).is_file()]
