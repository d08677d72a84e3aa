"""Two sections that cannot both answer for one producer group are named before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings

EXAMPLE = Path("config/reconciler.toml")


def test_a_group_answers_check_back_from_all_of_its_outboxes_and_from_no_guess(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    second = """
[[producers]]
group = "order-service"
topics = ["REFUNDS"]
{}
answer_checks = true
"""
    text = EXAMPLE.read_text().replace("answer_checks = false", "answer_checks = true")
    path.write_text(text + second.format('outbox_url = "postgresql://reconciler@127.0.0.1:5432/refunds"'))
    assert len(load_settings(path, {}).producers) == 2
    path.write_text(text + second.format(""))
    with pytest.raises(ConfigurationError, match=r"producers\[1\]\.answer_checks = true needs outbox_url"):
        load_settings(path, {})
