"""A team in another language copies a page: what it says is what the plug-ins do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from checkback_consumers import inbox
from checkback_producers import outbox
from reconciler.sql.database_time import now_ms
from reconciler.sql.tables import outbox as outbox_table

ROOT = Path(__file__).parents[3]
PAGES = [f"docs/how-to/other-languages{part}.md" for part in ("", "-receiving", "-bytes", "-check")]
PAGE = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
STATEMENTS = [" ".join(block.split()) for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)]


def tombstone() -> str:
    columns = outbox_table.c
    values: dict[Any, Any] = {columns[name]: "x" for name in ("unique_key", "topic", "producer_group", "tag")}
    insert = sa.insert(outbox_table).values(
        values | {columns.state: "ROLLED_BACK", columns.created_at_ms: now_ms("postgresql")}
    )
    return str(insert.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]  # SQLAlchemy


def asked(sql: str) -> str:
    """The statement with ? for every parameter, as the page spells it."""
    return " ".join(re.sub(r"%\(\w+\)s|%s|:\w+(?!:)", "?", sql.replace("::", "\0")).replace("\0", "::").split())


@pytest.mark.parametrize(
    ("number", "sql"),
    [
        (0, outbox._record_sql("postgresql", "%s")),
        (1, outbox._find_sql("postgresql")),
        (3, outbox._announced_sql("postgresql", 1)),
        (4, inbox._insert_sql("postgresql", "")),
    ],
    ids=["record", "find", "announced", "inbox"],
)
def test_a_statement_on_the_page_is_the_plug_ins_own(number: int, sql: str) -> None:
    assert STATEMENTS[number] == asked(sql)


def test_the_tombstone_on_the_page_has_the_columns_of_the_plug_ins_own() -> None:
    columns = re.compile(r"INSERT INTO reconciler_outbox \(([^)]*)\)")
    said, done = columns.search(STATEMENTS[2]), columns.search(asked(tombstone()))
    assert said is not None
    assert done is not None
    assert said[1].split(", ") == done[1].split(", ")
    assert "'ROLLED_BACK'" in STATEMENTS[2]


@pytest.mark.skipif(shutil.which("java") is None, reason="java is missing: apt-get install openjdk-17-jdk-headless")
def test_a_java_service_computes_the_same_bytes() -> None:
    vectors = ROOT / "docs/reference/test-vectors.md"
    count = len(
        re.findall(r"^(?:shard|member|commit-set|announcement|signature|digest) ", vectors.read_text(), re.MULTILINE)
    )
    ran = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", str(ROOT / "docs/examples/OtherLanguage.java"), str(vectors)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, f"{count} vectors agree\n"), ran.stderr
