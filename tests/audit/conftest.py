"""One Spark session for the whole run: it takes seconds to start and is the same for every test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.requirements import require, spark_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """local[2]; tests that use it carry the mark `spark`."""
    require(spark_missing())
    from reconciler.audit.spark_session import open_session

    session = open_session("local[2]", {"spark.driver.memory": "512m"})
    yield session
    session.stop()
