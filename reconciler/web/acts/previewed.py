"""Shared parts of acts on many messages. A preview shows the messages first, and the act sends back what the preview
showed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from reconciler.commands.acts.repair import REPAIR_KEYS_MAX, digest_of
from reconciler.contract.verdicts import Verdict
from reconciler.errors import InvalidValue
from reconciler.web.access.visitors import require_role
from reconciler.web.acts.act import ActRequest
from reconciler.web.roles import WebRole
from reconciler.web.services import WebServices

#: Maximum number of messages of one preview. Brokers and databases are asked about each message.
PREVIEWED_MAX = 100
#: Maximum number of changed lines in the sentence of a refusal. The refusal's data has all changed lines.
LINES_TOLD = 3

SEEN: Any = Field(
    default={},
    max_length=REPAIR_KEYS_MAX,
    description="Unique key: `seen` of the message, as explain or a dry run told it. A key that has changed since is "
    "left as it is, and told; of one that is not named here, what the request reads first counts.",
)
DIGEST: Any = Field(
    default=None,
    max_length=64,
    description="With all: digest of `seen`, as the preview gave it. A `seen` of another digest is refused.",
)
VERDICT = f"^({'|'.join(Verdict)})$"


def require_preview(digest: str | None, seen: Mapping[str, str]) -> None:
    """Raises InvalidValue if the act sends back something other than what the preview showed."""
    if digest is not None and digest != digest_of(seen):
        raise InvalidValue("digest", digest, "they are not those of the preview: look at it again")


def require_bulk_role(services: WebServices, asked: ActRequest, count: int) -> None:
    """Raises WebRefusal if this number of messages at once needs a higher role."""
    if count > services.settings.web.bulk_admin_above:
        require_role(asked.request, WebRole.ADMIN)


def few(lines: Sequence[str]) -> str:
    """Joins the first lines into one sentence."""
    more = [f"{len(lines) - LINES_TOLD} more"] if len(lines) > LINES_TOLD else []
    return "; ".join([*lines[:LINES_TOLD], *more])


def verdict_of(named: str | None) -> Verdict | None:
    """Returns the verdict to which `all` is limited."""
    return Verdict(named) if named else None
