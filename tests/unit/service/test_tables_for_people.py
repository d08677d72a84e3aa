"""What people copy out of a table is in one piece where the line has room, and complete where it has not."""

from __future__ import annotations

import pytest

from reconciler.cli import output

KEY = "C00002023B4E6944B7BD75A9469BC272"
COLUMNS = ["unique key", "at", "result"]
LONG = "the broker answered that it does not know of any such transaction " * 3
ROW = [KEY, "2026-11-23T20:27:22.394Z", LONG]


def test_a_key_and_a_time_stand_in_one_piece_beside_long_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("Rows", COLUMNS * 2, [ROW * 2])
    first = next(line for line in capsys.readouterr().out.splitlines() if KEY in line)
    assert (first.count(KEY), first.count(ROW[1])) == (2, 2)


@pytest.mark.parametrize("width", [60, 79])
def test_nothing_is_cut_off_where_a_line_has_no_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(output, "WIDTH_WITHOUT_TERMINAL", width)
    output.print_table("Rows", COLUMNS, [ROW])
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert all(len(line) <= width for line in lines)
    assert ["".join(line[number].strip() for line in lines) for number in (0, 1)] == ROW[:2]
    assert " ".join(line[2].strip() for line in lines).split() == LONG.split()
