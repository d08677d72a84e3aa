"""What the platforms have in common: a POST of JSON to a secret address, and an answer that says whether it counts."""

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
    """How one platform answers."""

    def require_taken(self, answer: HttpAnswer, *, name: str, hidden: Sequence[Secret]) -> None:
        """Returns if the platform has taken the notice. Raises ChannelAway or ChannelRefused.

        `name`: the notifier's. `hidden`: its secrets, which the platform's words may repeat; URLs whole.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMessage:
    """What one POST is made of."""

    notice: Notice
    text: NoticeText
    #: What signs; None: nothing is signed.
    secret: str | None
    #: Time of this try.
    at_ms: int


class PlatformChannel(ABC):
    """One receiver on a platform. ports.NoticeChannel."""

    answers: ClassVar[Answers]
    refusals: Sequence[str] = ()

    def __init__(
        self, *, name: str, url: SecretText, texts: NoticeTexts, post: HttpPost, secret: SecretText | None = None
    ) -> None:
        """`secret`: None if the receiver asks for no signature, as where the platform has none."""
        self._name = name
        self._url = url
        self._texts = texts
        self._post = post
        self._secret = secret

    def send(self, notice: Notice, *, at_ms: int) -> None:
        """As NoticeChannel.send."""
        secret = None if self._secret is None else signature_secrets(self._secret)[0]
        message = PlatformMessage(notice=notice, text=self._texts.of(notice), secret=secret, at_ms=at_ms)
        url, body = self._request(self._url.reveal(), message)
        answer = self._post.exchange(url, body, JSON_HEADERS)
        hidden = [self._url, *([] if self._secret is None else [self._secret])]
        self.answers.require_taken(answer, name=self._name, hidden=hidden)

    @abstractmethod
    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        """The address of one POST, and its body."""
