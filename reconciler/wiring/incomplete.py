"""Where a group's incomplete inbox rows are ended: in the inboxes of the settings, or in one that a person names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.settings.schema import Settings
from reconciler.sql.engines import open_engine
from reconciler.sql.incomplete_rows import IncompleteRow, IncompleteRows
from reconciler.wiring.subscriptions import find_subscription, subscription_of

__all__ = ["IncompleteRow", "IncompleteRows", "incomplete_rows"]

#: Longest statement that MySQL and MariaDB are waited for: the search reads every row of the group.
_SEARCH_SECONDS = 3_600


@contextmanager
def incomplete_rows(
    settings: Settings, *, topic: str, group: str, url: Secret | None
) -> Iterator[tuple[Subscription, Sequence[IncompleteRows]]]:
    """The subscription and its databases; `url`: the one of these, with a login that may write. Raises InvalidValue for
    a subscription that is not configured or has no inbox."""
    configured = find_subscription(settings, topic, group)
    urls = configured.inbox_urls if url is None else (url,)
    if not urls:
        raise InvalidValue("inbox_url", f"{topic}/{group}", "it has none: name the inbox by --url")
    subscription = subscription_of(settings, configured)
    with ExitStack() as stack:
        engines = [open_engine(one, must_exist=True, silence_seconds=_SEARCH_SECONDS) for one in urls]
        for engine in engines:
            stack.callback(engine.dispose)
        yield subscription, [IncompleteRows(engine, subscription) for engine in engines]
