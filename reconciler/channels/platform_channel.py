"""The shared part of the platforms. A notice is a POST of JSON to a secret address, and the answer reports success or
failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from reconciler.channels.http_post import HttpAnswer, HttpPost
from reconciler.channels.texts import NoticeText, NoticeTexts
from reconciler.contract.secret import Secret, SecretText
from reconciler.contract.secret_sources import signature_secrets
from reconciler.telling.ports.notices import Notice

JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8"}


class Answers(Protocol):
    """The check of one platform's answers."""

    def require_taken(self, answer: HttpAnswer, *, name: str, hidden: Sequence[Secret]) -> None:
        """Returns if the platform has accepted the notice. Raises ChannelAway or ChannelRefused if the platform has not
        accepted the notice.

        `name`: the notifier's name. `hidden`: the notifier's secrets, which the platform's words may repeat. If a URL
        is a secret, `hidden` has the whole URL.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMessage:
    """The parts of one POST."""

    notice: Notice
    text: NoticeText
    #: Key of the signature. None: the message is not signed.
    secret: str | None
    #: Time of this attempt to send.
    at_ms: int


class PlatformChannel(ABC):
    """One receiver on a platform (ports.NoticeChannel)."""

    answers: ClassVar[Answers]
    refusals: Sequence[str] = ()

    def __init__(
        self, *, name: str, url: SecretText, texts: NoticeTexts, post: HttpPost, secret: SecretText | None = None
    ) -> None:
        """`secret` None: the receiver or the platform has no signatures."""
        self._name = name
        self._url = url
        self._texts = texts
        self._post = post
        self._secret = secret

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """Sends the notice, as NoticeChannel.send describes."""
        secret = None if self._secret is None else signature_secrets(self._secret)[0]
        message = PlatformMessage(notice=notice, text=self._texts.of(notice), secret=secret, at_ms=at_ms)
        url, body = self._request(self._url.reveal(), message)
        answer = self._post.exchange(url, body, JSON_HEADERS)
        hidden = [self._url, *([] if self._secret is None else [self._secret])]
        self.answers.require_taken(answer, name=self._name, hidden=hidden)

    @abstractmethod
    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        """Makes address and body of one POST."""
