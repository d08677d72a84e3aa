"""Makes each notifier's channel from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.channels.dingtalk import DingTalkChannel
from reconciler.channels.feishu import FeishuChannel
from reconciler.channels.http_post import HttpPost
from reconciler.channels.mail import MailChannel
from reconciler.channels.platform_channel import PlatformChannel
from reconciler.channels.slack import SlackChannel
from reconciler.channels.texts import NoticeTexts
from reconciler.channels.webhook import WebhookChannel, signing_key
from reconciler.channels.wecom import WeComChannel
from reconciler.clock import SystemClock
from reconciler.contract.secret import HIDDEN_SECRET
from reconciler.contract.secret_sources import signature_secrets
from reconciler.errors import InvalidValue, ReconcilerError
from reconciler.settings.notifiers import NotifierKind, NotifierSettings
from reconciler.telling.ports.notices import NoticeChannel


def _webhook(notifier: NotifierSettings) -> NoticeChannel:
    return WebhookChannel(
        name=notifier.name,
        url=notifier.url,
        secrets=notifier.secret or (),
        console_url=notifier.console_url,
        post=HttpPost(name=notifier.name),
    )


def _on_platform(channel: type[PlatformChannel]) -> Callable[[NotifierSettings], NoticeChannel]:
    return lambda notifier: channel(
        name=notifier.name,
        url=notifier.url,
        secret=notifier.secret[0] if notifier.secret else None,
        texts=_texts(notifier),
        post=HttpPost(name=notifier.name),
    )


def _email(notifier: NotifierSettings) -> NoticeChannel:
    return MailChannel(
        name=notifier.name,
        url=notifier.url,
        sender=notifier.sender or "",
        recipients=notifier.recipients or (),
        texts=_texts(notifier),
        clock=SystemClock(),
    )


def _texts(notifier: NotifierSettings) -> NoticeTexts:
    return NoticeTexts(notifier.language, zone=notifier.zone, console_url=notifier.console_url)


#: Every kind except PING, which carries no notices.
_MAKERS: Mapping[NotifierKind, Callable[[NotifierSettings], NoticeChannel]] = {
    NotifierKind.WEBHOOK: _webhook,
    NotifierKind.DINGTALK: _on_platform(DingTalkChannel),
    NotifierKind.FEISHU: _on_platform(FeishuChannel),
    NotifierKind.WECOM: _on_platform(WeComChannel),
    NotifierKind.SLACK: _on_platform(SlackChannel),
    NotifierKind.EMAIL: _email,
}


#: Kind -> pause between two messages, by the limit of the platform. A robot of DingTalk or WeCom may send 20 messages
#: per minute, a robot of Feishu 100. Slack takes one message per second. After more messages, DingTalk accepts no
#: message for ten minutes.
GAP_SECONDS: Mapping[NotifierKind, float] = {
    NotifierKind.DINGTALK: 3.0,
    NotifierKind.WECOM: 3.0,
    NotifierKind.FEISHU: 0.6,
    NotifierKind.SLACK: 1.0,
}


def make_channel(notifier: NotifierSettings, *, public_url: str | None) -> NoticeChannel:
    """Makes the channel. The channel opens no connection before its first message.

    `public_url`: the address of the console for links. A notifier's own address takes precedence.
    """
    linked = notifier.model_copy(update={"console_url": notifier.console_url or public_url})
    return _MAKERS[notifier.kind](linked)


def make_ping(notifier: NotifierSettings) -> Callable[[], None]:
    """Makes the function that sends one ping to a dead man's switch. Raises ChannelAway and ChannelRefused."""
    post = HttpPost(name=notifier.name)
    return lambda: post.ping(notifier.url.reveal())


def notifier_problem(notifier: NotifierSettings) -> ReconcilerError | None:
    """Returns the problem of a section, without sending. None: no problem is known."""
    try:
        if notifier.kind is NotifierKind.WEBHOOK:
            for text in (text for secret in notifier.secret or () for text in signature_secrets(secret)):
                signing_key(text)
    except ValueError as error:
        return InvalidValue("secret", HIDDEN_SECRET, str(error))
    return None
