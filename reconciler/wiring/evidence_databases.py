"""The databases that hold evidence, as the settings name them: outboxes of groups, inboxes of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from reconciler.settings.schema import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDatabase:
    """One database of one group. Groups may share a database: then it is here for each of them."""

    tree: Literal["outbox", "inbox"]
    #: Producer group, or topic/group of a subscription.
    owner: str
    #: With its password: never shown.
    url: str = field(repr=False)
    #: Where the settings name it.
    setting: str
    #: For people; of several databases of one group it tells which.
    name: str


def outbox_databases(settings: Settings) -> list[EvidenceDatabase]:
    """Every database of every producer group, once, also where several sections of the group name it."""
    return _databases(
        "outbox",
        (
            (producer.group, url, f"producers[{number}].outbox_url{_place(place, producer.outbox_urls)}")
            for number, producer in enumerate(settings.producers)
            for place, url in enumerate(producer.outbox_urls)
        ),
    )


def inbox_databases(settings: Settings) -> list[EvidenceDatabase]:
    """Every database of every subscription."""
    return _databases(
        "inbox",
        (
            (f"{s.topic}/{s.group}", url, f"subscriptions[{number}].inbox_url{_place(place, s.inbox_urls)}")
            for number, s in enumerate(settings.subscriptions)
            for place, url in enumerate(s.inbox_urls)
        ),
    )


def _place(place: int, urls: tuple[str, ...]) -> str:
    return f"[{place}]" if len(urls) > 1 else ""


def _databases(tree: Literal["outbox", "inbox"], named: Iterable[tuple[str, str, str]]) -> list[EvidenceDatabase]:
    owners: dict[str, dict[str, str]] = {}
    for owner, url, setting in named:
        owners.setdefault(owner, {}).setdefault(url, setting)
    return [found for owner, urls in owners.items() for found in _of_owner(tree, owner, urls)]


def _of_owner(tree: Literal["outbox", "inbox"], owner: str, urls: dict[str, str]) -> Iterator[EvidenceDatabase]:
    for number, (url, setting) in enumerate(urls.items(), start=1):
        which = f" ({number} of {len(urls)})" if len(urls) > 1 else ""
        yield EvidenceDatabase(tree=tree, owner=owner, url=url, setting=setting, name=f"{tree} of {owner}{which}")
