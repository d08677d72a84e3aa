"""E-mail over SMTP, never without TLS: STARTTLS (RFC 3207), or TLS from the first byte (RFC 8314).

The message has a plain part and an HTML part (RFC 2046). The standard library makes its headers (RFC 5322), and refuses
line ends in them. `Auto-Submitted` (RFC 3834) keeps the programs of absent people from answering. The Message-ID comes
from the notice. All tries of one notice have the same Message-ID, so mail programs show the notice once.
"""

from __future__ import annotations

import hashlib
import html
import io
import logging
import re
import smtplib
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

from reconciler.channels.answers import shown_words
from reconciler.channels.connections import certificate_problem, encrypt, open_connection
from reconciler.channels.deadline import Deadline, ReceivedBytes
from reconciler.channels.texts import NoticeText, NoticeTexts
from reconciler.clock import Clock
from reconciler.contract.secret import SecretText
from reconciler.contract.urls import Url, read_mail_url
from reconciler.contract.visible_text import visible
from reconciler.errors import ChannelAway, ChannelRefused
from reconciler.telling.ports.notices import Notice

logger = logging.getLogger(__name__)

#: Limit of one delivery, from the connection to the server's receipt.
DELIVERY_SECONDS_MAX = 30.0
#: Limit of all the server's answers in one delivery.
ANSWER_BYTES_MAX = 65_536
_PORTS = {"smtp": 587, "smtps": 465}
_TOKEN = re.compile(r"[A-Za-z0-9.-]{1,64}")


class MailChannel:
    """One mail server, and the recipients to whom it delivers notices."""

    def __init__(
        self,
        *,
        name: str,
        url: SecretText,
        sender: str,
        recipients: Sequence[str],
        texts: NoticeTexts,
        clock: Clock,
        delivery_seconds: float = DELIVERY_SECONDS_MAX,
    ) -> None:
        """`url`: in the form of `read_mail_url`. `sender` and `recipients`: plain addresses, without names."""
        self._name = name
        self._url = url
        self._sender = sender
        self._recipients = tuple(recipients)
        self._texts = texts
        self._clock = clock
        self._delivery_seconds = delivery_seconds
        #: Refused recipient -> a line that says why the server refused the recipient.
        self._refused: Mapping[str, str] = {}

    @property
    def refusals(self) -> Sequence[str]:
        """Lines about refused recipients, as NoticeChannel.refusals describes."""
        return tuple(self._refused.values())

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Sends the notice, as NoticeChannel.send describes. One accepted recipient is enough, because another try
        would write to that recipient again."""
        message = mail_message(
            self._texts, notice, sender=self._sender, recipients=self._recipients, at_ms=at_ms
        ).as_bytes()
        try:
            url = read_mail_url(self._url)
        except ValueError as error:
            raise ChannelRefused(f"url of notifier {self._name} cannot work", remedy=str(error)) from None
        try:
            self._remember(self._deliver(url, message))
        except ssl.SSLCertVerificationError as error:
            found = f"the certificate of {url} is not trusted: {certificate_problem(error)}"
            remedy = "renew it, use the name that stands in it, or name its authority in SSL_CERT_FILE"
            raise ChannelRefused(self._told(found), remedy=remedy) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise self._for_nobody(error.recipients) from error
        except smtplib.SMTPResponseException as error:
            raise self._answered(error) from error
        except (smtplib.SMTPServerDisconnected, OSError) as error:
            raise ChannelAway(self._told(f"{url} gave no answer: {error}")) from error

    def _deliver(self, url: Url, message: bytes) -> Mapping[str, tuple[int, bytes]]:
        """Delivers the message. Returns the refused recipients with the server's answers. All other recipients get the
        message.

        Raises what smtplib raises. Raises ChannelRefused if the server does not offer the STARTTLS or the login that
        the delivery needs.
        """
        context = ssl.create_default_context()
        client = _connection(url, context, Deadline(self._clock, self._delivery_seconds))
        try:
            try:
                client.ehlo_or_helo_if_needed()
                if url.scheme == "smtp":
                    client.starttls(context=context)
                if url.username is not None:
                    client.login(unquote(url.username), unquote(url.password or ""))
            except (smtplib.SMTPResponseException, smtplib.SMTPServerDisconnected):
                raise
            except smtplib.SMTPException as error:
                remedy = "it has to offer STARTTLS, unless url begins with smtps://, and a login if url has a user"
                raise ChannelRefused(self._told(f"{url} offers too little: {error}"), remedy=remedy) from error
            refused = client.sendmail(self._sender, self._recipients, message)
            # The server has accepted the message, so a failure of QUIT changes nothing.
            with suppress(smtplib.SMTPException, OSError):
                client.quit()
            return refused
        finally:
            client.close()

    def _remember(self, refused: Mapping[str, tuple[int, bytes]]) -> None:
        """Logs each refusal once, although each message is refused."""
        lines = {one: self._refusal(one, code, words) for one, (code, words) in refused.items()}
        for one in lines.keys() - self._refused.keys():
            about = {"notifier": self._name, "recipient": visible(one), "error": lines[one]}
            logger.error("recipient_refused", extra=about)
        self._refused = lines

    def _refusal(self, recipient: str, code: int, words: bytes) -> str:
        # The recipient is no secret. But the recipient may be the user of the url, and the user is removed from the
        # server's words.
        return f"{visible(recipient)}: {shown_words(f'{code} {_decoded(words)}', [self._url])}"

    def _answered(self, error: smtplib.SMTPResponseException) -> ChannelAway | ChannelRefused:
        found = self._told(f"the mail server answered {error.smtp_code} {_decoded(error.smtp_error)}")
        if error.smtp_code < 500:
            return ChannelAway(found)
        remedy = f"compare url, sender and recipients of notifier {self._name} with what the server wants"
        if isinstance(error, smtplib.SMTPAuthenticationError):
            remedy = f"correct user and password in url of notifier {self._name}; @ in a user is written %40"
        elif isinstance(error, smtplib.SMTPSenderRefused):
            remedy = f"the user must not send as {self._sender}: correct sender of notifier {self._name}"
        return ChannelRefused(found, remedy=remedy)

    def _for_nobody(self, refused: Mapping[str, tuple[int, bytes]]) -> ChannelAway | ChannelRefused:
        told = "; ".join(f"{one}: {code} {_decoded(words)}" for one, (code, words) in refused.items())
        found = self._told(f"recipients are refused: {told}")
        if all(400 <= code < 500 for code, _ in refused.values()):
            return ChannelAway(found)
        return ChannelRefused(found, remedy=f"correct recipients of notifier {self._name}")

    def _told(self, found: str) -> str:
        return f"notifier {self._name}: {shown_words(found, [self._url])}"


def mail_message(
    texts: NoticeTexts, notice: Notice, *, sender: str, recipients: Sequence[str], at_ms: int
) -> EmailMessage:
    """Makes the message. The same arguments give the same message."""
    text = texts.of(notice)
    token = notice.notice_id
    if not _TOKEN.fullmatch(token):
        token = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
    message = EmailMessage(policy=SMTP)
    message["Subject"] = text.title
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Date"] = format_datetime(datetime.fromtimestamp(at_ms // 1000, tz=UTC))
    message["Message-ID"] = f"<{token}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    manual = texts.text("notice.form.manual")
    plain = [
        *text.lines,
        "",
        *(texts.text("notice.form.fact", label=label, value=link) for label, link in text.links),
        *([""] if text.links else []),
        "-- ",
        manual,
    ]
    message.set_content("\n".join(plain), cte="quoted-printable")
    message.add_alternative(_page(text, manual), subtype="html", cte="quoted-printable")
    message["Content-Language"] = text.language
    message.set_boundary(f"=_{hashlib.sha256(token.encode()).hexdigest()[:32]}")
    return message


def _page(text: NoticeText, manual: str) -> str:
    paragraphs = [f"<strong>{html.escape(text.title)}</strong>", *map(html.escape, text.lines)]
    paragraphs += [f'<a href="{html.escape(link)}">{html.escape(label)}</a>' for label, link in text.links]
    paragraphs.append(f"<small>{html.escape(manual)}</small>")
    body = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    head = f'<!DOCTYPE html>\n<html lang="{text.language}"><head><meta charset="utf-8"></head>'
    return f"{head}<body>\n{body}\n</body></html>"


def _decoded(words: bytes | str) -> str:
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else words


class _BoundedSmtp(smtplib.SMTP):
    """smtplib's client under a deadline."""

    def __init__(self, deadline: Deadline, *, tls_at_once: ssl.SSLContext | None, **arguments: Any) -> None:
        """`tls_at_once` None: the connection begins unencrypted."""
        self._deadline = deadline
        self._tls_at_once = tls_at_once
        super().__init__(**arguments)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # noqa: ARG002 - smtplib's
        connection = open_connection(host, port, self._deadline)
        if self._tls_at_once is None:
            return connection
        return encrypt(connection, self._tls_at_once, host, self._deadline)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(ReceivedBytes(self.sock, self._deadline, bytes_max=ANSWER_BYTES_MAX))
        return super().getreply()

    def docmd(self, cmd: str, args: str = "") -> tuple[int, bytes]:
        answer = super().docmd(cmd, args)
        if self.sock is not None:  # after STARTTLS, smtplib does the handshake next
            self.sock.settimeout(self._deadline.next_wait_seconds())
        return answer

    def send(self, s: Any) -> None:
        if self.sock is not None:
            self.sock.settimeout(self._deadline.next_wait_seconds())
        super().send(s)


def _connection(url: Url, context: ssl.SSLContext, deadline: Deadline) -> smtplib.SMTP:
    ((host, port),) = url.hosts
    own = socket.gethostname()
    return _BoundedSmtp(
        deadline,
        tls_at_once=context if url.scheme == "smtps" else None,
        host=host.strip("[]"),
        port=port or _PORTS[url.scheme],
        # smtplib would ask the name service for this host's name.
        local_hostname=own if "." in own else "[127.0.0.1]",
    )
