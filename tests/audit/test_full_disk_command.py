"""The whole command on disks that fill up while it collects, while it writes, and in Spark's scratch folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.audit.audit_process import MODULE
from tests.audit.audited_databases import load_databases
from tests.audit.full_disk import EndedOnFullDisk, require_small_disks, run_on_small_disk
from tests.audit.small_evidence import GROUP, PRODUCER, TOPIC, SmallEvidence
from tests.services.requirements import require, spark_missing
from tests.settings_file import settings_file

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOMY = 100_000


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str | Path]]:
    """All but --out: 40 messages in databases, one of them lost."""
    require_small_disks()
    require(spark_missing())
    folder = tmp_path_factory.mktemp("databases")
    evidence = SmallEvidence()
    for number in range(40):
        evidence.story(bytes([number + 1]) * 16)
    evidence.add("outbox", bytes(16))
    evidence.add("announced", bytes(16))
    evidence.add("candidate", bytes(16))
    numbers = iter(range(9))
    databases = load_databases(evidence.write(folder / "evidence"), lambda: f"sqlite:///{folder}/{next(numbers)}.db")
    settings = settings_file(
        folder,
        "unique_key_topic.queues = 1",
        ledger_url=databases.ledger_url,
        topic=TOPIC,
        producer_group=PRODUCER,
        of_producers=f'outbox_url = "{databases.outbox_url}"',
        group=GROUP,
        of_subscription=f'inbox_url = "{databases.inbox_url}"',
    )
    asked: list[str | Path] = ["--window", "2026-03-01T00:00Z/2026-03-01T01:00Z", "--history", databases.history]
    asked += ["--subscriptions", settings, "--from-configuration", "--output", "json"]
    yield [*MODULE, "audit", *asked]
    sa.create_engine(databases.ledger_url).dispose()


def require_no_answer(ended: EndedOnFullDisk, message: str, cause: str = "No space left") -> None:
    assert ended.exit_code == 2, ended.stderr[-3000:]
    assert (ended.document["verdict"], ended.document["reason"]) == ("no answer", "engine")
    assert message in ended.document["message"]
    assert cause in ended.document["message"]
    assert "Traceback (most recent call last)" not in ended.stderr
    assert "this is a bug" not in ended.stderr


def test_a_disk_that_fills_up_while_evidence_or_the_result_is_written(
    command: list[str | Path], tmp_path: Path
) -> None:
    place = tmp_path / "small"
    place.mkdir()
    asked = [*command, "--out", place / "out", "--engine", "here"]
    roomy = run_on_small_disk(asked, place, pages=ROOMY)
    assert roomy.exit_code == 1, roomy.stderr[-3000:]
    evidence = {path: size for path, size in roomy.there.items() if path.startswith("out/evidence/")}
    collected = EndedOnFullDisk(exit_code=0, stdout="", stderr="", there=evidence).pages
    assert 10 < collected < roomy.pages - 20
    for pages, message in (
        (2, "evidence cannot be written"),
        (collected - 1, "evidence cannot be written"),  # evidence.json is the last one
        (collected + 15, f"cannot write {place}/out"),  # report.html
    ):
        ended = run_on_small_disk(asked, place, pages=pages)
        require_no_answer(ended, message)
        assert ended.there == {}, pages


def test_a_full_scratch_folder_of_spark(command: list[str | Path], tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    asked = [*command, "--out", tmp_path / "out", "--master", "local[2]", "--spark", f"spark.local.dir={place}"]
    ended = run_on_small_disk(asked, place, pages=100, inodes=1)
    require_no_answer(ended, "Spark does not start", "spark.local.dir")
    assert not (tmp_path / "out").exists()
