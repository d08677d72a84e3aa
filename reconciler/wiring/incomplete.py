"""Where a group's incomplete inbox rows are ended: in the inboxes of the settings, or in one that a person names."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.secret import Secret
from reconciler.contract.subscription import Subscription
from reconciler.errors import InvalidValue
from reconciler.sql.incomplete_rows import ROWS_AT_ONCE, IncompleteRow, IncompleteRows
from reconciler.wiring.connections import Connections
from reconciler.wiring.databases import effect_evidence
from reconciler.wiring.subscriptions import find_subscription, subscription_of

__all__ = ["ROWS_AT_ONCE", "IncompleteRow", "IncompleteRows", "incomplete_rows"]


def incomplete_rows(
    connections: Connections, *, topic: str, group: str, url: Secret | None
) -> tuple[Subscription, Sequence[IncompleteRows]]:
    """The subscription and its databases; `url`: the one of these, with a login that may write. Raises InvalidValue for
    a subscription that is not configured or has no inbox."""
    configured = find_subscription(connections.settings, topic, group)
    subscription = subscription_of(connections.settings, configured)
    urls = effect_evidence(connections.settings).inboxes_of(subscription) if url is None else (url,)
    if not urls:
        raise InvalidValue("inbox_url", f"{topic}/{group}", "it has none: name the inbox by --url")
    return subscription, [IncompleteRows(connections.engine(one), subscription) for one in urls]
