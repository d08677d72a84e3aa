"""Copies of a platform's tables, cut by window: each window reads its own keys, with all rows of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reconciler.audit.collect.request import Request
from reconciler.audit.collect.sources import EffectsSource, Source, Sources
from reconciler.audit.cut_copies import CutCopies, cut_by_window
from reconciler.audit.engines.engine import engine_on, one_by_one
from reconciler.audit.result.values import AuditedSubscription, Window
from reconciler.contract.unique_key import member_of
from tests.audit.small_evidence import GROUP, PRODUCER, START_MS, TOPIC
from tests.audit.written_history import WrittenHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DAY_MS = 86_400_000
LATE_MS, SKEW_MS = 300_000, 10_000
WINDOWS = [(day * DAY_MS, (day + 1) * DAY_MS) for day in (0, 1, 3)]

Row = dict[str, Any]


def text_of(name: str) -> str:
    """A key: 32 upper-case digits, or a text where the name has a small letter."""
    return f"{name:0>32}" if re.fullmatch("[0-9A-F]*", name) else f"{name:->20}"


class Shop:
    """The copies of its tables, outbox by text and inbox by bytes; times are of START_MS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.history = WrittenHistory(folder / "history")
        self.announced: list[Row] = []

    def sent(self, name: str, at_ms: int | None, **fields: Any) -> None:
        row = {"topic": TOPIC, "producer_group": PRODUCER, "state": "ANNOUNCED", "settled_at_ms": None, **fields}
        time = {"created_at_ms": None if at_ms is None else START_MS + at_ms}
        self.rows["000/reconciler_outbox"].append({"unique_key": text_of(name), **row, **time})

    def applied(self, name: str, at_ms: int, table: str = "001/reconciler_inbox") -> None:
        names = {"topic": TOPIC, "consumer_group": GROUP, "applied_at_ms": START_MS + at_ms}
        self.rows[table].append({"unique_key": member_of(text_of(name)), **names})

    def counted(self, name: str) -> None:
        self.rows["002/effects-0"].append({"key": text_of(name)})

    def of_ledger(self, table: str, at_ms: int, name: str = "") -> None:
        time = {"reconciler_candidate": "first_seen_ms", "reconciler_repair": "created_at_ms"}.get(table, "at_ms")
        self.rows[f"ledger/{table}"].append({"unique_key": text_of(name), time: START_MS + at_ms})

    def announce(self, name: str, at_ms: int) -> None:
        of = {"topic": TOPIC, "consumer_group": GROUP, "shard": 0, "epoch": "e", "generation": 1}
        self.announced.append({**of, "key": member_of(text_of(name)), "at_ms": START_MS + at_ms})

    def requests(self) -> list[Request]:
        self.history.seal({"announced": self.announced})
        staging = self.folder / "staging"
        for place, rows in self.rows.items():
            (staging / place).mkdir(parents=True)
            table = pa.Table.from_pylist(rows)
            if place.endswith("reconciler_round"):
                table = table.drop_columns(["unique_key"])
            if "settled_at_ms" in table.column_names:
                times = table["settled_at_ms"].cast(pa.int64())
                table = table.set_column(table.column_names.index("settled_at_ms"), "settled_at_ms", times)
            pq.write_table(table, staging / place / "part.parquet")

        def source(place: str) -> Source:
            return Source(kind="parquet", address=str(staging / place), option=place)

        of = (TOPIC, GROUP)
        sources = Sources(
            outboxes=((PRODUCER, source("000/reconciler_outbox")),),
            inboxes={of: (source("001/reconciler_inbox"),)},
            effects={of: EffectsSource(source=source("002/effects-0"), query="")},
            ledger=source("ledger"),
        )
        subscription = AuditedSubscription(
            topic=TOPIC,
            group=GROUP,
            tags=None,
            producer_groups=(PRODUCER,),
            grace_period_seconds=60,
            late_after_seconds=LATE_MS / 1000,
            inbox=True,
            effects=True,
        )
        return [
            Request(
                environment="test",
                window=Window(start_ms=START_MS + start_ms, end_ms=START_MS + end_ms),
                shards=1,
                skew_bound_ms=SKEW_MS,
                subscriptions=(subscription,),
                sources=sources,
                history=str(self.history.folder),
                collected_at_ms=START_MS + 9 * DAY_MS,
            )
            for start_ms, end_ms in WINDOWS
        ]

    def cut(self, spark: SparkSession, requests: list[Request]) -> CutCopies:
        engine = replace(engine_on(spark), run=one_by_one)
        return cut_by_window(spark, self.folder / "staging", requests, engine, lambda: None)


def names_in(source: Source, table: str = "") -> Counter[str]:
    """Rows that a window reads, by the name of their key."""
    found: Counter[str] = Counter()
    for path in (Path(source.address) / table).glob("*.parquet"):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            key = row.get("key") or row["unique_key"]
            text = key if isinstance(key, str) else key.hex().upper() if key[0] or len(key) < 33 else key[1:].decode()
            found[text.strip("\0").lstrip("0-") or "0"] += 1
    return found


def test_a_window_reads_all_rows_of_its_own_keys_and_of_no_others(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    for day in range(-5, 6):
        for hour in range(24):
            name = f"{day + 10:X}{hour:02d}" if hour % 2 else f"day{day + 10}-{hour}"
            at_ms = day * DAY_MS + hour * 3_600_000 + 1_800_000
            shop.sent(name, at_ms)
            shop.applied(name, at_ms + 1_000)
            shop.counted(name)
            shop.announce(name, at_ms + 500)
    hour_ms = 3_600_000
    shop.sent("consumed-on-day-3", hour_ms)
    shop.applied("consumed-on-day-3", 3 * DAY_MS + hour_ms)
    shop.sent("announced-on-day-3", -4 * DAY_MS)
    shop.announce("announced-on-day-3", 3 * DAY_MS + hour_ms)
    shop.sent("repaired-on-day-1", -3 * DAY_MS)
    shop.of_ledger("reconciler_repair", DAY_MS + hour_ms, "repaired-on-day-1")
    shop.of_ledger("reconciler_candidate", hour_ms, "seen-on-day-0")
    shop.sent("unseen-at-midnight", DAY_MS - LATE_MS)
    shop.sent("no-time", None)
    shop.sent("oldest-row-of-all", -90 * DAY_MS, state="SETTLED")
    shop.applied("oldest-effect", -80 * DAY_MS)
    shop.counted("effect-of-nothing")
    for at_ms in (hour_ms, 2 * DAY_MS + hour_ms, 3 * DAY_MS + hour_ms):
        shop.of_ledger("reconciler_round", at_ms)

    first, second, third = shop.cut(spark, shop.requests()).requests

    everywhere = {"no-time", "oldest-row-of-all", "oldest-effect"}
    oldest_announced = "day5-0"  # of the rows that are not settled
    for request, own, days in (
        (first, {"consumed-on-day-3", "unseen-at-midnight"}, (0,)),
        (second, {"repaired-on-day-1", "unseen-at-midnight"}, (1,)),
        (third, {"consumed-on-day-3", "announced-on-day-3"}, (3,)),
    ):
        of_days = {
            f"{day + 10:X}{hour:02d}" if hour % 2 else f"day{day + 10}-{hour}" for day in days for hour in range(24)
        }
        read = names_in(request.sources.outboxes[0][1])
        assert read == dict.fromkeys(own | of_days | (everywhere - {"oldest-effect"}) | {oldest_announced}, 1)
        (inbox,) = request.sources.inboxes[TOPIC, GROUP]
        late = {"consumed-on-day-3"} & own
        assert names_in(inbox) == dict.fromkeys(of_days | late | {"oldest-effect", oldest_announced}, 1)
        effects = request.sources.effects[TOPIC, GROUP]
        assert names_in(effects.source) == dict.fromkeys(of_days | {oldest_announced}, 1)
        assert effects.left_out == 1
        ledger = request.sources.ledger
        assert ledger is not None
        assert names_in(ledger, "reconciler_repair") == dict.fromkeys(own & {"repaired-on-day-1"}, 1)
        seen = {"seen-on-day-0"} if request is first else set()
        assert names_in(ledger, "reconciler_candidate") == dict.fromkeys(seen, 1)
        of_rounds = Path(ledger.address).glob("reconciler_round/*.parquet")
        rounds = [at_ms for path in of_rounds for at_ms in pq.read_table(path)["at_ms"].to_pylist()]
        assert rounds == ([] if request is second else [request.window.start_ms + hour_ms])
    left = {path.name for path in (tmp_path / "staging").iterdir()}
    assert left == {"window-0000", "window-0001", "window-0002"}, "whole copies were to go"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("an export", "001/reconciler_inbox: an export is read where it lies"),
        ("no key", "002/effects-0: no column is called key or unique_key"),
        ("an altered history", "is not the file that the manifest names"),
    ],
)
def test_windows_read_whole_copies_where_these_cannot_be_cut_and_say_why(
    spark: SparkSession, tmp_path: Path, why: str, told: str
) -> None:
    shop = Shop(tmp_path)
    shop.sent("a", 1)
    shop.applied("a", 2)
    shop.counted("a")
    shop.announce("a", 1)
    for table in ("reconciler_candidate", "reconciler_repair", "reconciler_round"):
        shop.of_ledger(table, 1, "a")
    requests = shop.requests()
    if why == "an export":
        (inbox,) = requests[0].sources.inboxes[TOPIC, GROUP]
        elsewhere = {(TOPIC, GROUP): (replace(inbox, address=str(tmp_path / "export")),)}
        requests = [replace(one, sources=replace(one.sources, inboxes=elsewhere)) for one in requests]
    elif why == "no key":
        path = tmp_path / "staging/002/effects-0/part.parquet"
        pq.write_table(pq.read_table(path).rename_columns(["order"]), path)
    else:
        next((tmp_path / "history" / "announced").rglob("*.parquet")).write_bytes(b"altered")
    cut = shop.cut(spark, requests)
    assert cut.requests == requests
    assert told in str(cut.whole_because)
    assert len(list((tmp_path / "staging").rglob("part.parquet"))) == 6
