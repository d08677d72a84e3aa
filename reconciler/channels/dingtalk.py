"""DingTalk (钉钉): a custom robot of a group.

Sources: open.dingtalk.com, "Custom robot access" (document/robots/custom-robot-access) and "Security settings of custom
robots" (document/robots/customize-robot-security-settings).
- Request: POST of JSON in UTF-8 to https://oapi.dingtalk.com/robot/send?access_token=...
- Signature: a robot with a secret needs `timestamp` (milliseconds, at most an hour off) and `sign` =
  urlencode(base64(HMAC-SHA256(secret, timestamp + "\\n" + secret))) in the query.
- Answer: status 200 with `errcode` and `errmsg`.
- Limit: 20 messages per minute. After more messages, the robot accepts none for ten minutes.

Numbers in answers:
- 310000: a security setting refuses the message. The words name the setting, in English or Chinese (keywords not in
  content, sign not match, invalid timestamp, ip not in whitelist).
- 300001 and 300005: "token is not exist" (timonwong/prometheus-webhook-dingtalk, issues 91 and 226).
- 130101: "send too fast, exceed 20 times per minute" (ccfos/nightingale, issue 369).
- 400013, 400101, 400102, 400106 and 410100 (too fast): listed on the first page.
- -1: "system busy", a global code.

The documented Markdown has headings, quotes, bold, italic, links, images and lists. Clients understand backslashes
before punctuation, and HTML's entities. The template of timonwong/prometheus-webhook-dingtalk escapes with both. A
mention needs the member `at`, which is sent empty.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from urllib.parse import quote_plus

from reconciler.channels.answers import AnswerRule, CodedAnswers
from reconciler.channels.platform_channel import PlatformChannel, PlatformMessage
from reconciler.channels.texts import NoticeText

#: The robot accepts no message for this time after more than 20 messages in a minute.
SILENCE_SECONDS = 600.0
_SPECIAL = re.compile(r"[\\`*_\[\]]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "@": "&#64;", "~": "&#126;"}

_NO_ROBOT = "create the robot again, or correct url of notifier {name}: its access_token is unknown"
ANSWERS = CodedAnswers(
    platform="DingTalk",
    code_names=("errcode",),
    words_name="errmsg",
    rules=(
        AnswerRule(code=-1, pause_seconds=60.0),
        AnswerRule(code=130101, pause_seconds=SILENCE_SECONDS),
        AnswerRule(code=410100, pause_seconds=SILENCE_SECONDS),
        AnswerRule(
            code=310000,
            words=("keyword", "关键词"),
            remedy="the robot wants a keyword that is not in the text: choose the signature instead in its security "
            "settings, and write its secret as secret of notifier {name}",
        ),
        AnswerRule(
            code=310000,
            words=("invalid timestamp", "过期"),
            remedy="the clock of this machine is more than an hour off: synchronise it",
        ),
        AnswerRule(
            code=310000,
            words=("whitelist", "白名单"),
            remedy="add the address of this machine to the robot's security settings",
        ),
        AnswerRule(
            code=310000,
            remedy="secret of notifier {name} is not that of the robot (SEC...), or the robot's security settings "
            "want something else than a signature",
        ),
        *(AnswerRule(code=code, remedy=_NO_ROBOT) for code in (300001, 300005, 400101, 400102, 400106)),
        AnswerRule(code=400013, remedy="the group of the robot was dissolved: give notifier {name} the url of another"),
    ),
    remedy="compare url and secret of notifier {name} with the robot's page in DingTalk",
)


class DingTalkChannel(PlatformChannel):
    """One robot. Its secret begins with SEC."""

    answers = ANSWERS

    def _request(self, url: str, message: PlatformMessage) -> tuple[str, bytes]:
        if message.secret is not None:
            sign = dingtalk_sign(message.secret, message.at_ms)
            url += f"{'&' if '?' in url else '?'}timestamp={message.at_ms}&sign={sign}"
        return url, dingtalk_body(message.text)


def dingtalk_sign(secret: str, at_ms: int) -> str:
    """Computes the value of `sign`, encoded for a URL."""
    digest = hmac.digest(secret.encode(), f"{at_ms}\n{secret}".encode(), hashlib.sha256)
    return quote_plus(base64.b64encode(digest))


def dingtalk_body(text: NoticeText) -> bytes:
    """Makes the message. Empty lines separate its lines, because clients join neighbouring lines."""
    lines = [f"### {escape_dingtalk(text.title)}", *map(escape_dingtalk, text.lines)]
    lines += [f"[{escape_dingtalk(label)}]({link})" for label, link in text.links]
    # clients show the title in the list of conversations, unformatted
    markdown = {"title": text.title, "text": "\n\n".join(lines)}
    at = {"atMobiles": [], "atUserIds": [], "isAtAll": False}
    return json.dumps({"msgtype": "markdown", "markdown": markdown, "at": at}, ensure_ascii=False).encode()


def escape_dingtalk(line: str) -> str:
    """Escapes one line, so that nothing in it is markup."""
    return "".join(
        _ENTITIES.get(character) or (f"\\{character}" if _SPECIAL.match(character) else character) for character in line
    )
