"""Makes the channel of each notifier from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.channels.http_post import HttpPost
from reconciler.channels.webhook import WebhookChannel
from reconciler.policy.ports import NoticeChannel
from reconciler.settings.notifiers import NotifierKind, NotifierSettings


def _webhook(notifier: NotifierSettings) -> NoticeChannel:
    return WebhookChannel(
        name=notifier.name,
        url=notifier.url,
        secrets=notifier.secret or (),
        console_url=notifier.console_url,
        post=HttpPost(name=notifier.name),
    )


#: Every kind but PING, which carries no notices.
_MAKERS: Mapping[NotifierKind, Callable[[NotifierSettings], NoticeChannel]] = {NotifierKind.WEBHOOK: _webhook}


def make_channel(notifier: NotifierSettings) -> NoticeChannel:
    """It opens nothing before its first message."""
    return _MAKERS[notifier.kind](notifier)
