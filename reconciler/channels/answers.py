"""Answers of platforms that report success and failure as a number in a JSON body. A status of 200 alone proves
nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from reconciler.channels.basic_login import basic_login
from reconciler.channels.http_post import HttpAnswer
from reconciler.contract.secret import Secret, revealed
from reconciler.contract.urls import BLOTTED_CHARACTERS_MIN
from reconciler.contract.visible_text import excerpt, visible
from reconciler.errors import ChannelAway, ChannelRefused

#: Maximum number of characters of a platform's own words in an error.
WORDS_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """The meaning of one number for this sender."""

    code: int
    #: Words in lower case. The rule fits if the platform's words contain one of these. Empty: the rule fits any words.
    words: tuple[str, ...] = ()
    #: Remedy that a person must apply. {name} stands for the notifier's name.
    remedy: str = ""
    #: Seconds after which the problem passes by itself. None: it does not pass.
    pause_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedAnswers:
    """The form and the meaning of one platform's answers."""

    platform: str
    #: Names of the members that may have the number. The first existing member counts. `words_name` names the member
    #: with the words.
    code_names: Sequence[str]
    words_name: str
    #: Rules for numbers. The first rule that fits counts.
    rules: Sequence[AnswerRule]
    #: Remedy for numbers without a rule.
    remedy: str

    def require_taken(self, answer: HttpAnswer, *, name: str, hidden: Sequence[Secret]) -> None:
        """Checks the answer, as Answers.require_taken describes."""
        code, words = self._read(answer.body)
        if code == 0 and 200 <= answer.status < 300:
            return
        found = f"{self.platform} answered notifier {name} with status {answer.status}"
        if code is not None:
            found += f", code {code}"
        if shown := shown_words(words, hidden):
            found += f" ({shown})"
        for rule in self.rules:
            if rule.code == code and (not rule.words or any(word in words.lower() for word in rule.words)):
                remedy = rule.remedy.format(name=name)
                if rule.pause_seconds is not None:
                    raise ChannelAway(found, retry_after_seconds=rule.pause_seconds, remedy=remedy)
                raise ChannelRefused(found, remedy=remedy)
        if answer.may_pass:
            raise ChannelAway(found, retry_after_seconds=answer.retry_after_seconds)
        remedy = self.remedy.format(name=name)
        if code is None and 200 <= answer.status < 300:
            raise ChannelAway(
                f"{found}, but without a code", remedy=f"is its url the address that {self.platform} gave?"
            )
        raise ChannelRefused(found, remedy=remedy)

    def _read(self, body: bytes) -> tuple[int | None, str]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None, ""
        if not isinstance(document, dict):
            return None, ""
        codes = [document[name] for name in self.code_names if name in document]
        words = document.get(self.words_name)
        code = codes[0] if codes and type(codes[0]) is int else None
        return code, words if isinstance(words, str) else ""


def shown_words(words: str, hidden: Sequence[Secret]) -> str:
    """Prepares a platform's own words for an error. The result is one line of limited length, without the sender's
    secrets."""
    for secret in hidden:
        for part in secret_parts(revealed(secret)):
            words = words.replace(part, "***")
    return excerpt(" ".join(visible(words[: 4 * WORDS_CHARACTERS_MAX]).split()), WORDS_CHARACTERS_MAX)


def secret_parts(secret: str) -> Sequence[str]:
    """Returns a secret, and each part of a URL's path and query that could be a token. The list begins with the
    longest."""
    parts = {secret}
    if "://" in secret:
        url = urlsplit(secret)
        raw = [*url.path.split("/"), *(value for _, value in parse_qsl(url.query)), url.username, url.password]
        parts |= {part for one in raw if one for part in (one, unquote(one))}
        parts.add((basic_login(url.username, url.password) or "").removeprefix("Basic "))
    # Common words of addresses are no secrets, and removing them would damage the words of the answer.
    plain = {"robot", "send", "hook", "services", "webhook", "cgi-bin", "open-apis"}
    return sorted((p for p in parts if len(p) >= BLOTTED_CHARACTERS_MIN and p not in plain), key=len, reverse=True)
