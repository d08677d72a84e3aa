"""The entry that was written last is remembered beside the spool: a history that is not mounted is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reconciler.history.chain_head import head_file
from reconciler.history.reader import HistoryReader
from tests.unit.history.house import BILLING, ENVIRONMENT, House

GONE = "000000000002.json is gone: its folder was lost, or another one lies there"


def problems(house: House) -> list[str]:
    """As `status` and `doctor` tell them."""
    reader = HistoryReader(house.root, ENVIRONMENT)
    return list(reader.overview([BILLING], spool=house.spool_folder).problems)


def unmounted(folder: Path, caplog: pytest.LogCaptureFixture) -> tuple[House, list[str]]:
    """A `run` that starts after a history of two entries was lost, with what it logs of the chain."""
    first = House(folder)
    for _ in range(2):
        first.round(0)
        first.seal()
        assert problems(first) == []
    first.dies()
    (folder / "history").rename(folder / "unmounted")
    house = House(folder, rounds=first.rounds, writer="writer-2")
    house.round(0)
    house.seal()
    told = [r.__dict__["problem"] for r in caplog.records if r.getMessage() == "history_manifest_damaged"]
    return house, told


def test_a_start_without_the_file_system_is_told_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house, told = unmounted(tmp_path, caplog)
    assert [line.partition(";")[0] for line in told] == [GONE]
    for _ in range(3):  # the new chain grows, and has an entry of the same number
        house.round(0)
        house.seal()
        assert [line.partition(";")[0] for line in problems(house)] == [GONE]
    shutil.rmtree(tmp_path / "history")
    (tmp_path / "unmounted").rename(tmp_path / "history")
    assert problems(house) == []


def test_who_goes_on_without_it_deletes_the_file_that_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house, _ = unmounted(tmp_path, caplog)
    named = problems(house)[0].partition("delete ")[2].partition(" ")[0]
    Path(named).unlink()
    house.round(0)
    house.seal()
    assert (problems(house), head_file(house.spool_folder).exists()) == ([], True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"sequence": "x", "digest": 1}', '{"sequence": 9}'])
def test_a_damaged_file_says_nothing(content: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.round(0)
    house.seal()
    head_file(house.spool_folder).write_text(content)
    assert problems(house) == []
