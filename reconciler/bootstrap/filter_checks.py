"""A check of `reconciler doctor`: whether the setting `tags` is what the group subscribes to at the brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from reconciler.bootstrap.connections import Connections
from reconciler.bootstrap.subscriptions import subscription_of
from reconciler.doctor import Finding
from reconciler.errors import ReconcilerError
from reconciler.evidence import FilterKind
from reconciler.rocketmq.admin import Admin, GroupFilter
from reconciler.setting_types import split_tags
from reconciler.settings import SubscriptionSettings


def check_filters(connections: Connections) -> Sequence[Finding]:
    """One finding a subscription whose group is connected to a broker that answers, or that has tags."""
    settings, rocketmq = connections.settings, connections.rocketmq
    admin = Admin(rocketmq.client)
    addresses = sorted(rocketmq.cluster_addresses())
    findings: list[Finding] = []
    for configured in settings.subscriptions:
        found: set[GroupFilter] = set()
        for address in addresses:
            with suppress(ReconcilerError):
                told = admin.group_filter(address, configured.group, configured.topic)
                found |= {told} if told is not None else set()
        findings += compared(f"filter of {subscription_of(settings, configured)}", configured, found)
    return findings


def compared(check: str, configured: SubscriptionSettings, found: Collection[GroupFilter]) -> Iterator[Finding]:
    """`found`: what the brokers were told."""
    if any(one.filter_kind is FilterKind.SQL92 for one in found):
        yield Finding(
            check=check,
            level="fail",
            found="the group filters by SQL92, which nobody here evaluates",
            remedy='what it passes without an effect stays UNKNOWN; use tags, or let the handler take "*" and skip',
        )
        return
    told = {split_tags(one.expression) for one in found}
    expressions = ", ".join(sorted(repr(one.expression) for one in found))
    if told - {configured.tag_set}:
        yield Finding(
            check=check,
            level="fail",
            found=f"tags = {configured.tags!r}, and the group subscribes to {expressions}",
            remedy="a tag that is missing in the setting settles committed messages as not taken: set tags to what all "
            "members subscribe to, and restart the members that subscribe to something else",
        )
    elif told:
        yield Finding(check=check, level="ok", found=f"as the group subscribes: {expressions}")
    elif configured.tag_set is not None:
        yield Finding(
            check=check,
            level="note",
            found=f"tags = {configured.tags!r}, and no member of the group is connected that could tell",
            remedy="ask again while the group runs",
        )
