from __future__ import annotations

import pytest

from reconciler.bootstrap.filter_checks import compared
from reconciler.rocketmq.admin import GroupFilter
from reconciler.settings import SubscriptionSettings


def by_tag(expression: str) -> GroupFilter:
    return GroupFilter(kind="TAG", expression=expression)


BY_SQL = GroupFilter(kind="SQL92", expression="amount > 5")


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
    tags: str, found: list[GroupFilter], levels: list[str]
) -> None:
    configured = SubscriptionSettings(topic="ORDERS", group="billing", tags=tags)
    findings = list(compared("filter", configured, found))
    assert [finding.level for finding in findings] == levels
    assert all(finding.level == "ok" or finding.remedy for finding in findings)
