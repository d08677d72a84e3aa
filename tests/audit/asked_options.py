"""The options of `reconciler audit` for databases made by audited_databases.py, as users are told to write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.audit.result.times import time_text
from tests.audit.audited_databases import Databases

Options = list[str | Path]


def query_of(topic: str, group: str) -> str:
    """Counts the effects of one subscription, in one order."""
    of_group = f"topic = '{topic}' AND consumer_group = '{group}'"
    return f"SELECT message_key, count(*) AS effects FROM payments WHERE {of_group} GROUP BY message_key ORDER BY 1"


def settings_of(document: Mapping[str, Any]) -> str:
    """The settings file of what an evidence.json asks for."""
    lines = [f'environment = "{document["environment"]}"', "[unique_key_topic]", f"queues = {document['shards']}"]
    for one in document["subscriptions"]:
        tags = "*" if one["tags"] is None else " || ".join(one["tags"])
        lines += ["[[subscriptions]]", f'topic = "{one["topic"]}"', f'group = "{one["group"]}"', f'tags = "{tags}"']
        lines += [f"{key} = {one[key]}" for key in ("grace_period_seconds", "late_after_seconds")]
    for group in document["outboxes"]:
        topics = sorted({s["topic"] for s in document["subscriptions"] if group in s["producer_groups"]})
        lines += ["[[producers]]", f'group = "{group}"', f"topics = {json.dumps(topics)}"]
    return "\n".join(lines) + "\n"


def options_of(
    databases: Databases,
    folder: Path,
    *,
    places: Mapping[str, str] | None = None,
    effects: Mapping[str, str] | None = None,
) -> Options:
    """Settings and URLs (with their passwords, in files) go into `folder`.

    `places`: an outbox, inbox or ledger that is read elsewhere than in its database. `effects`: TOPIC/GROUP -> where
    its effects are counted, if not by query_of in the inbox's database, which the file `inbox` of `folder` names.
    """
    urls = {"outbox": databases.outbox_url, "inbox": databases.inbox_url, "ledger": databases.ledger_url}
    place = {name: f"@{folder / name}" for name in urls} | dict(places or {})
    for name, url in urls.items():
        (folder / name).write_text(url)
    document = databases.asked
    options: Options = ["--ledger", place["ledger"], "--history", databases.history]
    for one in document["subscriptions"]:
        name = f"{one['topic']}/{one['group']}"
        counted = (effects or {}).get(name, f"@{folder / 'inbox'}#{query_of(one['topic'], one['group'])}")
        options += ["--inbox", f"{name}={place['inbox']}", "--effects", f"{name}={counted}"]
    for group in document["outboxes"]:
        options += ["--outbox", f"{group}={place['outbox']}"]
    (folder / "reconciler.toml").write_text(settings_of(document))
    window = document["window"]
    window_text = "/".join(time_text(window[name]) for name in ("start_ms", "end_ms"))
    return [*options, "--subscriptions", folder / "reconciler.toml", "--window", window_text, "--output", "json"]
