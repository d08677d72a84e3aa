"""What explain and status see of a history, and that no accident in it goes unnoticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState, Rung
from reconciler.contract.unique_key import key_of
from reconciler.contract.verdicts import Verdict
from reconciler.history.reader import HistoryReader
from reconciler.history.tables import DAY_MS
from reconciler.policy.events import KeysLeft, LeftKey, RepairStepped, ShardsAtRest, VerdictsWritten
from reconciler.policy.evidence import Lookup, Presence
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.telling.life_story import LifeStory, life_story_of
from reconciler.telling.ports.reports import LedgerLife
from reconciler.words import said
from tests.unit.history.house import BILLING, ENVIRONMENT, House, shard, some_keys

KEY = b"\x00" * 12 + b"key\x00"


def lived(folder: Path) -> House:
    """One lost message: announced, judged, repaired, consumed, settled; and some others."""
    house = House(folder)
    house.round(0, announced=[KEY, *some_keys(5)])
    house.rounds.pending[shard(0)] = [(KEY, house.clock.now_ms())]
    house.recorder.run_pass(shutdown=True)
    house.clock.advance(1)
    entry = VerdictEntry(
        unique_key=key_of(KEY),
        verdict=Verdict.LOST_CONFIRM,
        evidence={"half": "FOUND"},
        first_seen_ms=7,
        state=CandidateState.OPEN,
        wait_seconds=1.0,
    )
    house.sink.emit(VerdictsWritten(shard=shard(0), entries=[entry]))
    house.clock.advance(1)
    house.sink.emit(
        RepairStepped(
            environment=ENVIRONMENT,
            topic=BILLING.topic,
            scope=EVERY_GROUP,
            unique_key=key_of(KEY),
            rung=Rung.END,
            before=RepairState.SENDING,
            after=RepairState.SENT,
            attempts=1,
            answer="SUCCESS",
            answer_code="repair.answered",
        )
    )
    house.round(0, consumed=[KEY], left=[KEY])
    house.clock.advance(1)
    gone = LeftKey(unique_key=key_of(KEY), state=CandidateState.SETTLED, verdict=Verdict.CONSUMED)
    house.sink.emit(KeysLeft(shard=shard(0), keys=[gone]))
    house.seal()
    return house


def story(folder: Path) -> LifeStory:
    found = HistoryReader(folder / "history", ENVIRONMENT).rows_of(KEY)
    return life_story_of(
        key_of(KEY),
        outbox=Lookup(presence=Presence.ABSENT),
        copies={},
        inboxes={},
        ledger=LedgerLife(candidates=(), repairs=(), rounds=()),
        history=found.rows,
        history_problems=found.problems,
    )


def test_a_life_is_told_from_history_alone_in_time_order(tmp_path: Path) -> None:
    lived(tmp_path)
    told = story(tmp_path)
    assert [said(event.what) for event in told.events] == [
        "announcement taken by round 1 of ORDERS/billing",
        "still pending for ORDERS/billing when pending was written down",
        "verdict for ORDERS/billing: LOST_CONFIRM",
        "repair by end for every group: SENDING became SENT",
        "consumption taken by round 2 of ORDERS/billing",
        "left pending of ORDERS/billing: its consumption was recorded",
        "left pending of ORDERS/billing: SETTLED as CONSUMED",
    ]
    assert {event.witness for event in told.events} == {"history"}
    assert told.events[2].evidence == {"state": "OPEN", "half": "FOUND"}
    assert (told.silent, told.is_known) == ((), True)


def test_rows_that_are_there_twice_are_told_once(tmp_path: Path) -> None:
    house = lived(tmp_path)
    before = len(story(tmp_path).events)
    for path in sorted(house.chain.files()):
        file = house.chain.files()[path]
        if file.stream == "announced":
            copy = (house.root / path).with_name("01COPY.parquet")
            shutil.copy(house.root / path, copy)
            doubled = type(file)(
                **{**{f: getattr(file, f) for f in file.__slots__}, "path": path.replace(Path(path).name, copy.name)}
            )
            house.chain.append("seal", added=[doubled])
    assert len(story(tmp_path).events) == before


def test_no_history_and_an_altered_one_are_told_instead_of_an_empty_answer(tmp_path: Path) -> None:
    assert "nothing was written" in said(story(tmp_path).silent[0])
    house = lived(tmp_path)
    path = next(p for p, f in sorted(house.chain.files().items()) if f.stream == "verdict")
    (house.root / path).write_bytes(b"PAR1")
    told = story(tmp_path)
    assert any("altered" in said(line) for line in told.silent)
    assert len(told.events) == 6


@pytest.mark.parametrize("accident", ["missing", "altered", "truncated", "entry gone", "none"])
def test_verification_names_what_is_wrong(tmp_path: Path, accident: str) -> None:
    house = lived(tmp_path)
    house.round(1)
    house.seal()
    path = house.root / next(p for p, f in sorted(house.chain.files().items()) if f.stream == "left")
    data = path.read_bytes()
    match accident:
        case "missing":
            path.unlink()
        case "altered":
            path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        case "truncated":
            path.write_bytes(data[:-9])
        case "entry gone":
            (house.root / "manifest" / f"environment={ENVIRONMENT}" / "000000000001.json").unlink()
    problems = HistoryReader(house.root, ENVIRONMENT).verify()
    if accident == "none":
        assert problems == []
    elif accident == "entry gone":
        assert "000000000001.json is missing" in problems[0]
    else:
        assert [path.relative_to(house.root).as_posix() in line for line in problems] == [True]


def test_status_tells_watermark_gaps_and_what_waits(tmp_path: Path) -> None:
    house = House(tmp_path)
    first = house.round(0)
    house.round(1)
    house.recorder.run_pass()
    for _ in range(4):
        house.round(1)
    house.seal()
    house.round(0)
    house.recorder.run_pass()
    overview = HistoryReader(house.root, ENVIRONMENT).overview([BILLING], spool=house.spool_folder)
    [mine] = overview.subscriptions
    assert (mine.captured_until_ms, mine.rounds, mine.gaps) == (first.at_ms, 4, 1)
    assert (set(mine.captured_ms), mine.captured_ms[0]) == ({0, 1}, first.at_ms)
    assert mine.captured_ms[1] > first.at_ms
    assert overview.spool_bytes > 0
    assert (overview.entries, overview.problems) == (1, ())


def test_status_counts_rounds_of_days_that_it_was_not_asked_for(tmp_path: Path) -> None:
    """A day has 17 000 rounds of a shard: all days at once would be read for one line."""
    house = House(tmp_path)
    for _ in range(3):
        newest = house.round(0)
        house.seal()
        house.clock.advance(DAY_MS / 1000)
    overviews = [
        HistoryReader(house.root, ENVIRONMENT).overview([BILLING], spool=house.spool_folder, **asked)
        for asked in ({}, {"days": 1}, {"days": 3})
    ]
    assert [one.subscriptions[0].rounds for one in overviews] == [2, 1, 3]
    assert {one.subscriptions[0].captured_until_ms for one in overviews} == {newest.at_ms}


def test_ids_fill_the_disk_for_want_of_their_encoding(tmp_path: Path) -> None:
    house = lived(tmp_path)
    path = next(p for p, f in sorted(house.chain.files().items()) if f.stream == "announced")
    columns = pq.ParquetFile(house.root / path).metadata.row_group(0)
    encodings = {}
    for number in range(columns.num_columns):
        column = columns.column(number)
        encodings[column.path_in_schema] = column.encodings
        assert column.compression == "ZSTD"
        assert column.is_stats_set == (column.path_in_schema != "key"), "random bytes have no range"
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings["key"]
    assert "DELTA_BINARY_PACKED" in encodings["at_ms"]
    assert "RLE_DICTIONARY" in encodings["topic"]


@pytest.mark.parametrize("has_later_rounds", [False, True])
def test_a_shard_at_rest_is_captured_until_it_was_seen_so_behind_its_last_round(
    tmp_path: Path, has_later_rounds: bool
) -> None:
    """Without it `status` calls the history late by each long rest."""
    house = House(tmp_path)
    last = [house.round(number) for number in (0, 1)]
    house.recorder.run_pass()
    house.sink.emit(ShardsAtRest(looks=[(done, done.at_ms + 1_500_000) for done in last]))
    house.seal()
    if has_later_rounds:
        last = [house.round(number) for number in (0, 1)]
        house.seal()
    [mine] = HistoryReader(house.root, ENVIRONMENT).overview([BILLING], spool=house.spool_folder).subscriptions
    expected = {done.shard.number: done.at_ms + (0 if has_later_rounds else 1_500_000) for done in last}
    assert mine.captured_ms == expected
