"""Checks of `reconciler doctor`: whether the setting `tags` is what the group subscribes to at the brokers, and whether
rows of the outboxes were settled by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from checkback_producers.outbox import settled_tags_in
from reconciler.commands.finding import Finding
from reconciler.errors import ReconcilerError
from reconciler.policy.sweeping import SettledTags
from reconciler.rocketmq.client.admin import Admin, GroupFilter
from reconciler.settings.schema import SubscriptionSettings
from reconciler.settings.types import split_tags
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence_databases import outbox_databases
from reconciler.wiring.subscriptions import subscription_of


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
    if any(one.is_sql92 for one in found):
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


def check_kept_tags(connections: Connections) -> list[Finding]:
    """One finding an outbox and group of which rows may still be settled by other tags than it takes now.

    An outbox that is away, or has no table for it, is told by other checks.
    """
    settings = connections.settings
    findings: list[Finding] = []
    for database in outbox_databases(settings):
        topics = {topic for p in settings.producers if p.group == database.owner for topic in p.topics}
        with suppress(ReconcilerError):
            kept = settled_tags_in(connections.engine(database.url, read_only=True), database.owner)
            for configured in settings.subscriptions:
                if configured.topic in topics:
                    found = kept.get((configured.topic, configured.group))
                    check = f"tags of {subscription_of(settings, configured)} in the {database.name}"
                    findings += compared_with_kept(check, configured, found)
    return findings


def compared_with_kept(check: str, configured: SubscriptionSettings, kept: SettledTags | None) -> Iterator[Finding]:
    """`kept`: the tags of the group that the outbox' rows were settled by; None: no sweep has written them down."""
    remedy = "restart every `reconciler sweep` with these settings; `reviewing` in its log line says how far it is"
    if kept is None:
        if configured.tag_set is not None:
            yield Finding(
                check=check,
                level="note",
                found=f"no sweep has seen tags = {configured.tags!r} yet: a correction of it would look at no row",
                remedy="let one sweep run before you change it",
            )
        return
    shown = "*" if kept.tags is None else " || ".join(sorted(kept.tags)) or "none"
    if kept.tags == configured.tag_set:
        yield Finding(check=check, level="ok", found=f"as rows were settled: {shown}")
    elif configured.tag_set is None or (kept.tags is not None and kept.tags < configured.tag_set):
        found = (
            f"rows were settled by the tags {shown}, and the group takes {configured.tags!r}: they are looked at again"
        )
        yield Finding(check=check, level="note", found=f"{found}, or no sweep has seen the setting", remedy=remedy)
    else:
        found = f"no sweep has seen tags = {configured.tags!r}: rows are settled by the tags {shown}"
        yield Finding(check=check, level="note", found=found, remedy=remedy)
