"""Business ids for a list of messages. The page asks for the ids after it was shown, so that it does not wait for an
outbox."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from reconciler.commands.asking.business_ids import business_ids_of
from reconciler.contract.unique_key import is_unique_key
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.few_at_once import asks_everything
from reconciler.web.services import WebServices

#: Maximum number of keys of one page. A preview has at most a hundred messages.
KEYS_MAX = 100


def keys_to_name(rows: Collection[Mapping[str, object]]) -> Sequence[str]:
    """Returns the unique keys of the rows, without repetition. Other values are left out, because no outbox has a row
    for them."""
    keys = (row.get("unique_key") for row in rows)
    return list(dict.fromkeys(key for key in keys if isinstance(key, str) and is_unique_key(key)))[:KEYS_MAX]


@asks_everything
def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Returns a part of a page with the names of `keys`, which are separated by commas. Each name goes to all places of
    its key on the page."""
    keys = keys_to_name([{"unique_key": key} for key in request.asked("keys").split(",")])
    return page(services, request, "names.html", names=business_ids_of(services.connections, keys))
