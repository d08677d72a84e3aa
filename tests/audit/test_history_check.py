"""A history is believed only where nothing of it is missing, doubled, altered or unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs as arrow_fs

from reconciler.audit.history.chain import HistoryChain
from reconciler.audit.history.check import HistoryState, check_history
from reconciler.audit.history.checkpoint import checkpoint_of, verified_chain
from reconciler.audit.result.values import AuditedSubscription
from reconciler.contract.history_row import HISTORY_VERSION
from tests.audit.written_history import WrittenHistory, day_of, round_row

HOUR_MS = 3_600_000
#: 2026-03-01T00:00Z
START_MS = 1_772_323_200_000
END_MS = START_MS + HOUR_MS
SHARDS = 2
KEY = ("ORDERS", "billing")


def asked(group: str = "billing") -> AuditedSubscription:
    return AuditedSubscription(
        topic="ORDERS",
        group=group,
        tags=None,
        producer_groups=("order-service",),
        grace_period_seconds=30.0,
        late_after_seconds=300.0,
    )


def check(history: WrittenHistory, start_ms: int = START_MS, end_ms: int = END_MS, **options: Any) -> HistoryState:
    options = {"asked_at_ms": end_ms + HOUR_MS, **options}
    return check_history(history.folder, "test", [asked()], SHARDS, (start_ms, end_ms), **options)


def minutes(
    first: int, last: int, *, shards: tuple[int, ...] = (0, 1), skip: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    """One round a minute of the hour, generation = minute + 100."""
    return [
        round_row(shard, minute + 100, START_MS + minute * 60_000)
        for shard in shards
        for minute in range(first, last)
        if minute not in skip
    ]


@pytest.fixture
def history(tmp_path: Path) -> WrittenHistory:
    return WrittenHistory(tmp_path / "history")


def test_a_whole_history_has_a_watermark_and_nothing_to_complain_about(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-30, 20)})
    history.seal({"round": [*minutes(20, 90, shards=(0,)), *minutes(20, 80, shards=(1,))]})
    state = check(history)
    assert (state.problems, state.gaps) == ((), ())
    assert state.watermarks == {KEY: START_MS + 79 * 60_000}
    assert state.rounds == 170
    assert (state.sequence, state.digest) == (history.sequence, history.digest)
    assert [file.path for file in state.of("round")] == sorted(history.files)


def test_a_lost_last_entry_lowers_the_watermark(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-30, 20)})
    history.seal({"round": minutes(20, 80)})
    history.entry_path(2).unlink()
    assert check(history).watermarks == {KEY: START_MS + 19 * 60_000}


def test_a_missing_entry_is_named(history: WrittenHistory) -> None:
    for first in (-10, 20, 50):
        history.seal({"round": minutes(first, first + 30)})
    history.entry_path(2).unlink()
    state = check(history)
    assert any("entry 000000000002.json is missing" in problem for problem in state.problems)
    assert [gap.why for gap in state.gaps] == ["generations 120 to 149 of epoch test:1 are missing"] * 2


def test_an_altered_entry_breaks_the_chain(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 20)})
    history.seal({"round": minutes(20, 80)})
    path = history.entry_path(1)
    path.write_bytes(path.read_bytes().replace(b'"writer":"test"', b'"writer":"fake"'))
    assert check(history).problems == (
        "manifest 000000000002.json: does not follow 000000000001.json: one of them was altered",
    )


def test_a_reformatted_entry_is_altered(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    path = history.entry_path(1)
    path.write_bytes(path.read_bytes().replace(b'":"', b'": "'))
    assert any("not in canonical form" in problem for problem in check(history).problems)


def test_a_doubled_entry_is_named(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    history.entry_path(2).write_bytes(history.entry_path(1).read_bytes())
    problems = check(history).problems
    assert any("doubled or renamed" in problem for problem in problems)
    assert any("a second time" in problem for problem in problems)


def test_a_newer_version_is_not_guessed_at(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    newer = HISTORY_VERSION + 1
    history.append(version=newer)
    told = f"version {newer}, this audit knows up to {HISTORY_VERSION}"
    assert any(told in problem for problem in check(history).problems)


def test_an_unknown_stream_is_not_guessed_at(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    file = next(iter(history.files.values()))
    history.append(added=(replace(file, path=file.path.replace("round", "teleport"), stream="teleport"),))
    assert any("unknown stream 'teleport'" in problem for problem in check(history).problems)


@pytest.mark.parametrize("damage", ["absent", "truncated", "swapped", "rows"])
def test_a_damaged_file_is_named(history: WrittenHistory, damage: str) -> None:
    history.seal({"round": minutes(-10, 40)})
    history.seal({"round": minutes(40, 80)})
    paths = sorted(history.files)
    file = history.folder / paths[1]
    if damage == "absent":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "swapped":
        file.write_bytes((history.folder / paths[0]).read_bytes())
    else:
        history.append(removed=(paths[1],))
        history.append(added=(replace(history.files.get(paths[1], next(iter(history.files.values()))), rows=7),))
    problems = check(history).problems
    assert problems
    assert any(path in problem for problem in problems for path in paths)


def test_a_file_of_an_older_schema_is_named(history: WrittenHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.audit.written_history.schema_of",
        lambda stream: pa.schema([("topic", pa.string()), ("shard", pa.int32()), ("at_ms", pa.int64())]),
    )
    history.seal({"round": minutes(-10, 80)})
    assert any("column consumer_group is missing" in problem for problem in check(history).problems)


def test_a_file_of_another_day_in_the_wrong_folder_is_named(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    file = next(iter(history.files.values()))
    history.append(added=(replace(file, path="round/environment=other/date=2026-03-01/x.parquet"),))
    assert any("lies in a folder of other rows" in problem for problem in check(history).problems)


def test_another_environment_has_no_history_here(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 80)})
    about = ("production", [asked()], SHARDS, (START_MS, END_MS))
    state = check_history(history.folder, *about, asked_at_ms=END_MS)
    assert state.problems == ("history: there is no manifest/environment=production in it; name the history's folder",)
    assert state.watermarks == {KEY: None}


def test_a_hole_between_generations_is_a_gap_and_stops_the_watermark(history: WrittenHistory) -> None:
    history.seal({"round": [*minutes(-10, 90, shards=(0,)), *minutes(-10, 90, shards=(1,), skip=(30, 31))]})
    state = check(history)
    assert [(gap.shard, gap.from_ms, gap.to_ms) for gap in state.gaps] == [
        (1, START_MS + 29 * 60_000, START_MS + 32 * 60_000)
    ]
    assert state.watermarks == {KEY: START_MS + 29 * 60_000}


@pytest.mark.parametrize("hole", [-20, 75])
def test_a_hole_outside_the_window_changes_no_answer(history: WrittenHistory, hole: int) -> None:
    history.seal({"round": minutes(-40, 90, skip=(hole,))})
    state = check(history)
    assert state.gaps == ()
    mark = state.watermarks[KEY]
    assert mark is not None
    assert mark >= END_MS + 300_000


def test_rounds_written_twice_and_by_two_daemons_are_one(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 50)})
    history.seal({"round": [*minutes(0, 90), round_row(0, 100, START_MS, announced=None or 0, matched=3)]})
    state = check(history)
    assert (state.gaps, state.problems) == ((), ())
    assert state.rounds == 180


def test_a_redis_that_fell_back_makes_no_hole(history: WrittenHistory) -> None:
    rows = minutes(-10, 50)
    again = [round_row(s, 120 + n, START_MS + (50 + n) * 60_000 + 1) for s in (0, 1) for n in range(40)]
    history.seal({"round": [*rows, *again]})
    assert check(history).gaps == ()


def test_a_redis_that_fell_back_just_before_the_window_makes_no_hole(history: WrittenHistory) -> None:
    again = [round_row(s, 80 + n, START_MS + n * 60_000) for s in (0, 1) for n in range(10)]
    history.seal({"round": [*minutes(-60, 0), *again]})
    assert check(history).gaps == ()


@pytest.mark.parametrize(("first", "gaps"), [(1, 0), (150, 0), (151, 2)])
def test_a_new_epoch_begins_anew_or_goes_on_but_never_jumps(history: WrittenHistory, first: int, gaps: int) -> None:
    later = [round_row(s, first + n, START_MS + (50 + n) * 60_000, epoch="test:2") for s in (0, 1) for n in range(30)]
    history.seal({"round": [*minutes(-10, 50), *later]})
    assert len(check(history).gaps) == gaps


def test_a_history_that_begins_inside_the_window_has_a_gap(history: WrittenHistory) -> None:
    history.seal({"round": minutes(10, 90)})
    assert [gap.why for gap in check(history).gaps] == ["history begins with generation 110 of epoch test:1"] * 2


FIRST = "the first round of this topic and group came then"


@pytest.mark.parametrize(
    ("start_ms", "end_ms"),
    [
        (START_MS, END_MS),  # the service began inside it
        (START_MS - HOUR_MS, START_MS),  # ... right after it
        (START_MS - 13 * HOUR_MS, START_MS - 12 * HOUR_MS),  # ... half a day after it
    ],
)
def test_a_window_that_begins_before_the_first_round_has_a_gap_until_then(
    history: WrittenHistory, start_ms: int, end_ms: int
) -> None:
    """With nothing in it such a window was clean."""
    history.seal({"round": [round_row(s, n, START_MS + (n + s) * 60_000) for s in (0, 1) for n in range(1, 80)]})
    [gap] = check(history, start_ms, end_ms).gaps
    assert (gap.shard, gap.from_ms, gap.to_ms, gap.why) == (-1, start_ms, START_MS + 60_000, FIRST)


def test_a_window_from_the_first_round_on_has_none(history: WrittenHistory) -> None:
    """A shard that began later had no round before: its counter says so."""
    history.seal({"round": [round_row(s, n, START_MS + (n - 1 + s) * 60_000) for s in (0, 1) for n in range(1, 80)]})
    assert check(history).gaps == ()


def test_a_group_that_was_configured_inside_the_window_has_a_gap_and_the_others_have_none(
    history: WrittenHistory,
) -> None:
    new = {"consumer_group": "mail"}
    rows = [round_row(s, n, START_MS + (n + 9) * 60_000, **new) for s in (0, 1) for n in range(1, 80)]
    history.seal({"round": [*minutes(-10, 90), *rows]})
    about = ("test", [asked(), asked("mail")], SHARDS, (START_MS, END_MS))
    state = check_history(history.folder, *about, asked_at_ms=END_MS + HOUR_MS)
    assert [(gap.group, gap.from_ms, gap.to_ms, gap.why) for gap in state.gaps] == [
        ("mail", START_MS, START_MS + 10 * 60_000, FIRST)
    ]


@pytest.mark.parametrize(
    ("days_later", "has_gone_on"),
    [
        (0, False),  # the history may only lag
        (2, False),  # what has not come after two days counts no more
        (0, True),  # so it is where others have had rounds for two days: the group has left
    ],
)
def test_a_window_after_the_last_round_has_a_gap_as_soon_as_later_rounds_would_not_count(
    history: WrittenHistory, days_later: int, has_gone_on: bool
) -> None:
    """A later audit cannot help, and must not be asked for."""
    history.seal({"round": minutes(-10, 20)})
    if has_gone_on:
        history.seal({"round": [round_row(0, 1, END_MS + 2 * 24 * HOUR_MS, consumer_group="mail")]})
    state = check(history, asked_at_ms=END_MS + HOUR_MS + days_later * 24 * HOUR_MS)
    found = [(gap.shard, gap.from_ms, gap.to_ms, gap.why) for gap in state.gaps]
    gone = (-1, START_MS + 19 * 60_000, END_MS + 300_000, "no later round came")
    assert found == ([gone] if days_later or has_gone_on else [])
    assert state.watermarks == {KEY: START_MS + 19 * 60_000}


def test_a_window_long_before_the_first_round_has_a_gap(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 20)})
    start_ms = START_MS - 72 * HOUR_MS
    [gap] = check(history, start_ms, start_ms + HOUR_MS).gaps
    assert (gap.shard, gap.from_ms, gap.to_ms) == (-1, start_ms, start_ms + HOUR_MS + 300_000)
    assert gap.why == "no round came"


def test_one_shard_that_has_stopped_is_named(history: WrittenHistory) -> None:
    history.seal({"round": [*minutes(-10, 90, shards=(0,)), *minutes(-10, 20, shards=(1,))]})
    [gap] = check(history, asked_at_ms=END_MS + 48 * HOUR_MS).gaps
    assert (gap.shard, gap.from_ms, gap.why) == (1, START_MS + 19 * 60_000, "no later round came")


def test_a_group_that_leaves_and_comes_back_within_a_day_has_none(history: WrittenHistory) -> None:
    """Its rounds are counted on: what was announced meanwhile waited in the unique-key topic."""
    back = [round_row(s, 110 + n, START_MS + (12 * 60 + n) * 60_000) for s in (0, 1) for n in range(90)]
    history.seal({"round": [*minutes(-10, 10), *back]})
    state = check(history, asked_at_ms=END_MS + 48 * HOUR_MS)
    assert state.gaps == ()
    assert (state.watermarks[KEY] or 0) > END_MS + 300_000


def test_a_group_that_comes_back_after_more_than_a_day_has_a_gap(history: WrittenHistory) -> None:
    back = [round_row(s, 110 + n, START_MS + (30 * 60 + n) * 60_000) for s in (0, 1) for n in range(90)]
    history.seal({"round": [*minutes(-10, 10), *back]})
    assert [(gap.shard, gap.from_ms) for gap in check(history).gaps] == [(-1, START_MS + 9 * 60_000)]
    # ... and none in the windows since it is back.
    assert check(history, START_MS + 30 * HOUR_MS, START_MS + 31 * HOUR_MS).gaps == ()


def test_a_service_that_rested_for_days_before_the_window_has_none(history: WrittenHistory) -> None:
    early = [{**row, "at_ms": row["at_ms"] - 9 * 24 * HOUR_MS} for row in minutes(-10, 3)]
    history.seal({"round": early})
    history.seal({"round": minutes(3, 90)})
    assert check(history).gaps == ()


def test_retired_days_are_a_gap_only_where_the_window_begins_before(history: WrittenHistory) -> None:
    history.seal({"round": minutes(1, 90)})
    history.append(action="retire", kept_from="2026-03-01")
    assert check(history).gaps == ()
    state = check(history, START_MS - HOUR_MS)
    assert [gap.why for gap in state.gaps] == ["rows before 2026-03-01 are older than the history is kept"]


@pytest.mark.parametrize("kept_from", ["2026-01-01", "2026-02-28", "2026-03-01"])
def test_a_history_that_was_off_in_the_window_is_not_made_whole_by_days_that_were_retired(
    history: WrittenHistory, kept_from: str
) -> None:
    history.append(action="retire", kept_from=kept_from)
    history.seal({"round": minutes(30, 90)})
    assert [(gap.shard, gap.from_ms, gap.to_ms) for gap in check(history).gaps] == [
        (shard, START_MS, START_MS + 30 * 60_000) for shard in (0, 1)
    ]


def gap_row(from_ms: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    known = {"topic": "ORDERS", "consumer_group": "billing", "shard": -1, "from_ms": from_ms, "at_ms": at_ms}
    return {**known, "stream": "left", "rows": 4, "reason": "disk full", **fields}


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        (gap_row(START_MS - 10, START_MS), True),
        (gap_row(START_MS - 10, START_MS - 1), False),
        (gap_row(END_MS + 300_000, END_MS + 400_000), True),
        (gap_row(END_MS + 300_001, END_MS + 400_000), False),
        (gap_row(START_MS, END_MS, consumer_group="*"), True),
        (gap_row(START_MS, END_MS, consumer_group="shipping"), False),
    ],
)
def test_a_declared_gap_counts_where_it_touches_the_window(
    history: WrittenHistory, row: dict[str, Any], *, counts: bool
) -> None:
    history.seal({"round": minutes(-10, 90), "gap": [row]})
    assert [gap.why for gap in check(history).gaps] == (["disk full"] if counts else [])


@pytest.mark.parametrize(("last", "healed"), [(125, True), (190, False)])
def test_a_gap_of_rounds_that_another_daemon_captured_is_none(
    history: WrittenHistory, last: int, *, healed: bool
) -> None:
    rounds = {"shard": 1, "epoch": "test:1", "first_generation": 120, "last_generation": last, "stream": "round"}
    history.seal({"round": minutes(-10, 90), "gap": [gap_row(START_MS, END_MS, **rounds)]})
    assert (check(history).gaps == ()) is healed


@pytest.mark.parametrize(
    ("captured", "first", "from_minute"),
    [
        # Nothing was ever captured of a memory whose third round is told as missing: the second one ran, too.
        ([], 3, 0),
        # Fifteen were, no writer declared the sixteenth.
        (range(1, 16), 17, 15),
        # Nothing is missing before the first round, nor right after a captured one.
        ([], 1, None),
        (range(1, 17), 17, None),
    ],
)
def test_rounds_before_a_told_one_are_missing_although_nobody_told_them(
    history: WrittenHistory, captured: Sequence[int], first: int, from_minute: int | None
) -> None:
    told = {"shard": 0, "epoch": "test:0", "first_generation": first, "last_generation": 20, "stream": "round"}
    gap = gap_row(START_MS + 20 * 60_000, START_MS + 30 * 60_000, **told)
    early = [round_row(0, n, START_MS + n * 60_000, epoch="test:0") for n in captured]
    later = [round_row(s, n, START_MS + (n + 30) * 60_000) for s in (0, 1) for n in range(1, 50)]
    history.seal({"round": [*early, *later], "gap": [gap]})
    found = [(gap.shard, gap.from_ms, gap.to_ms) for gap in check(history).gaps if gap.why.startswith("generations")]
    missing = [] if from_minute is None else [(0, START_MS + from_minute * 60_000, START_MS + 30 * 60_000)]
    assert found == missing


def test_a_round_told_after_another_told_one_proves_no_other(history: WrittenHistory) -> None:
    def told(first: int, last: int, minute: int) -> dict[str, Any]:
        of = {"shard": 0, "epoch": "test:0", "first_generation": first, "last_generation": last, "stream": "round"}
        return gap_row(START_MS + minute * 60_000, START_MS + (minute + 1) * 60_000, **of)

    later = [round_row(s, n, START_MS + (n + 30) * 60_000) for s in (0, 1) for n in range(1, 50)]
    history.seal({"round": later, "gap": [told(1, 3, 5), told(4, 9, 8)]})
    assert not [gap for gap in check(history).gaps if gap.why.startswith("generations")]


def stored(*rows: dict[str, Any]) -> pa.Table:
    names = ("topic", "consumer_group", "shard", "epoch", "generation", "at_ms", "announced")
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows])


def test_a_round_that_only_the_ledger_knows_is_a_gap(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 90)})
    unknown = [round_row(1, n, START_MS + n, epoch="test:0") for n in (7, 8)]
    late = round_row(1, 400, START_MS + 95 * 60_000)
    rounds = stored(*minutes(0, 60), *unknown, late)
    place = rounds.schema.get_field_index("topic")
    rounds = rounds.set_column(place, "topic", rounds["topic"].dictionary_encode())
    state = check(history, ledger_rounds=rounds)
    assert [gap.why for gap in state.gaps] == [
        "the ledger stored generations 7 to 8 of epoch test:0, history lacks them"
    ]


def test_rounds_whose_announcements_were_read_again_are_no_gap_and_those_beside_them_are(
    history: WrittenHistory,
) -> None:
    """Redis lost minutes 20 to 22 of shard 0, and the first round of its new memory ran in minute 30."""
    anew = [round_row(0, n + 1, START_MS + (30 + n) * 60_000, epoch="test:2") for n in range(60)]
    lost = {"topic": "ORDERS", "consumer_group": "billing", "shard": 0, "epoch": "test:1", "sources": "{}"}
    times = {"from_ms": START_MS + 19 * 60_000, "at_ms": START_MS + 30 * 60_000}
    rounds = [*minutes(-10, 20, shards=(0,)), *anew, *minutes(-10, 90, shards=(1,))]
    history.seal({"round": rounds})
    known = stored(*minutes(0, 23, shards=(0,)))
    before = check(history, ledger_rounds=known)
    assert [gap.why for gap in before.gaps] == [
        "the ledger stored generations 120 to 122 of epoch test:1, history lacks them"
    ]
    assert before.reread == ()

    history.seal({"reread": [{**lost, **times, "first_generation": 120, "last_generation": 122}]})
    state = check(history, ledger_rounds=known)
    assert (state.problems, state.gaps) == ((), ())
    [made_good] = state.reread
    assert (made_good.shard, made_good.from_ms, made_good.to_ms) == (0, times["from_ms"], times["at_ms"])
    assert state.watermarks == {KEY: START_MS + 89 * 60_000}

    unknown = stored(*minutes(0, 23, shards=(0,)), *(round_row(1, n, START_MS + n, epoch="test:0") for n in (7, 8)))
    assert [gap.shard for gap in check(history, ledger_rounds=unknown).gaps] == [1], "another shard"
    late = stored(round_row(0, 131, START_MS + 31 * 60_000))
    assert [gap.from_ms for gap in check(history, ledger_rounds=late).gaps] == [START_MS + 31 * 60_000], "later"
    assert check(history, START_MS + HOUR_MS, END_MS + HOUR_MS).reread == (), "of another window"


def test_a_growing_history_changes_no_old_answer(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 2000)})
    before = check(history)
    history.seal({"round": minutes(2000, 3000)})
    after = check(history)
    assert (before.watermarks, before.rounds) == (after.watermarks, after.rounds)
    assert before.watermarks[KEY] == END_MS + 300_000 + 24 * HOUR_MS


def test_a_shard_without_rounds_has_no_watermark(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 90, shards=(0,))})
    assert check(history).watermarks == {KEY: None}


def test_a_folder_that_is_not_there_is_a_problem_and_no_traceback(tmp_path: Path) -> None:
    about = ("test", [asked()], SHARDS, (START_MS, END_MS))
    state = check_history(tmp_path / "nowhere", *about, asked_at_ms=END_MS)
    assert "name the history's folder" in state.problems[0]


def day_of_rounds(day: int) -> list[dict[str, Any]]:
    """A round an hour."""
    first_ms = START_MS + day * 24 * HOUR_MS
    return [round_row(s, 24 * day + hour + 1, first_ms + hour * HOUR_MS) for s in (0, 1) for hour in range(24)]


class _Requests:
    """The local file system as check_history asks it: every path that it names."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def opened(self, place: str) -> tuple[arrow_fs.FileSystem, str]:
        """Stands for places.open_folder."""
        names = [name for name in dir(arrow_fs.FileSystemHandler) if not name.startswith("__")]
        asked = {name: self._forwarded(name) for name in names}
        handler = type(
            "Asked", (arrow_fs.FileSystemHandler,), {**asked, "__eq__": object.__eq__, "__ne__": object.__ne__}
        )
        return arrow_fs.PyFileSystem(handler()), place

    def _forwarded(self, name: str) -> Callable[..., Any]:
        local = arrow_fs.LocalFileSystem()

        def forward(_handler: object, *arguments: Any) -> Any:
            if name == "get_type_name":
                return "local"
            if name == "get_file_info_selector":
                found = local.get_file_info(*arguments)
                self.paths += [info.path for info in found]
                return found
            self.paths += arguments[0] if name == "get_file_info" else arguments[:1]
            return getattr(local, name)(*arguments)

        return forward


def test_of_a_history_that_an_audit_has_verified_only_what_follows_and_the_windows_own_files_are_asked_for(
    history: WrittenHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: dict[int, tuple[int, int]] = {}
    for day in range(24):
        history.seal({"round": day_of_rounds(day)})
        if day not in (3, 22):
            continue
        window = (START_MS + (day + 1) * 24 * HOUR_MS - 4 * HOUR_MS, START_MS + (day + 1) * 24 * HOUR_MS - 2 * HOUR_MS)
        verified = verified_chain(checkpoint_of(check(history, *window)))
        history.seal({"round": [round_row(s, 24 * day + 25, window[1] + 2 * HOUR_MS) for s in (0, 1)]})
        counts = []
        for after in (verified, None):
            requests = _Requests()
            monkeypatch.setattr("reconciler.audit.history.check.open_folder", requests.opened)
            state = check(history, *window, after=after)
            monkeypatch.undo()
            assert (state.problems, state.read_from) == ((), verified.sequence if after else 0)
            assert replace(state, read_from=0) == check(history, *window)
            counts.append(len(requests.paths))
        asked_for[day] = (counts[0], counts[1])
        history.append(removed=(max(history.files),), action="compact")
    assert asked_for[3][0] == asked_for[22][0] < 15
    assert asked_for[22][1] > asked_for[3][1] + 40, "the whole history is looked at otherwise"


def _other_entry(history: WrittenHistory, chain: HistoryChain) -> None:
    path = history.entry_path(chain.sequence)
    path.write_bytes(path.read_bytes().replace(b'"writer":"test"', b'"writer":"best"'))


def _no_entry(history: WrittenHistory, chain: HistoryChain) -> None:
    history.entry_path(chain.sequence).unlink()


def _forked(history: WrittenHistory, chain: HistoryChain) -> None:
    history.digest = "0" * 64
    history.append()


def _without_its_file(history: WrittenHistory, chain: HistoryChain) -> None:
    (history.folder / next(iter(chain.files))).unlink()


@pytest.mark.parametrize(
    ("accident", "told"),
    [
        (_other_entry, "is not the entry that an older audit has verified"),
        (_no_entry, "is missing, which an older audit has verified"),
        (_forked, "does not follow"),
        (_without_its_file, "the manifest lists it, but it is not there"),
    ],
)
def test_a_history_that_does_not_go_on_from_what_was_verified_is_a_problem(
    history: WrittenHistory, accident: Callable[[WrittenHistory, HistoryChain], None], told: str
) -> None:
    history.seal({"round": minutes(-30, 20)})
    history.seal({"round": minutes(20, 90)})
    verified = verified_chain(checkpoint_of(check(history)))
    assert check(history, after=verified).problems == ()
    accident(history, verified)
    assert told in check(history, after=verified).problems[0]


def test_what_was_verified_of_another_environment_is_a_problem(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-30, 90)})
    other = replace(verified_chain(checkpoint_of(check(history))), environment="staging")
    (problem,) = check(history, after=other).problems
    assert "is of environment 'staging'" in problem


# ---- shards at rest


def at_rest(shard: int, generation: int, at_ms: int, epoch: str = "test:1") -> dict[str, Any]:
    """The row of a look that found the shard at rest behind this round."""
    place = {"topic": "ORDERS", "consumer_group": "billing", "shard": shard, "epoch": epoch}
    return {**place, "generation": generation, "at_ms": at_ms, "kind": "AT_REST", "rows": 0}


def test_shards_at_rest_close_a_window_without_later_rounds(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, -8)})
    minute_ms = 60_000
    rests = [at_rest(shard, 91, START_MS + minute * minute_ms) for shard in (0, 1) for minute in (-5, 30, 66 + shard)]
    history.seal({"snapshot": rests})
    state = check(history)
    assert (state.problems, state.gaps) == ((), ())
    assert state.watermarks == {KEY: START_MS + 66 * minute_ms}
    assert {f.path for f in state.of("snapshot") if f.last_ms >= START_MS} <= state.read
    late = check(history, asked_at_ms=END_MS + 30 * HOUR_MS)
    assert not late.gaps, "none of theirs need come"


@pytest.mark.parametrize(
    ("generation", "epoch"),
    [
        pytest.param(130, "test:1", id="a round that is not there"),
        pytest.param(110, "test:1", id="a round that others follow"),
        pytest.param(119, "test:2", id="another life of Redis"),
    ],
)
def test_a_rest_behind_any_other_round_than_the_last_one_that_is_there_proves_nothing(
    history: WrittenHistory, generation: int, epoch: str
) -> None:
    history.seal({"round": minutes(-10, 20)})
    rests = [at_rest(shard, generation, END_MS + HOUR_MS, epoch) for shard in (0, 1)]
    history.seal({"snapshot": rests})
    assert check(history).watermarks == {KEY: START_MS + 19 * 60_000}


def test_a_rest_behind_a_hole_closes_no_window(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 40, skip=(20,))})
    history.seal({"snapshot": [at_rest(shard, 139, END_MS + HOUR_MS) for shard in (0, 1)]})
    state = check(history)
    assert state.watermarks == {KEY: START_MS + 19 * 60_000}
    assert [gap.why for gap in state.gaps] == ["generations 120 to 120 of epoch test:1 are missing"] * 2


def test_a_rest_closes_a_window_behind_rounds_that_redis_ran_again(history: WrittenHistory) -> None:
    """Redis fell back behind a higher generation."""
    history.seal({"round": minutes(-10, 20)})
    again = [round_row(shard, 91 + n, START_MS + (21 + n) * 60_000) for shard in (0, 1) for n in range(5)]
    history.seal({"round": again, "snapshot": [at_rest(shard, 95, START_MS + 69 * 60_000) for shard in (0, 1)]})
    assert check(history).watermarks == {KEY: START_MS + 69 * 60_000}


def test_a_gap_of_rounds_that_redis_ran_again_is_not_made_good_by_those_of_before(history: WrittenHistory) -> None:
    history.seal({"round": minutes(-10, 20)})
    place = {"topic": "ORDERS", "consumer_group": "billing", "shard": 0, "epoch": "test:1", "stream": "round"}
    times = {"from_ms": START_MS + 30 * 60_000, "at_ms": START_MS + 48 * 60_000}
    generations = {"first_generation": 101, "last_generation": 119, "rows": 19}
    history.seal({"gap": [{**place, **times, **generations, "reason": "lost"}]})
    assert [gap.why for gap in check(history).gaps] == ["lost"]


@pytest.mark.parametrize(
    ("first_rest", "is_whole"), [pytest.param(0, True, id="from midnight on"), pytest.param(20, False, id="later")]
)
def test_a_first_kept_day_that_begins_at_rest_is_whole_if_the_rest_was_seen_from_its_beginning(
    history: WrittenHistory, first_rest: int, is_whole: bool
) -> None:
    history.append(action="retire", kept_from=day_of(START_MS))
    rests = [at_rest(shard, 124, START_MS + minute * 60_000) for shard in (0, 1) for minute in range(first_rest, 25)]
    history.seal({"round": minutes(25, 80), "snapshot": rests})
    assert bool(check(history).gaps) is not is_whole


def test_a_long_rest_explains_no_rounds_that_are_missing_where_a_kept_day_begins(history: WrittenHistory) -> None:
    history.append(action="retire", kept_from=day_of(START_MS))
    rounds = [
        round_row(shard, 125 + number, START_MS + minute * 60_000)
        for shard in (0, 1)
        for number, minute in enumerate((25, 26, 27, 53, 79))
    ]
    rests = [at_rest(shard, 127, START_MS + minute * 60_000) for shard in (0, 1) for minute in range(28, 53)]
    rests += [at_rest(shard, 128, START_MS + minute * 60_000) for shard in (0, 1) for minute in range(54, 79)]
    history.seal({"round": rounds, "snapshot": rests})
    assert check(history).gaps


def test_a_group_at_rest_that_was_not_asked_about_is_named(history: WrittenHistory) -> None:
    history.seal(
        {"round": minutes(-10, 80), "snapshot": [at_rest(0, 7, START_MS + 60_000) | {"consumer_group": "other"}]}
    )
    assert check(history).others == (("ORDERS", "other"),)
