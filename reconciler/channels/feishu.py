"""Feishu (飞书) and Lark: a custom bot of a group.

Source: open.feishu.cn, "Custom bot usage guide" (document/client-docs/bot-v3/add-custom-bot).
- Request: POST of JSON to https://open.feishu.cn/open-apis/bot/v2/hook/... The host of Lark is open.larksuite.com.
- Limits: 20 KB per message, 100 messages per minute and 5 per second.
- Signature: for a bot with a secret, the body has `timestamp` (seconds, at most an hour off) and `sign` =
  base64(HMAC-SHA256) of an EMPTY message. The key of the HMAC is timestamp + "\\n" + secret.
- Answer: `code` and `msg`. Bots of the first generation answered with `StatusCode`.

Numbers in answers, from the guide and "Server error codes" (document/server-docs/api-call-guide/generic-error-code):
- 19001: unknown token.
- 19021: wrong signature or time.
- 19022: address not allowed.
- 19024: keyword missing.
- 11232: limit of messages.
- 99991400: limit of calls.
- 9499: bad request. With status 400 and "too many request", it is the limit of calls (ccfos/nightingale, issue 1437).

The message is a card (JSON 1.0). Its texts are all `plain_text`, so no text is markup or a mention.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from reconciler.channels.answers import AnswerRule, CodedAnswers
from reconciler.channels.platform_channel import PlatformChannel, PlatformMessage
from reconciler.channels.texts import NoticeText

_LIMIT_SECONDS = 60.0
ANSWERS = CodedAnswers(
    platform="Feishu",
    code_names=("code", "StatusCode"),
    words_name="msg",
    rules=(
        AnswerRule(code=9499, words=("too many",), pause_seconds=_LIMIT_SECONDS),
        *(AnswerRule(code=code, pause_seconds=_LIMIT_SECONDS) for code in (11232, 99991400)),
        AnswerRule(
            code=19001,
            remedy="no bot has the token in url of notifier {name}: copy its webhook address again from the group",
        ),
        AnswerRule(
            code=19021,
            remedy="secret of notifier {name} is not that of the bot's signature verification, or the clock of this "
            "machine is more than an hour off",
        ),
        AnswerRule(code=19022, remedy="add the address of this machine to the bot's IP whitelist"),
        AnswerRule(
            code=19024,
            remedy="the bot wants a keyword that is not in the text: choose signature verification instead, and write "
            "its secret as secret of notifier {name}",
        ),
    ),
    remedy="compare url and secret of notifier {name} with the bot's page in Feishu",
)


class FeishuChannel(PlatformChannel):
    """One bot."""

    answers = ANSWERS

    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        signed: dict[str, Any] = {}
        if message.secret is not None:
            seconds = message.at_ms // 1000
            signed = {"timestamp": str(seconds), "sign": feishu_sign(message.secret, seconds)}
        colour = "grey" if message.notice.is_test else "green" if message.notice.is_over else "red"
        return url, json.dumps(signed | feishu_card(message.text, colour), ensure_ascii=False).encode()


def feishu_sign(secret: str, at_seconds: int) -> str:
    """Computes the value of `sign`."""
    return base64.b64encode(hmac.digest(f"{at_seconds}\n{secret}".encode(), b"", hashlib.sha256)).decode()


def feishu_card(text: NoticeText, colour: str) -> dict[str, Any]:
    """Makes the message. `colour`: the colour of the card's head."""
    elements: list[dict[str, Any]] = [{"tag": "div", "text": _plain("\n".join(text.lines))}]
    buttons = [{"tag": "button", "text": _plain(label), "url": link, "type": "default"} for label, link in text.links]
    elements += [{"tag": "action", "actions": buttons}] if buttons else []
    card = {
        "config": {"wide_screen_mode": True},
        "header": {"title": _plain(text.title), "template": colour},
        "elements": elements,
    }
    return {"msg_type": "interactive", "card": card}


def _plain(content: str) -> dict[str, str]:
    return {"tag": "plain_text", "content": content}
