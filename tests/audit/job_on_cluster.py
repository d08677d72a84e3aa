"""A job of somebody's own session on a cluster, which audits a lake's tables: `python -m tests.audit.job_on_cluster`.

Its argument is JSON: `master`, `lake` (a folder with outbox and inbox), `settings`, `window`, `subscriptions`,
`producers`, and `folder`, which gets everything. It prints the answer, and whether the session is as it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.audit.platform import Inputs, audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def seen(spark: SparkSession) -> dict[str, Any]:
    """What the session's owner may notice."""
    return {
        "settings": dict(spark.conf.getAll),
        "of context": dict(spark.sparkContext.getConf().getAll()),
        "views": sorted(table.name for table in spark.catalog.listTables()),
        "files": sorted(spark.sparkContext.listFiles),
        "stopped": spark.sparkContext._jsc.sc().isStopped(),
    }


def main() -> None:
    """Runs the job."""
    from pyspark.sql import SparkSession

    given = json.loads(sys.argv[1])
    lake, folder = Path(given["lake"]), Path(given["folder"])
    spark = SparkSession.builder.master(given["master"]).config("spark.driver.memory", "512m").getOrCreate()
    spark.range(3).createOrReplaceTempView("mine")
    inbox, outbox = (spark.read.parquet(str(lake / table)) for table in ("inbox", "outbox"))
    before = seen(spark)
    (answer,) = audit(
        spark,
        inputs=Inputs(
            outbox=dict.fromkeys(given["producers"], outbox),
            inbox={f"{topic}/{group}": inbox for topic, group in given["subscriptions"]},
        ),
        windows=[given["window"]],
        out=folder / "out",
        staging=folder / "staging",
        settings=given["settings"],
        tables=folder / "tables",
    )
    told = {name: getattr(answer, name) for name in ("verdict", "reason", "message", "classes")}
    after = seen(spark)
    told["changed"] = [name for name, value in before.items() if after[name] != value]
    told["works"] = spark.table("mine").count() == 3
    print(json.dumps(told))  # noqa: T201 - its answer
    spark.stop()


if __name__ == "__main__":
    main()
