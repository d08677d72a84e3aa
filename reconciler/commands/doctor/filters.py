"""Checks of `reconciler doctor`: whether the setting `tags` is what the group subscribes to at the brokers, and whether
rows of the outboxes were settled by it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from reconciler.commands.diagnosis import Diagnosis
from reconciler.errors import ReconcilerError
from reconciler.policy.evidence import FilterKind
from reconciler.settings.schema import SubscriptionSettings
from reconciler.settings.types import split_tags
from reconciler.wiring.brokers import group_filters
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import outbox_databases
from reconciler.wiring.subscriptions import subscription_of
from reconciler.wiring.sweep import settled_tags


def check_filters(connections: Connections) -> Sequence[Diagnosis]:
    """One finding a subscription whose group is connected to a broker that answers, or that has tags."""
    settings, rocketmq = connections.settings, connections.rocketmq
    addresses = sorted(rocketmq.cluster_addresses())
    findings: list[Diagnosis] = []
    for configured in settings.subscriptions:
        found: set[tuple[FilterKind, str]] = set()
        for address in addresses:
            with suppress(ReconcilerError):
                found.update(group_filters(connections, address, group=configured.group, topic=configured.topic))
        findings += compared(f"filter of {subscription_of(settings, configured)}", configured, found)
    return findings


def compared(
    check: str, configured: SubscriptionSettings, found: Collection[tuple[FilterKind, str]]
) -> Iterator[Diagnosis]:
    """`found`: kind and expression of each filter that brokers know of the group."""
    if any(kind is FilterKind.SQL92 for kind, _ in found):
        yield Diagnosis(
            check=check,
            level="fail",
            found="the group filters by SQL92, which the reconciler cannot evaluate",
            remedy='what it passes without an effect stays UNKNOWN; use tags, or let the handler take "*" and skip',
        )
        return
    subscribed = {split_tags(expression) for _, expression in found}
    expressions = ", ".join(sorted(repr(expression) for _, expression in found))
    if subscribed - {configured.tag_set}:
        yield Diagnosis(
            check=check,
            level="fail",
            found=f"tags = {configured.tags!r}, and the group subscribes to {expressions}",
            remedy="a tag that is missing in the setting settles committed messages as not taken: set tags to what all "
            "members subscribe to, and restart the members that subscribe to something else",
        )
    elif subscribed:
        yield Diagnosis(check=check, level="ok", found=f"as the group subscribes: {expressions}")
    elif configured.tag_set is not None:
        yield Diagnosis(
            check=check,
            level="note",
            found=f"tags = {configured.tags!r}, and no member of the group is connected: not compared",
            remedy="ask again while the group runs",
        )


def check_kept_tags(connections: Connections) -> list[Diagnosis]:
    """One finding an outbox and group of which rows may still be settled by other tags than it takes now.

    An outbox that is away, or lacks the table, has a check of its own.
    """
    settings = connections.settings
    findings: list[Diagnosis] = []
    for database in outbox_databases(settings):
        topics = {topic for p in settings.producers if p.group == database.owner for topic in p.topics}
        with suppress(ReconcilerError):
            settled = settled_tags(connections, database)
            for configured in settings.subscriptions:
                if configured.topic not in topics:
                    continue
                check = f"tags of {subscription_of(settings, configured)} in the {database.name}"
                place = (configured.topic, configured.group)
                if place in settled:
                    findings.append(compared_with_settled(check, configured, settled[place]))
                else:
                    findings += never_swept(check, configured)
    return findings


def never_swept(check: str, configured: SubscriptionSettings) -> Iterator[Diagnosis]:
    """A note that no sweep has written down the group's tags; none for a group that takes all tags."""
    if configured.tag_set is not None:
        yield Diagnosis(
            check=check,
            level="note",
            found=f"no sweep has seen tags = {configured.tags!r} yet: a correction of it would look at no row",
            remedy="let one sweep run before you change it",
        )


def compared_with_settled(check: str, configured: SubscriptionSettings, settled: frozenset[str] | None) -> Diagnosis:
    """`settled`: the tags of the group that the outbox' rows were settled by; None: all tags."""
    remedy = "restart every `reconciler sweep` with these settings; `reviewing` in its log line says how far it is"
    shown = "*" if settled is None else " || ".join(sorted(settled)) or "none"
    if settled == configured.tag_set:
        return Diagnosis(check=check, level="ok", found=f"as rows were settled: {shown}")
    if configured.tag_set is None or (settled is not None and settled < configured.tag_set):
        found = (
            f"rows were settled by the tags {shown}, and the group takes {configured.tags!r}: they are looked at again"
        )
        return Diagnosis(check=check, level="note", found=f"{found}, or no sweep has seen the setting", remedy=remedy)
    found = f"no sweep has seen tags = {configured.tags!r}: rows are settled by the tags {shown}"
    return Diagnosis(check=check, level="note", found=found, remedy=remedy)
