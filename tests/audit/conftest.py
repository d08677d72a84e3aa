"""One Spark session for the whole run, which takes seconds to start; databases that hold a module's own evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.audit.audited_databases import Databases, load_databases
from tests.services.requirements import require, spark_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """local[2]; tests that use it carry the mark `spark`."""
    require(spark_missing())
    from reconciler.audit.engines.spark_session import open_session

    session = open_session("local[2]", {"spark.driver.memory": "512m"})
    yield session
    session.stop()


@pytest.fixture
def databases(generated: Path, new_database_url: Callable[[], str]) -> Databases:
    """The module's `generated` evidence in databases of one kind, the next test's in another."""
    return load_databases(generated, new_database_url)


@pytest.fixture
def sqlite(generated: Path, tmp_path: Path) -> Databases:
    """The module's `generated` evidence in SQLite."""
    numbers = iter(range(100))
    return load_databases(generated, lambda: f"sqlite:///{tmp_path}/database-{next(numbers)}.db")
