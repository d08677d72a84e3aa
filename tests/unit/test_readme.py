"""The README shows code that tests run, and nothing else."""

import re
from pathlib import Path

import pytest

from tests.services.redis_users import USERS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["docs/examples/order_service.py", "docs/examples/billing_service.py"])
def test_code_in_the_readme_is_the_file_that_tests_run(name: str) -> None:
    found = re.search(
        rf"<!-- {re.escape(name)} -->\n```python\n(.*?)```\n<!-- /{re.escape(name)} -->", README, re.DOTALL
    )
    assert found is not None
    assert found[1] == (ROOT / name).read_text(), "run: make docs"


def test_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\$ make ([a-z-]+)", README)) <= targets


def test_redis_users_of_the_operations_page_are_those_that_tests_run_with() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    assert re.findall(r"^user .*$", page, re.MULTILINE) == [
        user.line(environment="ENV", password="...") for user in USERS
    ]
