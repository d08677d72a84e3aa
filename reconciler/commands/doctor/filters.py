"""Checks of `reconciler doctor` about the setting `tags`.

The setting must equal the tag filter that the group has at the brokers. Rows of the outboxes must have been settled by
the present setting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from reconciler.commands.diagnosis import Diagnosis
from reconciler.contract.facts import Code, Fact, Field
from reconciler.errors import ReconcilerError
from reconciler.evidence.brokers import filter_kind_of
from reconciler.policy.evidence import FilterKind
from reconciler.settings.schema import SubscriptionSettings
from reconciler.settings.types import split_tags
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import outbox_databases
from reconciler.wiring.subscriptions import subscription_of
from reconciler.wiring.sweep import settled_tags

FILTER_OF = Code("doctor.filter-of", subscription=Field.NAME)
FILTERS_BY_SQL92 = Code("doctor.filters-by-sql92")
USE_TAGS = Code("doctor.use-tags")
OTHER_FILTER = Code("doctor.other-filter", tags=Field.NAME, expressions=Field.NAME)
SET_TAGS = Code("doctor.set-tags")
SAME_FILTER = Code("doctor.same-filter", expressions=Field.NAME)
FILTER_WITHOUT_MEMBER = Code("doctor.filter-without-member", tags=Field.NAME)
WHILE_GROUP_RUNS = Code("doctor.while-group-runs")
TAGS_IN = Code("doctor.tags-in", subscription=Field.NAME, database=Field.FACT)
TAGS_NEVER_SWEPT = Code("doctor.tags-never-swept", tags=Field.NAME)
SWEEP_FIRST = Code("doctor.sweep-first")
TAGS_AS_SETTLED = Code("doctor.tags-as-settled", tags=Field.FACT)
ROWS_LOOKED_AT_AGAIN = Code("doctor.rows-looked-at-again", settled=Field.FACT, tags=Field.NAME)
SETTLED_BY_OTHER_TAGS = Code("doctor.settled-by-other-tags", tags=Field.NAME, settled=Field.FACT)
TAGS = Code("doctor.tags", tags=Field.NAME)
NO_TAGS = Code("doctor.no-tags")
RESTART_SWEEPS = Code("doctor.restart-sweeps")


def check_filters(connections: Connections) -> Sequence[Diagnosis]:
    """Returns one finding for each subscription with tags, or whose group is connected to a broker that answers."""
    settings, rocketmq = connections.settings, connections.rocketmq
    addresses = sorted(rocketmq.cluster_addresses())
    findings: list[Diagnosis] = []
    for configured in settings.subscriptions:
        found: set[tuple[FilterKind, str]] = set()
        for address in addresses:
            with suppress(ReconcilerError):
                known = connections.admin.group_filter(address, configured.group, configured.topic)
                if known is not None:
                    found.add((filter_kind_of(known), known.expression))
        findings += compared(FILTER_OF(subscription=str(subscription_of(settings, configured))), configured, found)
    return findings


def compared(
    check: Fact, configured: SubscriptionSettings, found: Collection[tuple[FilterKind, str]]
) -> Iterator[Diagnosis]:
    """Compares the setting with the group's filters. `found`: kind and expression of each filter that brokers know."""
    if any(kind is FilterKind.SQL92 for kind, _ in found):
        yield Diagnosis(check=check, level="fail", found=FILTERS_BY_SQL92(), remedy=USE_TAGS())
        return
    subscribed = {split_tags(expression) for _, expression in found}
    expressions = ", ".join(sorted(repr(expression) for _, expression in found))
    if subscribed - {configured.tag_set}:
        other = OTHER_FILTER(tags=repr(configured.tags), expressions=expressions)
        yield Diagnosis(check=check, level="fail", found=other, remedy=SET_TAGS())
    elif subscribed:
        yield Diagnosis(check=check, level="ok", found=SAME_FILTER(expressions=expressions))
    elif configured.tag_set is not None:
        uncompared = FILTER_WITHOUT_MEMBER(tags=repr(configured.tags))
        yield Diagnosis(check=check, level="note", found=uncompared, remedy=WHILE_GROUP_RUNS())


def check_kept_tags(connections: Connections) -> list[Diagnosis]:
    """Returns one finding for each outbox and group whose rows may still be settled by former tags.

    Other checks report an outbox that is away or lacks the table.
    """
    settings = connections.settings
    findings: list[Diagnosis] = []
    topics: dict[str, dict[str, None]] = {}
    for producer in settings.producers:
        topics.setdefault(producer.group, {}).update(dict.fromkeys(producer.topics))
    of_topics = settings.subscriptions_of_topics()
    for database in outbox_databases(settings):
        with suppress(ReconcilerError):
            settled = settled_tags(connections, database)
            for configured in chain.from_iterable(of_topics.get(topic, ()) for topic in topics[database.owner]):
                check = TAGS_IN(subscription=str(subscription_of(settings, configured)), database=database.fact)
                place = (configured.topic, configured.group)
                if place in settled:
                    findings.append(compared_with_settled(check, configured, settled[place]))
                else:
                    findings += never_swept(check, configured)
    return findings


def never_swept(check: Fact, configured: SubscriptionSettings) -> Iterator[Diagnosis]:
    """Yields a note that no sweep has stored the group's tags. A group that takes all tags gets no note."""
    if configured.tag_set is not None:
        found = TAGS_NEVER_SWEPT(tags=repr(configured.tags))
        yield Diagnosis(check=check, level="note", found=found, remedy=SWEEP_FIRST())


def compared_with_settled(check: Fact, configured: SubscriptionSettings, settled: frozenset[str] | None) -> Diagnosis:
    """Compares the setting with `settled`, the tags by which the outbox's rows were settled. None: all tags."""
    shown = NO_TAGS() if settled == frozenset() else TAGS(tags="*" if settled is None else " || ".join(sorted(settled)))
    if settled == configured.tag_set:
        return Diagnosis(check=check, level="ok", found=TAGS_AS_SETTLED(tags=shown))
    if configured.tag_set is None or (settled is not None and settled < configured.tag_set):
        found = ROWS_LOOKED_AT_AGAIN(settled=shown, tags=repr(configured.tags))
    else:
        found = SETTLED_BY_OTHER_TAGS(tags=repr(configured.tags), settled=shown)
    return Diagnosis(check=check, level="note", found=found, remedy=RESTART_SWEEPS())
