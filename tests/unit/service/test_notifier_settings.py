"""A notifier that cannot work must be refused at the start, and not be silent when it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.channels.dingtalk import DingTalkChannel
from reconciler.channels.feishu import FeishuChannel
from reconciler.channels.mail import MailChannel
from reconciler.channels.slack import SlackChannel
from reconciler.channels.webhook import WebhookChannel
from reconciler.channels.wecom import WeComChannel
from reconciler.errors import ConfigurationError
from reconciler.settings.file import load_settings
from reconciler.settings.notifiers import NotifierKind, NotifierSettings
from reconciler.wiring.channels import _MAKERS, make_channel
from tests.unit.channels.notices import notice

EXAMPLE = Path("config/reconciler.toml")


def notifiers(tmp_path: Path, sections: str) -> list[NotifierSettings]:
    path = tmp_path / "reconciler.toml"
    path.write_text(EXAMPLE.read_text() + sections)
    return load_settings(path, {}).notifiers


def test_url_and_secrets_may_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://alerts.example/TOKEN\n")
    (one,) = notifiers(
        tmp_path,
        f'\n[[notifiers]]\nname = "on-call"\nkind = "webhook"\nurl_file = "{tmp_path}/url"\nsecret = ["a", "b"]\n',
    )
    assert one.url.reveal() == "https://alerts.example/TOKEN"
    assert "TOKEN" not in repr(one)
    assert "TOKEN" not in one.model_dump_json()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('kind = "pager"', "notifiers[0].kind = 'pager': Input should be"),
        ('url = "alerts.example/TOKEN"', "expected an http:// or https:// URL"),
        ('url = "https://alerts.example/TO KEN"', "expected an http:// or https:// URL"),
        ('url = "https://ops:12#TOKEN@alerts.example/"', "expected an http:// or https:// URL, percent-encoded"),
        ("notices = []", "notifiers[0].notices"),
        ('notices = ["LOSS"]', "notifiers[0].notices[0] = 'LOSS'"),
        ("ping_interval_seconds = 30", "notifiers[0].ping_interval_seconds is set and kind = 'webhook'"),
        ('kind = "ping"\nsecret = "x"', "notifiers[0].secret is set and kind = 'ping'"),
        ('console_url = "console.example"', "notifiers[0].console_url = (hidden)"),
        ('language = "zh"', "notifiers[0].language is set and kind = 'webhook'"),
        ('kind = "wecom"\nsecret = "x"', "notifiers[0].secret is set and kind = 'wecom'"),
        ('kind = "slack"\nsender = "a@example.com"', "notifiers[0].sender is set and kind = 'slack'"),
        ('kind = "slack"\nzone = "Mars/North"', "notifiers[0].zone = 'Mars/North': is no zone that this machine knows"),
        ('kind = "slack"\nzone = "../etc/passwd"', "is no zone that this machine knows"),
        ('kind = "slack"\nurl = "smtp://a:TOKEN@mail.example"', "begins with http:// or https://"),
        ('kind = "email"', "begins with smtp:// or smtps://"),
        ('kind = "email"\nurl = "smtp://a:TOKEN@mail.example"', "notifiers[0].sender is not set"),
        ('kind = "email"\nurl = "smtp://a:TOKEN@mail.example"', "notifiers[0].recipients is not set"),
        ('kind = "email"\nurl = "smtp://a:TOKEN@mail.example/x"', "nothing stands behind the host"),
        ('kind = "email"\nrecipients = ["a@example.com\\nBcc: b@example.com"]', "notifiers[0].recipients[0]"),
        ('kind = "email"\nrecipients = ["a@example.com, b@example.com"]', "notifiers[0].recipients[0]"),
        ('kind = "email"\nrecipients = ["a@example.com", "a@example.com"]', "notifiers[0].recipients"),
        ('kind = "email"\nsender = "Reconciler <a@example.com>"', "notifiers[0].sender"),
    ],
)
def test_a_mistake_is_named_with_its_remedy_and_without_the_token(tmp_path: Path, lines: str, problem: str) -> None:
    sound = {"name": '"on-call"', "kind": '"webhook"', "url": '"https://alerts.example/TOKEN"'}
    given = dict(line.split(" = ", 1) for line in lines.splitlines())
    section = "\n".join(f"{name} = {value}" for name, value in (sound | given).items())
    with pytest.raises(ConfigurationError) as caught:
        notifiers(tmp_path, f"\n[[notifiers]]\n{section}\n")
    assert problem in str(caught.value)
    assert "KEN" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "channel"),
    [
        ('kind = "webhook"\nurl = "https://a.example/T"', WebhookChannel),
        ('kind = "dingtalk"\nurl = "https://a.example/T"\nsecret = "SEC1"\nlanguage = "zh"', DingTalkChannel),
        ('kind = "feishu"\nurl = "https://a.example/T"\nzone = "Asia/Shanghai"', FeishuChannel),
        ('kind = "wecom"\nurl = "https://a.example/T"\nconsole_url = "https://console.example/"', WeComChannel),
        ('kind = "slack"\nurl = "https://a.example/T"', SlackChannel),
        (
            (
                'kind = "email"\nurl = "smtps://a%40b.example:p@mail.example"\n'
                'sender = "a@b.example"\nrecipients = ["x@b.example", "y+z@b.example"]'
            ),
            MailChannel,
        ),
    ],
)
def test_every_kind_of_receiver_can_be_set(tmp_path: Path, lines: str, channel: type) -> None:
    (one,) = notifiers(tmp_path, f'\n[[notifiers]]\nname = "on-call"\n{lines}\n')
    assert type(make_channel(one, public_url=None)) is channel


@pytest.mark.parametrize(
    ("own", "base"), [("", "https://one.example/r"), ("https://two.example", "https://two.example")]
)
def test_notices_link_to_the_one_address_of_the_console_unless_a_notifier_has_its_own(
    tmp_path: Path, own: str, base: str
) -> None:
    line = f'\nconsole_url = "{own}"' if own else ""
    (one,) = notifiers(tmp_path, f'\n[[notifiers]]\nname = "a"\nkind = "slack"\nurl = "https://a.example/T"{line}\n')
    channel = make_channel(one, public_url="https://one.example/r")
    assert isinstance(channel, SlackChannel)
    assert [address for _, address in channel._texts.of(notice()).links] == [
        f"{base}/losses?topic=PAY_ORDERS&group=billing-consumer",
        f"{base}/docs/runbooks/LostMessages.md",
    ]


@pytest.mark.parametrize("name", ["web.docs_url", "web.public_url", "notifiers.0.console_url"])
def test_a_password_in_an_address_that_pages_and_notices_show_is_shown(tmp_path: Path, name: str) -> None:
    notifiers(tmp_path, '\n[[notifiers]]\nname = "a"\nkind = "slack"\nurl = "https://a.example/T"\n')
    config = tmp_path / "reconciler.toml"
    variable = f"RECONCILER_{name.replace('.', '__').upper()}"
    settings = load_settings(config, {variable: "https://wiki:SECRET@wiki.example/docs/@home/"})
    assert "SECRET" not in settings.model_dump_json()
    assert "https://wiki.example/docs/@home" in settings.model_dump_json()


def test_no_kind_is_without_a_channel() -> None:
    assert set(_MAKERS) == set(NotifierKind) - {NotifierKind.PING}


def test_two_notifiers_of_one_name_would_share_what_they_have_told(tmp_path: Path) -> None:
    section = '\n[[notifiers]]\nname = "a"\nkind = "webhook"\nurl = "https://alerts.example"\n'
    with pytest.raises(ConfigurationError, match=r"notifiers\[1\]\.name = 'a': is the name of another"):
        notifiers(tmp_path, section * 2)
