"""Logs of a run: what held a loss up is found, also behind a line that a kill cut off."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.service_logs import noted


def line(second: int, event: str, **fields: object) -> str:
    return json.dumps({"event": event, "timestamp": f"1970-01-01T00:00:{second:02}.500000Z", **fields})


def test_a_shut_gate_and_a_turn_left_out_are_told_and_calm_rounds_are_not(tmp_path: Path) -> None:
    (tmp_path / "run-0.log").write_text(
        "\n".join(
            [
                line(3, "round_finished", consumer_group="stock", gate="open", verified=0),
                line(4, "round_finished", consumer_group="stock", gate="shut", gate_detail="queue 1: at 3 of 9"),
                '{"event": "round_fin',
                "Traceback (most recent call last):",
                line(5, "turn_skipped", job="rounds", error="still running"),
                line(9, "turn_skipped", job="rounds", error="later"),
            ]
        )
    )
    (tmp_path / "sweep-1.log").write_text(line(2, "sweep_finished", announced=0, settled=9, problems=[]))
    told = noted(tmp_path, since_ms=2_000, until_ms=6_000)
    assert [one.split("  ")[-1] for one in told] == [
        "run-0: round_finished, consumer_group stock, gate shut, gate_detail queue 1: at 3 of 9",
        "run-0: turn_skipped, job rounds, error still running",
    ]
    assert told[0].split()[0] == "2.50"
