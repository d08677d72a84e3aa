from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from checkback_producers.outbox import SqlOutbox
from reconciler.commands.doctor.filters import FILTER_OF, check_kept_tags, compared, compared_with_settled, never_swept
from reconciler.policy.evidence import FilterKind
from reconciler.settings.file import load_settings
from reconciler.settings.schema import SubscriptionSettings
from reconciler.sql import schema
from reconciler.wiring.connections import Connections

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
CHECK = FILTER_OF(subscription="ORDERS/billing")


def by_tag(expression: str) -> tuple[FilterKind, str]:
    return FilterKind.TAG, expression


BY_SQL = (FilterKind.SQL92, "amount > 5")


@pytest.mark.parametrize(
    ("tags", "found", "levels"),
    [
        ("*", [], []),
        ("*", [by_tag("*")], ["ok"]),
        ("paid || sent", [by_tag("sent||paid"), by_tag("paid || sent")], ["ok"]),
        ("paid", [], ["note"]),
        ("paid", [by_tag("paid || sent")], ["fail"]),
        ("paid", [by_tag("*")], ["fail"]),
        ("*", [by_tag("paid")], ["fail"]),
        ("paid", [by_tag("paid"), by_tag("sent")], ["fail"]),
        ("*", [BY_SQL], ["fail"]),
        ("paid", [by_tag("paid"), BY_SQL], ["fail"]),
    ],
)
def test_tags_that_are_not_what_the_group_subscribes_to_are_told_by_doctor(
    tags: str, found: list[tuple[FilterKind, str]], levels: list[str]
) -> None:
    configured = SubscriptionSettings(topic="ORDERS", group="billing", tags=tags)
    findings = list(compared(CHECK, configured, found))
    assert [finding.level for finding in findings] == levels
    assert all(finding.level == "ok" or finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("tags", "kept", "said"),
    [
        ("*", None, []),
        ("*", [None], ["as rows were settled: *"]),
        ("paid || sent", [{"paid", "sent"}], ["as rows were settled: paid || sent"]),
        ("paid", None, ["a correction of it would look at no row"]),
        ("paid || sent", [{"paid"}], ["they are looked at again"]),
        ("paid", [set()], ["they are looked at again"]),
        ("*", [{"paid"}], ["they are looked at again"]),
        ("paid", [None], ["no sweep has seen tags = 'paid'"]),
        ("paid", [{"payed"}], ["no sweep has seen tags = 'paid'"]),
        ("paid", [{"paid", "sent"}], ["no sweep has seen tags = 'paid'"]),
    ],
)
def test_rows_that_were_settled_by_other_tags_than_the_setting_has_are_told_by_doctor(
    tags: str, kept: list[set[str] | None] | None, said: list[str]
) -> None:
    configured = SubscriptionSettings(topic="ORDERS", group="billing", tags=tags)
    findings = (
        list(never_swept(CHECK, configured))
        if kept is None
        else [compared_with_settled(CHECK, configured, None if kept[0] is None else frozenset(kept[0]))]
    )
    assert len(findings) == len(said)
    assert all(words in finding.as_row().found for words, finding in zip(said, findings, strict=True))
    assert all(finding.level == "ok" or finding.remedy for finding in findings)


def test_each_outbox_is_asked_by_which_tags_its_rows_were_settled(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second", "gone")]
    for url, tags in zip(urls[:2], ("paid", "payed"), strict=True):
        schema.upgrade(url, "outbox")
        with closing(SqlOutbox(url)) as outbox:
            outbox.write_settled_tags("shop", ("ORDERS", "billing"), frozenset({tags}), instead_of=None)
    listed = ", ".join(f'"{url}"' for url in urls)
    settings = load_settings(
        EXAMPLE,
        {
            "RECONCILER_PRODUCERS": f'[{{"group": "shop", "topics": ["ORDERS"], "outbox_url": [{listed}]}}]',
            "RECONCILER_SUBSCRIPTIONS": '[{"topic": "ORDERS", "group": "billing", "tags": "paid"}]',
        },
    )
    with Connections(settings) as connections:
        findings = check_kept_tags(connections)
    assert [(finding.level, finding.as_row().check.partition(" in the ")[2]) for finding in findings] == [
        ("ok", "outbox of shop (1 of 3)"),
        ("note", "outbox of shop (2 of 3)"),
    ]
    assert not (tmp_path / "gone.db").exists()
