"""The commands that the README shows, run as they are. Its code is run by tests/unit/testing/test_documented_use.py."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.engines import begun
from tests.services.postgres import PostgresServer
from tests.services.requirements import postgres_programs

pytestmark = pytest.mark.acceptance
EXAMPLES = Path(__file__).parents[2] / "docs/examples"


@pytest.mark.sql("postgres")
def test_the_commands_that_tell_who_is_affected_print_the_lost_order_only(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- affected -->\n```bash\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    orders, bills = postgres_server.create_database(), postgres_server.create_database()
    for url, statements in (
        (orders, "CREATE TABLE orders (number INTEGER, created_at TIMESTAMPTZ)"),
        (orders, "INSERT INTO orders SELECT n, now() - n * interval '20 minutes' FROM generate_series(1, 12) n"),
        (bills, "CREATE TABLE bills (number INTEGER)"),
        (bills, "INSERT INTO bills SELECT n FROM generate_series(1, 12) n WHERE n NOT IN (2, 10)"),
    ):
        with begun(url) as connection:
            connection.execute(sa.text(statements))
    environment = {
        "PATH": f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}",
        "ORDERS": orders.replace("+psycopg", ""),
        "BILLS": bills.replace("+psycopg", ""),
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block[1]],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("10\n", "", 0)
