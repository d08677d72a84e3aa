"""E-mail: what a mail server is handed, and what each of its answers means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from reconciler.channels.mail import ANSWER_BYTES_MAX, MailChannel, mail_message
from reconciler.channels.texts import NoticeTexts
from reconciler.clock import SystemClock
from reconciler.contract.secret import SecretText
from reconciler.contract.tables import NoticeKind
from reconciler.contract.urls import read_mail_url
from reconciler.errors import ChannelAway, ChannelRefused
from reconciler.words import LANGUAGES
from tests.polling import eventually
from tests.services.certificates import Authority
from tests.services.mail_server import MailServer
from tests.unit.channels.networks import resolve_as, swallowing
from tests.unit.channels.notices import AT_MS, CONSOLE_URL, assert_golden, every_notice, notice

LOGIN = "alerts@example.com:p%ss/w0rd"
USER = "alerts%40example.com:p%25ss%2Fw0rd@"
SENDER = "alerts@example.com"
RECIPIENTS = ("ops@example.com", "oncall@example.com")


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The one that this process trusts."""
    one = Authority(tmp_path / "known")
    monkeypatch.setenv("SSL_CERT_FILE", str(one.file))
    return one


@pytest.fixture
def server(authority: Authority) -> Iterator[MailServer]:
    """With STARTTLS and a login."""
    with MailServer(authority.issue("server"), login=LOGIN) as one:
        yield one


def channel(url: str, *, language: str = "en", seconds: float = 30.0) -> MailChannel:
    return MailChannel(
        name="mail",
        url=SecretText(url),
        sender=SENDER,
        recipients=RECIPIENTS,
        texts=NoticeTexts(language, zone="Asia/Shanghai", console_url=CONSOLE_URL),
        clock=SystemClock(),
        delivery_seconds=seconds,
    )


def starttls_url(server: MailServer, user: str = USER) -> str:
    return f"smtp://{user}127.0.0.1:{server.port}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_mail_server_is_handed_these_bytes(server: MailServer, language: str) -> None:
    channel(starttls_url(server), language=language).send(notice(detail="a_b <b>&amp; x"), at_ms=AT_MS)
    (mail,) = server.mails
    assert (mail.sender, mail.recipients) == (SENDER, RECIPIENTS)
    assert (mail.is_encrypted, mail.login) == (True, LOGIN)
    assert_golden(f"mail.{language}.eml", mail.content)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_subject_arrives_as_it_was_written(language: str) -> None:
    texts = NoticeTexts(language)
    for one in every_notice():
        one = replace(one, environment="production-environment-of-shanghai-and-frankfurt_2026.payments")
        sent = mail_message(texts, one, sender=SENDER, recipients=RECIPIENTS, at_ms=AT_MS).as_bytes()
        assert message_from_bytes(sent, policy=default)["Subject"] == texts.of(one).title
        assert all(len(line) <= 998 for line in sent.split(b"\r\n"))


def test_tls_from_the_first_byte(authority: Authority) -> None:
    with MailServer(authority.issue("server"), is_tls_at_once=True) as server:
        channel(f"smtps://127.0.0.1:{server.port}").send(notice(), at_ms=AT_MS)
    assert [(mail.is_encrypted, mail.login) for mail in server.mails] == [(True, "")]


def test_two_tries_of_a_notice_are_one_mail(server: MailServer) -> None:
    for at_ms in (AT_MS, AT_MS + 60_000):
        channel(starttls_url(server)).send(notice(NoticeKind.OUTAGE), at_ms=at_ms)
    first, second = (message_from_bytes(mail.content, policy=default)["Message-ID"] for mail in server.mails)
    assert first == second == "<01JDHQZX8M4T6W2C9V3B5N7K1R@example.com>"


def refusal(url: str) -> ChannelRefused:
    with pytest.raises(ChannelRefused) as refused:
        channel(url).send(notice(), at_ms=AT_MS)
    assert "p%ss/w0rd" not in str(refused.value)
    assert "p%25ss" not in str(refused.value)
    return refused.value


def test_no_password_is_sent_without_encryption(authority: Authority) -> None:
    with MailServer(None, login=LOGIN) as server:
        assert "STARTTLS" in refusal(starttls_url(server)).remedy
    assert not server.mails


@pytest.mark.parametrize("is_tls_at_once", [False, True])
def test_no_password_is_sent_to_a_stranger(authority: Authority, tmp_path: Path, is_tls_at_once: bool) -> None:
    scheme = "smtps" if is_tls_at_once else "smtp"
    for certificate in (
        Authority(tmp_path / "stranger").issue("server"),
        authority.issue("elsewhere", hosts=("other.example",)),
        authority.issue("old", days=-1),
    ):
        with MailServer(certificate, is_tls_at_once=is_tls_at_once, login=LOGIN) as server:
            refused = refusal(f"{scheme}://{USER}127.0.0.1:{server.port}")
        assert "certificate" in str(refused)
        assert "SSL_CERT_FILE" in refused.remedy
        assert not server.mails


def test_a_wrong_password_names_the_setting(server: MailServer) -> None:
    refused = refusal(starttls_url(server, "alerts%40example.com:wrong-password@"))
    assert "url of notifier mail" in refused.remedy
    assert "wrong-password" not in str(refused)


def test_a_server_without_a_login_names_the_setting(authority: Authority) -> None:
    with MailServer(authority.issue("server")) as server:
        assert "login" in refusal(starttls_url(server)).remedy


@pytest.mark.parametrize(
    ("command", "answer", "remedy"),
    [
        ("mail", "550 5.7.1 not yours", "correct sender of notifier mail"),
        ("data", "554 5.7.1 looks like spam", "compare url, sender and recipients of notifier mail"),
        ("rcpt", "550 5.1.1 no such user", "correct recipients of notifier mail"),
        ("greeting", "554 go away", "compare url"),
    ],
)
def test_what_a_person_has_to_mend_says_how(server: MailServer, command: str, answer: str, remedy: str) -> None:
    server.answers[command] = answer
    refused = refusal(starttls_url(server))
    assert remedy in refused.remedy
    assert answer.partition(" ")[2] in str(refused)
    assert not server.mails


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("greeting", "421 too busy"),
        ("starttls", "454 not now"),
        ("auth", "454 4.7.0 not now"),
        ("mail", "451 try again"),
        ("rcpt", "450 greylisted"),
        ("data", "452 disk full"),
    ],
)
def test_what_passes_is_tried_again(server: MailServer, command: str, answer: str) -> None:
    server.answers[command] = answer
    with pytest.raises(ChannelAway):
        channel(starttls_url(server)).send(notice(), at_ms=AT_MS)
    assert not server.mails


def test_recipients_of_whom_one_is_unknown_and_the_others_are_put_off_are_for_a_person(server: MailServer) -> None:
    server.answers |= {"rcpt ops@example.com": "450 greylisted", "rcpt oncall@example.com": "550 no such user"}
    assert "correct recipients of notifier mail" in refusal(starttls_url(server)).remedy


@pytest.mark.parametrize("answer", ["550 no such user", "450 greylisted"])
def test_a_refused_recipient_does_not_bring_the_others_the_mail_again(server: MailServer, answer: str) -> None:
    server.answers["rcpt ops@example.com"] = f"{answer}\x1b[2J p%ss/w0rd"
    mail = channel(starttls_url(server))
    mail.send(notice(), at_ms=AT_MS)
    assert [one.recipients for one in server.mails] == [("oncall@example.com",)]
    assert mail.refusals == (f"ops@example.com: {answer}\\u{{001B}}[2J ***",)


def test_a_refused_recipient_is_logged_once_until_it_is_accepted(
    server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    mail = channel(starttls_url(server))
    for answer in ("550 no such user", "550 no such user", "250 recipient ok", "550 no such user"):
        server.answers["rcpt ops@example.com"] = answer
        mail.send(notice(), at_ms=AT_MS)
        assert len(mail.refusals) == (answer[0] == "5")
    logged = [one for one in caplog.records if one.msg == "recipient_refused"]
    assert [(one.levelname, one.__dict__["notifier"], one.__dict__["recipient"]) for one in logged] == [
        ("ERROR", "mail", "ops@example.com")
    ] * 2
    assert logged[0].__dict__["error"] == "ops@example.com: 550 no such user"


def test_an_address_that_a_firewall_drops_leaves_time_for_the_next_one(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with swallowing() as hole:
        resolve_as(monkeypatch, [hole, server.port])

        def arrives() -> bool:
            with suppress(ChannelAway):  # on a busy machine three seconds may be over before it is tried
                channel(starttls_url(server), seconds=3.0).send(notice(), at_ms=AT_MS)
            return bool(server.mails)

        eventually(arrives, within_seconds=60)


def test_a_server_that_does_not_say_goodbye_has_the_mail_all_the_same(server: MailServer) -> None:
    server.answers["quit"] = "500 what?"
    channel(starttls_url(server)).send(notice(), at_ms=AT_MS)
    assert len(server.mails) == 1


@pytest.mark.parametrize("command", ["greeting", "ehlo", "auth", "data"])
def test_a_server_that_hangs_stops_no_other_notice(server: MailServer, command: str) -> None:
    server.hangs_at = command
    with pytest.raises(ChannelAway):
        channel(starttls_url(server), seconds=0.5).send(notice(), at_ms=AT_MS)


@pytest.mark.parametrize("command", ["greeting", "ehlo"])
def test_a_server_that_says_a_byte_now_and_then_is_not_waited_for(server: MailServer, command: str) -> None:
    server.drips_at = command
    with pytest.raises(ChannelAway):
        channel(starttls_url(server), seconds=0.5).send(notice(), at_ms=AT_MS)


def test_answers_without_end_are_not_read_to_their_end(server: MailServer) -> None:
    server.floods_at = "ehlo"
    with pytest.raises(ChannelAway, match=str(ANSWER_BYTES_MAX)):
        channel(starttls_url(server)).send(notice(), at_ms=AT_MS)


@pytest.mark.parametrize(
    ("url", "port"), [("smtp://a.example", 587), ("smtps://a.example", 465), ("smtp://a.example:25", 25)]
)
def test_an_address_without_a_port_means_the_one_of_its_scheme(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def look_up(*asking: object, **_: object) -> list[object]:
        asked.append(asking)
        return []

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    with pytest.raises(ChannelAway):
        channel(url).send(notice(), at_ms=AT_MS)
    assert asked == [("a.example", port)]


def test_nobody_listens(authority: Authority) -> None:
    with MailServer(authority.issue("server")) as server:
        url = starttls_url(server)
    with pytest.raises(ChannelAway) as away:
        channel(url).send(notice(), at_ms=AT_MS)
    assert "p%25ss" not in str(away.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://mail.example.com", "smtp://user:password@host:587"),
        ("smtp://a,b", "smtp://user:password@host:587"),
        ("smtp:///x", "smtp://user:password@host:587"),
        ("smtp://host/inbox", "nothing stands behind"),
        ("smtp://host?tls=no", "nothing stands behind"),
        ("smtp://user@host", "a user without a password"),
        ("smtp://user:p%C3%A4ss@host", "ASCII"),
    ],
)
def test_an_address_that_cannot_work_is_refused_before_anything_is_sent(url: str, told: str) -> None:
    read: Callable[[str], object] = read_mail_url
    with pytest.raises(ValueError, match=told):
        read(url)
    assert told in refusal(url).remedy
