"""Settings that are fine alone and lose messages, or repeat effects, together are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings

EXAMPLE = Path("config/reconciler.toml")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("# inbox_keep_days = 30.0", "inbox_keep_days = 9.0", r"inbox_keep_days = 9 .*at least 10 days"),
        ("skew_margin_seconds = 10.0", "skew_margin_seconds = 15.0", r"grace_period_seconds = 30 must be more than 30"),
        ("keep_days = 30", "keep_days = 10", r"sweep\.keep_days = 10: must be 11 or more"),
        ('# mode = "full"', 'mode = "classic"', r"rounds\.mode = 'classic'.*`reconciler demo --classic` shows"),
        ('"RECONCILER_PROBE"', '"ORDERS"', r"rocketmq\.probe_topic = 'ORDERS' is a business topic"),
        ('"RECONCILER_UNIQUE_KEY"', '"ORDERS"', r"unique_key_topic\.name = 'ORDERS' is a business topic"),
        ("topics = {}", 'topics = { ORDERS = "ORDERS" }', r"unique_key_topic\.topics\.ORDERS = 'ORDERS' is a business"),
        ('"RECONCILER_PROBE"', '"RECONCILER_UNIQUE_KEY"', r"unique_key_topic\.name = .* is rocketmq\.probe_topic, too"),
    ],
    ids=[
        "inbox rows deleted before the last repair",
        "a gate that never opens",
        "tombstones deleted before their halves",
        "the original algorithm as a service",
        "probes among business messages",
        "announcements among business messages",
        "announcements of one topic among its messages",
        "probes among announcements",
    ],
)
def test_what_cannot_work_together_is_refused_with_its_remedy(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    text = EXAMPLE.read_text()
    assert before in text
    path = tmp_path / "reconciler.toml"
    path.write_text(text.replace(before, after))
    with pytest.raises(ConfigurationError, match=told):
        load_settings(path, {})
